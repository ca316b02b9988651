//! The cleanup report of a submitter: whether its slots, as stored, break an invariant. The rule is [`gapless_core::audit`];
//! lanes apply it to what they let go, this applies it to what somebody asks for.
//!
//! The cursor and the rows are read one after another while a lane goes on, so what looks broken is read again: only what is
//! broken twice is told.

use std::collections::{BTreeMap, BTreeSet};

use gapless_core::allocation::{Allocation, AllocationStatus};
use gapless_core::attempt::{AttemptKind, StoredAttempt};
use gapless_core::audit::{SlotFacts, Violation, ViolationKind, audit};
use gapless_core::cursor::Run;
use gapless_core::ids::{Nonce, TxId};
use gapless_core::record::TxRecord;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use serde::Serialize;

use crate::handle::{Handle, Refusal};

/// Slots looked at unless the caller says otherwise, and at most.
pub const MAX_REPORTED: u64 = 1_000;
/// Slots read at once.
const PAGE: u64 = 200;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Of whom.
    pub submitter: SubmitterId,
    /// The first slot that was looked at.
    pub from: Nonce,
    /// The first that was not looked at any more.
    pub to: Nonce,
    /// Violations between nonces.
    pub cross_nonce: u64,
    /// Violations of single nonces, missing receipts left out.
    pub per_nonce: u64,
    /// Slots whose receipt nobody has.
    pub without_receipt: u64,
    /// Slots that somebody else used, as recorded.
    pub foreign: u64,
    /// Slots that hold a placeholder.
    pub placeholders: u64,
    /// Open slots that wait for somebody to take them.
    pub recyclable: u64,
    /// Each violation.
    pub violations: Vec<Violation>,
}

impl Handle {
    /// Looks at a submitter's slots, by default the last ones; `None` for a range that makes no sense.
    pub async fn report(
        &self,
        submitter: &SubmitterId,
        from: Option<Nonce>,
        to: Option<Nonce>,
    ) -> Result<Option<Report>, Refusal> {
        let Some(first) = self.report_once(submitter, from, to).await? else { return Ok(None) };
        if first.violations.is_empty() {
            return Ok(Some(first));
        }
        let again = self.report_once(submitter, from, to).await?;
        Ok(again.map(|again| {
            let stays = |violation: &Violation| first.violations.contains(violation);
            let violations = again.violations.iter().filter(|violation| stays(violation)).cloned().collect();
            Report { violations, ..again }.counted()
        }))
    }

    async fn report_once(
        &self,
        submitter: &SubmitterId,
        from: Option<Nonce>,
        to: Option<Nonce>,
    ) -> Result<Option<Report>, Refusal> {
        let info = self.store.submitter(submitter).await?.ok_or(Refusal::UnknownSubmitter)?;
        let run = info.cursor.cursor.run.unwrap_or(Run::starting_at(Nonce(0)));
        let to = to.unwrap_or(run.next);
        let from = from.unwrap_or(Nonce(to.min(run.next).0.saturating_sub(MAX_REPORTED)));
        if from > to || to.0 - from.0 > MAX_REPORTED {
            return Ok(None);
        }
        let from = from.max(run.start);
        let to = to.min(run.next).max(from);
        let patience =
            self.registry.submitter(submitter).map(|s| s.settings.stale_receipts).unwrap_or_default();
        let (now, mut page, mut slots) = (self.store.now().await?, from, Vec::new());
        let (mut foreign, mut placeholders, mut recyclable) = (0, 0, 0);
        while page < to {
            let end = Nonce(page.0 + PAGE).min(to);
            let mut attempts: BTreeMap<Nonce, Vec<StoredAttempt>> = BTreeMap::new();
            for attempt in self.store.attempts(submitter, page, end).await? {
                attempts.entry(attempt.nonce).or_default().push(attempt);
            }
            let allocations = self.store.allocations(submitter, page, end).await?;
            let allocations: BTreeMap<Nonce, Allocation> =
                allocations.into_iter().map(|row| (row.nonce, row)).collect();
            for nonce in (page.0..end.0).map(Nonce) {
                let attempts = attempts.get(&nonce).map(Vec::as_slice).unwrap_or_default();
                let allocation = allocations.get(&nonce).map(|row| row.status);
                let txs = self.owners(attempts).await?;
                placeholders += u64::from(attempts.iter().any(|a| a.kind == AttemptKind::Placeholder));
                foreign += u64::from(allocation == Some(AllocationStatus::Foreign));
                let free = allocation == Some(AllocationStatus::Recyclable) && nonce >= run.consumed;
                recyclable += u64::from(free);
                slots.push((nonce, facts(&run, nonce, attempts, allocation, &txs, now)));
            }
            page = end;
        }
        let violations = audit(&run, slots, patience);
        let submitter = submitter.clone();
        let blank = Report {
            submitter,
            from,
            to,
            cross_nonce: 0,
            per_nonce: 0,
            without_receipt: 0,
            foreign,
            placeholders,
            recyclable,
            violations,
        };
        Ok(Some(blank.counted()))
    }

    /// The transactions that have attempts in a slot, as far as they are still kept.
    async fn owners(&self, attempts: &[StoredAttempt]) -> Result<Vec<TxRecord>, Refusal> {
        let ids: BTreeSet<TxId> = attempts.iter().filter_map(|attempt| attempt.tx_id).collect();
        let mut found = Vec::new();
        for id in ids {
            found.extend(self.store.tx(id).await?);
        }
        Ok(found)
    }
}

impl Report {
    fn counted(mut self) -> Self {
        let many =
            |of: fn(ViolationKind) -> bool| self.violations.iter().filter(|v| of(v.kind)).count() as u64;
        let cross_nonce = many(ViolationKind::is_cross_nonce);
        let without_receipt = many(|kind| kind == ViolationKind::NoReceipt);
        self.per_nonce = self.violations.len() as u64 - cross_nonce - without_receipt;
        (self.cross_nonce, self.without_receipt) = (cross_nonce, without_receipt);
        self
    }
}

fn facts(
    run: &Run,
    nonce: Nonce,
    attempts: &[StoredAttempt],
    allocation: Option<AllocationStatus>,
    txs: &[TxRecord],
    now: Timestamp,
) -> SlotFacts {
    let here = txs.iter().filter(|tx| tx.facts.nonce == Some(nonce));
    // What ended is frozen: a reorg deeper than promised is told on its own.
    let open = here.clone().filter(|tx| !tx.facts.state.is_terminal() || nonce < run.consumed);
    let receipts: BTreeSet<_> = open.filter_map(|tx| tx.facts.mined).map(|mined| mined.hash).collect();
    // Where a placeholder won, or a transaction moved on, no row tells the receipt: that is no loss.
    let ours = !attempts.is_empty() && attempts.iter().all(|attempt| attempt.tx_id.is_some());
    let all_here = here.clone().count() == txs.len() && !txs.is_empty();
    let read = here.clone().any(|tx| tx.facts.mined.is_some());
    let missing = nonce < run.consumed && ours && all_here && !read;
    let since = attempts.iter().map(|attempt| attempt.stored_at).max();
    let unread_for = since.filter(|_| missing).map(|since| now.since(since));
    SlotFacts { attempts: attempts.len(), allocation, receipts, unread_for }
}
