//! How long the queues are. One index probe per submitter; an idle one costs nothing more.

use gapless_core::limits::MAX_PAGE;
use gapless_core::ports::store::StoreResult;
use gapless_core::submitter::SubmitterId;
use sqlx::PgConnection;

use super::error;
use crate::memory::bounded;

const DEPTHS: &str = "
SELECT (SELECT count(*) FROM tx_queue q
  WHERE q.submitter_number = (SELECT s.number FROM submitter s WHERE s.submitter = u.submitter))
FROM unnest($1::text[]) WITH ORDINALITY AS u(submitter, place) ORDER BY u.place";

pub(super) async fn queue_depths(
    connection: &mut PgConnection,
    submitters: &[SubmitterId],
) -> StoreResult<Vec<u64>> {
    bounded("queue_depths", submitters.len(), MAX_PAGE)?;
    let names: Vec<&str> = submitters.iter().map(SubmitterId::as_str).collect();
    let found = sqlx::query_scalar::<_, i64>(DEPTHS).bind(names).fetch_all(connection).await;
    Ok(found.map_err(error::reading)?.into_iter().map(i64::cast_unsigned).collect())
}
