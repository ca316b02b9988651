//! Signing. What a signer outside this process returns is decoded and compared field by field by the
//! adapter before it counts as signed.

use async_trait::async_trait;
use thiserror::Error;

use crate::ports::chain::{Signed, Unsigned};
use crate::text::NodeText;

/// Why something was not signed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SignError {
    /// The signer does not answer; try later.
    #[error("the signer does not answer: {0}")]
    Unavailable(NodeText),
    /// The signer will not sign this.
    #[error("the signer refuses: {0}")]
    Refused(NodeText),
    /// What came back is not what was asked.
    #[error("the signer returned another transaction: {0}")]
    Tampered(NodeText),
}

/// Signs for one submitter.
#[async_trait]
pub trait Signer: Send + Sync {
    /// Signs in order. A failure at `i` truncates the run: the answers before it stand.
    async fn sign(&self, unsigned: &[Unsigned]) -> (Vec<Signed>, Option<SignError>);

    /// Whether it can sign bytes we make up, and so placeholders.
    fn can_fill_slots(&self) -> bool;
}
