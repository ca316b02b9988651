//! Invariants of absence: what must never reach a crate, however long the way.
//!
//! The graph comes from `cargo tree -p <crate>`, which resolves features for that crate alone. The resolve of
//! `cargo metadata` is the union over the workspace: there, a feature that one crate turns on would make the
//! rule fail for another. Procedural macros run in the compiler and do not count.

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::Command;

use cargo_metadata::MetadataCommand;

use crate::{assert_clean, tree};

/// A crate, what it must not reach, and why.
struct Absence {
    from: &'static str,
    banned: &'static [&'static str],
    why: &'static str,
}

const ABSENCES: &[Absence] = &[
    Absence {
        from: "gapless-core",
        banned: &["tokio", "sqlx", "rusqlite", "axum", "hyper", "reqwest", "rand", "getrandom"],
        why: "the domain is pure: I/O, time and randomness come in as arguments",
    },
    Absence {
        from: "gapless-engine",
        banned: &["sqlx", "rusqlite", "axum", "alloy-provider"],
        why: "the engine knows ports, no adapter",
    },
    Absence {
        from: "gapless-api",
        banned: &["sqlx", "rusqlite", "alloy-provider"],
        why: "the API talks to engine handles, never to a database or a node",
    },
];

/// `listing` is one package a line, name and version first, as `cargo tree --prefix none` prints it.
/// A crate that was split into parts (`sqlx-core`) is meant along with its parts.
fn violations(rule: &Absence, listing: &str) -> Vec<String> {
    let Absence { from, banned, why } = rule;
    let mut reached: Vec<(&str, &str)> = listing
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(package, rest)| (package, rest.split(' ').next().unwrap_or_default()))
        .filter(|(package, _)| banned.iter().any(|banned| is_same_family(package, banned)))
        .collect();
    reached.sort_unstable();
    reached.dedup();
    reached
        .into_iter()
        .map(|(package, version)| {
            let way = format!("cargo tree -p {from} --all-features -e normal -i {package}@{version}");
            format!("`{from}` reaches `{package}` ({why}); find the way with `{way}`")
        })
        .collect()
}

fn is_same_family(package: &str, banned: &str) -> bool {
    package == banned || package.strip_prefix(banned).is_some_and(|rest| rest == "-core")
}

fn normal_dependencies(root: &Path, package: &str) -> Result<String, Box<dyn Error>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--quiet", "--all-features", "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--format", "{p}", "--package", package])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn banned_crates_are_out_of_reach() -> Result<(), Box<dyn Error>> {
    let root = tree::root()?;
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let mut found = Vec::new();
    for rule in ABSENCES {
        if metadata.workspace_packages().iter().all(|package| package.name != rule.from) {
            continue;
        }
        let listing = normal_dependencies(&root, rule.from)?;
        assert!(listing.starts_with(rule.from), "unexpected answer of cargo tree:\n{listing}");
        found.extend(violations(rule, &listing));
    }
    assert_clean(&found);
    Ok(())
}

#[cfg(test)]
mod samples {
    use super::{Absence, violations};

    const RULE: Absence = Absence { from: "gapless-engine", banned: &["sqlx", "rand"], why: "because" };

    #[test]
    fn a_banned_crate_is_named_once_with_the_way_to_find_it() {
        let listing = "gapless-engine v0.1.0 (/x)\nserde v1.0.0\nsqlx v0.9.0\nsqlx v0.9.0 (*)\n";
        let found = violations(&RULE, listing);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("-e normal -i sqlx@0.9.0`"), "{found:?}");
    }

    #[test]
    fn the_core_of_a_split_crate_counts() {
        assert_eq!(violations(&RULE, "sqlx-core v0.9.0\n").len(), 1);
    }

    #[test]
    fn a_similar_name_does_not_count() {
        assert!(violations(&RULE, "rand_core v0.9.0\nsqlx-like v1.0.0\n").is_empty());
    }
}
