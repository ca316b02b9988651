//! Slots, attempts, reservations and commands: what a lane writes besides its cursor.

use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::{AllocationStatus, AllocationWrite, Exhibit, Mark, MarkOutcome};
use gapless_core::attempt::Refusal;
use gapless_core::change::{Draft, RefusalNote, ResendClaim, TxWrite, Verdict};
use gapless_core::command::{CommandEnd, CommandOutcome, CommandReceipt, NewCommand, Verb};
use gapless_core::condition::{Condition, Protect};
use gapless_core::cursor::Run;
use gapless_core::event::{EventKind, Told};
use gapless_core::fees::FeeWishes;
use gapless_core::ids::{CommandId, LockOwner, Nonce};
use gapless_core::intent::Payload;
use gapless_core::ports::policy::Diagnosis;
use gapless_core::record::{Amendment, Failure, MinedAs, Withdrawal};
use gapless_core::state::{SubState, TxEvent, TxState};
use gapless_core::text::NodeText;
use gapless_core::wait::WaitReason;
use gapless_testkit::fixtures::{self, Lane, TestClock, after, attempt};
use uuid::Uuid;

use crate::world::World;

async fn applied(w: &World, lane: &mut Lane, write: impl FnOnce(&Lane, &mut Draft)) {
    let writer = lane.clone();
    let verdict = lane.commit(w.store.as_ref(), |draft| write(&writer, draft)).await.unwrap();
    assert!(matches!(verdict, Verdict::Applied { .. }), "{verdict:?}");
}

async fn refused(w: &World, lane: &mut Lane, write: impl FnOnce(&Lane, &mut Draft)) {
    let before = w.store.load_lane(lane.grant.submitter()).await.unwrap();
    let writer = lane.clone();
    let verdict = lane.commit(w.store.as_ref(), |draft| write(&writer, draft)).await.unwrap();
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
    assert_eq!(w.store.load_lane(lane.grant.submitter()).await.unwrap(), before);
}

fn started(draft: &mut Draft, next: u64) {
    draft.cursor.run = Some(Run { next: Nonce(next), ..Run::starting_at(Nonce(0)) });
}

pub async fn a_transaction_walks_from_queued_to_confirmed(w: &World) {
    let submitter = w.submitter(1).await;
    let queue = w.accepted(&submitter, 2).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let bind = lane.change(|draft| lane.bind(draft, &queue));
    lane.follow(&bind, &w.store.commit(std::slice::from_ref(&bind)).await.unwrap()[0]);
    let mine = lane.change(|draft| {
        lane.mine(draft, &after(&bind), 7);
        let waits = Some(WaitReason::Confirming { count: 0, required: 20 });
        // The second one reverted and waits with a reason.
        let write = draft.writes.txs.pop().unwrap();
        let told = vec![Told::plain(EventKind::TxReceiptUpdated)];
        let before = &after(&bind)[1].1;
        let again = TxWrite::new(write.tx_id(), before, &[TxEvent::Mined], told, |facts| {
            *facts = write.facts().clone();
            facts.mined = facts.mined.map(|mined| gapless_core::record::Mined {
                succeeded: false,
                contract_address: Some(alloy_primitives::Address::repeat_byte(9)),
                mined_as: MinedAs::Replacement,
                ..mined
            });
            facts.wait = waits;
        });
        draft.writes.txs.push(again.unwrap());
    });
    lane.follow(&mine, &w.store.commit(std::slice::from_ref(&mine)).await.unwrap()[0]);
    for (tx_id, facts) in after(&mine) {
        assert_eq!(w.store.tx(tx_id).await.unwrap().unwrap().facts, facts, "every fact is read back");
    }
    let end = lane.change(|draft| {
        lane.confirm(draft, &after(&mine)[..1]);
        let (tx_id, facts) = after(&mine).remove(1);
        let told = vec![Told::plain(EventKind::TxFailed)];
        let failed = TxWrite::new(tx_id, &facts, &[TxEvent::RevertedDeep], told, |facts| {
            facts.wait = None;
            facts.failure =
                Some(Failure { code: NodeText::new("reverted"), reason: NodeText::new("no \u{1F4A5}") });
            facts.ended_at = Some(TestClock::START);
        });
        draft.writes.txs.push(failed.unwrap());
        if let Some(run) = &mut draft.cursor.run {
            (run.resolved, run.settled) = (Nonce(2), Nonce(2));
        }
    });
    lane.follow(&end, &w.store.commit(std::slice::from_ref(&end)).await.unwrap()[0]);
    for (tx_id, facts) in after(&end) {
        assert_eq!(w.store.tx(tx_id).await.unwrap().unwrap().facts, facts);
    }
    let snapshot = w.store.load_lane(&submitter).await.unwrap().unwrap();
    assert_eq!((snapshot.attempts, snapshot.txs), (vec![], vec![]), "nothing is left to watch");
}

