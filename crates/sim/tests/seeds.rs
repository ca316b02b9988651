//! Some seeds on every test run; `make sim` runs many more.

use std::collections::BTreeMap;
use std::process::Command;

use gapless_sim::{Options, run};

#[test]
fn a_hundred_seeds_keep_every_promise_through_every_kind_of_trouble() {
    let mut tally = BTreeMap::new();
    for seed in 0..100 {
        let outcome = run(seed, Options::default()).unwrap();
        if let Some(violation) = outcome.violation {
            panic!("seed {seed} breaks {violation}\n{}", outcome.trace.join("\n"));
        }
        for (what, times) in outcome.tally {
            *tally.entry(what).or_insert(0) += times;
        }
    }
    println!("{tally:?}");
    for what in ["crashes", "dropped", "fenced", "freezes", "ghosts", "lost answers", "reorgs", "takeovers"] {
        assert!(tally.get(what).is_some_and(|times| *times > 0), "{what} never happened: {tally:?}");
    }
}

/// In both, the head was replaced between comparing blocks and counting confirmations.
#[test]
fn seeds_596_and_808_confirm_nothing_that_a_new_head_has_orphaned() {
    for seed in [596, 808] {
        assert_eq!(run(seed, Options::default()).unwrap().violation, None, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_in_one_process() {
    let whole = Options { trace: true, ..Options::default() };
    for seed in [0, 1, 2, 3, 77, 4_711] {
        let (once, again) = (run(seed, whole).unwrap(), run(seed, whole).unwrap());
        let differs = once.trace.iter().zip(&again.trace).position(|(a, b)| a != b);
        assert_eq!(differs.map(|at| (&once.trace[at], &again.trace[at])), None, "seed {seed}");
        assert_eq!(once.trace.len(), again.trace.len(), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_in_two_processes() {
    let printed = |seed: &str| {
        let ran = Command::new(env!("CARGO_BIN_EXE_gapless-sim")).args(["--trace", "--seed", seed]).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        ran.stdout
    };
    for seed in ["5", "6"] {
        let (once, again) = (printed(seed), printed(seed));
        assert!(once.len() > 10_000, "a trace is more than a line");
        assert!(once == again, "seed {seed} told two stories");
    }
}
