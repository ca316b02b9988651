//! Where `geth` is.

use std::{env, path::PathBuf};

use crate::{Error, Result};

/// The program named in `GAPLESS_GETH`, or else the one in a `.tools` folder above us. Never one in `PATH`: what its
/// answers prove holds for the version that the tests were written for.
pub(super) fn find() -> Result<PathBuf> {
    if let Some(named) = env::var_os("GAPLESS_GETH").map(PathBuf::from) {
        let found = named.canonicalize().ok().filter(|file| file.is_file());
        return found.ok_or_else(|| missing(&format!("GAPLESS_GETH={}", named.display())));
    }
    let starts = [env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from), env::current_dir().ok()];
    let mut above = starts.iter().flatten().flat_map(|start| start.ancestors());
    above
        .find_map(|folder| Some(folder.join(".tools/bin/geth")).filter(|file| file.is_file()))
        .ok_or_else(|| missing("GAPLESS_GETH (unset) and .tools of this folder and those above"))
}

fn missing(looked_in: &str) -> Error {
    Error::MissingProgram {
        program: "geth",
        looked_in: looked_in.to_owned(),
        hint: "`make test-geth` builds it where Go is installed; or name the program in GAPLESS_GETH",
    }
}
