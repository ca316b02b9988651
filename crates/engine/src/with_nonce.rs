//! A nonce for a closure: what it makes is stored and sent by the engine, and the request takes effect once.
//!
//! The request is accepted like any other, only without a payload; when its turn comes the lane reserves a nonce for it, the
//! closure runs in the caller's own task, and the lane stores what it made before anything is sent. The races guarded here
//! are those of a closure that fails, panics, comes late or dies with its process: the reservation is released or lapses, the
//! nonce goes to whoever comes next, and the request ends REJECTED with the reason. Once bytes are stored, a repeat of the
//! request answers with the same transaction and runs nothing.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gapless_core::fees::{Fees, Gas};
use gapless_core::ids::{LockOwner, Nonce, RequestId, Scope, TxId};
use gapless_core::intent::{Intent, Options, Payload};
use gapless_core::ports::chain::{Signed, Unsigned};
use gapless_core::ports::signer::{SignError, Signer};
use gapless_core::ports::store::StoreError;
use gapless_core::record::{Failure, Metadata, TxRecord};
use gapless_core::state::TxState;
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use thiserror::Error;

use crate::builder::Gapless;
use crate::desk::{Granted, HandedIn, NonceTx};
use crate::handle::{Handle, Refusal, Request, Submitted};
use crate::view::TxView;

/// How long a wait sleeps between looks, where nobody signals.
const LOOK: Duration = Duration::from_millis(50);

/// A request whose payload a closure makes.
#[derive(Debug, Clone)]
pub struct NonceRequest {
    /// The account.
    pub submitter: SubmitterId,
    /// The caller's name for it.
    pub request_id: RequestId,
    /// No nonce is to be had after this.
    pub valid_until: Option<Timestamp>,
    /// The caller's notes.
    pub metadata: Option<Metadata>,
}

impl NonceRequest {
    /// Under this name, at any time.
    #[must_use]
    pub const fn new(submitter: SubmitterId, request_id: RequestId) -> Self {
        Self { submitter, request_id, valid_until: None, metadata: None }
    }
}

/// What a closure is given.
#[derive(Clone)]
pub struct NonceContext {
    submitter: SubmitterId,
    tx_id: TxId,
    nonce: Nonce,
    signer: Option<Arc<dyn Signer>>,
}

impl NonceContext {
    /// The account.
    #[must_use]
    pub const fn submitter(&self) -> &SubmitterId {
        &self.submitter
    }

    /// The transaction that this is for.
    #[must_use]
    pub const fn tx_id(&self) -> TxId {
        self.tx_id
    }

    /// The nonce, until the reservation ends. A later run may get another.
    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Signs for this account, chain and nonce. The bytes are to be returned, not sent.
    pub async fn sign(&self, payload: Payload, gas_limit: Gas, fees: Fees) -> Result<Signed, SignError> {
        let words = |text: &str| NodeText::new(text);
        let Some(signer) = &self.signer else {
            return Err(SignError::Refused(words("no signer is configured for this submitter")));
        };
        let (submitter, nonce) = (self.submitter.clone(), self.nonce);
        let unsigned = Unsigned { submitter, nonce, payload, gas_limit, fees };
        let (signed, error) = signer.sign(std::slice::from_ref(&unsigned)).await;
        let nothing = || SignError::Unavailable(words("the signer returned nothing"));
        signed.into_iter().next().ok_or_else(|| error.unwrap_or_else(nothing))
    }
}

/// Why a closure's transaction is not on its way.
#[derive(Debug, Clone, Error)]
pub enum WithNonceError {
    /// It was not accepted, or how it went on cannot be told; the same call may be made again.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It was accepted and has ended without bytes; its view says why.
    #[error("the transaction has ended as {}: {}", .0.state, ending(.0))]
    Ended(Box<TxView>),
}

impl WithNonceError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Ended(view) => {
                view.failure.as_ref().map_or("already-final", |failure| failure.code.as_str())
            }
        }
    }
}

fn ending(view: &TxView) -> &str {
    view.failure.as_ref().map_or("it was withdrawn", |failure| failure.reason.as_str())
}

impl From<StoreError> for WithNonceError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl Gapless {
    /// See [`Handle::with_nonce`].
    pub async fn with_nonce<F, Made, T, E>(
        &self,
        request: NonceRequest,
        closure: F,
    ) -> Result<Submitted, WithNonceError>
    where
        F: FnMut(NonceContext) -> Made,
        Made: Future<Output = Result<T, E>>,
        T: Into<NonceTx>,
        E: Display,
    {
        self.handle().with_nonce(request, closure).await
    }
}

