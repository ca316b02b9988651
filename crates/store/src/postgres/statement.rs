//! Composing the fenced statement from the parts a batch needs.
//!
//! Every part is one CTE over an `unnest`ed array of rows (or arrays, where rows are few), joined to the lanes that passed the fence by position:
//! `(SELECT map FROM ok)[lane]` is a lookup, where a join would be quadratic without hashing. Parts a
//! batch does not need are left out; the few shapes that occur are prepared once per session.
//!
//! Rows are found by their primary key and nothing else. A second equality that an index could serve is written
//! `(a = b) IS TRUE`: on small tables the planner may prefer that index, keep the plan, and walk a lane's whole
//! history once it has one.

use std::collections::BTreeMap;

use gapless_core::allocation::{AllocationStatus, AllocationWrite};
use gapless_core::change::LaneChange;
use gapless_core::time::micros;
use sqlx::Arguments;
use sqlx::postgres::PgArguments;
use time::OffsetDateTime;

use super::commit::Encoding;
use super::facts;
use super::input::InAttempt;
use super::rows::at;
use crate::flat::{FlatAllocation, FlatCursor, signed, to_json};

pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) arguments: PgArguments,
}

/// Collects parameters and hands out their `$n::type[]`.
#[derive(Default)]
pub(super) struct Binder {
    arguments: PgArguments,
    count: usize,
    error: Option<Encoding>,
}

impl Binder {
    pub(super) fn add<'t, T>(&mut self, values: Vec<T>, sql_type: &str) -> String
    where
        Vec<T>: sqlx::Encode<'t, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + 't,
    {
        if let Err(error) = self.arguments.add(values) {
            self.error = Some(error.into());
        }
        self.count += 1;
        format!("${}::{sql_type}[]", self.count)
    }
}

macro_rules! columns {
    ($binder:ident, $rows:expr, $($sql_type:literal: $value:expr),+ $(,)?) => {
        [$($binder.add($rows.iter().map($value).collect::<Vec<_>>(), $sql_type)),+].join(", ")
    };
}

impl Statement {
    pub(super) fn of(batch: &[&LaneChange]) -> Result<Self, Encoding> {
        let mut binder = Binder::default();
        let mut parts = vec![lanes(&mut binder, batch)];
        let mut expects = Vec::new();
        let blocks = [
            facts::bound_at_once,
            facts::first,
            facts::later,
            attempts,
            unbound,
            notes,
            allocations,
            lapses,
            settled,
            commands,
        ];
        for block in blocks {
            if let Some(block) = block(&mut binder, batch) {
                parts.push(block.ctes);
                expects.push(format!(
                    "(SELECT gapless_expect('{}', (SELECT count(*) FROM {}), {}))",
                    block.what, block.touched, block.planned
                ));
            }
        }
        let expects = expects.iter().map(|expect| format!(", {expect}")).collect::<String>();
        let sql = format!("WITH {}{VERDICTS}{expects} FROM input i", parts.join(", "));
        match binder.error {
            Some(error) => Err(error),
            None => Ok(Self { sql, arguments: binder.arguments }),
        }
    }
}

const VERDICTS: &str = "
SELECT i.lane, (SELECT map FROM ok)[i.lane] AS applied, i.lane IN (SELECT lane FROM fence) AS locked,
  EXISTS (SELECT FROM submitter_lease l WHERE l.submitter = i.submitter AND l.owner_node = i.node
    AND l.owner_process = i.process AND l.fencing_token = i.token AND l.expires_at > gapless_now()) AS held";

pub(super) struct Block {
    pub(super) what: &'static str,
    pub(super) ctes: String,
    pub(super) touched: &'static str,
    pub(super) planned: String,
}

/// How many rows are to be touched in the lanes that passed, for parts that do not keep their input.
pub(super) fn planned(
    binder: &mut Binder,
    batch: &[&LaneChange],
    of: impl Fn(&LaneChange) -> usize,
) -> String {
    let counts = binder.add(batch.iter().map(|change| of(change) as i64).collect(), "bigint");
    format!(
        "(SELECT coalesce(sum(n), 0)::bigint FROM unnest({counts}) WITH ORDINALITY AS p(n, lane) WHERE (SELECT map FROM ok)[p.lane])"
    )
}

