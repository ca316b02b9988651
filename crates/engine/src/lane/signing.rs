//! From a decision to signed bytes, in memory only.

use gapless_core::attempt::{AttemptKind, NewAttempt, Route};
use gapless_core::fees::{Fees, Gas};
use gapless_core::ids::{Nonce, TxId};
use gapless_core::intent::Payload;
use gapless_core::ports::chain::Unsigned;
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
        let Some(signer) = self.submitter.signer.as_ref() else {
            return Err(NodeText::new("there is no signer"));
        };
        let Wish { nonce, n, tx_id, kind, payload, gas, fees } = wish;
        let unsigned =
            Unsigned { submitter: self.submitter.id.clone(), nonce, payload, gas_limit: gas, fees };
        let (signed, failed) = signer.sign(std::slice::from_ref(&unsigned)).await;
        let Some(signed) = signed.into_iter().next() else {
            let words = failed.map_or("the signer returned nothing".to_owned(), |error| error.to_string());
            let words = NodeText::new(&words);
            let tx_id = tx_id.map(|tx_id| tx_id.to_string());
            warn!(submitter = %self.submitter.id, tx_id, error = %words, "not signed");
            return Err(words);
        };
        let next_send_at = self.database_time().plus(self.submitter.settings.resubmit_after());
        Ok(NewAttempt {
            nonce,
            n,
            tx_id,
            kind,
            route: Route::Public,
            hash: signed.hash,
            raw: signed.raw,
            fees,
            next_send_at,
        })
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
