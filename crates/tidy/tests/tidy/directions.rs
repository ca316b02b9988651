//! Dependencies point inward. Dev-dependencies are free: tests may wire any adapter to any port.

use std::error::Error;

use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::{assert_clean, tree};

/// What a crate may use of the workspace, in `[dependencies]` and `[build-dependencies]`.
enum May {
    Use(&'static [&'static str]),
    UseAll,
}
use May::{Use, UseAll};

/// Every crate of the workspace has a row here. Widening a row is an architectural decision: write an ADR.
const DIRECTIONS: &[(&str, May)] = &[
    ("gapless-core", Use(&[])),
    ("gapless-store", Use(&["gapless-core"])),
    ("gapless-evm", Use(&["gapless-core"])),
    ("gapless-events", Use(&["gapless-core"])),
    ("gapless-engine", Use(&["gapless-core"])),
    ("gapless-api", Use(&["gapless-engine", "gapless-core"])),
    ("gapless-client", Use(&["gapless-core"])),
    ("gapless-sim", Use(&["gapless-core", "gapless-engine", "gapless-store"])),
    ("gapless-testkit", Use(&["gapless-core"])),
    ("gapless-tidy", Use(&[])),
    ("gapless-benches", UseAll),
    ("gapless", UseAll),
];

/// A workspace crate and the workspace crates that it builds on.
struct Member {
    name: String,
    uses: Vec<String>,
}

fn violations(members: &[Member]) -> Vec<String> {
    let mut found = Vec::new();
    for Member { name, uses } in members {
        let Some((_, may)) = DIRECTIONS.iter().find(|(known, _)| known == name) else {
            found.push(format!(
                "crate `{name}` is unknown: add its row to DIRECTIONS in crates/tidy/tests/tidy/directions.rs"
            ));
            continue;
        };
        let Use(allowed) = may else { continue };
        for used in uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            found.push(format!("`{name}` must not depend on `{used}`; it may use {allowed:?}"));
        }
    }
    found
}

#[test]
fn dependencies_point_inward() -> Result<(), Box<dyn Error>> {
    let metadata = MetadataCommand::new().manifest_path(tree::root()?.join("Cargo.toml")).no_deps().exec()?;
    let packages = metadata.workspace_packages();
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let members: Vec<Member> = packages
        .iter()
        .map(|package| Member {
            name: package.name.to_string(),
            uses: package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind != DependencyKind::Development)
                .filter(|dependency| names.contains(&dependency.name.as_str()))
                .map(|dependency| dependency.name.clone())
                .collect(),
        })
        .collect();
    assert!(names.contains(&"gapless-tidy"), "no workspace crates found: {names:?}");
    assert_clean(&violations(&members));
    Ok(())
}

#[cfg(test)]
mod samples {
    use super::{Member, violations};

    fn found(name: &str, uses: &[&str]) -> Vec<String> {
        violations(&[Member {
            name: name.to_owned(),
            uses: uses.iter().map(|&used| used.to_owned()).collect(),
        }])
    }

    #[test]
    fn a_permitted_direction_passes() {
        assert!(found("gapless-api", &["gapless-core", "gapless-engine"]).is_empty());
        assert!(found("gapless", &["gapless-store", "gapless-evm", "gapless-api"]).is_empty());
    }

    #[test]
    fn an_outward_dependency_is_named() {
        let found = found("gapless-engine", &["gapless-core", "gapless-store"]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("`gapless-engine` must not depend on `gapless-store`"), "{found:?}");
    }

    #[test]
    fn an_unknown_crate_is_told_where_to_register() {
        let found = found("gapless-novelty", &[]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("crates/tidy/tests/tidy/directions.rs"), "{found:?}");
    }
}