/// The fence, the cursors, and the events of every lane.
fn lanes(binder: &mut Binder, batch: &[&LaneChange]) -> String {
    let cursors: Vec<(&&LaneChange, FlatCursor)> =
        batch.iter().map(|c| (c, FlatCursor::from(c.cursor()))).collect();
    let events = |change: &LaneChange| {
        let events = change.events();
        (!events.is_empty()).then(|| to_json(&events))
    };
    let columns = columns!(
        binder, cursors,
        "text": |(c, _)| c.submitter().as_str().to_owned(),
        "text": |(c, _)| c.owner().node().to_owned(),
        "uuid": |(c, _)| c.owner().process(),
        "bigint": |(c, _)| signed(c.token().0),
        "bigint": |(c, _)| signed(c.expected().0),
        "bigint": |(_, f)| f.start_nonce,
        "bigint": |(_, f)| f.next_nonce,
        "bigint": |(_, f)| f.consumed,
        "bigint": |(_, f)| f.resolved,
        "bigint": |(_, f)| f.settled,
        "bigint": |(_, f)| f.in_flight_nonce,
        "uuid": |(_, f)| f.in_flight_tx_id,
        "text": |(_, f)| f.condition.clone(),
        "text": |(_, f)| f.conditions.clone(),
        "text": |(c, _)| events(c),
    );
    format!(
        "input AS MATERIALIZED (
  SELECT u.*, nextval('outbox_event_id') AS event_id FROM unnest({columns}) WITH ORDINALITY
    AS u(submitter, node, process, token, expected, start_nonce, next_nonce, consumed, resolved, settled,
         in_flight_nonce, in_flight_tx_id, condition, conditions, events, lane)
), fence AS MATERIALIZED (
  SELECT i.* FROM input i JOIN submitter_lease l
    ON l.submitter = i.submitter AND l.owner_node = i.node AND l.owner_process = i.process
   AND l.fencing_token = i.token AND l.expires_at > gapless_now()
  ORDER BY l.submitter FOR KEY SHARE OF l SKIP LOCKED
), cur AS (
  UPDATE submitter_nonce_cursor c SET start_nonce = f.start_nonce, next_nonce = f.next_nonce,
    consumed = f.consumed, resolved = f.resolved, settled = f.settled, in_flight_nonce = f.in_flight_nonce,
    in_flight_tx_id = f.in_flight_tx_id, condition = f.condition, conditions = f.conditions::json,
    version = f.expected + 1, fencing_token = f.token, updated_at = gapless_now()
  FROM fence f WHERE c.submitter = f.submitter AND c.version = f.expected RETURNING f.lane
), ok AS MATERIALIZED (
  SELECT array_agg(i.lane IN (SELECT lane FROM cur) ORDER BY i.lane) AS map,
    array_agg(int8send(i.event_id) ORDER BY i.lane) AS event_ids, array_agg(i.token ORDER BY i.lane) AS tokens,
    array_agg((SELECT s.number FROM submitter s WHERE s.submitter = i.submitter) ORDER BY i.lane) AS numbers
  FROM input i
), told AS (
  INSERT INTO outbox_event (id, submitter, events)
  SELECT i.event_id, i.submitter, i.events FROM input i
  WHERE i.events IS NOT NULL AND (SELECT map FROM ok)[i.lane]
)"
    )
}

