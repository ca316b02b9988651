//! Slots that need a row of their own: reserved for a signer outside, recycled, or used by somebody
//! else. Ordinary slots have none; their story is told by the cursor and their attempts.
//!
//! The race guarded here is the *late write-back*: a holder whose reservation timed out must not
//! mark a nonce that has meanwhile been given away. Each reservation draws a new
//! [`LockOwner`], and a mark is accepted only from the present one, in time.

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;

use crate::ids::{LockOwner, Nonce, TxId};
use crate::named::named_enum;
use crate::time::Timestamp;

named_enum! {
    /// State of an exceptional slot.
    pub enum AllocationStatus {
        /// Handed to a holder until a time.
        Reserved = "RESERVED",
        /// The holder says it was used.
        Used = "USED",
        /// Free to be taken again, lowest first.
        Recyclable = "RECYCLABLE",
        /// Consumed on chain by somebody else, with its exhibit.
        Foreign = "FOREIGN",
    }
}

/// Where a nonce was consumed by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exhibit {
    /// The foreign transaction; none if an EIP-7702 authorization consumed the nonce.
    pub hash: Option<B256>,
    /// Height of its block.
    pub block_number: u64,
    /// Hash of its block.
    pub block_hash: B256,
}

/// One exceptional slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The slot.
    pub nonce: Nonce,
    /// Its state.
    pub status: AllocationStatus,
    /// Its present or last holder.
    pub lock_owner: Option<LockOwner>,
    /// Until when the holder may act, in database time.
    pub locked_until: Option<Timestamp>,
    /// The transaction it is reserved for.
    pub tx_id: Option<TxId>,
    /// What the holder says used it.
    pub used_hash: Option<B256>,
    /// Proof of foreign use.
    pub exhibit: Option<Exhibit>,
}

/// What a lane writes about an exceptional slot. Each form names what it expects to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationWrite {
    /// Hand the slot to a holder. It must be new, or RECYCLABLE.
    Reserve {
        /// The slot.
        nonce: Nonce,
        /// The new holder.
        lock_owner: LockOwner,
        /// For how long, from the commit on.
        hold: Duration,
        /// For which transaction.
        tx_id: Option<TxId>,
    },
    /// A reservation whose time is over becomes RECYCLABLE.
    Lapse {
        /// The slot.
        nonce: Nonce,
    },
    /// A reservation that its holder will not use becomes RECYCLABLE before its time; the row keeps the holder's name, which
    /// says that nobody has bytes for it.
    Release {
        /// The slot.
        nonce: Nonce,
        /// Its present holder.
        lock_owner: LockOwner,
    },
    /// A bound slot becomes RECYCLABLE: its newest attempt is invalid, the foreign use recorded for it vanished in a reorg,
    /// or an operator gave up what its holder says used it.
    Recycle {
        /// The slot.
        nonce: Nonce,
    },
    /// The slot is ordinary again (bound with bytes, or consumed).
    Settle {
        /// The slot.
        nonce: Nonce,
    },
    /// The slot was consumed by somebody else.
    Foreign {
        /// The slot.
        nonce: Nonce,
        /// The proof.
        exhibit: Exhibit,
    },
}

impl AllocationWrite {
    /// The slot concerned.
    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        match self {
            Self::Reserve { nonce, .. }
            | Self::Lapse { nonce }
            | Self::Release { nonce, .. }
            | Self::Recycle { nonce }
            | Self::Settle { nonce }
            | Self::Foreign { nonce, .. } => *nonce,
        }
    }

    /// The row after this write, or none if there is no row after it; `Err` if what is found is not
    /// what this write expects. One rule for every store.
    pub fn apply(
        &self,
        found: Option<&Allocation>,
        now: Timestamp,
    ) -> Result<Option<Allocation>, Unexpected> {
        use AllocationStatus as S;
        let blank = |nonce, status| Allocation {
            nonce,
            status,
            lock_owner: None,
            locked_until: None,
            tx_id: None,
            used_hash: None,
            exhibit: None,
        };
        let status = found.map(|row| row.status);
        match (self, status) {
            (Self::Reserve { nonce, lock_owner, hold, tx_id }, None | Some(S::Recyclable)) => {
                Ok(Some(Allocation {
                    lock_owner: Some(*lock_owner),
                    locked_until: Some(now.plus(*hold)),
                    tx_id: *tx_id,
                    ..blank(*nonce, S::Reserved)
                }))
            }
            (Self::Lapse { nonce }, Some(S::Reserved))
                if found.and_then(|row| row.locked_until).is_some_and(|until| until <= now) =>
            {
                Ok(Some(blank(*nonce, S::Recyclable)))
            }
            (Self::Release { nonce, lock_owner }, Some(S::Reserved))
                if found.and_then(|row| row.lock_owner) == Some(*lock_owner) =>
            {
                Ok(Some(Allocation { lock_owner: Some(*lock_owner), ..blank(*nonce, S::Recyclable) }))
            }
            (Self::Recycle { nonce }, None | Some(S::Foreign | S::Used)) => {
                Ok(Some(blank(*nonce, S::Recyclable)))
            }
            (Self::Settle { .. }, Some(_)) => Ok(None),
            (Self::Foreign { nonce, exhibit }, _) => {
                Ok(Some(Allocation { exhibit: Some(*exhibit), ..blank(*nonce, S::Foreign) }))
            }
            _ => Err(Unexpected { nonce: self.nonce(), found: status }),
        }
    }
}

