//! A check that cannot fail proves nothing: with a promise broken on purpose, some seed must say which.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use gapless_sim::{Invariant, Options, Sabotage, run};

/// The first seed below `most` that fails, and what it says.
fn first_failure(sabotage: Sabotage, most: u64) -> Option<(u64, Invariant)> {
    (0..most).find_map(|seed| {
        let outcome = run(seed, Options { trace: false, sabotage: Some(sabotage) }).unwrap();
        let violation = outcome.violation?;
        println!("{sabotage:?}: seed {seed} breaks {violation}");
        Some((seed, violation.invariant))
    })
}

#[test]
fn without_the_fence_a_seed_breaks_fenced() {
    let found = first_failure(Sabotage::NoFence, 200);
    assert_eq!(found.map(|(_, invariant)| invariant), Some(Invariant::Fenced), "{found:?}");
}

#[test]
fn with_bytes_sent_before_they_are_stored_a_seed_breaks_durable_first() {
    let found = first_failure(Sabotage::SendBeforeStore, 200);
    assert_eq!(found.map(|(_, invariant)| invariant), Some(Invariant::DurableFirst), "{found:?}");
}
