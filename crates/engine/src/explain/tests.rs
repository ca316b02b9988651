//! Twelve situations, each with its reason, and what is seen through.

use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256};
use gapless_core::attempt::{AttemptKind, NewAttempt, Refusal, Route};
use gapless_core::condition::{HoldCause, Protect};
use gapless_core::cursor::Run;
use gapless_core::fees::{Fees, Gas, Wei};
use gapless_core::ids::{Order, RequestId, Scope, TxId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::ports::policy::Diagnosis;
use gapless_core::record::{Failure, MinedAs, NewTx, TxFacts, Withdrawal};
use gapless_core::state::SubState;
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use uuid::Uuid;

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const GWEI: u128 = 1_000_000_000;

fn words(text: &str) -> NodeText {
    NodeText::new(text)
}

fn later(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

/// A stage with a bound transaction at nonce 7, the lowest open one, that nothing is wrong with.
struct Stage {
    tx: TxRecord,
    cursor: Cursor,
    attempts: Vec<StoredAttempt>,
    foreign: Option<Exhibit>,
    first: Option<TxRecord>,
    sight: Sight,
    settings: LaneSettings,
    owner: Option<&'static str>,
}

fn record(n: u128) -> TxRecord {
    let submitter = SubmitterId::evm(31_337, Address::repeat_byte(1));
    let payload = Payload { to: Some(Address::repeat_byte(2)), ..Payload::default() };
    let request = NewTx::new(
        TxId(Uuid::from_u128(n)),
        Scope::from(&submitter),
        submitter,
        RequestId::parse("order").unwrap(),
        Intent { payload, ..Intent::default() },
        None,
    );
    TxRecord {
        request: request.unwrap(),
        order: Order(1),
        created_at: NOW.minus(Duration::from_secs(90)),
        facts: TxFacts::accepted(),
        updated_at: NOW.minus(Duration::from_secs(30)),
        fencing_token: None,
    }
}

fn attempt(n: u32, total: u128) -> StoredAttempt {
    let attempt = NewAttempt {
        nonce: Nonce(7),
        n,
        tx_id: Some(TxId(Uuid::from_u128(1))),
        kind: AttemptKind::Payload,
        route: Route::Public,
        hash: B256::repeat_byte(0xa0 + u8::try_from(n).unwrap()),
        raw: Bytes::new(),
        fees: Fees::Dynamic { max_fee_per_gas: GasPrice(total), max_priority_fee_per_gas: GasPrice(GWEI) },
        next_send_at: later(30),
    };
    StoredAttempt::read_from_store(attempt, NOW.minus(Duration::from_secs(30)), 0, None)
}

fn endpoint(healthy: bool, detail: &str) -> EndpointStatus {
    EndpointStatus { name: "http://one".into(), healthy, detail: detail.into() }
}

fn mined(block_number: u64) -> Mined {
    Mined {
        hash: B256::repeat_byte(0xa0),
        mined_as: MinedAs::Payload,
        block_number,
        block_hash: B256::repeat_byte(0xb0),
        succeeded: true,
        gas_used: Gas(21_000),
        effective_gas_price: GasPrice(GWEI),
        contract_address: None,
        at: NOW,
    }
}

impl Stage {
    fn bound() -> Self {
        let mut tx = record(1);
        tx.facts.state = TxState::Tracking;
        tx.facts.sub_state = Some(SubState::InPool);
        tx.facts.nonce = Some(Nonce(7));
        tx.facts.tx_hash = Some(B256::repeat_byte(0xa0));
        tx.facts.bound_at = Some(NOW.minus(Duration::from_secs(30)));
        let run = Run { consumed: Nonce(7), next: Nonce(8), ..Run::starting_at(Nonce(7)) };
        Self {
            tx,
            cursor: Cursor { run: Some(run), ..Cursor::default() },
            attempts: vec![attempt(0, 3 * GWEI)],
            foreign: None,
            first: None,
            sight: Sight {
                head: Some(100),
                base_fee: Some(GasPrice(GWEI)),
                at_mined: None,
                endpoints: vec![endpoint(true, "head 100")],
            },
            settings: LaneSettings::default(),
            owner: Some("node-a"),
        }
    }

    /// The same submitter's next one: the slot is busy with the first.
    fn queued() -> Self {
        let (mut stage, tx) = (Self::bound(), record(2));
        stage.first = Some(tx.clone());
        Self { tx, attempts: Vec::new(), ..stage }
    }

    fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            tx: &self.tx,
            cursor: &self.cursor,
            attempts: &self.attempts,
            foreign: self.foreign.as_ref(),
            first: self.first.as_ref(),
            sight: &self.sight,
            settings: &self.settings,
            owner: self.owner,
            now: NOW,
        }
    }

    /// Fails unless the reason and the words are these.
    fn says(&self, reason: &str, summary: &str, next: &str) -> Explanation {
        let told = explain(&self.scene());
        assert_eq!(told.reason, reason, "{told:#?}");
        assert!(told.summary.contains(summary), "{summary:?} is not in {told:#?}");
        assert!(told.next.action.contains(next), "{next:?} is not in {told:#?}");
        assert!(told.summary.ends_with('.') || told.summary.contains(':'), "{}", told.summary);
        told
    }

    fn waits(&self) -> Option<WaitReason> {
        reason::wait_reason(&self.scene())
    }
}

