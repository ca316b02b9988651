//! Opening the store for as long as it takes: a node that starts before its database waits for it.
//!
//! It tries for ever, with growing pauses, and says so each time: whoever started the process knows better when to
//! give up. What waiting cannot mend (a wrong password, a schema that is too old, an unreadable file) ends it at once.

use std::sync::Arc;
use std::time::Duration;

use gapless_core::ports::clock::Clock;
use gapless_core::ports::store::{Store, StoreError};
use gapless_store::{OpenError, StoreUrl};
use tracing::warn;

use crate::config::Config;
use crate::wiring;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Opens the configured store, when it can be reached.
pub(crate) async fn store(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Store>> {
    let is_a_server = matches!(config.store.url.parse::<StoreUrl>()?, StoreUrl::Postgres(_));
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match wiring::store(config, clock.clone()).await {
            Ok(store) => return Ok(store),
            Err(error) => error,
        };
        match error.downcast_ref::<OpenError>() {
            Some(open @ OpenError::Store(StoreError::Unavailable(_))) if is_a_server => {
                warn!(code = open.code(), error = %open, again_in = ?pause, "waiting for the database");
            }
            _ => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
