//! From a decision to signed bytes, in memory only.

use gapless_core::attempt::{AttemptKind, NewAttempt, Route};
use gapless_core::fees::{Fees, Gas};
use gapless_core::ids::{Nonce, TxId};
use gapless_core::intent::Payload;
use gapless_core::ports::chain::{Signed, Unsigned};
use gapless_core::text::NodeText;
use tracing::warn;

use super::Lane;

/// What to sign.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) nonce: Nonce,
    /// Ordinal within the slot.
    pub(super) n: u32,
    /// None for a placeholder that belongs to nobody.
    pub(super) tx_id: Option<TxId>,
    pub(super) kind: AttemptKind,
    pub(super) payload: Payload,
    pub(super) gas: Gas,
    pub(super) fees: Fees,
}

impl Lane {
    /// Signed bytes, or the signer's words.
    pub(super) async fn sign(&self, wish: Wish) -> Result<NewAttempt, NodeText> {
        let (mut signed, failed) = self.sign_all(vec![wish]).await;
        signed.pop().ok_or_else(|| failed.unwrap_or_else(|| NodeText::new("the signer returned nothing")))
    }

    /// Signed bytes, in order, up to the first that the signer did not sign, and its words about that one.
    pub(super) async fn sign_all(&self, wishes: Vec<Wish>) -> (Vec<NewAttempt>, Option<NodeText>) {
        let Some(signer) = self.submitter.signer.as_ref() else {
            return (Vec::new(), Some(NodeText::new("there is no signer")));
        };
        let unsigned = |wish: &Wish| Unsigned {
            submitter: self.submitter.id.clone(),
            nonce: wish.nonce,
            payload: wish.payload.clone(),
            gas_limit: wish.gas,
            fees: wish.fees,
        };
        let unsigned: Vec<Unsigned> = wishes.iter().map(unsigned).collect();
        let (signed, failed) = signer.sign(&unsigned).await;
        let next_send_at = self.database_time().plus(self.submitter.settings.resubmit_after());
        let failed = wishes.get(signed.len()).map(|unsigned| {
            let words = failed.map_or("the signer returned nothing".to_owned(), |error| error.to_string());
            let words = NodeText::new(&words);
            let tx_id = unsigned.tx_id.map(|tx_id| tx_id.to_string());
            warn!(submitter = %self.submitter.id, tx_id, error = %words, "not signed");
            words
        });
        let attempt = |(wish, signed): (Wish, Signed)| NewAttempt {
            nonce: wish.nonce,
            n: wish.n,
            tx_id: wish.tx_id,
            kind: wish.kind,
            route: Route::Public,
            hash: signed.hash,
            raw: signed.raw,
            fees: wish.fees,
            next_send_at,
        };
        (wishes.into_iter().zip(signed).map(attempt).collect(), failed)
    }

    /// Whether placeholders can be made.
    pub(super) fn can_fill(&self) -> bool {
        self.submitter.signer.as_ref().is_some_and(|signer| signer.can_fill_slots())
    }

    /// What moves nothing: zero value to oneself.
    pub(super) fn nothing(&self) -> Payload {
        Payload { to: self.submitter.id.address(), ..Payload::default() }
    }
}
