//! Durable-first, broken on purpose: a test that wants to see the break noticed sends before it stores. Compiled only with
//! the feature `test-hooks`, which the binary never enables.

use gapless_core::attempt::{NewAttempt, StoredAttempt};

use super::Lane;

impl Lane {
    /// Hands bytes to the chain that no store holds, if the test asked for it.
    pub(super) async fn send_unstored(&self, attempts: &[NewAttempt]) {
        for attempt in attempts.iter().filter(|_| self.tools.sends_first) {
            let pretended = StoredAttempt::read_from_store(attempt.clone(), self.database_time(), 0, None);
            self.chain.calls.send(&self.submitter.id, pretended).await;
        }
    }
}
