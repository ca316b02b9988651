//! One test binary for all house rules; see the crate's docs for the list.

mod absence;
mod directions;
mod links;
mod sources;
mod tree;

/// Fails with every violation at once, so that one run shows the whole list.
#[track_caller]
fn assert_clean(violations: &[String]) {
    assert!(violations.is_empty(), "{} violation(s):\n  {}", violations.len(), violations.join("\n  "));
}
