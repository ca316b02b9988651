//! Writing what changed of transactions, and moving them in and out of the queue.
//!
//! Facts come in four groups, and a batch carries those that one of its writes changes: an ordinary transaction's end
//! is its state, its event number and a time, not a receipt once more. A row that a lane may write is as the lane knows
//! it (fence, version, state and event number are checked), so what no write changes may stay.

use gapless_core::change::{LaneChange, TxWrite};
use gapless_core::ids::Seq;
use gapless_core::record::TxFacts;
use gapless_core::state::TxState;

use super::input::{InMove, InReceipt, InRemarks, InSlot};
use super::statement::{Binder, Block, each, planned};

/// Columns of a group, and what they are given.
type Columns = &'static [(&'static str, &'static str)];

const MOVE: Columns =
    &[("state", "t.state"), ("sub_state", "t.sub_state"), ("seq", "t.seq"), ("ended_at", "t.ended_at")];
const SLOT: Columns = &[("nonce", "t.nonce"), ("tx_hash", "t.tx_hash"), ("bound_at", "t.bound_at")];
const RECEIPT: Columns = &[
    ("mined_hash", "t.mined_hash"),
    ("mined_as", "t.mined_as"),
    ("block_number", "t.block_number"),
    ("block_hash", "t.block_hash"),
    ("status", "t.status"),
    ("gas_used", "t.gas_used"),
    ("effective_gas_price", "t.price::numeric"),
    ("contract_address", "t.contract_address"),
    ("mined_at", "t.mined_at"),
];
const REMARKS: Columns = &[
    ("failure_code", "t.failure_code"),
    ("failure_reason", "t.failure_reason"),
    ("wait_reason", "t.wait_reason"),
    ("amended", "t.amended"),
];

fn slot(facts: &TxFacts) -> impl PartialEq {
    (facts.nonce, facts.tx_hash, facts.bound_at)
}

fn remarks(facts: &TxFacts) -> impl PartialEq {
    (&facts.failure, &facts.wait, &facts.amended)
}

/// Whether a write may be the first of its transaction: nothing was told yet but that it is accepted.
fn is_first(write: &TxWrite) -> bool {
    write.from() == TxState::Queued && write.from_seq() == Seq(1)
}

/// Whether it also leaves the queue from a place that is known: the ordinary way.
fn is_bound_at_once(write: &TxWrite) -> bool {
    is_first(write) && write.place().is_some() && write.facts().state != TxState::Queued
}

/// The writes of a batch that are handled alike.
struct Rows {
    /// The arguments of `unnest`.
    arrays: String,
    columns: Vec<(&'static str, &'static str)>,
    planned: String,
    leave_queue: bool,
    join_queue: bool,
}

impl Rows {
    fn of(binder: &mut Binder, batch: &[&LaneChange], alike: impl Fn(&TxWrite) -> bool) -> Option<Self> {
        let mut writes = each(batch, |change| &change.writes().txs);
        writes.retain(|(_, _, write)| alike(write));
        if writes.is_empty() {
            return None;
        }
        let any = |holds: &dyn Fn(&TxFacts, &TxFacts) -> bool| {
            writes.iter().any(|(_, _, write)| holds(write.before(), write.facts()))
        };
        let facts = || writes.iter().map(|(_, _, write)| write.facts());
        let moves = writes.iter().map(|(lane, _, write)| InMove::of(*lane, write)).collect();
        let mut arrays = vec![binder.add::<InMove>(moves, "tx_move")];
        let mut columns = MOVE.to_vec();
        if any(&|before, after| slot(before) != slot(after)) {
            arrays.push(binder.add::<InSlot>(facts().map(Into::into).collect(), "tx_slot"));
            columns.extend(SLOT);
        }
        if any(&|before, after| before.mined != after.mined) {
            arrays.push(binder.add::<InReceipt>(facts().map(Into::into).collect(), "tx_receipt"));
            columns.extend(RECEIPT);
        }
        if any(&|before, after| remarks(before) != remarks(after)) {
            arrays.push(binder.add::<InRemarks>(facts().map(Into::into).collect(), "tx_remarks"));
            columns.extend(REMARKS);
        }
        let queued = |facts: &TxFacts| facts.state == TxState::Queued;
        let leave_queue = any(&|before, after| queued(before) && !queued(after));
        let join_queue = any(&|before, after| !queued(before) && queued(after));
        let count = |change: &LaneChange| change.writes().txs.iter().filter(|write| alike(write)).count();
        let planned = planned(binder, batch, count);
        Some(Self { arrays: arrays.join(", "), columns, planned, leave_queue, join_queue })
    }

    /// A write that told nothing, why it waits for example, has made the row before.
    fn on_conflict(&self) -> String {
        let updates = self.list(|(column, _)| format!("{column} = EXCLUDED.{column}"));
        format!(
            "ON CONFLICT (tx_id) DO UPDATE SET updated_at = EXCLUDED.updated_at, fencing_token = EXCLUDED.fencing_token,
    event_rows = EXCLUDED.event_rows, {updates}
  WHERE f.state = 'QUEUED' AND f.seq = 1 AND f.ord = EXCLUDED.ord AND f.submitter_number = EXCLUDED.submitter_number"
        )
    }

    fn list(&self, each: impl Fn(&(&str, &str)) -> String) -> String {
        self.columns.iter().map(each).collect::<Vec<_>>().join(", ")
    }
}