impl Handle {
    /// Reserves a nonce, runs the closure, stores and sends what it made; answers when the bytes are stored. From then on
    /// it is a transaction like any other.
    ///
    /// The node must run the submitter's lane, or be able to take it: otherwise `not-leader`. The closure has
    /// `nonce.reservation_timeout`; it may be run again with another nonce, and must not send by itself. Dropping the call
    /// gives the nonce back. A repeat under the same request id runs no closure once bytes are stored.
    pub async fn with_nonce<F, Made, T, E>(
        &self,
        request: NonceRequest,
        mut closure: F,
    ) -> Result<Submitted, WithNonceError>
    where
        F: FnMut(NonceContext) -> Made,
        Made: Future<Output = Result<T, E>>,
        T: Into<NonceTx>,
        E: Display,
    {
        let submitter = request.submitter.clone();
        let accepted = self.accept_for_closure(request).await?;
        let (tx_id, new) = (accepted.view.tx_id, accepted.new);
        // Where somebody here runs its closure already, this call only waits for what comes of it.
        let mut place = self.desk.offer(&submitter, tx_id);
        self.wake(&submitter).await;
        loop {
            let tx = self.record(tx_id).await?;
            if let Some(answer) = self.answer(&tx, new) {
                return answer;
            }
            if self.gate.is_stopping() {
                return Err(Refusal::NotLeader { owner: None }.into());
            }
            if place.is_none() {
                // Whoever ran it may have left.
                place = self.desk.offer(&submitter, tx_id);
                if place.is_some() {
                    self.wake(&submitter).await;
                }
            }
            let heard = async {
                match &mut place {
                    Some(place) => place.hears().await,
                    None => std::future::pending().await,
                }
            };
            let Ok(Some(granted)) = tokio::time::timeout(LOOK, heard).await else { continue };
            let holds = Holds { handle: self, submitter: &submitter, tx_id, granted, handed_in: false };
            let outcome = self.run_closure(&holds, &mut closure).await;
            holds.hand_in(outcome);
            self.wake(&submitter).await;
        }
    }

    /// Accepts the request, on the node that can serve it. A repeat is answered before anything is refused.
    async fn accept_for_closure(&self, request: NonceRequest) -> Result<Submitted, WithNonceError> {
        let NonceRequest { submitter, request_id, valid_until, metadata } = request;
        let known = self.store.tx_by_request(&Scope::from(&submitter), &request_id).await?;
        if known.is_none_or(|tx| matches!(tx.facts.state, TxState::Queued | TxState::Allocated)) {
            let info = self.store.submitter(&submitter).await?.ok_or(Refusal::UnknownSubmitter)?;
            if let Some(refusal) = self.gate.lead(&submitter, &info).await? {
                return Err(refusal.into());
            }
        }
        let options = Options { valid_until, deferred: true, ..Options::default() };
        let intent = Intent { payload: Payload::default(), options };
        Ok(self.submit(Request { submitter, request_id, intent, metadata }).await?)
    }

    /// What there is to tell, if anything is.
    fn answer(&self, tx: &TxRecord, new: bool) -> Option<Result<Submitted, WithNonceError>> {
        let view = || self.view(tx);
        match tx.facts.state {
            TxState::Queued if !tx.awaits_closure() => Some(Ok(Submitted { new, view: view() })),
            TxState::Queued | TxState::Allocated => None,
            TxState::Rejected | TxState::Cancelled | TxState::Expired if tx.awaits_closure() => {
                Some(Err(WithNonceError::Ended(Box::new(view()))))
            }
            _ => Some(Ok(Submitted { new, view: view() })),
        }
    }

    async fn run_closure<F, Made, T, E>(&self, holds: &Holds<'_>, closure: &mut F) -> Result<NonceTx, Failure>
    where
        F: FnMut(NonceContext) -> Made,
        Made: Future<Output = Result<T, E>>,
        T: Into<NonceTx>,
        E: Display,
    {
        let failure =
            |code: &str, words: &str| Failure { code: NodeText::new(code), reason: NodeText::new(words) };
        let context = NonceContext {
            submitter: holds.submitter.clone(),
            tx_id: holds.tx_id,
            nonce: holds.granted.nonce,
            signer: self.registry.submitter(holds.submitter).and_then(|submitter| submitter.signer),
        };
        let left = holds.granted.until.since(self.clock.tick());
        let run = AssertUnwindSafe(async { closure(context).await }).catch_unwind();
        match tokio::time::timeout(left, run).await {
            Ok(Ok(Ok(made))) => Ok(made.into()),
            Ok(Ok(Err(error))) => Err(failure("closure-failed", &error.to_string())),
            Ok(Err(panic)) => Err(failure("closure-panicked", &words_of(panic.as_ref()))),
            Err(_) => Err(failure("reservation-expired", "the closure did not return in time")),
        }
    }

    /// Tells whoever runs the lane here that there is something to do.
    pub(crate) async fn wake(&self, submitter: &SubmitterId) {
        let _ = self.work.send(submitter.clone()).await;
    }
}

/// What a panic said.
fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the closure panicked".to_owned())
}

/// A nonce in hand. Whoever drops it without a word gives it back.
struct Holds<'a> {
    handle: &'a Handle,
    submitter: &'a SubmitterId,
    tx_id: TxId,
    granted: Granted,
    handed_in: bool,
}

impl Holds<'_> {
    fn hand_in(mut self, outcome: Result<NonceTx, Failure>) {
        self.handed_in = true;
        self.say(outcome);
    }

    fn say(&self, outcome: Result<NonceTx, Failure>) {
        let lock_owner: LockOwner = self.granted.lock_owner;
        self.handle.desk.hand_in(self.submitter, HandedIn { tx_id: self.tx_id, lock_owner, outcome });
    }
}

impl Drop for Holds<'_> {
    fn drop(&mut self) {
        if !self.handed_in {
            let reason = NodeText::new("whoever asked for the nonce has stopped waiting");
            self.say(Err(Failure { code: NodeText::new("closure-dropped"), reason }));
            let _ = self.handle.work.try_send(self.submitter.clone());
        }
    }
}
