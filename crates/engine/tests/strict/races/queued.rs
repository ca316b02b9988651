//! Cancel and replace of what has no nonce yet: done at once, without a race.

use std::time::Duration;

use gapless_core::command::{CommandOutcome, Verb};
use gapless_core::record::MinedAs;
use gapless_core::state::{SubState, TxState};
use serde_json::json;

use crate::contest::{Contest, Door, commands_told, set_balance, soon_settled};
use crate::support::{count, pooled, unmined};

const RICH: u128 = 1_000_000_000_000_000_000_000;

/// Cancels or replaces request number `n`, which is queued and stays without a nonce until the door opens.
async fn changed(contest: &Contest, n: usize, verb: Verb) {
    let end = contest.withdraw(n, verb).await;
    assert_eq!((end.outcome, end.code), (CommandOutcome::Done, None));
    let view = contest.other.handle.tx(contest.ids[n]).await.unwrap();
    let state = if verb == Verb::Cancel { TxState::Cancelled } else { TxState::Queued };
    assert_eq!((view.state, view.tx_hash), (state, None));
    let told = json!({"command": verb, "outcome": "done"});
    assert_eq!(commands_told(&contest.leads, contest.ids[n]).await, [told]);
}

/// All went well behind and before it; a replaced one did what it was replaced by.
async fn rest(contest: Contest, n: usize, verb: Verb) {
    contest.to_the_end().await;
    let many = contest.ids.len();
    for (i, id) in contest.ids.iter().enumerate().filter(|(i, _)| (*i, verb) != (n, Verb::Cancel)) {
        let mined_as = if i == n { MinedAs::Replacement } else { MinedAs::Payload };
        assert_eq!(contest.leads.confirmed(*id).await.mined_as, Some(mined_as));
    }
    let used = many - usize::from(verb == Verb::Cancel);
    assert_eq!(count(&contest.anvil).await, used as u64, "it never took a nonce");
    contest.kept().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_middle_of_the_queue() {
    for verb in [Verb::Cancel, Verb::Replace] {
        let contest = Contest::of(unmined().await, soon_settled(1), 4, Door::Open).await;
        pooled(&contest.anvil, 1).await;
        changed(&contest, 2, verb).await;
        rest(contest, 2, verb).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_head_of_the_queue() {
    for verb in [Verb::Cancel, Verb::Replace] {
        let contest = Contest::of(unmined().await, soon_settled(1), 3, Door::Open).await;
        pooled(&contest.anvil, 1).await;
        changed(&contest, 1, verb).await;
        rest(contest, 1, verb).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_head_and_waiting_for_funds() {
    for verb in [Verb::Cancel, Verb::Replace] {
        let contest = Contest::of(unmined().await, soon_settled(1), 2, Door::Poor).await;
        let waits = |view: &gapless_engine::view::TxView| view.sub_state == Some(SubState::WaitingFunds);
        contest.leads.until(contest.ids[0], "the want of funds", waits).await;
        changed(&contest, 0, verb).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(contest.leads.handle.tx(contest.ids[1]).await.unwrap().state, TxState::Queued);
        set_balance(&contest.anvil, RICH).await;
        rest(contest, 0, verb).await;
    }
}
