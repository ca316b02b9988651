//! Nonces for who makes and sends bytes by himself: allocate, then say what became of it.
//!
//! A nonce is the holder's until its time is over. Said to be used, its slot stays open until a receipt of that hash shows
//! it consumed; said to be recyclable, it goes to whoever comes next; with nothing said in time, a transaction or a
//! placeholder takes it, and the holder's word comes too late (invariant *gapless*). The race is the late write-back: each
//! reservation has a lock owner of its own, so a former holder can never mark a nonce that was given away.
//!
//! What is sent here is not followed: no requests, no events, no bumps, no resubmission. Where that is wanted, use
//! [`Handle::with_nonce`].

use std::time::Duration;

use alloy_primitives::B256;
use gapless_core::allocation::{Mark, MarkOutcome};
use gapless_core::condition::Condition;
use gapless_core::ids::{LockOwner, Nonce};
use gapless_core::ports::store::StoreError;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use thiserror::Error;

use crate::desk::MAX_ASKS;
use crate::handle::{Handle, Refusal};

/// A nonce that is the holder's until its time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// The account.
    pub submitter: SubmitterId,
    /// The nonce.
    pub nonce: Nonce,
    /// Proves who holds it.
    pub lock_owner: LockOwner,
    /// Until when, by the database's clock.
    pub until: Timestamp,
}

/// Why there is no nonce, or why a word does not count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LowLevelError {
    /// This node cannot serve it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// None became free in time.
    #[error("no nonce became free within {0:?}")]
    Unavailable(Duration),
    /// The nonce belongs to somebody else now, or to nobody.
    #[error("nonce {0} is not this holder's any more")]
    NotOwner(Nonce),
    /// The holder's time is over.
    #[error("the reservation of nonce {0} is over")]
    Late(Nonce),
    /// Something else was said of it before, or it was never reserved.
    #[error("nonce {0} is not reserved")]
    NotReserved(Nonce),
}

impl LowLevelError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Unavailable(_) => "nonce-unavailable",
            Self::NotOwner(_) => "not-owner",
            Self::Late(_) => "reservation-expired",
            Self::NotReserved(_) => "not-reserved",
        }
    }
}

impl From<StoreError> for LowLevelError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

/// Reserves the next nonce of a submitter for `nonce.reservation_timeout`, waiting at most so long for one. The node must
/// run the submitter's lane, or be able to take it: otherwise `not-leader`.
pub async fn allocate(
    handle: &Handle,
    submitter: &SubmitterId,
    most: Duration,
) -> Result<Allocated, LowLevelError> {
    let info = handle.store.submitter(submitter).await?.ok_or(Refusal::UnknownSubmitter)?;
    match info.cursor.cursor.conditions.gravest() {
        Condition::Protect => return Err(Refusal::Protected.into()),
        Condition::Paused => return Err(Refusal::Paused.into()),
        _ => {}
    }
    if let Some(refusal) = handle.gate.lead(submitter, &info).await? {
        return Err(refusal.into());
    }
    let full = Refusal::QueueFull { limit: MAX_ASKS as u64 };
    let granted = handle.desk.ask(submitter).ok_or(full)?;
    handle.wake(submitter).await;
    let granted = tokio::time::timeout(most, granted).await;
    let Ok(Ok(granted)) = granted else { return Err(LowLevelError::Unavailable(most)) };
    let rows = handle.store.allocations(submitter, granted.nonce, granted.nonce.next()).await?;
    let held = rows.into_iter().find(|row| row.lock_owner == Some(granted.lock_owner));
    let until = held.and_then(|row| row.locked_until).ok_or(LowLevelError::Late(granted.nonce))?;
    let (nonce, lock_owner) = (granted.nonce, granted.lock_owner);
    Ok(Allocated { submitter: submitter.clone(), nonce, lock_owner, until })
}

/// Says that the nonce was used by this transaction, which the holder has sent or will send. Said twice it counts once; it
/// cannot be taken back. Any node takes it.
pub async fn mark_used(handle: &Handle, held: &Allocated, hash: B256) -> Result<(), LowLevelError> {
    mark(handle, held, Mark::Used(hash)).await
}

/// Says that the nonce will not be used: whoever comes next gets it. Any node takes it.
pub async fn mark_recyclable(handle: &Handle, held: &Allocated) -> Result<(), LowLevelError> {
    mark(handle, held, Mark::Recyclable).await
}

async fn mark(handle: &Handle, held: &Allocated, mark: Mark) -> Result<(), LowLevelError> {
    match handle.store.mark(&held.submitter, held.nonce, held.lock_owner, mark).await? {
        MarkOutcome::Marked => {
            handle.wake(&held.submitter).await;
            Ok(())
        }
        MarkOutcome::NotOwner => Err(LowLevelError::NotOwner(held.nonce)),
        MarkOutcome::Late => Err(LowLevelError::Late(held.nonce)),
        MarkOutcome::NotReserved => Err(LowLevelError::NotReserved(held.nonce)),
    }
}
