//! Looking at submitters: what is stored, what waits, what the account holds.

use gapless_core::allocation::AllocationStatus;
use gapless_core::ids::{Nonce, TxId};
use gapless_core::ports::store::SubmitterInfo;
use gapless_core::record::TxRecord;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;

use crate::balances::Balance;
use crate::handle::{Handle, Refusal};
use crate::view::{SubmitterView, Surroundings};

/// Slots looked at for the last end: placeholders and foreign use among them have no transaction.
const LOOKED_BACK: u64 = 8;

/// When something last happened.
#[derive(Default)]
struct Movement {
    moved_at: Option<Timestamp>,
    confirmed_at: Option<Timestamp>,
}

impl Handle {
    /// Submitters by name. Balances are those last seen: a list asks no chain.
    pub async fn submitters(
        &self,
        after: Option<&SubmitterId>,
        limit: usize,
    ) -> Result<Vec<SubmitterView>, Refusal> {
        let found = self.store.submitters(after, limit).await?;
        let names: Vec<SubmitterId> = found.iter().map(|info| info.submitter.clone()).collect();
        let (now, depths) = (self.store.now().await?, self.store.queue_depths(&names).await?);
        let mut views = Vec::with_capacity(found.len());
        for (info, queued) in found.iter().zip(depths) {
            let balance = self.balances.last(&info.submitter);
            views.push(self.shown(info, now, queued, balance, Movement::default()).await?);
        }
        Ok(views)
    }

    /// One submitter, with its balance if the chain tells it in time.
    pub async fn submitter(&self, submitter: &SubmitterId) -> Result<SubmitterView, Refusal> {
        let info = self.store.submitter(submitter).await?.ok_or(Refusal::UnknownSubmitter)?;
        let (now, depths) =
            (self.store.now().await?, self.store.queue_depths(std::slice::from_ref(submitter)).await?);
        let queued = depths.first().copied().unwrap_or_default();
        let movement = self.movement(&info).await?;
        self.shown(&info, now, queued, self.balances.now(submitter).await, movement).await
    }

    async fn shown(
        &self,
        info: &SubmitterInfo,
        now: Timestamp,
        queued: u64,
        balance: Option<Balance>,
        Movement { moved_at, confirmed_at }: Movement,
    ) -> Result<SubmitterView, Refusal> {
        let rules = self.registry.submitter(&info.submitter).map(|s| s.settings.rules);
        let recyclable = self.recyclable(info).await?;
        let around = Surroundings { rules, now, queued, recyclable, balance, moved_at, confirmed_at };
        Ok(SubmitterView::of(info, &around))
    }

    /// When something last happened, told by the slots at the ends of the prefixes: nothing is stored for it.
    async fn movement(&self, info: &SubmitterInfo) -> Result<Movement, Refusal> {
        let Some(run) = info.cursor.cursor.run else { return Ok(Movement::default()) };
        let below = |end: Nonce, slots: u64| Nonce(end.0.saturating_sub(slots)).max(run.start);
        let newest = self.store.attempts(&info.submitter, below(run.next, 1), run.next).await?;
        let stored_at = newest.iter().map(|attempt| attempt.stored_at).max();
        let consumed = self
            .last_tx(info, below(run.consumed, 1), run.consumed, |tx| tx.facts.mined.map(|mined| mined.at));
        let mined_at = consumed.await?;
        let confirmed_at =
            self.last_tx(info, below(run.resolved, LOOKED_BACK), run.resolved, |tx| tx.facts.ended_at);
        Ok(Movement { moved_at: stored_at.max(mined_at), confirmed_at: confirmed_at.await? })
    }

    /// What the highest transaction in these slots has to tell.
    async fn last_tx(
        &self,
        info: &SubmitterInfo,
        from: Nonce,
        to: Nonce,
        told: impl Fn(&TxRecord) -> Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Refusal> {
        let attempts = self.store.attempts(&info.submitter, from, to).await?;
        let mut owners: Vec<TxId> = attempts.iter().rev().filter_map(|attempt| attempt.tx_id).collect();
        owners.dedup();
        for tx_id in owners {
            if let Some(at) = self.store.tx(tx_id).await?.as_ref().and_then(&told) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Only a slot that is not consumed can be free again, so a submitter with nothing open costs no read.
    async fn recyclable(&self, info: &SubmitterInfo) -> Result<u64, Refusal> {
        let Some(run) = info.cursor.cursor.run.filter(|run| run.open() > 0) else { return Ok(0) };
        let found = self.store.allocations(&info.submitter, run.consumed, run.next).await?;
        Ok(found.iter().filter(|slot| slot.status == AllocationStatus::Recyclable).count() as u64)
    }
}