/// (lane, submitter, item) for every item of a kind; lanes count from 1.
pub(super) fn each<'a, T>(
    batch: &[&'a LaneChange],
    of: impl Fn(&'a LaneChange) -> &'a [T],
) -> Vec<(i64, &'a str, &'a T)> {
    let lane = |(i, change): (usize, &&'a LaneChange)| {
        let change: &'a LaneChange = change;
        of(change).iter().map(move |item| (i as i64 + 1, change.submitter().as_str(), item))
    };
    batch.iter().enumerate().flat_map(lane).collect()
}

fn attempts(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = each(batch, |change| &change.writes().attempts);
    if rows.is_empty() {
        return None;
    }
    let rows = rows.iter().map(|(lane, _, attempt)| InAttempt::of(*lane, attempt)).collect();
    let rows = binder.add::<InAttempt>(rows, "attempt_write");
    let planned = planned(binder, batch, |change| change.writes().attempts.len());
    let ctes = format!(
        "attempt_out AS (
  INSERT INTO tx_attempt (submitter_number, nonce, n, tx_id, kind, route, hash, raw, fees, next_send_at)
  SELECT (SELECT numbers FROM ok)[a.lane], nonce, n, tx_id, kind, route, hash, raw, fees, next_send_at FROM unnest({rows}) a
  WHERE (SELECT map FROM ok)[a.lane] RETURNING 1
)"
    );
    Some(Block { what: "attempts", ctes, touched: "attempt_out", planned })
}

fn unbound(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = each(batch, |change| &change.writes().unbound);
    if rows.is_empty() {
        return None;
    }
    let columns = columns!(binder, rows, "bigint": |r| r.0, "bigint": |r| signed(r.2.0));
    let ctes = format!(
        "unbound_in AS MATERIALIZED (
  SELECT (SELECT numbers FROM ok)[b.lane] AS submitter_number, b.nonce
  FROM unnest({columns}) AS b(lane, nonce) WHERE (SELECT map FROM ok)[b.lane]
), unbound_all AS (
  DELETE FROM tx_attempt a USING unbound_in b WHERE a.submitter_number = b.submitter_number AND a.nonce = b.nonce RETURNING a.n
), unbound_out AS (SELECT FROM unbound_all WHERE n = 0)"
    );
    Some(Block {
        what: "unbound slots",
        ctes,
        touched: "unbound_out",
        planned: "(SELECT count(*) FROM unbound_in)".to_owned(),
    })
}

