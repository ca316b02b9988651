//! From what a closure made to stored bytes.
//!
//! Signed bytes are believed only as far as they can be read: they must be for this nonce, this chain and this account, or
//! they are refused and the nonce goes to whoever comes next. What is not signed is prepared and signed as any other
//! request. Either way the payload is stored with the transaction, so that a repeat of the request never needs the closure
//! again, and a nonce lost to somebody else does not either.

use alloy_primitives::Bytes;
use gapless_core::allocation::AllocationWrite;
use gapless_core::attempt::{AttemptKind, NewAttempt, Route};
use gapless_core::change::TxWrite;
use gapless_core::event::{EventKind, Told};
use gapless_core::fees::FeeWishes;
use gapless_core::ids::{LockOwner, Nonce, TxId};
use gapless_core::intent::{Intent, Payload};
use gapless_core::intrinsic;
use gapless_core::limits::MAX_RAW_BYTES;
use gapless_core::ports::chain::{Contents, Opened};
use gapless_core::record::TxRecord;
use gapless_core::state::{SubState, TxEvent};
use serde_json::json;

use super::memory::Memory;
use super::notes::Notes;
use super::prepare::{Judgement, Prepared};
use super::signing::Wish;
use super::{Lane, Stop};
use crate::desk::{HandedIn, NonceTx};
use crate::points::Point;

/// What became of what was handed in.
enum Made {
    /// Ready to be stored, with what it says about the request.
    Bytes(Box<(NewAttempt, Payload, Option<FeeWishes>)>),
    /// It will not do.
    Refused(&'static str, String),
    /// Not to be decided now; the reservation's end decides if nothing else does.
    NotNow,
}

impl Lane {
    /// Takes in what closures made.
    pub(super) async fn take_in(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        if !self.phase.may_send() {
            return Ok(());
        }
        for HandedIn { tx_id, lock_owner, outcome } in self.tools.desk.handed_in(&self.submitter.id) {
            let Some((nonce, tx)) = reservation(memory, tx_id, lock_owner) else {
                // Late: the nonce is not this closure's any more.
                let over = |tx: &TxRecord| tx.facts.state.is_terminal() && tx.facts.nonce.is_none();
                if memory.txs.get(&tx_id).is_some_and(over) {
                    memory.txs.remove(&tx_id);
                }
                self.tools.desk.done(&self.submitter.id, tx_id);
                continue;
            };
            let made = match outcome {
                Ok(NonceTx::Signed(raw)) => self.open(nonce, &tx, raw),
                Ok(NonceTx::Unsigned { payload, fees }) => self.make(memory, nonce, &tx, payload, fees).await,
                Err(failure) => {
                    let (code, words) = (failure.code, failure.reason);
                    self.refuse_reserved(memory, nonce, code.as_str(), words.as_str()).await?;
                    continue;
                }
            };
            match made {
                Made::Bytes(made) => self.bind_made(memory, &tx, *made).await?,
                Made::Refused(code, words) => self.refuse_reserved(memory, nonce, code, &words).await?,
                Made::NotNow => {}
            }
        }
        Ok(())
    }

    /// Signed bytes: read, compared, and left as they are.
    fn open(&self, nonce: Nonce, tx: &TxRecord, raw: Bytes) -> Made {
        if raw.len() > MAX_RAW_BYTES {
            let words = format!("the bytes are {} long, at most {MAX_RAW_BYTES} are stored", raw.len());
            return Made::Refused("payload-too-large", words);
        }
        let Some(opened) = self.chain.chain.opened(&raw) else {
            return Made::Refused("unreadable-transaction", "these are no signed transaction".to_owned());
        };
        if let Some((code, words)) = self.contradiction(nonce, &opened) {
            return Made::Refused(code, words);
        }
        let Opened { hash, fees, contents: Contents { payload, .. }, .. } = opened;
        let next_send_at = self.database_time().plus(self.submitter.settings.resubmit_after());
        let attempt = NewAttempt {
            nonce,
            n: 0,
            tx_id: Some(tx.tx_id()),
            kind: AttemptKind::External,
            route: Route::Public,
            hash,
            raw,
            fees,
            next_send_at,
        };
        Made::Bytes(Box::new((attempt, payload, None)))
    }