fn fact<'a>(told: &'a Explanation, what: &str) -> &'a Value {
    let found = told.evidence.iter().find(|evidence| evidence.what == what);
    &found.unwrap_or_else(|| panic!("no {what:?} in {told:#?}")).value
}

#[test]
fn slot_busy() {
    let told = Stage::queued().says("SlotBusy", "nonce 7", "once nonce 7 is mined");
    assert_eq!((fact(&told, "busy nonce"), fact(&told, "open nonces")), (&7.into(), &1.into()));
    let confirmed = Stage::queued().with(|s| {
        s.settings.rules.release_at = gapless_core::plan::ReleaseAt::Confirmed;
        s.cursor.run = Some(Run { consumed: Nonce(8), next: Nonce(8), ..Run::starting_at(Nonce(7)) });
    });
    confirmed.says("SlotBusy", "nonce 7", "once nonce 7 is confirmed");
    let pipelined = Stage::bound().with(|s| {
        s.cursor.run = Some(Run { consumed: Nonce(5), next: Nonce(8), ..Run::starting_at(Nonce(5)) });
    });
    pipelined.says("SlotBusy", "nonce 5 must be mined before it", "Sends the same bytes again");
}

#[test]
fn slot_busy_behind_the_first_of_the_queue() {
    let free = Some(Run::starting_at(Nonce(8)));
    let first = Stage::queued().with(|s| s.cursor.run = free);
    first.says("Queued", "first in the queue", "takes the next nonce");
    let behind = Stage::queued().with(|s| (s.cursor.run, s.first) = (free, Some(record(9))));
    let told = behind.says("SlotBusy", "nonce 8", "once nonce 8 is mined");
    assert_eq!(fact(&told, "first in the queue"), &Value::from(Uuid::from_u128(9).to_string()));
}

#[test]
fn below_base_fee() {
    let surge = |s: &mut Stage| s.sight.base_fee = Some(GasPrice(10 * GWEI + 5));
    let off = Stage::bound().with(surge);
    let told = off.says("BelowBaseFee", "at most 3 gwei", "Waits for the base fee to fall");
    assert!(told.summary.contains("10.000000005 gwei"), "{}", told.summary);
    assert_eq!(told.next.at, Some(later(30)));
    assert_eq!(
        off.waits(),
        Some(WaitReason::BelowBaseFee { offered: GasPrice(3 * GWEI), base_fee: GasPrice(10 * GWEI + 5) })
    );
    let on = Stage::bound().with(surge).with(|s| s.settings.bump.enabled = true);
    let told = on.says("BelowBaseFee", "3 gwei", "dearer attempt");
    assert_eq!(told.next.at, Some(later(30)), "a minute after the attempt that is half a minute old");
    let spent = on.with(|s| s.settings.bump.max_attempts = 1);
    spent.says("BelowBaseFee", "3 gwei", "Sends the same bytes again");
    // The price counts that is the dearest of the slot.
    let bumped = Stage::bound().with(surge).with(|s| s.attempts.push(attempt(1, 11 * GWEI)));
    assert_eq!(bumped.waits(), None);
}

