//! Words between the parts of one process, for the stores that serve only one.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use gapless_core::submitter::SubmitterId;
use tokio::sync::Notify;

/// Submitters somebody spoke of and nobody has heard of yet.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    spoken: Mutex<BTreeSet<SubmitterId>>,
    heard: Notify,
}

impl Notices {
    pub(crate) fn speak(&self, submitters: &[SubmitterId]) {
        self.spoken.lock().unwrap_or_else(PoisonError::into_inner).extend(submitters.iter().cloned());
        self.heard.notify_one();
    }

    /// Waits until there is something to hear, and takes all of it.
    pub(crate) async fn hear(&self) -> Vec<SubmitterId> {
        loop {
            let spoken = std::mem::take(&mut *self.spoken.lock().unwrap_or_else(PoisonError::into_inner));
            if !spoken.is_empty() {
                return spoken.into_iter().collect();
            }
            self.heard.notified().await;
        }
    }
}
