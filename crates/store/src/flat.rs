//! Rows as flat columns: what SQLite and PostgreSQL both read, turned into domain values in one place.
//!
//! A row that cannot be read back is [`StoreError::Corrupt`], named by column: it was written by a newer
//! binary or by hand, and guessing would be worse than stopping.

use alloy_primitives::{Address, B256};
use gapless_core::allocation::{Allocation, AllocationStatus, Exhibit};
use gapless_core::attempt::{AttemptKind, NewAttempt, Refusal, Route, StoredAttempt};
use gapless_core::command::{Command, CommandEnd, CommandOutcome, NewCommand, Verb};
use gapless_core::cursor::{Cursor, InFlight, Run, VersionedCursor};
use gapless_core::digest::Digest;
use gapless_core::event::{EventRow, StoredEvent};
use gapless_core::fees::{Gas, GasPrice};
use gapless_core::ids::{
    CommandId, FencingToken, LockOwner, Nonce, Order, RequestId, Scope, Seq, TxId, Version,
};
use gapless_core::intent::Intent;
use gapless_core::lease::{LeaseRow, Owner};
use gapless_core::ports::store::{LeaseInfo, StoreError, StoreResult, SubmitterInfo};
use gapless_core::record::{Failure, Metadata, Mined, MinedAs, NewTx, TxFacts, TxRecord};
use gapless_core::state::{SubState, TxState};
use gapless_core::submitter::SubmitterId;
use gapless_core::text::NodeText;
use gapless_core::time::Timestamp;
use uuid::Uuid;

/// A column that cannot be read.
pub(crate) fn corrupt(column: &str) -> StoreError {
    StoreError::Corrupt(format!("column {column}"))
}

fn need<T>(column: &str, value: Option<T>) -> StoreResult<T> {
    value.ok_or_else(|| corrupt(column))
}

fn unsigned(column: &str, value: i64) -> StoreResult<u64> {
    u64::try_from(value).map_err(|_| corrupt(column))
}

fn hash(column: &str, bytes: &[u8]) -> StoreResult<B256> {
    B256::try_from(bytes).map_err(|_| corrupt(column))
}

fn json<T: serde::de::DeserializeOwned>(column: &str, text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("column {column}: {error}")))
}

pub(crate) fn submitter_id(text: &str) -> StoreResult<SubmitterId> {
    text.parse().map_err(|_| corrupt("submitter"))
}

/// JSON that came out of serde: the types used here cannot fail to serialise.
pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// A nonce or counter as a signed column. Sealed changes keep it in range.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A row of `managed_tx`.
#[derive(Debug, Default)]
pub(crate) struct FlatTx {
    pub(crate) tx_id: Uuid,
    pub(crate) ord: i64,
    pub(crate) submitter: String,
    pub(crate) scope: String,
    pub(crate) request_id: String,
    pub(crate) digest: Vec<u8>,
    pub(crate) payload: String,
    pub(crate) options: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) fencing_token: Option<i64>,
    pub(crate) facts: FlatFacts,
}

/// The changing columns of `managed_tx`.
#[derive(Debug, Default)]
pub(crate) struct FlatFacts {
    pub(crate) state: String,
    pub(crate) sub_state: Option<String>,
    pub(crate) seq: i64,
    pub(crate) nonce: Option<i64>,
    pub(crate) tx_hash: Option<Vec<u8>>,
    pub(crate) mined_hash: Option<Vec<u8>>,
    pub(crate) mined_as: Option<String>,
    pub(crate) block_number: Option<i64>,
    pub(crate) block_hash: Option<Vec<u8>>,
    pub(crate) status: Option<bool>,
    pub(crate) gas_used: Option<i64>,
    pub(crate) effective_gas_price: Option<String>,
    pub(crate) contract_address: Option<Vec<u8>>,
    pub(crate) mined_at: Option<i64>,
    pub(crate) failure_code: Option<String>,
    pub(crate) failure_reason: Option<String>,
    pub(crate) wait_reason: Option<String>,
    pub(crate) bound_at: Option<i64>,
    pub(crate) ended_at: Option<i64>,
    pub(crate) amended: Option<String>,
}