#[test]
fn not_in_pool() {
    let refused = |s: &mut Stage| {
        s.tx.facts.wait = Some(WaitReason::NotInPool { last_error: Some(words("txpool is full")) });
    };
    let told = Stage::bound().with(refused).says("NotInPool", "txpool is full", "Sends the same bytes again");
    assert_eq!(told.next.at, Some(later(30)));
    let lost = Stage::bound().with(|s| {
        s.tx.facts.amend().diagnosis = Some(Diagnosis::Lost);
    });
    lost.says("NotInPool", "No endpoint", "Sends");
    // Somebody looked since, and it is there.
    let found = Stage::bound().with(refused).with(|s| {
        s.tx.facts.amend().diagnosis = Some(Diagnosis::InPool);
    });
    found.says("InPool", "nonce 7", "if no block took them");
}

#[test]
fn gap_below() {
    let gap = Stage::bound().with(|s| {
        s.tx.facts.amend().diagnosis = Some(Diagnosis::GapBelow { nonce: Nonce(6) });
    });
    let told = gap.says("GapBelow", "Nonce 6", "Sends");
    assert_eq!(fact(&told, "missing nonce"), &Value::from(6));
    let stored = |nonce| {
        Stage::bound().with(|s| s.tx.facts.wait = Some(WaitReason::GapBelow { nonce: Nonce(nonce) })).waits()
    };
    assert_eq!(stored(7), Some(WaitReason::GapBelow { nonce: Nonce(7) }));
    assert_eq!(stored(6), None, "that nonce has been used since");
}

#[test]
fn out_of_funds() {
    let (balance, needed) = (Wei(U256::from(5)), Wei(U256::from(21_000)));
    let waiting = Stage::queued().with(|s| s.cursor.conditions.out_of_funds = Some((balance, needed)));
    let told = waiting.says("OutOfFunds", "holds 5 wei, and 21000 wei are needed", "send it coin");
    assert_eq!(fact(&told, "needed in wei"), &Value::from("21000"));
    let stored = Stage::queued().with(|s| s.tx.facts.wait = Some(WaitReason::OutOfFunds { balance, needed }));
    stored.says("OutOfFunds", "5 wei", "by itself");
    let refused = Refusal { code: words("insufficient-funds"), text: words("insufficient funds for gas") };
    let sent = Stage::bound().with(|s| {
        s.cursor.conditions.out_of_funds = Some((balance, needed));
        let again: NewAttempt = (*s.attempts[0]).clone();
        s.attempts = vec![StoredAttempt::read_from_store(again, NOW, 2, Some(refused))];
    });
    let told = sent.says("OutOfFunds", "5 wei", "by itself");
    assert_eq!(fact(&told, "last refusal"), "insufficient-funds: insufficient funds for gas");
}

#[test]
fn held() {
    let hold = |cause, next: &str| {
        let stage = Stage::queued().with(|s| {
            s.cursor.conditions.holds.insert(cause, words("the chain counts 3"));
        });
        let told = stage.says("Held", "the chain counts 3", next);
        assert!(fact(&told, "hold").as_str().unwrap().contains("the chain counts 3"));
    };
    hold(HoldCause::Counts, "Compares with the chain again");
    hold(HoldCause::Epoch, "gapless recover");
    hold(HoldCause::Genesis, "gapless recover");
    hold(HoldCause::Unproven, "unprotect");
    hold(HoldCause::Refusals, "Tries again");
    // A hold that healed while the slot was busy was never taken back in the row; a signer's words still count.
    let said = |sub_state| {
        Stage::queued().with(|s| {
            s.tx.facts.sub_state = Some(sub_state);
            s.tx.facts.wait = Some(WaitReason::Held { reason: words("the signer is locked") });
        })
    };
    said(SubState::Held).says("SlotBusy", "nonce 7", "once");
    said(SubState::Held).with(|s| s.cursor.run = None).says("Held", "the signer is locked", "Tries again");
    said(SubState::Preparing).says("Held", "the signer is locked", "Tries again");
    // Its nonce went to somebody else, acknowledged, and it waits until that is certain.
    let displaced = Stage::bound().with(|s| {
        s.cursor.run = Some(Run { consumed: Nonce(8), next: Nonce(8), ..Run::starting_at(Nonce(7)) });
        s.foreign = Some(Exhibit { hash: None, block_number: 90, block_hash: B256::ZERO });
    });
    displaced.says("Held", "block 90", "another nonce");
}

