//! A node that dies in the middle of a cancel: between the stored word and the placeholder, and between the placeholder's
//! store and its sending. Whoever goes on lets it compete, and whichever hash is mined decides.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gapless_core::attempt::{AttemptKind, StoredAttempt};
use gapless_core::command::{CommandReceipt, NewCommand, Verb};
use gapless_core::event::EventKind;
use gapless_core::ids::{CommandId, Nonce, TxId};
use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::Store;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_engine::points::Point;
use gapless_store::clock::SystemClock;
use gapless_store::postgres::{PostgresOptions, PostgresStore};
use gapless_testkit::process::Signal;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::counter::effects;
use crate::support::{ADDRESS, PATIENCE, ended};
use crate::world::{Blocks, World};

const DIES: usize = 0;

/// What is mined in the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Winner {
    Payload,
    Placeholder,
}

fn submitter() -> SubmitterId {
    SubmitterId::evm(31337, ADDRESS.parse().unwrap())
}

async fn blocks(world: &World, many: u64) {
    world.anvil.rpc("anvil_mine", json!([format!("{many:#x}")])).await.unwrap();
}

/// The node with the lane has a transaction in the pool and dies at the point while it cancels it.
async fn dies_cancelling(
    world: &mut World,
    store: &PostgresStore,
    point: Point,
    also: Option<usize>,
) -> TxId {
    let armed_by = world.setups[DIES].folder.path().join("armed");
    let armed_path = armed_by.display().to_string();
    let crash = [("GAPLESS_CRASH_AT", point.name()), ("GAPLESS_ARMED_BY", armed_path.as_str())];
    world.serve(DIES, &crash).await;
    let first = world.post(DIES, "first").await;
    assert_eq!(ended(&world.setups[DIES], &first).await["state"], "CONFIRMED");
    // No block comes from now on but those that are ordered.
    world.anvil.rpc("evm_setIntervalMining", json!([0])).await.unwrap();
    let contested: TxId = TxId(world.post(DIES, "contested").await.parse().unwrap());
    eventually(PATIENCE, "the pool", || async {
        let pool = world.anvil.rpc("txpool_status", json!([])).await.unwrap();
        (pool["pending"] == "0x1").then_some(())
    })
    .await
    .unwrap();
    if let Some(other) = also {
        world.serve(other, &[]).await;
    }
    std::fs::write(&armed_by, "").unwrap();
    let command = NewCommand {
        id: CommandId(SystemClock.draw()),
        submitter: submitter(),
        tx_id: Some(contested),
        verb: Verb::Cancel,
        args: json!({}),
        actor: NodeText::new("test"),
    };
    assert_eq!(store.insert_commands(&[command]).await.unwrap(), [CommandReceipt::Inserted]);
    let status = world.gone(DIES).await;
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{status}");
    contested
}

async fn placeholders(store: &PostgresStore) -> Vec<StoredAttempt> {
    let stored = store.attempts(&submitter(), Nonce(1), Nonce(2)).await.unwrap();
    stored.into_iter().filter(|attempt| attempt.kind == AttemptKind::Placeholder).collect()
}

async fn survives(point: Point, survivor: usize, winner: Winner) {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    let options = PostgresOptions::new(&world.db.as_ref().unwrap().url);
    let store = PostgresStore::open(&options).await.unwrap();
    let also = (survivor != DIES).then_some(survivor);
    let contested = dies_cancelling(&mut world, &store, point, also).await;
    let tx = store.tx(contested).await.unwrap().unwrap();
    assert!(tx.facts.withdrawal().is_some() && tx.facts.state == TxState::Tracking, "the word is stored");
    assert_eq!(placeholders(&store).await.len(), usize::from(point == Point::AfterBidCommit));
    if winner == Winner::Payload {
        blocks(&world, 1).await;
    }
    if survivor == DIES {
        world.serve(survivor, &[]).await;
    }
    let later: TxId = TxId(world.post(survivor, "later").await.parse().unwrap());
    if winner == Winner::Placeholder {
        eventually(PATIENCE, "the placeholder at the node", || async {
            let hash = placeholders(&store).await.first()?.hash;
            let found = world.anvil.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap();
            (!found.is_null()).then_some(())
        })
        .await
        .unwrap();
    }
    eventually(PATIENCE, "both ends", || async {
        blocks(&world, 1).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let mut over = true;
        for id in [contested, later] {
            over &= store.tx(id).await.unwrap().unwrap().facts.state.is_terminal();
        }
        over.then_some(())
    })
    .await
    .unwrap();
    let (state, told, happened) = match winner {
        Winner::Payload => {
            let told = json!({"command": "cancel", "outcome": "lost", "code": "mined-before"});
            (TxState::Confirmed, told, 1)
        }
        Winner::Placeholder => (TxState::Cancelled, json!({"command": "cancel", "outcome": "done"}), 0),
    };
    let view = store.tx(contested).await.unwrap().unwrap();
    assert_eq!((view.facts.state, effects(&world.anvil, "contested").await), (state, happened));
    let events = store.tx_events(contested).await.unwrap();
    let commands: Vec<Value> = events
        .into_iter()
        .filter(|event| event.kind == EventKind::TxCommand)
        .map(|event| event.data)
        .collect();
    assert_eq!(commands, [told]);
    assert_eq!(store.tx(later).await.unwrap().unwrap().facts.state, TxState::Confirmed);
    assert_eq!(effects(&world.anvil, "later").await, 1);
    assert!(placeholders(&store).await.len() <= 1, "one placeholder was enough");
    let used = world.anvil.rpc("eth_getTransactionCount", json!([ADDRESS, "latest"])).await.unwrap();
    assert_eq!(used, "0x3", "an unbroken run, and nothing else");
    store.close().await;
}

/// One test per point, survivor and winner.
macro_rules! a_cancel_survives {
    ($($name:ident = $point:ident, $survivor:expr, $winner:ident;)+) => {
        $(#[tokio::test] async fn $name() {
            survives(Point::$point, $survivor, Winner::$winner).await;
        })+
    };
}

a_cancel_survives! {
    restarted_before_the_placeholder_it_still_competes = AfterCommand, DIES, Placeholder;
    restarted_before_the_placeholder_a_payload_that_won_is_confirmed = AfterCommand, DIES, Payload;
    taken_over_before_the_placeholder_it_still_competes = AfterCommand, 1, Placeholder;
    taken_over_before_the_placeholder_a_payload_that_won_is_confirmed = AfterCommand, 1, Payload;
    restarted_before_the_placeholder_is_sent_it_still_competes = AfterBidCommit, DIES, Placeholder;
    restarted_before_the_placeholder_is_sent_a_payload_that_won_is_confirmed = AfterBidCommit, DIES, Payload;
    taken_over_before_the_placeholder_is_sent_it_still_competes = AfterBidCommit, 1, Placeholder;
    taken_over_before_the_placeholder_is_sent_a_payload_that_won_is_confirmed = AfterBidCommit, 1, Payload;
}
