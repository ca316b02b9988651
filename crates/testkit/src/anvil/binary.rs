//! Where `anvil` is.
//!
//! npm's `.bin/anvil` is a JavaScript wrapper that starts the node as its child. Signals and kills must hit the
//! node itself, so the native program is taken from the platform package that npm puts beside the wrapper's.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

const WRAPPER: &str = "node_modules/.bin/anvil";

/// The program named in `GAPLESS_ANVIL`, or else one in a `.tools` folder above us, or else one in `PATH`.
pub(super) fn find() -> Result<PathBuf> {
    if let Some(named) = env::var_os("GAPLESS_ANVIL").map(PathBuf::from) {
        // A wrong name must not lead to some other node being tested unnoticed.
        return native(&named).ok_or_else(|| missing(&format!("GAPLESS_ANVIL={}", named.display())));
    }
    let starts = [env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from), env::current_dir().ok()];
    let above = starts.iter().flatten().flat_map(|start| start.ancestors());
    let path = env::var_os("PATH").unwrap_or_default();
    above
        .map(|folder| folder.join(".tools").join(WRAPPER))
        .chain(env::split_paths(&path).map(|folder| folder.join("anvil")))
        .find_map(|candidate| native(&candidate))
        .ok_or_else(|| missing("GAPLESS_ANVIL (unset), .tools of this folder and those above, and PATH"))
}

/// The native program for a candidate: itself, or the one that an npm wrapper would start.
fn native(candidate: &Path) -> Option<PathBuf> {
    // Follows the link in `.bin` to the wrapper's own package.
    let file = candidate.canonicalize().ok().filter(|file| file.is_file())?;
    if file.extension().is_none_or(|extension| extension != "mjs") {
        return Some(file);
    }
    let scope = file.parent()?.parent()?;
    let system = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    Some(scope.join(format!("anvil-{system}-{machine}/bin/anvil"))).filter(|native| native.is_file())
}

fn missing(looked_in: &str) -> Error {
    Error::MissingProgram {
        program: "anvil",
        looked_in: looked_in.to_owned(),
        hint: "install it with `npm install --prefix .tools @foundry-rs/anvil` at the root of the workspace, \
               or name the program in GAPLESS_ANVIL",
    }
}
