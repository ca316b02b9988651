//! Cancel and replace at any moment while blocks come: the same must hold at the end, whoever won.

use std::time::Duration;

use gapless_core::command::{CommandEnd, CommandOutcome, Verb};
use gapless_core::plan::{Mode, NonceRules};
use gapless_core::record::MinedAs;
use gapless_core::state::TxState;
use gapless_engine::LaneSettings;
use serde_json::json;

use crate::contest::{Contest, Door, args_for, ask, commands_told, soon_settled};
use crate::support::ticking;

const REQUESTS: u64 = 24;

/// A small generator: the same numbers for the same seed, on every machine.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What was asked of a request, how the lane answered, how the request ended, and what it was told, fit together.
async fn fits(contest: &Contest, n: usize, verb: Verb, end: CommandEnd, seed: u64) {
    let id = contest.ids[n];
    let view = contest.leads.handle.tx(id).await.unwrap();
    let told = commands_told(&contest.leads, id).await;
    let happened = (view.state, view.mined_as);
    let outcome = match (end.outcome, verb) {
        (CommandOutcome::Refused, _) => {
            assert_eq!((end.code.unwrap().as_str(), told.len()), ("already-final", 0));
            assert_eq!(happened, (TxState::Confirmed, Some(MinedAs::Payload)));
            return;
        }
        (CommandOutcome::Done, Verb::Cancel) if view.state == TxState::Cancelled => "done",
        (CommandOutcome::Done, Verb::Replace) if view.mined_as == Some(MinedAs::Replacement) => "done",
        _ => "lost",
    };
    assert_eq!(told.len(), 1, "seed {seed}, request {n}: {told:?}, {view:#?}");
    assert_eq!((&told[0]["command"], &told[0]["outcome"]), (&json!(verb), &json!(outcome)), "seed {seed}");
    if outcome == "lost" {
        assert_eq!(happened, (TxState::Confirmed, Some(MinedAs::Payload)), "seed {seed}, request {n}");
    }
}

async fn any_moment(seed: u64, rules: NonceRules) {
    let settings = LaneSettings { rules, ..soon_settled(1) };
    let anvil = ticking(Duration::from_millis(300)).await;
    let contest = Contest::of(anvil, settings, REQUESTS, Door::Open).await;
    let mut draw = Draw(seed);
    let asked = contest.ids.iter().enumerate().map(|(n, id)| {
        let verb = if draw.below(2) == 0 { Verb::Cancel } else { Verb::Replace };
        // Around the time at which its turn comes, sooner or later.
        let turn = 300 * n as u64 / rules.max_in_flight.min(4);
        let delay = Duration::from_millis((turn + draw.below(1_200)).saturating_sub(400));
        let node = &contest.other;
        async move {
            tokio::time::sleep(delay).await;
            (n, verb, ask(node, Some(*id), verb, args_for(verb, n as u64)).await)
        }
    });
    let ends = futures::future::join_all(asked).await;
    contest.to_the_end().await;
    for (n, verb, end) in ends {
        fits(&contest, n, verb, end, seed).await;
    }
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time() {
    let rules = NonceRules { mode: Mode::Strict, max_in_flight: 1, ..LaneSettings::default().rules };
    any_moment(7, rules).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_in_flight() {
    let rules = NonceRules { mode: Mode::Pipelined, max_in_flight: 6, ..LaneSettings::default().rules };
    any_moment(11, rules).await;
}
