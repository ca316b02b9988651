//! Leases by this process's clock; [`gapless_core::lease::decide`] decides.

use gapless_core::ids::FencingToken;
use gapless_core::lease::{self, AcquireKind, Grant, LeaseRow, LeaseTerms, Owner};
use gapless_core::ports::store::{Acquired, Parting, Renewal, StoreResult};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::lane;
use super::rows::{self, Id};
use super::worker::unavailable;
use crate::flat::{lease_row, signed, submitter_id};

fn find(db: &Connection, submitter: &SubmitterId) -> StoreResult<Option<LeaseRow>> {
    let sql = "SELECT owner_node, owner_process, fencing_token, expires_at FROM submitter_lease WHERE submitter = ?1";
    let found = rows::first(db, sql, [submitter.as_str()], rows::lease)?.flatten();
    found.map(|(node, process, token, expires_at)| lease_row(&node, process, token, expires_at)).transpose()
}

fn grant(submitter: &SubmitterId, row: &LeaseRow) -> Grant {
    Grant::issued_by_store(submitter.clone(), row.owner.clone(), row.token, row.expires_at)
}

pub(super) fn acquire(
    db: &Connection,
    owner: &Owner,
    submitter: &SubmitterId,
    now: Timestamp,
    terms: &LeaseTerms,
    raise: bool,
) -> StoreResult<Acquired> {
    if !lane::is_registered(db, submitter)? {
        return Ok(Acquired::UnknownSubmitter);
    }
    let found = find(db, submitter)?;
    let kind = match (lease::decide(found.as_ref(), owner, now, terms), &found) {
        (Some(AcquireKind::Renew), _) if raise => AcquireKind::Takeover,
        (Some(kind), _) => kind,
        (None, Some(row)) => {
            return Ok(Acquired::NotOwner { owner: row.owner.clone(), expires_at: row.expires_at });
        }
        (None, None) => return Ok(Acquired::Busy),
    };
    let last = found.map_or(FencingToken(0), |row| row.token);
    let token = if kind == AcquireKind::Renew { last } else { last.next() };
    let row = LeaseRow { owner: owner.clone(), token, expires_at: now.plus(terms.duration()) };
    rows::run(
        db,
        "INSERT INTO submitter_lease (submitter, owner_node, owner_process, fencing_token, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (submitter) DO UPDATE SET owner_node = ?2, owner_process = ?3,
           fencing_token = ?4, expires_at = ?5, idle = 0",
        params![
            submitter.as_str(),
            owner.node(),
            Id(owner.process()),
            signed(token.0),
            row.expires_at.as_micros()
        ],
    )
    .map_err(unavailable)?;
    Ok(Acquired::Held { kind, grant: grant(submitter, &row) })
}

/// The row of a grant, if it is still that grant's.
fn held(db: &Connection, grant: &Grant) -> StoreResult<Option<LeaseRow>> {
    let row = find(db, grant.submitter())?;
    Ok(row.filter(|row| row.owner == *grant.owner() && row.token == grant.token()))
}

fn set(db: &Connection, submitter: &SubmitterId, expires_at: Timestamp, idle: bool) -> StoreResult<()> {
    let sql = "UPDATE submitter_lease SET expires_at = ?2, idle = ?3 WHERE submitter = ?1";
    rows::run(db, sql, params![submitter.as_str(), expires_at.as_micros(), idle]).map_err(unavailable)?;
    Ok(())
}

pub(super) fn renew(
    db: &Connection,
    old: &Grant,
    now: Timestamp,
    terms: &LeaseTerms,
) -> StoreResult<Renewal> {
    match held(db, old)?.filter(|row| row.expires_at > now.minus(terms.allowance())) {
        Some(row) => {
            let row = LeaseRow { expires_at: now.plus(terms.duration()), ..row };
            set(db, old.submitter(), row.expires_at, false)?;
            Ok(Renewal::Renewed(grant(old.submitter(), &row)))
        }
        None => Ok(Renewal::Lost),
    }
}

pub(super) fn release(db: &Connection, grant: &Grant, parting: Parting) -> StoreResult<bool> {
    if held(db, grant)?.is_none() {
        return Ok(false);
    }
    set(db, grant.submitter(), Timestamp::from_micros(0), parting == Parting::Idle)?;
    Ok(true)
}

/// Whether a change's lease is alive and its own.
pub(super) fn passes(
    db: &Connection,
    submitter: &SubmitterId,
    owner: &Owner,
    token: FencingToken,
    now: Timestamp,
) -> StoreResult<bool> {
    let row = find(db, submitter)?;
    Ok(row.is_some_and(|row| row.owner == *owner && row.token == token && row.expires_at > now))
}

const CLAIMABLE: &str = "
WITH RECURSIVE queued(submitter) AS (
  SELECT min(submitter) FROM managed_tx WHERE queue_ord IS NOT NULL AND submitter > ?4
  UNION ALL
  SELECT (SELECT min(m.submitter) FROM managed_tx m WHERE m.queue_ord IS NOT NULL AND m.submitter > q.submitter)
  FROM queued q WHERE q.submitter IS NOT NULL
), wanted AS (
  SELECT submitter FROM queued WHERE submitter IS NOT NULL
  UNION SELECT submitter FROM lane_command WHERE done_at IS NULL
  UNION SELECT submitter FROM submitter_lease WHERE NOT idle
)
SELECT w.submitter FROM wanted w LEFT JOIN submitter_lease l ON l.submitter = w.submitter
WHERE w.submitter > ?4 AND (l.submitter IS NULL OR l.expires_at <= ?1 OR l.expires_at > ?2)
ORDER BY w.submitter LIMIT ?3";

pub(super) fn claimable(
    db: &Connection,
    now: Timestamp,
    terms: &LeaseTerms,
    after: Option<&SubmitterId>,
    limit: usize,
) -> StoreResult<Vec<SubmitterId>> {
    let after = after.map_or("", SubmitterId::as_str);
    let overdue = now.minus(terms.allowance()).as_micros();
    let absurd = now.plus(terms.absurdly_far()).as_micros();
    let found: Vec<String> =
        rows::all(db, CLAIMABLE, params![overdue, absurd, signed(limit as u64), after], |row| row.get(0))?;
    found.iter().map(|text| submitter_id(text)).collect()
}
