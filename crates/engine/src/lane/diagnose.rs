//! Looking into pools. Evidence for readers and for the policy of the stuck, never a proof of anything.

use gapless_core::attempt::StoredAttempt;
use gapless_core::ids::Nonce;
use gapless_core::ports::policy::Diagnosis;

use super::Lane;
use super::memory::Memory;

impl Lane {
    /// What the pools seem to hold of a slot.
    pub(super) async fn diagnose(&self, memory: &Memory, nonce: Nonce) -> Diagnosis {
        let attempts = memory.slots.get(&nonce).cloned().unwrap_or_default();
        if let Some(inspector) = &self.tools.policies.inspector {
            return inspector.inspect(&attempts).await;
        }
        match self.pooled(&attempts).await {
            None => return Diagnosis::Unknown,
            Some(true) => {
                let base_fee = self.chain.heads.ring().head().and_then(|head| head.base_fee);
                let offered = memory.current(nonce).map(|attempt| attempt.fees.ceiling());
                let behind = base_fee.zip(offered).is_some_and(|(base_fee, offered)| offered < base_fee);
                return if behind { Diagnosis::Underpriced } else { Diagnosis::InPool };
            }
            Some(false) => {}
        }
        for (lower, attempts) in memory.open().take_while(|(lower, _)| *lower < nonce) {
            if self.pooled(attempts).await == Some(false) {
                return Diagnosis::GapBelow { nonce: lower };
            }
        }
        Diagnosis::Lost
    }

    async fn pooled(&self, attempts: &[StoredAttempt]) -> Option<bool> {
        let hashes: Vec<_> = attempts.iter().map(|attempt| attempt.hash).collect();
        self.chain.chain.pooled(&hashes).await.ok().map(|found| found.contains(&true))
    }
}