impl From<&TxFacts> for FlatFacts {
    fn from(facts: &TxFacts) -> Self {
        let mined = facts.mined.as_ref();
        let failure = facts.failure.as_ref();
        Self {
            state: facts.state.name().to_owned(),
            sub_state: facts.sub_state.map(|sub| sub.name().to_owned()),
            seq: signed(facts.seq.0),
            nonce: facts.nonce.map(|nonce| signed(nonce.0)),
            tx_hash: facts.tx_hash.map(|hash| hash.to_vec()),
            mined_hash: mined.map(|m| m.hash.to_vec()),
            mined_as: mined.map(|m| m.mined_as.name().to_owned()),
            block_number: mined.map(|m| signed(m.block_number)),
            block_hash: mined.map(|m| m.block_hash.to_vec()),
            status: mined.map(|m| m.succeeded),
            gas_used: mined.map(|m| signed(m.gas_used.0)),
            effective_gas_price: mined.map(|m| m.effective_gas_price.0.to_string()),
            contract_address: mined.and_then(|m| m.contract_address).map(|a| a.to_vec()),
            mined_at: mined.map(|m| m.at.as_micros()),
            failure_code: failure.map(|f| f.code.as_str().to_owned()),
            failure_reason: failure.map(|f| f.reason.as_str().to_owned()),
            wait_reason: facts.wait.as_ref().map(to_json),
            bound_at: facts.bound_at.map(Timestamp::as_micros),
            ended_at: facts.ended_at.map(Timestamp::as_micros),
            amended: facts.amended.as_ref().map(to_json),
        }
    }
}

impl FlatFacts {
    fn mined(&self) -> StoreResult<Option<Mined>> {
        let Some(mined_hash) = &self.mined_hash else { return Ok(None) };
        let price = self.effective_gas_price.as_deref().and_then(|text| text.parse().ok());
        let contract = self.contract_address.as_deref().map(Address::try_from).transpose();
        Ok(Some(Mined {
            hash: hash("mined_hash", mined_hash)?,
            mined_as: need("mined_as", self.mined_as.as_deref().and_then(MinedAs::named))?,
            block_number: unsigned("block_number", need("block_number", self.block_number)?)?,
            block_hash: hash("block_hash", need("block_hash", self.block_hash.as_deref())?)?,
            succeeded: need("status", self.status)?,
            gas_used: Gas(unsigned("gas_used", need("gas_used", self.gas_used)?)?),
            effective_gas_price: GasPrice(need("effective_gas_price", price)?),
            contract_address: contract.map_err(|_| corrupt("contract_address"))?,
            at: Timestamp::from_micros(need("mined_at", self.mined_at)?),
        }))
    }

    fn facts(self) -> StoreResult<TxFacts> {
        let sub_state = match &self.sub_state {
            Some(name) => Some(need("sub_state", SubState::named(name))?),
            None => None,
        };
        Ok(TxFacts {
            state: need("state", TxState::named(&self.state))?,
            sub_state,
            seq: Seq(unsigned("seq", self.seq)?),
            nonce: self.nonce.map(|nonce| unsigned("nonce", nonce).map(Nonce)).transpose()?,
            tx_hash: self.tx_hash.as_deref().map(|bytes| hash("tx_hash", bytes)).transpose()?,
            mined: self.mined()?,
            failure: self.failure_code.map(|code| Failure {
                code: NodeText::new(&code),
                reason: NodeText::new(self.failure_reason.as_deref().unwrap_or_default()),
            }),
            wait: self.wait_reason.as_deref().map(|text| json("wait_reason", text)).transpose()?,
            bound_at: self.bound_at.map(Timestamp::from_micros),
            ended_at: self.ended_at.map(Timestamp::from_micros),
            amended: self.amended.as_deref().map(|text| json("amended", text)).transpose()?,
        })
    }
}

impl FlatTx {
    pub(crate) fn record(self) -> StoreResult<TxRecord> {
        let options = self.options.as_deref().map(|text| json("options", text)).transpose()?;
        let request = NewTx {
            tx_id: TxId(self.tx_id),
            scope: Scope::parse(&self.scope).map_err(|_| corrupt("scope"))?,
            submitter: submitter_id(&self.submitter)?,
            request_id: RequestId::parse(&self.request_id).map_err(|_| corrupt("request_id"))?,
            intent: Intent { payload: json("payload", &self.payload)?, options: options.unwrap_or_default() },
            digest: Digest(self.digest.as_slice().try_into().map_err(|_| corrupt("digest"))?),
            metadata: match &self.metadata {
                Some(text) => Some(need("metadata", Metadata::parse(text))?),
                None => None,
            },
        };
        Ok(TxRecord {
            request,
            order: Order(unsigned("ord", self.ord)?),
            created_at: Timestamp::from_micros(self.created_at),
            facts: self.facts.facts()?,
            updated_at: Timestamp::from_micros(self.updated_at),
            fencing_token: self
                .fencing_token
                .map(|t| unsigned("fencing_token", t).map(FencingToken))
                .transpose()?,
        })
    }
}

/// The options column: nothing where everything is as usual.
pub(crate) fn options_column(intent: &Intent) -> Option<String> {
    (intent.options != Default::default()).then(|| to_json(&intent.options))
}

