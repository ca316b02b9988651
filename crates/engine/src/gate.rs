//! Who is turned away before anything is written: protected, paused, full, or led by another node.
//!
//! The gate only refuses what is *new*. Whoever asks must first look whether a refused request was accepted before,
//! for a repeat gets its answer before any refusal. A gate that opens a moment too late or too early loses nothing:
//! an accepted request waits in its queue whatever the submitter's condition.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures::future::join_all;
use gapless_core::condition::Condition;
use gapless_core::lease::{LeaseTerms, Owner};
use gapless_core::ports::store::{Acquired, Parting, Store, StoreError, StoreResult, SubmitterInfo};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::depth::Depths;
use crate::handle::Refusal;
use crate::keeper;
use crate::lookups::Lookups;
use crate::registry::Registry;

/// Which nodes accept requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcceptMode {
    /// All of them.
    #[default]
    Any,
    /// The one that holds the submitter's lease, or can take it.
    Leader,
}

/// What turns requests away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptRules {
    /// Which nodes accept.
    pub mode: AcceptMode,
    /// Most unbound transactions of one submitter.
    pub queued_per_submitter: u64,
}

impl Default for AcceptRules {
    fn default() -> Self {
        Self { mode: AcceptMode::Any, queued_per_submitter: 100_000 }
    }
}

/// How often a lease row that is being written is tried again.
const TRIES: u32 = 5;

/// What the gate says about some requests of one submitter.
#[derive(Debug)]
pub(crate) enum Pass {
    /// So many of them may come in.
    Room(u64),
    /// None, and why.
    Closed(Refusal),
}

/// The gate. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lookups: Lookups,
    pub(crate) owner: Owner,
    pub(crate) terms: LeaseTerms,
    pub(crate) registry: Registry,
    pub(crate) work: mpsc::Sender<SubmitterId>,
    pub(crate) rules: AcceptRules,
    pub(crate) depths: Arc<Depths>,
    pub(crate) stopping: Arc<OnceLock<CancellationToken>>,
}

impl Gate {
    /// Judges so many requests of each submitter; what it grants counts as queued from now on.
    pub(crate) async fn judge(
        &self,
        wanted: &BTreeMap<SubmitterId, u64>,
    ) -> BTreeMap<SubmitterId, StoreResult<Pass>> {
        let names: Vec<SubmitterId> = wanted.keys().cloned().collect();
        let read = |name: &SubmitterId| {
            let name = name.clone();
            async move {
                let info = match self.lookups.submitter(name.clone()).await {
                    Some(info) => info,
                    // A handle may outlive its engine.
                    None => self.store.submitter(&name).await,
                };
                (info, name)
            }
        };
        let infos = join_all(names.iter().map(read));
        let (infos, known) = tokio::join!(infos, self.depths.refresh(self.store.as_ref(), &names));
        let mut verdicts = BTreeMap::new();
        for (info, name) in infos {
            let count = wanted.get(&name).copied().unwrap_or_default();
            let verdict = match (info, &known) {
                (Err(error), _) => Err(error),
                (_, Err(error)) => Err(error.clone()),
                (Ok(info), Ok(())) => self.verdict(&name, info, count).await,
            };
            verdicts.insert(name, verdict);
        }
        verdicts
    }

    async fn verdict(
        &self,
        name: &SubmitterId,
        info: Option<SubmitterInfo>,
        count: u64,
    ) -> StoreResult<Pass> {
        let Some(info) = info else { return Ok(Pass::Closed(Refusal::UnknownSubmitter)) };
        match info.cursor.cursor.conditions.gravest() {
            Condition::Protect => return Ok(Pass::Closed(Refusal::Protected)),
            Condition::Paused => return Ok(Pass::Closed(Refusal::Paused)),
            _ => {}
        }
        if self.rules.mode == AcceptMode::Leader
            && let Some(refusal) = self.lead(name, &info).await?
        {
            return Ok(Pass::Closed(refusal));
        }
        Ok(match self.depths.take(name, count, self.rules.queued_per_submitter) {
            0 if count > 0 => Pass::Closed(self.full()),
            room => Pass::Room(room),
        })
    }

    /// What somebody is told for whom there is no room.
    pub(crate) const fn full(&self) -> Refusal {
        Refusal::QueueFull { limit: self.rules.queued_per_submitter }
    }

    /// Leads the submitter from here, or says who does. The row's last owner is asked of the store alone, by its clock.
    pub(crate) async fn lead(
        &self,
        name: &SubmitterId,
        info: &SubmitterInfo,
    ) -> StoreResult<Option<Refusal>> {
        let last = info.lease.as_ref().map(|lease| &lease.owner);
        // A lease that was given back keeps its last owner's name.
        let kept = info.lease.as_ref().is_some_and(|lease| lease.expires_at > Timestamp::from_micros(0));
        if last == Some(&self.owner) && kept && !self.is_stopping() {
            return Ok(None);
        }
        let elsewhere =
            |owner: Option<&Owner>| Refusal::NotLeader { owner: owner.map(|o| o.node().to_owned()) };
        // A lease that nobody here can use would only keep others from it.
        if self.registry.submitter(name).is_none() || self.is_stopping() {
            return Ok(Some(elsewhere(last)));
        }
        for _ in 0..TRIES {
            let acquired = self.store.acquire(&self.owner, std::slice::from_ref(name), &self.terms).await?;
            match acquired.into_iter().next() {
                Some(Acquired::Held { kind, grant }) => {
                    keeper::count_acquired(kind);
                    if self.is_stopping() {
                        self.store.release(&[(grant, Parting::Unfinished)]).await?;
                        return Ok(Some(elsewhere(None)));
                    }
                    // The keeper takes it up from here; without its lane the lease would only stand in the way.
                    let _ = self.work.send(name.clone()).await;
                    return Ok(None);
                }
                Some(Acquired::NotOwner { owner, .. }) => {
                    keeper::count_not_owner();
                    return Ok(Some(elsewhere(Some(&owner))));
                }
                Some(Acquired::UnknownSubmitter) => return Ok(Some(Refusal::UnknownSubmitter)),
                Some(Acquired::Busy) | None => tokio::time::sleep(keeper::BUSY_PAUSE).await,
            }
        }
        Err(StoreError::Unavailable("the submitter's lease is being written by somebody else".into()))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get().is_some_and(CancellationToken::is_cancelled)
    }
}