#[test]
fn protected() {
    let foreign = |nonce| {
        move |s: &mut Stage| {
            let exhibit =
                Exhibit { hash: Some(B256::repeat_byte(9)), block_number: 90, block_hash: B256::ZERO };
            s.cursor.conditions.protect = Some(Protect { nonce: Nonce(nonce), exhibit: Some(exhibit) });
        }
    };
    let told = Stage::queued().with(foreign(7)).says("Protected", "nonce 7", "acknowledgedNonce 7");
    assert_eq!(fact(&told, "foreign transaction"), &Value::from(B256::repeat_byte(9).to_string()));
    assert_eq!(fact(&told, "foreign block"), &Value::from(90));
    Stage::bound().with(foreign(7)).says("Protected", "nonce 7", "acknowledgedNonce 7");
    Stage::bound().with(foreign(6)).says("InPool", "nonce 7", "Sends");
    let over = Stage::queued().with(|s| {
        s.tx.facts.wait = Some(WaitReason::Protected { nonce: Nonce(6), hash: None });
    });
    over.says("SlotBusy", "nonce 7", "once");
}

#[test]
fn paused() {
    let stage = Stage::queued().with(|s| s.cursor.conditions.paused = true);
    let told = stage.says("Paused", "operator", "resume");
    assert_eq!(fact(&told, "condition of the submitter"), "paused");
    let resumed = Stage::queued().with(|s| s.tx.facts.wait = Some(WaitReason::Paused));
    resumed.says("SlotBusy", "nonce 7", "once");
    Stage::bound().with(|s| s.cursor.conditions.paused = true).says("InPool", "nonce 7", "Sends");
}

#[test]
fn node_down() {
    let dark = |s: &mut Stage| s.sight.endpoints = vec![endpoint(false, "connection refused")];
    let told = Stage::queued().with(dark).says("NodeDown", "connection refused", "Asks the endpoints again");
    assert_eq!(fact(&told, "endpoint"), "http://one: connection refused");
    Stage::bound().with(dark).says("NodeDown", "connection refused", "goes on");
    // One failed call is no silence: what has just changed is not judged by it.
    Stage::bound().with(dark).with(|s| s.tx.updated_at = NOW).says("InPool", "nonce 7", "Sends");
    let disabled = Stage::queued().with(|s| s.cursor.conditions.disabled = Some(words("timed out")));
    disabled.says("NodeDown", "timed out", "Asks");
    let one_of_two = Stage::bound().with(dark).with(|s| s.sight.endpoints.push(endpoint(true, "head 100")));
    one_of_two.says("InPool", "nonce 7", "Sends");
    let back = Stage::bound().with(|s| {
        s.tx.facts.wait = Some(WaitReason::NodeDown { last_error: words("timed out") });
    });
    back.says("NotInPool", "timed out", "Sends");
}

#[test]
fn fee_cap() {
    let cap = WaitReason::FeeCap { cap: GasPrice(3 * GWEI), market: GasPrice(12 * GWEI) };
    let stage = Stage::bound().with(|s| {
        s.sight.base_fee = Some(GasPrice(10 * GWEI));
        s.tx.facts.wait = Some(cap.clone());
    });
    let told = stage.says("FeeCap", "asks 12 gwei per gas, and no more than 3 gwei", "below the cap");
    assert_eq!((fact(&told, "cap"), fact(&told, "market")), (&"3 gwei".into(), &"12 gwei".into()));
    assert_eq!(told.next.at, Some(later(30)));
    Stage::queued().with(|s| s.tx.facts.wait = Some(cap)).says("FeeCap", "12 gwei", "below the cap");
}

#[test]
fn confirming() {
    let in_block = |s: &mut Stage| {
        s.tx.facts.mined = Some(mined(97));
        s.tx.facts.sub_state = Some(SubState::Mined);
        s.sight.at_mined = Some(B256::repeat_byte(0xb0));
    };
    let told = Stage::bound().with(in_block).says(
        "Confirming",
        "block 97 and has 3 of 20 confirmations",
        "CONFIRMED after 17 more blocks",
    );
    assert_eq!((fact(&told, "block"), fact(&told, "head")), (&97.into(), &100.into()));
    // What was stored before the block is over.
    let stale = Stage::bound().with(in_block).with(|s| {
        s.tx.facts.wait = Some(WaitReason::NotInPool { last_error: None });
        s.tx.facts.mined = s.tx.facts.mined.map(|mined| Mined { succeeded: false, ..mined });
        s.settings.confirmations = 4;
    });
    stale.says("Confirming", "3 of 4", "FAILED_FINAL after 1 more block.");
    let cancelled = Stage::bound().with(in_block).with(|s| {
        s.tx.facts.amend().withdrawal = Some(Withdrawal::Cancel);
        s.tx.facts.mined = s.tx.facts.mined.map(|m| Mined { mined_as: MinedAs::Placeholder, ..m });
        s.settings.confirmations = 2;
    });
    cancelled.says("Confirming", "3 of 12", "CANCELLED after 9 more blocks");
    let unseen = Stage::bound().with(in_block).with(|s| s.sight = Sight::default());
    unseen.says("Confirming", "0 of 20", "20 more blocks");
}

