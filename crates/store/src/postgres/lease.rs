//! Leases, by the database's clock.
//!
//! `acquire` says in SQL what [`gapless_core::lease::decide`] says in Rust. Raising the token changes a
//! key column, so it waits for every fenced write that has passed its check: after it returns, whatever
//! the former owner could still commit is either visible or refused.

use std::collections::HashMap;
use std::time::Duration;

use gapless_core::ids::FencingToken;
use gapless_core::lease::{AcquireKind, Grant, LeaseTerms, Owner};
use gapless_core::ports::store::{Acquired, Parting, Renewal, StoreError, StoreResult};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::{Timestamp, micros};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use super::error::{self, Class};
use super::rows;
use crate::flat::{corrupt, submitter_id};

const ACQUIRE: &str = "
WITH prior AS MATERIALIZED (
  SELECT l.owner_node, l.owner_process, l.expires_at,
    l.expires_at > gapless_now() - $5 * interval '1 microsecond'
      AND l.expires_at <= gapless_now() + $6 * interval '1 microsecond' AS live
  FROM submitter_lease l WHERE l.submitter = $1 FOR UPDATE
), taken AS (
  UPDATE submitter_lease l SET owner_node = $2, owner_process = $3, idle = false,
    fencing_token = l.fencing_token + CASE WHEN p.live AND NOT $7 THEN 0 ELSE 1 END,
    expires_at = gapless_now() + $4 * interval '1 microsecond'
  FROM prior p
  WHERE l.submitter = $1 AND (NOT p.live OR (p.owner_node = $2 AND p.owner_process = $3))
  RETURNING l.fencing_token, l.expires_at
), fresh AS (
  INSERT INTO submitter_lease (submitter, owner_node, owner_process, fencing_token, expires_at)
  SELECT s.submitter, $2, $3, 1, gapless_now() + $4 * interval '1 microsecond'
  FROM submitter s WHERE s.submitter = $1 AND NOT EXISTS (SELECT FROM prior)
  ON CONFLICT (submitter) DO NOTHING
  RETURNING fencing_token, expires_at
)
SELECT EXISTS (SELECT FROM submitter WHERE submitter = $1) AS known,
  p.owner_node, p.owner_process, p.expires_at AS prior_expires_at, coalesce(p.live, false) AS live,
  coalesce(t.fencing_token, f.fencing_token) AS token, coalesce(t.expires_at, f.expires_at) AS expires_at,
  f.fencing_token IS NOT NULL AS inserted
FROM (SELECT) one LEFT JOIN prior p ON true LEFT JOIN taken t ON true LEFT JOIN fresh f ON true";

/// Acquires, renews or takes over one lane; with `raise`, an own live lease gets a new token too.
pub(super) async fn acquire(
    connection: &mut PgConnection,
    owner: &Owner,
    submitter: &SubmitterId,
    terms: &LeaseTerms,
    raise: bool,
) -> StoreResult<Acquired> {
    // Two nodes may insert the first lease at once; the loser looks again and finds the winner.
    for _ in 0..3 {
        let row = sqlx::query(ACQUIRE)
            .bind(submitter.as_str())
            .bind(owner.node())
            .bind(owner.process())
            .bind(micros(terms.duration()))
            .bind(micros(terms.allowance()))
            .bind(micros(terms.absurdly_far()))
            .bind(raise)
            .fetch_one(&mut *connection)
            .await;
        match row {
            Ok(row) => {
                if let Some(acquired) =
                    read_acquired(&row, owner, submitter, raise).map_err(error::reading)?
                {
                    return acquired;
                }
            }
            Err(error) if error::class(&error) == Class::Busy => return Ok(Acquired::Busy),
            Err(error) => return Err(error::writing(error)),
        }
    }
    Ok(Acquired::Busy)
}

fn read_acquired(
    row: &PgRow,
    owner: &Owner,
    submitter: &SubmitterId,
    raise: bool,
) -> Result<Option<StoreResult<Acquired>>, sqlx::Error> {
    if !row.try_get::<bool, _>("known")? {
        return Ok(Some(Ok(Acquired::UnknownSubmitter)));
    }
    if let Some(token) = row.try_get::<Option<i64>, _>("token")? {
        let expires_at: OffsetDateTime = row.try_get("expires_at")?;
        let kind = match (row.try_get("inserted")?, row.try_get("live")?) {
            (true, _) => AcquireKind::Insert,
            (false, true) if !raise => AcquireKind::Renew,
            (false, _) => AcquireKind::Takeover,
        };
        return Ok(Some(Ok(Acquired::Held { kind, grant: grant(submitter, owner, token, expires_at) })));
    }
    let Some(node) = row.try_get::<Option<String>, _>("owner_node")? else { return Ok(None) };
    let holder = Owner::new(&node, row.try_get("owner_process")?).map_err(|_| corrupt("owner_node"));
    let expires_at = Timestamp::from_micros(rows::micros(row.try_get("prior_expires_at")?));
    Ok(Some(holder.map(|owner| Acquired::NotOwner { owner, expires_at })))
}

fn grant(submitter: &SubmitterId, owner: &Owner, token: i64, expires_at: OffsetDateTime) -> Grant {
    let token = FencingToken(token.unsigned_abs());
    Grant::issued_by_store(
        submitter.clone(),
        owner.clone(),
        token,
        Timestamp::from_micros(rows::micros(expires_at)),
    )
}

const RENEW: &str = "
UPDATE submitter_lease l SET expires_at = gapless_now() + $5 * interval '1 microsecond'
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[])
      AS u(submitter, node, process, token) ORDER BY 1) g
