//! Looking at one transaction with everything around it: its submitter, its slot, the chain. Reads only, and only
//! what the answer needs: a transaction that has ended costs no more than its own row.

use gapless_core::allocation::{AllocationStatus, Exhibit};
use gapless_core::attempt::StoredAttempt;
use gapless_core::cursor::Cursor;
use gapless_core::ids::Nonce;
use gapless_core::ports::store::LeaseInfo;
use gapless_core::record::TxRecord;
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;

use crate::explain::reason::wait_reason;
use crate::explain::{Explanation, Scene, Sight, explain};
use crate::handle::{Handle, Refusal};
use crate::heads::Heads;
use crate::settings::LaneSettings;
use crate::view::{AttemptView, OperatorView, TxView};

/// What was read about a transaction.
struct Seen {
    cursor: Cursor,
    lease: Option<LeaseInfo>,
    attempts: Vec<StoredAttempt>,
    foreign: Option<Exhibit>,
    first: Option<TxRecord>,
    sight: Sight,
    settings: LaneSettings,
}

impl Seen {
    fn scene<'a>(&'a self, tx: &'a TxRecord, now: Timestamp) -> Scene<'a> {
        Scene {
            tx,
            cursor: &self.cursor,
            attempts: &self.attempts,
            foreign: self.foreign.as_ref(),
            first: self.first.as_ref(),
            sight: &self.sight,
            settings: &self.settings,
            owner: self.lease.as_ref().filter(|lease| lease.expires_at > now).map(|lease| lease.owner.node()),
            now,
        }
    }
}

impl Handle {
    /// The view of a record with the reason it waits for, as of now.
    pub(crate) async fn shown_now(&self, tx: &TxRecord) -> Result<TxView, Refusal> {
        let mut view = self.view(tx);
        // What has ended waits for nothing.
        if !tx.facts.state.is_terminal() {
            let seen = self.look(tx).await?;
            view.wait_reason = wait_reason(&seen.scene(tx, self.clock.now()));
        }
        Ok(view)
    }

    /// Why a transaction is where it is.
    pub async fn explain(&self, tx: &TxRecord) -> Result<Explanation, Refusal> {
        let (seen, now) = (self.look(tx).await?, self.store.now().await?);
        Ok(explain(&seen.scene(tx, now)))
    }

    /// Every attempt of a transaction's slot.
    pub async fn attempts(&self, tx: &TxRecord) -> Result<Vec<AttemptView>, Refusal> {
        let found = self.attempts_of(&tx.request.submitter, tx.facts.nonce).await?;
        let mined = tx.facts.mined.map(|mined| mined.hash);
        Ok(found.iter().map(|attempt| AttemptView::of(attempt, mined)).collect())
    }

    /// What operators see of a transaction beside its view.
    pub async fn operator_view(&self, tx: &TxRecord) -> Result<OperatorView, Refusal> {
        let (seen, now) = (self.look(tx).await?, self.store.now().await?);
        Ok(OperatorView::of(&seen.scene(tx, now)))
    }

    async fn look(&self, tx: &TxRecord) -> Result<Seen, Refusal> {
        let (id, facts) = (&tx.request.submitter, &tx.facts);
        let info = self.store.submitter(id).await?;
        let (cursor, lease) = info.map(|info| (info.cursor.cursor, info.lease)).unwrap_or_default();
        let consumed = cursor.run.is_some_and(|run| facts.nonce.is_some_and(|nonce| nonce < run.consumed));
        let foreign = match facts.nonce {
            Some(nonce) if consumed && facts.mined.is_none() => self.foreign(id, nonce).await?,
            _ => None,
        };
        let first = match facts.state {
            TxState::Queued => self.store.peek_queue(id, 1).await?.into_iter().next(),
            _ => None,
        };
        let now = self.clock.now();
        let elsewhere = |lease: &LeaseInfo| lease.expires_at > now && lease.owner != self.gate.owner;
        let elsewhere = lease.as_ref().is_some_and(elsewhere);
        Ok(Seen {
            attempts: self.attempts_of(id, facts.nonce).await?,
            foreign,
            first,
            sight: self.sight(tx, !elsewhere),
            settings: self.registry.settings(id),
            cursor,
            lease,
        })
    }

    async fn attempts_of(
        &self,
        submitter: &SubmitterId,
        nonce: Option<Nonce>,
    ) -> Result<Vec<StoredAttempt>, Refusal> {
        let Some(nonce) = nonce else { return Ok(Vec::new()) };
        Ok(self.store.attempts(submitter, nonce, nonce.next()).await?)
    }

    async fn foreign(&self, submitter: &SubmitterId, nonce: Nonce) -> Result<Option<Exhibit>, Refusal> {
        let rows = self.store.allocations(submitter, nonce, nonce.next()).await?;
        Ok(rows.into_iter().find(|row| row.status == AllocationStatus::Foreign).and_then(|row| row.exhibit))
    }

    /// The chain from here; its endpoints only where the lane runs here, or nowhere.
    fn sight(&self, tx: &TxRecord, here: bool) -> Sight {
        let chain = tx.request.submitter.chain();
        let ring = self.heads.get(&chain).map(Heads::ring).unwrap_or_default();
        let endpoints = self.registry.chain(&chain).filter(|_| here);
        Sight {
            head: ring.head().map(|head| head.this.number),
            base_fee: ring.head().and_then(|head| head.base_fee),
            at_mined: tx.facts.mined.and_then(|mined| ring.hash_at(mined.block_number)),
            endpoints: endpoints.map(|chain| chain.endpoints()).unwrap_or_default(),
        }
    }
}