/// Takes rows out of the queue, each found by its key. The queue is often almost empty, and is vacuumed then: a plan made at
/// that moment would walk the queue and look each of its rows up among those that leave, and would go on so when it is long.
/// Behind OFFSET the look-up cannot be turned around.
fn leaving(from: &str, who: &str) -> String {
    format!(
        "
  DELETE FROM tx_queue WHERE ctid = ANY (ARRAY(
    SELECT k.found FROM {from} o CROSS JOIN LATERAL (
      SELECT q.ctid AS found FROM tx_queue q
      WHERE q.submitter_number = o.submitter_number AND q.ord = o.ord OFFSET 0
    ) k WHERE {who}
  ))"
    )
}

/// The ordinary way: from its place in the queue to its first facts, without a look at the request. That the place is this
/// submitter's and was still taken is what taking it away shows; both are counted.
pub(super) fn bound_at_once(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = Rows::of(binder, batch, is_bound_at_once)?;
    let ctes = format!(
        "bound_rows AS (
  INSERT INTO tx_facts AS f (tx_id, ord, submitter_number, fencing_token, event_rows, {columns})
  SELECT t.tx_id, t.ord, (SELECT numbers FROM ok)[t.lane], (SELECT tokens FROM ok)[t.lane],
    CASE WHEN t.tells THEN (SELECT event_ids FROM ok)[t.lane] ELSE '' END, {values}
  FROM unnest({arrays}) t WHERE (SELECT map FROM ok)[t.lane]
  {on_conflict}
  RETURNING f.submitter_number, f.ord
), bound_left AS ({left} RETURNING 1
), bound_out AS (SELECT FROM bound_rows UNION ALL SELECT FROM bound_left)",
        columns = rows.list(|(column, _)| (*column).to_owned()),
        values = rows.list(|(_, value)| (*value).to_owned()),
        arrays = rows.arrays,
        on_conflict = rows.on_conflict(),
        left = leaving("bound_rows", "true"),
    );
    let planned = format!("2 * {}", rows.planned);
    Some(Block { what: "bound facts", ctes, touched: "bound_out", planned })
}

/// A transaction's first write makes its row, unless one that told nothing has made it; mostly it leaves the queue.
pub(super) fn first(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = Rows::of(binder, batch, |write| is_first(write) && !is_bound_at_once(write))?;
    let mut ctes = format!(
        "first_out AS (
  INSERT INTO tx_facts AS f (tx_id, ord, submitter_number, fencing_token, event_rows, {columns})
  SELECT t.tx_id, r.ord, r.submitter_number, (SELECT tokens FROM ok)[t.lane],
    CASE WHEN t.tells THEN (SELECT event_ids FROM ok)[t.lane] ELSE '' END, {values}
  FROM unnest({arrays}) t JOIN tx_request r ON r.tx_id = t.tx_id
  WHERE (SELECT map FROM ok)[t.lane] AND (r.submitter_number = (SELECT numbers FROM ok)[t.lane]) IS TRUE
  {on_conflict}
  RETURNING f.submitter_number, f.ord, f.state
)",
        columns = rows.list(|(column, _)| (*column).to_owned()),
        values = rows.list(|(_, value)| (*value).to_owned()),
        on_conflict = rows.on_conflict(),
        arrays = rows.arrays,
    );
    if rows.leave_queue {
        ctes.push_str(&format!(", first_left AS ({})", leaving("first_out", "o.state <> 'QUEUED'")));
    }
    Some(Block { what: "first facts", ctes, touched: "first_out", planned: rows.planned })
}

/// Later writes change the row; what was queued again may leave the queue once more.
pub(super) fn later(binder: &mut Binder, batch: &[&LaneChange]) -> Option<Block> {
    let rows = Rows::of(binder, batch, |write| !is_first(write))?;
    let moves = rows.leave_queue || rows.join_queue;
    let mut ctes = format!(
        "later_out AS (
  UPDATE tx_facts f SET updated_at = gapless_now(), fencing_token = (SELECT tokens FROM ok)[t.lane],
    event_rows = CASE WHEN t.tells THEN f.event_rows || (SELECT event_ids FROM ok)[t.lane] ELSE f.event_rows END,
    {updates}
  FROM unnest({arrays}) t
  WHERE (SELECT map FROM ok)[t.lane] AND f.tx_id = t.tx_id AND f.submitter_number = (SELECT numbers FROM ok)[t.lane]
    AND f.state = t.from_state AND f.seq = t.from_seq
  RETURNING {returning}
)",
        updates = rows.list(|(column, value)| format!("{column} = {value}")),
        arrays = rows.arrays,
        returning = if moves { "f.submitter_number, f.ord, f.tx_id, t.from_state, t.state" } else { "1" },
    );
    if rows.leave_queue {
        ctes.push_str(&format!(
            ", later_left AS ({})",
            leaving("later_out", "o.from_state = 'QUEUED' AND o.state <> 'QUEUED'")
        ));
    }
    if rows.join_queue {
        ctes.push_str(
            ", joined_queue AS (
  INSERT INTO tx_queue (submitter_number, ord, tx_id)
  SELECT submitter_number, ord, tx_id FROM later_out WHERE from_state <> 'QUEUED' AND state = 'QUEUED'
)",
        );
    }
    Some(Block { what: "facts", ctes, touched: "later_out", planned: rows.planned })
}
