//! Where events go: a log, a webhook, a broker. A sink that fails delays its own delivery and nothing
//! else.

use async_trait::async_trait;
use thiserror::Error;

use crate::event::Event;

/// A delivery that did not work; it will be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("delivery failed: {0}")]
pub struct SinkError(pub String);

/// Takes events, at least once each, in order per transaction.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Delivers a run of events. An error means none of them counts as delivered.
    async fn deliver(&self, events: &[Event]) -> Result<(), SinkError>;
}