    /// What is wrong with signed bytes, if anything is.
    fn contradiction(&self, nonce: Nonce, opened: &Opened) -> Option<(&'static str, String)> {
        let id = &self.submitter.id;
        if opened.chain.as_ref() != Some(&id.chain()) {
            let found = opened.chain.as_ref().map_or("no chain at all".to_owned(), ToString::to_string);
            return Some(("wrong-chain", format!("the bytes are for {found}, not for {}", id.chain())));
        }
        if opened.sender.is_none() || opened.sender != id.address() {
            let found = opened.sender.map_or("nobody".to_owned(), |sender| sender.to_string());
            return Some(("wrong-sender", format!("the bytes are signed by {found}, not for {id}")));
        }
        if opened.nonce != nonce {
            return Some(("wrong-nonce", format!("the bytes are for nonce {}, not {nonce}", opened.nonce)));
        }
        let least = intrinsic::gas(&opened.contents.payload);
        (opened.contents.gas_limit < least).then(|| {
            let words =
                format!("gasLimit {} is below the intrinsic gas of {}", opened.contents.gas_limit.0, least.0);
            ("intrinsic-gas-too-low", words)
        })
    }

    /// What is not signed: prepared and signed here.
    async fn make(
        &self,
        memory: &mut Memory,
        nonce: Nonce,
        tx: &TxRecord,
        payload: Payload,
        fees: FeeWishes,
    ) -> Made {
        let mut filled = tx.clone();
        filled.facts.amend().filled = Some(payload.clone());
        filled.facts.amend().fees = Some(fees);
        if let Err(error) = (Intent { payload: payload.clone(), options: filled.options() }).check() {
            return Made::Refused(error.code(), error.to_string());
        }
        if payload.to.is_none() && payload.data.is_empty() {
            return Made::Refused(
                "invalid-request",
                "neither `to` nor `data`: nothing would happen".to_owned(),
            );
        }
        let judgement = self.judge(memory, std::slice::from_ref(&filled)).await.pop();
        let Prepared { gas, fees: priced } = match judgement {
            Some(Judgement::Ready(prepared)) => prepared,
            Some(Judgement::Refuse(code, words)) => return Made::Refused(code, words.into()),
            Some(Judgement::Wait(..)) | None => return Made::NotNow,
        };
        let (tx_id, kind) = (Some(tx.tx_id()), AttemptKind::Payload);
        let wish = Wish { nonce, n: 0, tx_id, kind, payload: payload.clone(), gas, fees: priced };
        match self.sign(wish).await {
            Ok(attempt) => Made::Bytes(Box::new((attempt, payload, Some(fees)))),
            Err(_) => Made::NotNow,
        }
    }

    async fn bind_made(
        &mut self,
        memory: &mut Memory,
        tx: &TxRecord,
        (attempt, payload, fees): (NewAttempt, Payload, Option<FeeWishes>),
    ) -> Result<(), Stop> {
        let (nonce, now) = (attempt.nonce, self.database_time());
        let mut draft = self.draft(memory)?;
        let told = vec![Told::with(EventKind::TxSubmitted, json!({"txHash": attempt.hash}))];
        let write = TxWrite::new(tx.tx_id(), &tx.facts, &[TxEvent::Bind], told, |facts| {
            facts.tx_hash = Some(attempt.hash);
            (facts.sub_state, facts.wait, facts.bound_at) = (Some(SubState::InPool), None, Some(now));
            facts.amend().filled = Some(payload);
            facts.amend().fees = fees.filter(|fees| *fees != FeeWishes::default());
        });
        draft.writes.txs.push(write.map_err(|_| Stop::OutOfStep)?);
        draft.writes.attempts.push(attempt);
        draft.writes.allocations.push(AllocationWrite::Settle { nonce });
        self.commit(memory, draft).await?;
        let head = self.chain.heads.ring().head().map(|head| head.this.hash);
        memory.begin_notes(nonce, Notes::bound_here(head));
        self.tools.points.reach(Point::AfterBindCommit);
        self.tools.desk.done(&self.submitter.id, tx.tx_id());
        memory.sending.queue([nonce]);
        Ok(())
    }
}

impl Memory {
    /// Whether what goes out for a transaction was signed by somebody else.
    pub(super) fn is_signed_outside(&self, tx: &TxRecord) -> bool {
        self.current_of(tx).is_some_and(|attempt| attempt.kind == AttemptKind::External)
    }
}

/// The slot that a closure has made something for, if it still has it.
fn reservation(memory: &Memory, tx_id: TxId, lock_owner: LockOwner) -> Option<(Nonce, TxRecord)> {
    let row = memory.reserved().find(|row| row.tx_id == Some(tx_id) && row.lock_owner == Some(lock_owner))?;
    memory.reserved_for(row.nonce).map(|tx| (row.nonce, tx.clone()))
}