#[test]
fn reorged() {
    let stored = Stage::bound().with(|s| s.tx.facts.wait = Some(WaitReason::Reorged { block_number: 97 }));
    let told = stored.says("Reorged", "Block 97", "Sends the same bytes again");
    assert_eq!(fact(&told, "vanished block"), &Value::from(97));
    // The lane has not heard of it yet, but another block stands there.
    let unheard = Stage::bound().with(|s| {
        s.tx.facts.mined = Some(mined(97));
        s.sight.at_mined = Some(B256::repeat_byte(0xcc));
    });
    let told = unheard.says("Reorged", "Block 97", "Sends");
    assert_eq!(fact(&told, "block that stands there now"), &Value::from(B256::repeat_byte(0xcc).to_string()));
}

#[test]
fn what_has_ended_tells_its_story() {
    let ended = |state: TxState, set: fn(&mut TxFacts)| {
        Stage::bound().with(|s| {
            s.tx.facts.state = state;
            s.tx.facts.ended_at = Some(NOW);
            s.tx.facts.wait = Some(WaitReason::Paused);
            set(&mut s.tx.facts);
        })
    };
    let reverted = |facts: &mut TxFacts| {
        facts.mined = Some(Mined { succeeded: false, ..mined(97) });
        facts.failure = Some(Failure { code: words("reverted"), reason: words("out of stock") });
    };
    let refused = |facts: &mut TxFacts| {
        facts.failure = Some(Failure { code: words("no-signer"), reason: words("nobody signs for it") });
    };
    for (stage, reason, summary) in [
        (ended(TxState::Confirmed, |f| f.mined = Some(mined(97))), "Confirmed", "mined in block 97"),
        (ended(TxState::FailedFinal, reverted), "Failed", "out of stock (reverted)"),
        (ended(TxState::Rejected, refused), "Rejected", "nobody signs for it"),
        (ended(TxState::Cancelled, |_| ()), "Cancelled", "before it got a nonce"),
        (ended(TxState::Cancelled, |f| f.mined = Some(mined(97))), "Cancelled", "in block 97"),
        (ended(TxState::Expired, |_| ()), "Expired", "ran out"),
    ] {
        let told = stage.says(reason, summary, "it has ended");
        assert_eq!(stage.waits(), None, "what has ended waits for nothing");
        assert!(fact(&told, "ended at").is_string());
    }
}

#[test]
fn what_is_stuck_says_what_a_human_can_do() {
    let stuck = Stage::bound().with(|s| s.tx.facts.state = TxState::Stuck);
    stuck.says("InPool", "nonce 7", "resolve it with retry, bump or placeholder");
    let mined = stuck.with(|s| s.tx.facts.mined = Some(mined(97)));
    mined.says("Confirming", "block 97", "CONFIRMED after 17 more blocks");
}

#[test]
fn what_somebody_else_signs_waits_for_its_signer() {
    let held = Stage::queued().with(|s| {
        (s.tx.facts.state, s.tx.facts.nonce) = (TxState::Allocated, Some(Nonce(7)));
    });
    let told = held.says("Allocated", "Nonce 7", "if the signer fails or is late");
    let end = held.tx.updated_at.plus(held.settings.reservation_timeout);
    assert_eq!(told.next.at, Some(end));
}

#[test]
fn resending_that_is_switched_off_is_not_announced() {
    let off = Stage::bound().with(|s| {
        s.attempts.iter_mut().for_each(|attempt| attempt.claimed(later(86_400 * 365), true));
    });
    assert_eq!(off.says("InPool", "nonce 7", "switched off").next.at, None);
}
