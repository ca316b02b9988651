//! Nothing of the port goes untested: its methods and outcomes are read from the source that declares them,
//! and every one of them must have been seen while the suite ran on PostgreSQL.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::postgres::provoke;
use crate::recording::{Recording, Seen};
use crate::world::World;

const PORT: &str = include_str!("../../../core/src/ports/store.rs");
const OUTCOMES: &[(&str, &str)] = &[
    (PORT, "StoreError"),
    (PORT, "Acquired"),
    (PORT, "Renewal"),
    (PORT, "Parting"),
    (PORT, "Registered"),
    (include_str!("../../../core/src/record.rs"), "Accepted"),
    (include_str!("../../../core/src/change.rs"), "Verdict"),
    (include_str!("../../../core/src/command.rs"), "CommandReceipt"),
    (include_str!("../../../core/src/allocation.rs"), "MarkOutcome"),
    (include_str!("../../../core/src/lease.rs"), "AcquireKind"),
];

/// The names between `async fn ` and `(` inside the trait.
fn methods(source: &str) -> BTreeSet<String> {
    let body = source.split("pub trait Store").nth(1).unwrap();
    body.split("async fn ").skip(1).map(|rest| rest.split('(').next().unwrap().to_owned()).collect()
}

/// The variants of an enum: names at its first level of indentation.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("pub enum {name} {{\n")).nth(1).unwrap().split("\n}").next().unwrap();
    let names = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    names.map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect()).collect()
}

#[test]
fn the_declarations_are_really_found() {
    assert!(methods(PORT).len() > 20 && methods(PORT).contains("raise_token"), "{:?}", methods(PORT));
    let errors = variants(PORT, "StoreError");
    assert!(
        errors.contains("TooMany") && errors.contains("OutcomeUnknown") && errors.len() == 5,
        "{errors:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_and_outcome_of_the_port_is_exercised() {
    let seen = Seen::default();
    let record = seen.clone();
    let wrap = |world: World| World {
        store: Arc::new(Recording { inner: world.store.clone(), seen: record.clone() }),
        ..world
    };
    crate::run_suite_on_postgres(wrap).await;
    provoke::all(&seen).await;
    let mut expected = methods(PORT);
    for (source, name) in OUTCOMES {
        expected.extend(variants(source, name).into_iter().map(|variant| format!("{name}::{variant}")));
    }
    let seen = seen.all();
    let missing: Vec<_> = expected.difference(&seen).collect();
    assert!(missing.is_empty(), "never exercised: {missing:?}");
}