/// A slot was not as the plan expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("slot {nonce} was found {found:?}, not as planned")]
pub struct Unexpected {
    /// The slot.
    pub nonce: Nonce,
    /// Its status.
    pub found: Option<AllocationStatus>,
}

/// A holder's word on its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It was used by this transaction.
    Used(B256),
    /// It will not be used.
    Recyclable,
}

/// What became of a holder's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkOutcome {
    /// Written (or had been written before, word for word).
    Marked,
    /// The slot belongs to somebody else now, or to nobody.
    NotOwner,
    /// The holder's time is over.
    Late,
    /// There is no such reservation.
    NotReserved,
}

impl Mark {
    /// Judges a holder's word; `Ok` carries the row to write. One rule for every store.
    pub fn judge(
        &self,
        owner: LockOwner,
        found: Option<&Allocation>,
        now: Timestamp,
    ) -> Result<Allocation, MarkOutcome> {
        use AllocationStatus as S;
        let row = found.ok_or(MarkOutcome::NotReserved)?;
        if row.lock_owner != Some(owner) {
            return Err(MarkOutcome::NotOwner);
        }
        let marked = match self {
            Self::Used(hash) => Allocation { status: S::Used, used_hash: Some(*hash), ..row.clone() },
            Self::Recyclable => Allocation { status: S::Recyclable, used_hash: None, ..row.clone() },
        };
        match row.status {
            _ if *row == marked => Ok(marked),
            S::Reserved if row.locked_until.is_some_and(|until| until > now) => Ok(marked),
            S::Reserved => Err(MarkOutcome::Late),
            _ => Err(MarkOutcome::NotReserved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000);

    fn owner(n: u128) -> LockOwner {
        LockOwner(Uuid::from_u128(n))
    }

    fn reserve() -> AllocationWrite {
        AllocationWrite::Reserve {
            nonce: Nonce(4),
            lock_owner: owner(1),
            hold: Duration::from_secs(60),
            tx_id: None,
        }
    }

    #[test]
    fn a_late_holder_cannot_mark() {
        let held = reserve().apply(None, NOW).unwrap().unwrap();
        let late = NOW.plus(Duration::from_secs(60));
        let used = Mark::Used(B256::repeat_byte(1));
        assert!(used.judge(owner(1), Some(&held), NOW).is_ok());
        assert_eq!(used.judge(owner(1), Some(&held), late), Err(MarkOutcome::Late));
        assert_eq!(used.judge(owner(2), Some(&held), NOW), Err(MarkOutcome::NotOwner));

        let lapsed = AllocationWrite::Lapse { nonce: Nonce(4) }.apply(Some(&held), late).unwrap().unwrap();
        assert_eq!(used.judge(owner(1), Some(&lapsed), late), Err(MarkOutcome::NotOwner));
        assert_eq!(used.judge(owner(1), None, late), Err(MarkOutcome::NotReserved));
    }

    #[test]
    fn saying_it_twice_is_fine_and_changing_one_s_mind_is_not() {
        let held = reserve().apply(None, NOW).unwrap().unwrap();
        let used = Mark::Used(B256::repeat_byte(1)).judge(owner(1), Some(&held), NOW).unwrap();
        assert_eq!(Mark::Used(B256::repeat_byte(1)).judge(owner(1), Some(&used), NOW), Ok(used.clone()));
        assert_eq!(Mark::Recyclable.judge(owner(1), Some(&used), NOW), Err(MarkOutcome::NotReserved));
    }

    #[test]
    fn a_reservation_is_released_by_its_holder_alone() {
        let held = reserve().apply(None, NOW).unwrap().unwrap();
        let release = |n| AllocationWrite::Release { nonce: Nonce(4), lock_owner: owner(n) };
        assert!(release(2).apply(Some(&held), NOW).is_err());
        assert!(release(1).apply(None, NOW).is_err());
        let free = release(1).apply(Some(&held), NOW).unwrap().unwrap();
        assert_eq!((free.status, free.lock_owner), (AllocationStatus::Recyclable, Some(owner(1))));
        let late = Mark::Used(B256::repeat_byte(1)).judge(owner(1), Some(&free), NOW);
        assert_eq!(late, Err(MarkOutcome::NotReserved), "its word was given");
    }

    #[test]
    fn a_reservation_lapses_only_after_its_time() {
        let held = reserve().apply(None, NOW).unwrap().unwrap();
        assert!(AllocationWrite::Lapse { nonce: Nonce(4) }.apply(Some(&held), NOW).is_err());
        assert!(reserve().apply(Some(&held), NOW).is_err(), "a held slot cannot be given away");
    }
}
