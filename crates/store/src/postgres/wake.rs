//! Waking lanes on other nodes by NOTIFY, after the commit and coalesced: inside the insert it would take more
//! than half of the accept rate. A word that gets lost (a listener reconnecting) is made good by the sweep.

use gapless_core::ports::store::StoreResult;
use gapless_core::submitter::SubmitterId;
use sqlx::postgres::PgListener;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Mutex;

use super::error;

const CHANNEL: &str = "gapless_wake";

/// Names per NOTIFY; a payload holds at most 8,000 bytes.
const NAMES: usize = 60;

pub(super) async fn notify(connection: &mut PgConnection, submitters: &[SubmitterId]) -> StoreResult<()> {
    for names in submitters.chunks(NAMES) {
        let payload = names.iter().map(SubmitterId::as_str).collect::<Vec<_>>().join(" ");
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(CHANNEL)
            .bind(payload)
            .execute(&mut *connection)
            .await
            .map_err(error::writing)?;
    }
    Ok(())
}

/// One listening connection, opened by the first who waits.
#[derive(Default)]
pub(super) struct Listener(Mutex<Option<PgListener>>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    pub(super) async fn hear(&self, pool: &PgPool) -> StoreResult<Vec<SubmitterId>> {
        let mut slot = self.0.lock().await;
        let listener = match slot.take() {
            Some(listener) => slot.insert(listener),
            None => {
                let mut listener = PgListener::connect_with(pool).await.map_err(error::unavailable)?;
                listener.listen(CHANNEL).await.map_err(error::unavailable)?;
                slot.insert(listener)
            }
        };
        match listener.recv().await {
            // A name that this binary cannot read is for another one.
            Ok(notice) => Ok(notice.payload().split(' ').filter_map(|name| name.parse().ok()).collect()),
            Err(error) => {
                *slot = None;
                Err(error::unavailable(error))
            }
        }
    }
}