/// A row of `tx_attempt`.
#[derive(Debug)]
pub(crate) struct FlatAttempt {
    pub(crate) nonce: i64,
    pub(crate) n: i32,
    pub(crate) tx_id: Option<Uuid>,
    pub(crate) kind: String,
    pub(crate) route: String,
    pub(crate) hash: Vec<u8>,
    pub(crate) raw: Vec<u8>,
    pub(crate) fees: String,
    pub(crate) stored_at: i64,
    pub(crate) next_send_at: i64,
    pub(crate) resends: i32,
    pub(crate) refusal_code: Option<String>,
    pub(crate) refusal_text: Option<String>,
}

impl FlatAttempt {
    pub(crate) fn attempt(self) -> StoreResult<StoredAttempt> {
        let new = NewAttempt {
            nonce: Nonce(unsigned("nonce", self.nonce)?),
            n: u32::try_from(self.n).map_err(|_| corrupt("n"))?,
            tx_id: self.tx_id.map(TxId),
            kind: need("kind", AttemptKind::named(&self.kind))?,
            route: need("route", Route::named(&self.route))?,
            hash: hash("hash", &self.hash)?,
            raw: self.raw.into(),
            fees: json("fees", &self.fees)?,
            next_send_at: Timestamp::from_micros(self.next_send_at),
        };
        let refusal = self.refusal_code.map(|code| Refusal {
            code: NodeText::new(&code),
            text: NodeText::new(self.refusal_text.as_deref().unwrap_or_default()),
        });
        let resends = u32::try_from(self.resends).map_err(|_| corrupt("resends"))?;
        Ok(StoredAttempt::read_from_store(new, Timestamp::from_micros(self.stored_at), resends, refusal))
    }
}

/// A row of `submitter_nonce_allocation`.
#[derive(Debug, Default)]
pub(crate) struct FlatAllocation {
    pub(crate) nonce: i64,
    pub(crate) status: String,
    pub(crate) lock_owner: Option<Uuid>,
    pub(crate) locked_until: Option<i64>,
    pub(crate) tx_id: Option<Uuid>,
    pub(crate) used_hash: Option<Vec<u8>>,
    pub(crate) foreign_hash: Option<Vec<u8>>,
    pub(crate) block_number: Option<i64>,
    pub(crate) block_hash: Option<Vec<u8>>,
}

impl From<&Allocation> for FlatAllocation {
    fn from(row: &Allocation) -> Self {
        Self {
            nonce: signed(row.nonce.0),
            status: row.status.name().to_owned(),
            lock_owner: row.lock_owner.map(|owner| owner.0),
            locked_until: row.locked_until.map(Timestamp::as_micros),
            tx_id: row.tx_id.map(|tx_id| tx_id.0),
            used_hash: row.used_hash.map(|hash| hash.to_vec()),
            foreign_hash: row.exhibit.and_then(|e| e.hash).map(|hash| hash.to_vec()),
            block_number: row.exhibit.map(|e| signed(e.block_number)),
            block_hash: row.exhibit.map(|e| e.block_hash.to_vec()),
        }
    }
}

impl FlatAllocation {
    pub(crate) fn allocation(self) -> StoreResult<Allocation> {
        let foreign = self.foreign_hash.as_deref().map(|bytes| hash("foreign_hash", bytes)).transpose()?;
        let exhibit = match (self.block_number, self.block_hash.as_deref()) {
            (Some(number), Some(block)) => Some(Exhibit {
                hash: foreign,
                block_number: unsigned("block_number", number)?,
                block_hash: hash("block_hash", block)?,
            }),
            _ => None,
        };
        Ok(Allocation {
            nonce: Nonce(unsigned("nonce", self.nonce)?),
            status: need("status", AllocationStatus::named(&self.status))?,
            lock_owner: self.lock_owner.map(LockOwner),
            locked_until: self.locked_until.map(Timestamp::from_micros),
            tx_id: self.tx_id.map(TxId),
            used_hash: self.used_hash.as_deref().map(|bytes| hash("used_hash", bytes)).transpose()?,
            exhibit,
        })
    }
}

/// A row of `submitter_nonce_cursor`.
#[derive(Debug, Default)]
pub(crate) struct FlatCursor {
    pub(crate) start_nonce: Option<i64>,
    pub(crate) next_nonce: Option<i64>,
    pub(crate) consumed: Option<i64>,
    pub(crate) resolved: Option<i64>,
    pub(crate) settled: Option<i64>,
    pub(crate) in_flight_nonce: Option<i64>,
    pub(crate) in_flight_tx_id: Option<Uuid>,
    pub(crate) condition: String,
    pub(crate) conditions: String,
    pub(crate) version: i64,
}

