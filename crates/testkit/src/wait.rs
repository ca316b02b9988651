//! Waiting for the outside world, with a failure message that says what never came.
//!
//! For what happens inside the test process a signal is better than polling; this is for what can only be
//! looked at: a row, a receipt, a process table.

use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Short enough not to slow a test, long enough not to starve a small machine.
const PAUSE: Duration = Duration::from_millis(10);
/// One look may take this long, however short the timeout is.
const LOOK: Duration = Duration::from_secs(1);

/// Calls `probe` until it returns a value, and fails naming `what` once `timeout` has passed.
///
/// The last look is always begun *after* the deadline, so that a machine that stalled between two looks does not
/// turn a success into a failure. A look that does not return, at a frozen server for one, is a failure too.
pub async fn eventually<T, F, Fut>(timeout: Duration, what: &str, mut probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    #[expect(clippy::disallowed_methods, reason = "other processes keep real time, so this waits in it")]
    let started = Instant::now();
    loop {
        let last = started.elapsed() >= timeout;
        match tokio::time::timeout(timeout.max(LOOK), probe()).await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) if last => return Err(Error::Timeout { what: what.to_owned(), waited: timeout }),
            Ok(None) => tokio::time::sleep(PAUSE.min(timeout)).await,
            Err(_) => {
                let what = format!("{what} (the last look at it did not return)");
                return Err(Error::Timeout { what, waited: started.elapsed() });
            }
        }
    }
}
