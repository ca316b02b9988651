//! How long the queues are. One index probe per submitter; an idle one costs nothing more.

use gapless_core::ports::store::StoreResult;
use gapless_core::submitter::SubmitterId;
use rusqlite::Connection;

use super::worker::unavailable;

const DEPTH: &str = "SELECT count(*) FROM managed_tx WHERE submitter = ?1 AND queue_ord IS NOT NULL";

pub(super) fn queue_depths(db: &Connection, submitters: &[SubmitterId]) -> StoreResult<Vec<u64>> {
    let mut statement = db.prepare_cached(DEPTH).map_err(unavailable)?;
    let depth =
        |submitter: &SubmitterId| statement.query_row([submitter.as_str()], |row| row.get::<_, i64>(0));
    let depths: rusqlite::Result<Vec<i64>> = submitters.iter().map(depth).collect();
    Ok(depths.map_err(unavailable)?.into_iter().map(i64::cast_unsigned).collect())
}
