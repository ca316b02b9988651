//! Fenced commits of many lanes, in one statement.
//!
//! The statement locks each lane's lease row `FOR KEY SHARE` while it checks owner, token and expiry, and
//! compares the cursor's version; everything else in it applies only to lanes that passed. KEY SHARE lets
//! the owner's renewals through and makes a takeover wait until this commit is done (the token is a key
//! column). A lane whose row is being taken over right now is skipped, not waited for: verdict `Retry`.
//!
//! A batch that fails for the sake of one lane is repeated lane by lane, so that only the culprit pays.

use std::collections::HashSet;

use gapless_core::change::{LaneChange, Verdict};
use gapless_core::limits::MAX_COMMIT_LANES;
use gapless_core::ports::store::{StoreError, StoreResult};
use gapless_core::text::NodeText;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::error::{self, Class};
use super::statement::Statement;
use crate::memory::bounded;

pub(super) async fn commit(
    connection: &mut PgConnection,
    changes: &[LaneChange],
) -> StoreResult<Vec<Verdict>> {
    bounded("commit", changes.len(), MAX_COMMIT_LANES)?;
    let mut verdicts = vec![Verdict::Retry; changes.len()];
    let mut seen = HashSet::new();
    let mut lanes: Vec<usize> = (0..changes.len()).filter(|i| seen.insert(changes[*i].submitter())).collect();
    lanes.sort_by_key(|i| changes[*i].submitter());
    if lanes.is_empty() {
        return Ok(verdicts);
    }
    let batch: Vec<&LaneChange> = lanes.iter().map(|i| &changes[*i]).collect();
    match execute(connection, &batch).await {
        Ok(answers) => lanes.iter().zip(answers).for_each(|(i, verdict)| verdicts[*i] = verdict),
        Err(error) if error::class(&error) == Class::Unknown => return Err(error::writing(error)),
        Err(error) if batch.len() == 1 => verdicts[lanes[0]] = alone_failed(error)?,
        Err(error) => {
            tracing::warn!(lanes = batch.len(), %error, "a batch failed, repeating it lane by lane");
            for i in lanes {
                verdicts[i] = match execute(connection, &[&changes[i]]).await {
                    Ok(answers) => answers.into_iter().next().unwrap_or(Verdict::Retry),
                    // Others of this batch are written already; their verdicts must not be lost to this one.
                    Err(error) if error::class(&error) == Class::Refused => Verdict::Retry,
                    Err(error) => alone_failed(error)?,
                };
            }
        }
    }
    Ok(verdicts)
}

fn alone_failed(error: sqlx::Error) -> StoreResult<Verdict> {
    match error::class(&error) {
        Class::Poison => Ok(Verdict::Refused { reason: NodeText::new(&error.to_string()) }),
        Class::Busy => Ok(Verdict::Retry),
        Class::Refused | Class::Unknown => Err(error::writing(error)),
    }
}

/// Runs the one statement; verdicts in the order of `batch`.
pub(super) async fn execute(
    connection: &mut PgConnection,
    batch: &[&LaneChange],
) -> Result<Vec<Verdict>, sqlx::Error> {
    let Statement { sql, arguments } = Statement::of(batch)?;
    let rows = sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await?;
    let mut verdicts = vec![Verdict::Retry; batch.len()];
    for row in rows {
        let lane = usize::try_from(row.try_get::<i64, _>("lane")?).unwrap_or_default();
        let Some(i) = lane.checked_sub(1).filter(|i| *i < batch.len()) else { continue };
        let (applied, locked, held) = (row.try_get("applied")?, row.try_get("locked")?, row.try_get("held")?);
        verdicts[i] = match (applied, locked, held) {
            (true, _, _) => Verdict::Applied { version: batch[i].expected().next() },
            // Held, but its row was busy: a takeover or a ghost of our own is at work.
            (false, false, true) => Verdict::Retry,
            (false, _, _) => Verdict::Fenced,
        };
    }
    Ok(verdicts)
}

impl From<sqlx::error::BoxDynError> for Encoding {
    fn from(error: sqlx::error::BoxDynError) -> Self {
        Self(error)
    }
}

/// A value that could not be encoded; nothing was sent.
pub(super) struct Encoding(sqlx::error::BoxDynError);

impl From<Encoding> for sqlx::Error {
    fn from(error: Encoding) -> Self {
        sqlx::Error::Encode(error.0)
    }
}

impl From<Encoding> for StoreError {
    fn from(error: Encoding) -> Self {
        Self::Unavailable(error.0.to_string())
    }
}
