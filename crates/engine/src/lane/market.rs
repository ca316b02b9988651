//! Why what is in a pool is not mined: the market moved away. Written when the reason changes or its figures do by much, not
//! at every block.

use gapless_core::change::{ResendClaim, TxWrite};
use gapless_core::fees::GasPrice;
use gapless_core::ids::Nonce;
use gapless_core::wait::WaitReason;

use super::memory::Memory;
use super::{Lane, Stop};

impl Lane {
    /// Notes which open transactions offer less than the base fee, and which may not offer more.
    pub(super) async fn note_market(&mut self, memory: &mut Memory) -> Result<(), Stop> {
        let Some(base_fee) = self.chain.heads.ring().head().and_then(|head| head.base_fee) else {
            return Ok(());
        };
        let now = self.database_time();
        let mut draft = None;
        for (nonce, _) in memory.open() {
            let Some(tx) = memory.tx_of_current(nonce) else { continue };
            if !tx.facts.state.is_bound() || tx.facts.mined.is_some() {
                continue;
            }
            let wait = self.market_wait(memory, nonce, base_fee);
            let noted = tx.facts.wait.as_ref();
            let write = match (noted, wait) {
                // A graver or a later word stands.
                (Some(WaitReason::Reorged { .. }), None) => continue,
                (Some(noted), _) if !is_market(noted) && !matches!(noted, WaitReason::Reorged { .. }) => {
                    continue;
                }
                (Some(noted), Some(wait)) if is_same(noted, &wait) => continue,
                (None, None) => continue,
                (_, wait) => TxWrite::new(tx.tx_id(), &tx.facts, &[], vec![], |facts| facts.wait = wait),
            };
            let draft = match &mut draft {
                Some(draft) => draft,
                None => draft.insert(self.draft(memory)?),
            };
            let write = write.map_err(|_| Stop::OutOfStep)?;
            // Affordable again: it may have been refused or dropped meanwhile, so it goes out now.
            if write.facts().wait.is_none()
                && let Some(attempt) = memory.current(nonce)
            {
                draft.writes.resends.push(ResendClaim {
                    nonce,
                    n: attempt.n,
                    next_send_at: now,
                    sends: false,
                });
            }
            draft.writes.txs.push(write);
        }
        match draft {
            Some(draft) => self.commit(memory, draft).await,
            None => Ok(()),
        }
    }

    fn market_wait(&self, memory: &Memory, nonce: Nonce, base_fee: GasPrice) -> Option<WaitReason> {
        let current = memory.current(nonce)?;
        let offered = current.fees.ceiling();
        let at_cap = memory.noted(nonce).and_then(|notes| notes.at_cap);
        let intended = memory.tx_of_current(nonce).is_none_or(|tx| self.carries_intent(tx, current));
        if offered >= base_fee && (intended || at_cap.is_none()) {
            return None;
        }
        Some(match at_cap {
            Some((cap, needed)) => WaitReason::FeeCap { cap, market: needed.max(base_fee) },
            None => WaitReason::BelowBaseFee { offered, base_fee },
        })
    }
}

const fn is_market(wait: &WaitReason) -> bool {
    matches!(wait, WaitReason::BelowBaseFee { .. } | WaitReason::FeeCap { .. })
}

/// Whether what would be noted says nothing new: figures that moved a little, another text of a silent endpoint.
pub(super) fn is_no_news(noted: &WaitReason, wait: &WaitReason) -> bool {
    let silent = |wait: &WaitReason| matches!(wait, WaitReason::NodeDown { .. });
    noted == wait || is_same(noted, wait) || (silent(noted) && silent(wait))
}

/// The same reason, with figures within an eighth.
fn is_same(noted: &WaitReason, wait: &WaitReason) -> bool {
    let near = |a: GasPrice, b: GasPrice| a.0.abs_diff(b.0) <= a.0 / 8;
    match (noted, wait) {
        (
            WaitReason::BelowBaseFee { offered: a, base_fee: before },
            WaitReason::BelowBaseFee { offered: b, base_fee: after },
        ) => a == b && near(*before, *after),
        (WaitReason::FeeCap { cap: a, market: before }, WaitReason::FeeCap { cap: b, market: after }) => {
            a == b && near(*before, *after)
        }
        _ => false,
    }
}
