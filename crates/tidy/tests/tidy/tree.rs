//! The files of the repository. What is built, downloaded or hidden is not part of it.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that hold no source of ours. Hidden ones are skipped by name.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// The workspace root, two levels above this crate. Asked at run time: checkouts that share a target
/// directory share this binary, and what was true when it was built may be the other checkout.
pub(crate) fn root() -> io::Result<PathBuf> {
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..").canonicalize()
}

/// All files with this extension below `dir`, sorted; none when `dir` does not exist.
pub(crate) fn files(dir: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(dir, extension, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                collect(&path, extension, found)?;
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(())
}

/// The path as a reader of the repository would write it.
pub(crate) fn shown(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[test]
fn built_downloaded_and_hidden_directories_are_not_the_tree() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    for place in ["src", "target/debug", ".tools", "console/node_modules/x"] {
        fs::create_dir_all(dir.path().join(place))?;
        fs::write(dir.path().join(place).join("a.rs"), "")?;
    }
    fs::write(dir.path().join("src/a.md"), "")?;
    assert_eq!(files(dir.path(), "rs")?, [dir.path().join("src/a.rs")]);
    assert!(files(&dir.path().join("absent"), "rs")?.is_empty());
    Ok(())
}
