//! Where PostgreSQL's programs are: distributions keep the server's off the search path.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

const VERSIONS: &str = "/usr/lib/postgresql";

/// The folder with `postgres` and `initdb`: the one named in `GAPLESS_PG_BIN`, or else the newest installed.
pub(super) fn find() -> Result<PathBuf> {
    if let Some(named) = env::var_os("GAPLESS_PG_BIN").map(PathBuf::from) {
        // A wrong name must not lead to some other version being tested unnoticed.
        return if complete(&named) { Ok(named) } else { Err(missing(&named.display().to_string())) };
    }
    let mut installed: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| complete(bin))
        .collect();
    installed.sort();
    if let Some((_, newest)) = installed.pop() {
        return Ok(newest);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .find(|bin| complete(bin))
        .ok_or_else(|| missing(&format!("GAPLESS_PG_BIN (unset), {VERSIONS}/*/bin and PATH")))
}

/// Whether a module that the server can preload was installed with it.
pub(super) fn has_module(bin: &Path, name: &str) -> bool {
    bin.parent().is_some_and(|version| version.join(format!("lib/{name}.so")).is_file())
}

fn complete(bin: &Path) -> bool {
    ["postgres", "initdb"].iter().all(|program| bin.join(program).is_file())
}

fn missing(looked_in: &str) -> Error {
    Error::MissingProgram {
        program: "postgres",
        looked_in: looked_in.to_owned(),
        hint: "install a PostgreSQL server, or name the folder of its programs in GAPLESS_PG_BIN",
    }
}