impl From<&Cursor> for FlatCursor {
    fn from(cursor: &Cursor) -> Self {
        let run = cursor.run.as_ref();
        Self {
            start_nonce: run.map(|run| signed(run.start.0)),
            next_nonce: run.map(|run| signed(run.next.0)),
            consumed: run.map(|run| signed(run.consumed.0)),
            resolved: run.map(|run| signed(run.resolved.0)),
            settled: run.map(|run| signed(run.settled.0)),
            in_flight_nonce: cursor.in_flight.map(|f| signed(f.nonce.0)),
            in_flight_tx_id: cursor.in_flight.and_then(|f| f.tx_id).map(|tx_id| tx_id.0),
            condition: cursor.conditions.gravest().name().to_owned(),
            conditions: to_json(&cursor.conditions),
            version: 0,
        }
    }
}

impl FlatCursor {
    pub(crate) fn cursor(self) -> StoreResult<VersionedCursor> {
        let nonce = |column, value| unsigned(column, need(column, value)?).map(Nonce);
        let run = match self.start_nonce {
            Some(_) => Some(Run {
                start: nonce("start_nonce", self.start_nonce)?,
                next: nonce("next_nonce", self.next_nonce)?,
                consumed: nonce("consumed", self.consumed)?,
                resolved: nonce("resolved", self.resolved)?,
                settled: nonce("settled", self.settled)?,
            }),
            None => None,
        };
        let in_flight = match self.in_flight_nonce {
            Some(_) => Some(InFlight {
                nonce: nonce("in_flight_nonce", self.in_flight_nonce)?,
                tx_id: self.in_flight_tx_id.map(TxId),
            }),
            None => None,
        };
        let cursor = Cursor { run, in_flight, conditions: json("conditions", &self.conditions)? };
        Ok(VersionedCursor { cursor, version: Version(unsigned("version", self.version)?) })
    }
}

/// A lease row's columns.
pub(crate) fn lease_row(node: &str, process: Uuid, token: i64, expires_at: i64) -> StoreResult<LeaseRow> {
    Ok(LeaseRow {
        owner: Owner::new(node, process).map_err(|_| corrupt("owner_node"))?,
        token: FencingToken(unsigned("fencing_token", token)?),
        expires_at: Timestamp::from_micros(expires_at),
    })
}

/// A submitter with its cursor and lease.
pub(crate) fn submitter_info(
    submitter: &str,
    settings: String,
    created_at: i64,
    cursor: FlatCursor,
    lease: Option<LeaseRow>,
) -> StoreResult<SubmitterInfo> {
    Ok(SubmitterInfo {
        submitter: submitter_id(submitter)?,
        settings,
        cursor: cursor.cursor()?,
        lease: lease.map(|row| LeaseInfo { owner: row.owner, token: row.token, expires_at: row.expires_at }),
        created_at: Timestamp::from_micros(created_at),
    })
}

/// A row of `lane_command` that waits.
pub(crate) struct FlatCommand {
    pub(crate) id: Uuid,
    pub(crate) submitter: String,
    pub(crate) tx_id: Option<Uuid>,
    pub(crate) verb: String,
    pub(crate) args: String,
    pub(crate) actor: String,
    pub(crate) created_at: i64,
}

impl FlatCommand {
    pub(crate) fn command(self) -> StoreResult<Command> {
        Ok(Command {
            command: NewCommand {
                id: CommandId(self.id),
                submitter: submitter_id(&self.submitter)?,
                tx_id: self.tx_id.map(TxId),
                verb: need("verb", Verb::named(&self.verb))?,
                args: json("args", &self.args)?,
                actor: NodeText::new(&self.actor),
            },
            created_at: Timestamp::from_micros(self.created_at),
        })
    }
}

/// The end of a command, from its columns.
pub(crate) fn command_end(
    id: Uuid,
    outcome: &str,
    code: Option<&str>,
    result: Option<&str>,
) -> StoreResult<CommandEnd> {
    Ok(CommandEnd {
        id: CommandId(id),
        outcome: need("outcome", CommandOutcome::named(outcome))?,
        code: code.map(NodeText::new),
        result: result.map(|text| json("result", text)).transpose()?,
    })
}

/// A row of `outbox_event`.
pub(crate) fn event_row(
    commit: i64,
    row: i64,
    submitter: &str,
    at: i64,
    events: &str,
) -> StoreResult<EventRow> {
    Ok(EventRow {
        commit: unsigned("xid", commit)?,
        row: unsigned("id", row)?,
        submitter: submitter_id(submitter)?,
        at: Timestamp::from_micros(at),
        events: json::<Vec<StoredEvent>>("events", events)?,
    })
}
