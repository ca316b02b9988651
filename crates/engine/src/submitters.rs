//! Looking at submitters: what is stored, what waits, what the account holds.

use gapless_core::allocation::AllocationStatus;
use gapless_core::ports::store::SubmitterInfo;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;

use crate::balances::Balance;
use crate::handle::{Handle, Refusal};
use crate::view::{SubmitterView, Surroundings};

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
            views.push(self.shown(info, now, queued, self.balances.last(&info.submitter)).await?);
        }
        Ok(views)
    }

    /// One submitter, with its balance if the chain tells it in time.
    pub async fn submitter(&self, submitter: &SubmitterId) -> Result<SubmitterView, Refusal> {
        let info = self.store.submitter(submitter).await?.ok_or(Refusal::UnknownSubmitter)?;
        let (now, depths) =
            (self.store.now().await?, self.store.queue_depths(std::slice::from_ref(submitter)).await?);
        let queued = depths.first().copied().unwrap_or_default();
        self.shown(&info, now, queued, self.balances.now(submitter).await).await
    }

    async fn shown(
        &self,
        info: &SubmitterInfo,
        now: Timestamp,
        queued: u64,
        balance: Option<Balance>,
    ) -> Result<SubmitterView, Refusal> {
        let rules = self.registry.submitter(&info.submitter).map(|s| s.settings.rules);
        let mode = rules.map_or("strict", |rules| rules.mode.name());
        let recyclable = self.recyclable(info).await?;
        Ok(SubmitterView::of(info, &Surroundings { mode, now, queued, recyclable, balance }))
    }

    /// Only a slot that is not consumed can be free again, so a submitter with nothing open costs no read.
    async fn recyclable(&self, info: &SubmitterInfo) -> Result<u64, Refusal> {
        let Some(run) = info.cursor.cursor.run.filter(|run| run.open() > 0) else { return Ok(0) };
        let found = self.store.allocations(&info.submitter, run.consumed, run.next).await?;
        Ok(found.iter().filter(|slot| slot.status == AllocationStatus::Recyclable).count() as u64)
    }
}