/// Claims and refusals concern the same rows, and a row can be updated once per statement: merged.
fn notes(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    type Note = (i64, i64, i32, Option<OffsetDateTime>, Option<(String, String)>, bool);
    let mut rows: BTreeMap<(i64, u64, u32), Note> = BTreeMap::new();
    for (i, change) in batch.iter().enumerate() {
        let lane = i as i64 + 1;
        let blank = |nonce: u64, n: u32| {
            (lane, signed(nonce), i32::try_from(n).unwrap_or(i32::MAX), None, None, false)
        };
        for claim in &change.writes().resends {
            let row =
                rows.entry((lane, claim.nonce.0, claim.n)).or_insert_with(|| blank(claim.nonce.0, claim.n));
            row.3 = Some(at(claim.next_send_at.as_micros()));
            row.5 |= claim.sends;
        }
        for note in &change.writes().refusals {
            let row = rows.entry((lane, note.nonce.0, note.n)).or_insert_with(|| blank(note.nonce.0, note.n));
            row.4 = Some((note.refusal.code.as_str().to_owned(), note.refusal.text.as_str().to_owned()));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let rows: Vec<Note> = rows.into_values().collect();
    let columns = columns!(
        binder, rows,
        "bigint": |r| r.0,
        "bigint": |r| r.1,
        "int": |r| r.2,
        "timestamptz": |r| r.3,
        "text": |r| r.4.as_ref().map(|refusal| refusal.0.clone()),
        "text": |r| r.4.as_ref().map(|refusal| refusal.1.clone()),
        "bool": |r| r.5,
    );
    let ctes = format!(
        "note_in AS MATERIALIZED (
  SELECT (SELECT numbers FROM ok)[b.lane] AS submitter_number, b.*
  FROM unnest({columns}) AS b(lane, nonce, n, next_send_at, code, words, sends)
  WHERE (SELECT map FROM ok)[b.lane]
), note_out AS (
  UPDATE tx_attempt a SET next_send_at = coalesce(b.next_send_at, a.next_send_at),
    resends = a.resends + b.sends::int,
    refusal_code = coalesce(b.code, a.refusal_code), refusal_text = coalesce(b.words, a.refusal_text)
  FROM note_in b WHERE a.submitter_number = b.submitter_number AND a.nonce = b.nonce AND a.n = b.n RETURNING 1
)"
    );
    Some(Block {
        what: "notes on attempts",
        ctes,
        touched: "note_out",
        planned: "(SELECT count(*) FROM note_in)".to_owned(),
    })
}

/// Reserve, recycle, foreign: rows that appear. The conflict's WHERE repeats `AllocationWrite::apply`.
fn allocations(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let row = |write: &AllocationWrite| -> Option<(FlatAllocation, Option<i64>)> {
        let blank = |status: AllocationStatus| FlatAllocation {
            nonce: signed(write.nonce().0),
            status: status.name().to_owned(),
            ..Default::default()
        };
        match write {
            AllocationWrite::Reserve { lock_owner, hold, tx_id, .. } => {
                let held = FlatAllocation {
                    lock_owner: Some(lock_owner.0),
                    tx_id: tx_id.map(|tx_id| tx_id.0),
                    ..blank(AllocationStatus::Reserved)
                };
                Some((held, Some(micros(*hold))))
            }
            AllocationWrite::Recycle { .. } => Some((blank(AllocationStatus::Recyclable), None)),
            AllocationWrite::Foreign { exhibit, .. } => {
                let proven = FlatAllocation {
                    foreign_hash: exhibit.hash.map(|hash| hash.to_vec()),
                    block_number: Some(signed(exhibit.block_number)),
                    block_hash: Some(exhibit.block_hash.to_vec()),
                    ..blank(AllocationStatus::Foreign)
                };
                Some((proven, None))
            }
            AllocationWrite::Lapse { .. }
            | AllocationWrite::Release { .. }
            | AllocationWrite::Settle { .. } => None,
        }
    };
    let all = each(batch, |change| &change.writes().allocations);
    let rows: Vec<_> = all
        .into_iter()
        .filter_map(|(lane, submitter, write)| row(write).map(|(flat, hold)| (lane, submitter, flat, hold)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let columns = columns!(
        binder, rows,
        "bigint": |r| r.0,
        "text": |r| r.1.to_owned(),
        "bigint": |r| r.2.nonce,
        "text": |r| r.2.status.clone(),
        "uuid": |r| r.2.lock_owner,
        "bigint": |r| r.3,
        "uuid": |r| r.2.tx_id,
        "bytea": |r| r.2.foreign_hash.clone(),
        "bigint": |r| r.2.block_number,
        "bytea": |r| r.2.block_hash.clone(),
    );
    let ctes = format!(
        "allocation_in AS MATERIALIZED (
  SELECT * FROM unnest({columns})
    AS b(lane, submitter, nonce, status, lock_owner, hold, tx_id, foreign_hash, block_number, block_hash)
  WHERE (SELECT map FROM ok)[b.lane]
), allocation_out AS (
  INSERT INTO submitter_nonce_allocation AS x
    (submitter, nonce, status, lock_owner, locked_until, tx_id, foreign_hash, block_number, block_hash)
  SELECT submitter, nonce, status, lock_owner, gapless_now() + hold * interval '1 microsecond', tx_id,
    foreign_hash, block_number, block_hash FROM allocation_in
  ON CONFLICT (submitter, nonce) DO UPDATE SET status = EXCLUDED.status, lock_owner = EXCLUDED.lock_owner,
    locked_until = EXCLUDED.locked_until, tx_id = EXCLUDED.tx_id, used_hash = NULL,
    foreign_hash = EXCLUDED.foreign_hash, block_number = EXCLUDED.block_number, block_hash = EXCLUDED.block_hash
  WHERE EXCLUDED.status = 'FOREIGN' OR (EXCLUDED.status = 'RESERVED' AND x.status = 'RECYCLABLE')
    OR (EXCLUDED.status = 'RECYCLABLE' AND x.status IN ('FOREIGN', 'USED'))
  RETURNING 1
)"
    );
    Some(Block {
        what: "allocations",
        ctes,
        touched: "allocation_out",
        planned: "(SELECT count(*) FROM allocation_in)".to_owned(),
    })
}

fn nonces_of<'a>(
    batch: &[&'a LaneChange],
    keep: impl Fn(&AllocationWrite) -> bool,
) -> Vec<(i64, &'a str, &'a AllocationWrite)> {
    let mut all = each(batch, |change| &change.writes().allocations);
    all.retain(|(_, _, write)| keep(write));
    all
}

/// Reservations that end: by their time, or by their holder's word.
fn lapses(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = nonces_of(batch, |write| {
        matches!(write, AllocationWrite::Lapse { .. } | AllocationWrite::Release { .. })
    });
    let holder = |write: &AllocationWrite| match write {
        AllocationWrite::Release { lock_owner, .. } => Some(lock_owner.0),
        _ => None,
    };
    if rows.is_empty() {
        return None;
    }
    let columns = columns!(
        binder, rows,
        "bigint": |r| r.0, "text": |r| r.1.to_owned(), "bigint": |r| signed(r.2.nonce().0),
        "uuid": |r| holder(r.2),
    );
    let ctes = format!(
        "lapse_in AS MATERIALIZED (
  SELECT * FROM unnest({columns}) AS b(lane, submitter, nonce, holder) WHERE (SELECT map FROM ok)[b.lane]
), lapse_out AS (
  UPDATE submitter_nonce_allocation x SET status = 'RECYCLABLE', lock_owner = b.holder, locked_until = NULL,
    tx_id = NULL, used_hash = NULL
  FROM lapse_in b WHERE x.submitter = b.submitter AND x.nonce = b.nonce AND x.status = 'RESERVED'
    AND CASE WHEN b.holder IS NULL THEN x.locked_until <= gapless_now() ELSE x.lock_owner = b.holder END
  RETURNING 1
)"
    );
    Some(Block {
        what: "lapsed reservations",
        ctes,
        touched: "lapse_out",
        planned: "(SELECT count(*) FROM lapse_in)".to_owned(),
    })
}

fn settled(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = nonces_of(batch, |write| matches!(write, AllocationWrite::Settle { .. }));
    if rows.is_empty() {
        return None;
    }
    let columns = columns!(
        binder, rows,
        "bigint": |r| r.0, "text": |r| r.1.to_owned(), "bigint": |r| signed(r.2.nonce().0),
    );
    let ctes = format!(
        "settle_in AS MATERIALIZED (
  SELECT * FROM unnest({columns}) AS b(lane, submitter, nonce) WHERE (SELECT map FROM ok)[b.lane]
), settle_out AS (
  DELETE FROM submitter_nonce_allocation x USING settle_in b
  WHERE x.submitter = b.submitter AND x.nonce = b.nonce RETURNING 1
)"
    );
    Some(Block {
        what: "settled slots",
        ctes,
        touched: "settle_out",
        planned: "(SELECT count(*) FROM settle_in)".to_owned(),
    })
}

fn commands(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = each(batch, |change| &change.writes().commands);
    if rows.is_empty() {
        return None;
    }
    let columns = columns!(
        binder, rows,
        "bigint": |r| r.0,
        "text": |r| r.1.to_owned(),
        "uuid": |r| r.2.id.0,
        "text": |r| r.2.outcome.name(),
        "text": |r| r.2.code.as_ref().map(|code| code.as_str().to_owned()),
        "text": |r| r.2.result.as_ref().map(ToString::to_string),
    );
    let ctes = format!(
        "command_in AS MATERIALIZED (
  SELECT * FROM unnest({columns}) AS b(lane, submitter, id, outcome, code, result) WHERE (SELECT map FROM ok)[b.lane]
), command_out AS (
  UPDATE lane_command c SET done_at = gapless_now(), outcome = b.outcome, code = b.code, result = b.result
  FROM command_in b WHERE c.id = b.id AND (c.submitter = b.submitter) IS TRUE AND c.done_at IS NULL RETURNING 1
)"
    );
    Some(Block {
        what: "commands",
        ctes,
        touched: "command_out",
        planned: "(SELECT count(*) FROM command_in)".to_owned(),
    })
}