pub async fn a_slot_is_unique(w: &World) {
    let submitter = w.submitter(1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let bytes = attempt(&submitter, Nonce(0), 0, None);
    applied(w, &mut lane, |_, draft| {
        started(draft, 1);
        draft.writes.attempts = vec![bytes.clone()];
    })
    .await;
    refused(w, &mut lane, |_, draft| {
        let other = gapless_core::attempt::NewAttempt { hash: B256::repeat_byte(1), ..bytes.clone() };
        draft.writes.attempts = vec![other];
    })
    .await;
    applied(w, &mut lane, |_, draft| draft.writes.attempts = vec![attempt(&submitter, Nonce(0), 1, None)])
        .await;
}

pub async fn a_hash_is_stored_once(w: &World) {
    let (one, two) = (w.submitter(1).await, w.submitter(2).await);
    let bytes = attempt(&one, Nonce(0), 0, None);
    let mut lane = w.lane("a", 1, &one).await;
    let write = |draft: &mut Draft| {
        started(draft, 1);
        draft.writes.attempts = vec![bytes.clone()];
    };
    applied(w, &mut lane, |_, draft| write(draft)).await;
    let mut other = w.lane("a", 1, &two).await;
    refused(w, &mut other, |_, draft| write(draft)).await;
}

pub async fn unbinding_deletes_the_bytes_and_queues_in_the_old_place(w: &World) {
    let submitter = w.submitter(1).await;
    let queue = w.accepted(&submitter, 3).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let bind = lane.change(|draft| lane.bind(draft, &queue[..2]));
    lane.follow(&bind, &w.store.commit(std::slice::from_ref(&bind)).await.unwrap()[0]);
    let (tx_id, facts) = after(&bind).remove(1);
    applied(w, &mut lane, |lane, draft| {
        draft.cursor.run = Some(Run { next: Nonce(1), ..lane.run() });
        draft.writes.unbound = vec![Nonce(1)];
        let told = vec![Told::plain(EventKind::TxRequeued)];
        let write = TxWrite::new(tx_id, &facts, &[TxEvent::Unbind], told, |facts| {
            facts.nonce = None;
            facts.tx_hash = None;
            facts.sub_state = None;
        });
        draft.writes.txs.push(write.unwrap());
    })
    .await;
    let order: Vec<_> =
        w.store.peek_queue(&submitter, 10).await.unwrap().iter().map(|tx| tx.tx_id()).collect();
    assert_eq!(order, [queue[1].tx_id(), queue[2].tx_id()], "it keeps its place in the order");
    assert_eq!(w.store.attempts(&submitter, Nonce(0), Nonce(10)).await.unwrap().len(), 1);
    refused(w, &mut lane, |lane, draft| {
        draft.cursor.run = Some(Run { next: Nonce(0), ..lane.run() });
        draft.writes.unbound = vec![Nonce(0), Nonce(5)];
    })
    .await;
}

pub async fn claims_and_refusals_are_kept_on_the_attempt(w: &World) {
    let submitter = w.submitter(1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    applied(w, &mut lane, |_, draft| {
        started(draft, 2);
        draft.writes.attempts =
            vec![attempt(&submitter, Nonce(0), 0, None), attempt(&submitter, Nonce(1), 0, None)];
    })
    .await;
    let later = TestClock::START.plus(Duration::from_secs(99));
    let refusal = Refusal { code: NodeText::new("underpriced"), text: NodeText::new("tip too low: 1 < 2") };
    applied(w, &mut lane, |_, draft| {
        draft.writes.resends = vec![
            ResendClaim { nonce: Nonce(0), n: 0, next_send_at: later, sends: true },
            ResendClaim { nonce: Nonce(1), n: 0, next_send_at: later, sends: false },
        ];
        draft.writes.refusals = vec![RefusalNote { nonce: Nonce(0), n: 0, refusal: refusal.clone() }];
    })
    .await;
    let attempts = w.store.attempts(&submitter, Nonce(0), Nonce(2)).await.unwrap();
    assert_eq!((attempts[0].resends, attempts[0].next_send_at), (1, later));
    assert_eq!((attempts[1].resends, attempts[1].next_send_at), (0, later), "put off, not sent");
    assert_eq!((attempts[0].refusal.as_ref(), attempts[1].refusal.as_ref()), (Some(&refusal), None));
    refused(w, &mut lane, |_, draft| {
        draft.writes.resends = vec![ResendClaim { nonce: Nonce(0), n: 7, next_send_at: later, sends: true }];
    })
    .await;
}

pub async fn a_nul_in_a_nodes_text_is_stripped_and_costs_nobody(w: &World) {
    let submitter = w.submitter(1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let refusal = Refusal { code: NodeText::new("un\0known"), text: NodeText::new("bad\0 bytes") };
    applied(w, &mut lane, |_, draft| {
        started(draft, 1);
        draft.writes.attempts = vec![attempt(&submitter, Nonce(0), 0, None)];
        draft.writes.told =
            vec![Told::with(EventKind::SubmitterHold, serde_json::json!({"said": "nul \u{0} here"}))];
    })
    .await;
    applied(w, &mut lane, |_, draft| {
        draft.writes.refusals = vec![RefusalNote { nonce: Nonce(0), n: 0, refusal }];
    })
    .await;
    let attempts = w.store.attempts(&submitter, Nonce(0), Nonce(1)).await.unwrap();
    let kept = attempts[0].refusal.clone().unwrap();
    assert_eq!((kept.code.as_str(), kept.text.as_str()), ("unknown", "bad bytes"));
    assert_eq!(w.stream().await.events.len(), 1);
}

pub async fn conditions_survive_and_show_the_gravest(w: &World) {
    let submitter = w.submitter(1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let exhibit = Exhibit { hash: None, block_number: 12, block_hash: B256::repeat_byte(2) };
    applied(w, &mut lane, |_, draft| {
        draft.cursor.conditions.paused = true;
        draft.cursor.conditions.out_of_funds = Some(Default::default());
        draft.cursor.conditions.protect = Some(Protect { nonce: Nonce(4), exhibit: Some(exhibit) });
    })
    .await;
    let info = w.store.submitter(&submitter).await.unwrap().unwrap();
    assert_eq!(info.cursor, lane.cursor);
    assert_eq!(info.cursor.cursor.conditions.gravest(), Condition::Protect);
    assert_eq!(info.lease.unwrap().token, lane.grant.token());
}

fn holder(n: u128) -> LockOwner {
    LockOwner(Uuid::from_u128(n))
}

fn reserve(nonce: u64, by: u128) -> AllocationWrite {
    let hold = Duration::from_secs(60);
    AllocationWrite::Reserve { nonce: Nonce(nonce), lock_owner: holder(by), hold, tx_id: None }
}

pub async fn a_reservation_is_held_marked_and_settled(w: &World) {
    let submitter = w.submitter(1).await;
    let tx = w.accepted(&submitter, 1).await.remove(0);
    let mut lane = w.lane("a", 1, &submitter).await;
    applied(w, &mut lane, |_, draft| {
        started(draft, 2);
        let hold = Duration::from_secs(60);
        let lock_owner = holder(1);
        draft.writes.allocations = vec![
            AllocationWrite::Reserve { nonce: Nonce(0), lock_owner, hold, tx_id: Some(tx.tx_id()) },
            reserve(1, 2),
        ];
        let told = vec![Told::plain(EventKind::TxAllocated)];
        let write =
            TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Reserve], told, |f| f.nonce = Some(Nonce(0)));
        draft.writes.txs.push(write.unwrap());
    })
    .await;
    let loaded = w.store.load_lane(&submitter).await.unwrap().unwrap();
    assert_eq!(loaded.txs.iter().map(|tx| tx.facts.state).collect::<Vec<_>>(), [TxState::Allocated]);
    assert_eq!(loaded.allocations[0].locked_until, Some(TestClock::START.plus(Duration::from_secs(60))));

    let used = Mark::Used(B256::repeat_byte(7));
    assert_eq!(w.store.mark(&submitter, Nonce(0), holder(1), used).await.unwrap(), MarkOutcome::Marked);
    assert_eq!(w.store.mark(&submitter, Nonce(0), holder(1), used).await.unwrap(), MarkOutcome::Marked);
    assert_eq!(
        w.store.mark(&submitter, Nonce(1), holder(2), Mark::Recyclable).await.unwrap(),
        MarkOutcome::Marked
    );
    let marked = w.store.allocations(&submitter, Nonce(0), Nonce(9)).await.unwrap();
    let seen: Vec<_> = marked.iter().map(|a| (a.status, a.used_hash)).collect();
    assert_eq!(
        seen,
        [(AllocationStatus::Used, Some(B256::repeat_byte(7))), (AllocationStatus::Recyclable, None)]
    );

    refused(w, &mut lane, |_, draft| draft.writes.allocations = vec![reserve(0, 3)]).await;
    applied(w, &mut lane, |_, draft| draft.writes.allocations = vec![reserve(1, 3)]).await;
    applied(w, &mut lane, |_, draft| {
        draft.writes.allocations = vec![AllocationWrite::Settle { nonce: Nonce(0) }];
    })
    .await;
    refused(w, &mut lane, |_, draft| {
        draft.writes.allocations = vec![AllocationWrite::Settle { nonce: Nonce(0) }];
    })
    .await;
    assert_eq!(w.store.allocations(&submitter, Nonce(0), Nonce(1)).await.unwrap(), []);
    assert_eq!(w.store.allocations(&submitter, Nonce(5), Nonce(1)).await.unwrap(), []);
}

pub async fn a_late_mark_by_a_former_holder_is_refused(w: &World) {
    let submitter = w.submitter(1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let mark = |by, what| w.store.mark(&submitter, Nonce(0), holder(by), what);
    let used = Mark::Used(B256::repeat_byte(7));
    assert_eq!(mark(1, used).await.unwrap(), MarkOutcome::NotReserved);
    applied(w, &mut lane, |_, draft| {
        started(draft, 1);
        draft.writes.allocations = vec![reserve(0, 1)];
    })
    .await;
    assert_eq!(mark(2, used).await.unwrap(), MarkOutcome::NotOwner);
    w.advance(Duration::from_secs(60)).await;
    assert_eq!(mark(1, used).await.unwrap(), MarkOutcome::Late);
    assert_eq!(mark(1, Mark::Recyclable).await.unwrap(), MarkOutcome::Late);
    let mut lane = w.lane("b", 2, &submitter).await;
    applied(w, &mut lane, |_, draft| {
        draft.writes.allocations = vec![AllocationWrite::Lapse { nonce: Nonce(0) }]
    })
    .await;
    applied(w, &mut lane, |_, draft| draft.writes.allocations = vec![reserve(0, 2)]).await;
    assert_eq!(mark(1, used).await.unwrap(), MarkOutcome::NotOwner, "the slot was given away");
    assert_eq!(mark(1, Mark::Recyclable).await.unwrap(), MarkOutcome::NotOwner);
    assert_eq!(mark(2, used).await.unwrap(), MarkOutcome::Marked);
    assert_eq!(mark(2, Mark::Recyclable).await.unwrap(), MarkOutcome::NotReserved, "its word was given");
}

pub async fn a_reservation_times_out_only_after_its_time(w: &World) {
    let submitter = w.submitter(1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    applied(w, &mut lane, |_, draft| {
        started(draft, 1);
        draft.writes.allocations = vec![reserve(0, 1)];
    })
    .await;
    let lapse =
        |draft: &mut Draft| draft.writes.allocations = vec![AllocationWrite::Lapse { nonce: Nonce(0) }];
    refused(w, &mut lane, |_, draft| lapse(draft)).await;
    w.advance(Duration::from_secs(60)).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    applied(w, &mut lane, |_, draft| lapse(draft)).await;
    let row = w.store.allocations(&submitter, Nonce(0), Nonce(1)).await.unwrap().remove(0);
    assert_eq!((row.status, row.lock_owner), (AllocationStatus::Recyclable, None));
}

pub async fn a_reservation_is_released_by_its_holder_alone(w: &World) {
    let submitter = w.submitter(1).await;
    let tx = w.accepted(&submitter, 1).await.remove(0);
    let mut lane = w.lane("a", 1, &submitter).await;
    applied(w, &mut lane, |_, draft| {
        started(draft, 2);
        let AllocationWrite::Reserve { nonce, lock_owner, hold, .. } = reserve(0, 1) else { unreachable!() };
        let tx_id = Some(tx.tx_id());
        draft.writes.allocations =
            vec![AllocationWrite::Reserve { nonce, lock_owner, hold, tx_id }, reserve(1, 2)];
        let told = vec![Told::plain(EventKind::TxAllocated)];
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Reserve], told, |facts| {
            facts.nonce = Some(Nonce(0));
        });
        draft.writes.txs = vec![write.unwrap()];
    })
    .await;
    assert!(w.store.peek_queue(&submitter, 10).await.unwrap().is_empty(), "it has left the queue");
    let loaded = w.store.load_lane(&submitter).await.unwrap().unwrap();
    assert_eq!(loaded.txs.iter().map(|tx| tx.facts.state).collect::<Vec<_>>(), [TxState::Allocated]);
    let release = |by| AllocationWrite::Release { nonce: Nonce(0), lock_owner: holder(by) };
    refused(w, &mut lane, |_, draft| draft.writes.allocations = vec![release(2)]).await;
    applied(w, &mut lane, |_, draft| {
        draft.writes.allocations = vec![release(1)];
        let facts = loaded.txs[0].facts.clone();
        let told = vec![Told::plain(EventKind::TxRequeued)];
        let write = TxWrite::new(tx.tx_id(), &facts, &[TxEvent::SignerFailed], told, |facts| {
            facts.nonce = None;
        });
        draft.writes.txs = vec![write.unwrap()];
    })
    .await;
    let row = w.store.allocations(&submitter, Nonce(0), Nonce(1)).await.unwrap().remove(0);
    let seen = (row.status, row.lock_owner, row.tx_id, row.locked_until);
    assert_eq!(seen, (AllocationStatus::Recyclable, Some(holder(1)), None, None));
    assert_eq!(w.store.peek_queue(&submitter, 10).await.unwrap().len(), 1, "it is back in the queue");
    refused(w, &mut lane, |_, draft| draft.writes.allocations = vec![release(1)]).await;

    // What a holder says used its slot can be given up, and only that.
    let recycle = |draft: &mut Draft| {
        draft.writes.allocations = vec![AllocationWrite::Recycle { nonce: Nonce(1) }];
    };
    refused(w, &mut lane, |_, draft| recycle(draft)).await;
    let used = Mark::Used(B256::repeat_byte(7));
    assert_eq!(w.store.mark(&submitter, Nonce(1), holder(2), used).await.unwrap(), MarkOutcome::Marked);
    applied(w, &mut lane, |_, draft| recycle(draft)).await;
    let row = w.store.allocations(&submitter, Nonce(1), Nonce(2)).await.unwrap().remove(0);
    assert_eq!((row.status, row.used_hash), (AllocationStatus::Recyclable, None));
}

pub async fn foreign_use_is_recorded_with_its_exhibit(w: &World) {
    let submitter = w.submitter(1).await;
    let mut lane = w.lane("a", 1, &submitter).await;
    let exhibit =
        Exhibit { hash: Some(B256::repeat_byte(5)), block_number: 77, block_hash: B256::repeat_byte(6) };
    let authorization = Exhibit { hash: None, ..exhibit };
    applied(w, &mut lane, |_, draft| {
        started(draft, 2);
        draft.writes.attempts = vec![attempt(&submitter, Nonce(1), 0, None)];
        draft.writes.allocations = vec![
            AllocationWrite::Foreign { nonce: Nonce(0), exhibit },
            AllocationWrite::Recycle { nonce: Nonce(1) },
        ];
    })
    .await;
    refused(w, &mut lane, |_, draft| {
        draft.writes.allocations = vec![AllocationWrite::Recycle { nonce: Nonce(1) }];
    })
    .await;
    applied(w, &mut lane, |_, draft| {
        draft.writes.allocations = vec![AllocationWrite::Foreign { nonce: Nonce(1), exhibit: authorization }];
    })
    .await;
    let rows = w.store.allocations(&submitter, Nonce(0), Nonce(9)).await.unwrap();
    assert_eq!(rows.iter().map(|a| a.exhibit).collect::<Vec<_>>(), [Some(exhibit), Some(authorization)]);
    // A reorg strikes the record out: the slot is free to be taken.
    applied(w, &mut lane, |_, draft| {
        draft.writes.allocations = vec![AllocationWrite::Recycle { nonce: Nonce(1) }];
    })
    .await;
    let rows = w.store.allocations(&submitter, Nonce(1), Nonce(9)).await.unwrap();
    assert_eq!((rows[0].status, rows[0].exhibit), (AllocationStatus::Recyclable, None));
}

pub async fn commands_wait_for_their_lane_and_end_once(w: &World) {
    let submitter = w.submitter(1).await;
    let tx = w.accepted(&submitter, 1).await.remove(0);
    let command = |n: u128, verb, submitter: &gapless_core::submitter::SubmitterId| NewCommand {
        id: CommandId(Uuid::from_u128(n)),
        submitter: submitter.clone(),
        tx_id: Some(tx.tx_id()),
        verb,
        args: serde_json::json!({"why": "test", "nul": "\u{0}"}),
        actor: NodeText::new("operator"),
    };
    let commands = [
        command(2, Verb::Pause, &submitter),
        command(1, Verb::Cancel, &submitter),
        command(1, Verb::Cancel, &submitter),
        command(3, Verb::Cancel, &fixtures::submitter(88)),
    ];
    use CommandReceipt as R;
    let receipts = w.store.insert_commands(&commands).await.unwrap();
    assert_eq!(receipts, [R::Inserted, R::Inserted, R::Duplicate, R::UnknownSubmitter]);
    assert_eq!(w.store.insert_commands(&commands[..1]).await.unwrap(), [R::Duplicate]);
    let waiting = w.store.take_commands(&submitter, 10).await.unwrap();
    assert_eq!(waiting.iter().map(|c| &c.command).collect::<Vec<_>>(), [&commands[0], &commands[1]]);
    assert_eq!(w.store.take_commands(&submitter, 1).await.unwrap().len(), 1);

    let mut lane = w.lane("a", 1, &submitter).await;
    assert_eq!(w.store.load_lane(&submitter).await.unwrap().unwrap().commands, waiting);
    let end = CommandEnd {
        id: commands[1].id,
        outcome: CommandOutcome::Refused,
        code: Some(NodeText::new("already-final")),
        result: Some(serde_json::json!({"cancelled": 1, "words": "\u{e4}"})),
    };
    assert_eq!(w.store.command_end(end.id).await.unwrap(), None, "it waits");
    let amendment = Amendment {
        payload: Some(Payload::default()),
        filled: Some(Payload::default()),
        fees: Some(FeeWishes::default()),
        withdrawal: Some(Withdrawal::Cancel),
        outbid: Some(2),
        reopened: true,
        diagnosis: Some(Diagnosis::GapBelow { nonce: Nonce(3) }),
        steps: vec![0, 2],
        stepped_at: Some(TestClock::START),
    };
    applied(w, &mut lane, |_, draft| {
        draft.writes.commands = vec![end.clone()];
        let told = vec![Told::plain(EventKind::TxCancelled)];
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Withdraw], told, |facts| {
            facts.ended_at = Some(TestClock::START);
            facts.sub_state = Some(SubState::Cancelling);
            *facts.amend() = amendment.clone();
        });
        draft.writes.txs.push(write.unwrap());
    })
    .await;
    assert_eq!(w.store.command_end(end.id).await.unwrap(), Some(end.clone()));
    let stored = w.store.tx(tx.tx_id()).await.unwrap().unwrap();
    assert_eq!(stored.facts.amended.as_deref(), Some(&amendment));
    assert_eq!((stored.payload(), stored.options().fees), (&Payload::default(), FeeWishes::default()));
    assert_eq!(w.store.take_commands(&submitter, 10).await.unwrap().len(), 1);
    assert!(w.store.peek_queue(&submitter, 10).await.unwrap().is_empty());
    refused(w, &mut lane, |_, draft| draft.writes.commands = vec![end.clone()]).await;
}