WHERE l.submitter = g.submitter AND l.owner_node = g.node AND l.owner_process = g.process
  AND l.fencing_token = g.token AND l.expires_at > gapless_now() - $6 * interval '1 microsecond'
RETURNING l.submitter, l.expires_at";

struct Columns<'a> {
    submitters: Vec<&'a str>,
    nodes: Vec<&'a str>,
    processes: Vec<uuid::Uuid>,
    tokens: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(grants: impl Iterator<Item = &'a Grant> + Clone) -> Self {
        Self {
            submitters: grants.clone().map(|g| g.submitter().as_str()).collect(),
            nodes: grants.clone().map(|g| g.owner().node()).collect(),
            processes: grants.clone().map(|g| g.owner().process()).collect(),
            tokens: grants.map(|g| crate::flat::signed(g.token().0)).collect(),
        }
    }
}

pub(super) async fn renew(
    connection: &mut PgConnection,
    grants: &[Grant],
    terms: &LeaseTerms,
) -> StoreResult<Vec<Renewal>> {
    let columns = Columns::of(grants.iter());
    let rows = sqlx::query(RENEW)
        .bind(columns.submitters)
        .bind(columns.nodes)
        .bind(columns.processes)
        .bind(columns.tokens)
        .bind(micros(terms.duration()))
        .bind(micros(terms.allowance()))
        .fetch_all(connection)
        .await
        .map_err(error::writing)?;
    let renewed: HashMap<String, OffsetDateTime> = rows
        .iter()
        .map(|row| Ok((row.try_get("submitter")?, row.try_get("expires_at")?)))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(error::reading)?;
    let renewal = |g: &Grant| match renewed.get(g.submitter().as_str()) {
        Some(at) => Renewal::Renewed(grant(g.submitter(), g.owner(), crate::flat::signed(g.token().0), *at)),
        None => Renewal::Lost,
    };
    Ok(grants.iter().map(renewal).collect())
}

const RELEASE: &str = "
UPDATE submitter_lease l SET expires_at = to_timestamp(0), idle = g.idle
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::bool[])
      AS u(submitter, node, process, token, idle) ORDER BY 1) g
WHERE l.submitter = g.submitter AND l.owner_node = g.node AND l.owner_process = g.process
  AND l.fencing_token = g.token
RETURNING l.submitter";

pub(super) async fn release(
    connection: &mut PgConnection,
    grants: &[(Grant, Parting)],
) -> StoreResult<Vec<bool>> {
    let columns = Columns::of(grants.iter().map(|(grant, _)| grant));
    let released: Vec<String> = sqlx::query_scalar(RELEASE)
        .bind(columns.submitters)
        .bind(columns.nodes)
        .bind(columns.processes)
        .bind(columns.tokens)
        .bind(grants.iter().map(|(_, parting)| *parting == Parting::Idle).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(error::writing)?;
    Ok(grants.iter().map(|(g, _)| released.iter().any(|s| s == g.submitter().as_str())).collect())
}

/// Lanes that somebody died on, and lanes with a queue or a command, unless somebody holds them. The queue
/// and the commands are walked by distinct submitter (a loose index scan), so neither history nor depth
/// nor idle submitters cost anything. The order names every column of the index meant, so that no plan made on an
/// empty table can prefer another one and walk the history.
const CLAIMABLE: &str = "
WITH RECURSIVE queued AS (
  (SELECT submitter_number AS number FROM tx_queue ORDER BY submitter_number, ord LIMIT 1)
  UNION ALL
  SELECT (SELECT t.submitter_number FROM tx_queue t WHERE t.submitter_number > q.number
          ORDER BY t.submitter_number, t.ord LIMIT 1)
  FROM queued q WHERE q.number IS NOT NULL
), commanded AS (
  (SELECT submitter FROM lane_command WHERE done_at IS NULL AND submitter > $4 ORDER BY submitter, ord LIMIT 1)
  UNION ALL
  SELECT (SELECT c.submitter FROM lane_command c WHERE c.done_at IS NULL AND c.submitter > q.submitter
          ORDER BY c.submitter, c.ord LIMIT 1)
  FROM commanded q WHERE q.submitter IS NOT NULL
), wanted AS (
  SELECT s.submitter FROM queued q JOIN submitter s ON s.number = q.number WHERE s.submitter > $4
  UNION SELECT submitter FROM commanded WHERE submitter IS NOT NULL
  UNION SELECT submitter FROM submitter_lease WHERE NOT idle AND submitter > $4
)
SELECT w.submitter FROM wanted w LEFT JOIN submitter_lease l ON l.submitter = w.submitter
WHERE l.submitter IS NULL OR l.expires_at <= gapless_now() - $1 * interval '1 microsecond'
  OR l.expires_at > gapless_now() + $2 * interval '1 microsecond'
ORDER BY w.submitter LIMIT $3";

pub(super) async fn claimable(
    connection: &mut PgConnection,
    terms: &LeaseTerms,
    after: Option<&SubmitterId>,
    limit: usize,
) -> StoreResult<Vec<SubmitterId>> {
    let far: Duration = terms.absurdly_far();
    let found: Vec<String> = sqlx::query_scalar(CLAIMABLE)
        .bind(micros(terms.allowance()))
        .bind(micros(far))
        .bind(i64::try_from(limit).map_err(|_| StoreError::TooMany {
            what: "claimable",
            given: limit,
            limit: 0,
        })?)
        .bind(after.map_or("", SubmitterId::as_str))
        .fetch_all(connection)
        .await
        .map_err(error::reading)?;
    found.iter().map(|text| submitter_id(text)).collect()
}
