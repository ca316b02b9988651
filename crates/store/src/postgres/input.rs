//! Rows handed to PostgreSQL as arrays of composite values.
//!
//! `unnest` over several arrays keeps a store of rows per array and zips them: with the twenty-five columns of a
//! transaction that was a quarter of a commit's cost. One array of rows is unnested once.

use gapless_core::attempt::NewAttempt;
use gapless_core::change::TxWrite;
use gapless_core::record::{NewTx, TxFacts};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::PgRecordEncoder;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Postgres, Type};
use time::OffsetDateTime;
use uuid::Uuid;

use super::rows::at;
use crate::flat::{FlatFacts, options_column, signed, to_json};

/// A struct whose fields, in order, are the attributes of a composite type of the schema.
macro_rules! composite {
    ($(#[$doc:meta])* $name:ident is $sql:literal { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        pub(super) struct $name { $($field: $type),+ }

        impl Type<Postgres> for $name {
            fn type_info() -> PgTypeInfo {
                PgTypeInfo::with_name($sql)
            }
        }

        impl PgHasArrayType for $name {
            fn array_type_info() -> PgTypeInfo {
                PgTypeInfo::array_of($sql)
            }
        }

        impl Encode<'_, Postgres> for $name {
            fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
                let mut row = PgRecordEncoder::new(buffer);
                $(row.encode(&self.$field)?;)+
                row.finish();
                Ok(IsNull::No)
            }
        }
    };
}

composite! {
    /// A request to accept.
    InRequest is "tx_intake" {
        place: i32,
        account: i32,
        tx_id: Uuid,
        scope: String,
        request_id: String,
        digest: Vec<u8>,
        payload: String,
        options: Option<String>,
        metadata: Option<String>,
    }
}

impl InRequest {
    /// The item that came at `place`, of the distinct submitter at `account`; both count from 1.
    pub(super) fn of(place: usize, account: usize, item: &NewTx) -> Self {
        let position = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        Self {
            place: position(place),
            account: position(account),
            tx_id: item.tx_id.0,
            scope: item.scope.as_str().to_owned(),
            request_id: item.request_id.as_str().to_owned(),
            digest: item.digest.0.to_vec(),
            payload: to_json(&item.intent.payload),
            options: options_column(&item.intent),
            metadata: item.metadata.as_ref().map(|metadata| metadata.as_str().to_owned()),
        }
    }
}

composite! {
    /// A transaction's move: which row, as it must stand, and what every write changes.
    InMove is "tx_move" {
        lane: i64,
        tx_id: Uuid,
        ord: Option<i64>,
        from_state: String,
        from_seq: i64,
        tells: bool,
        state: String,
        sub_state: Option<String>,
        seq: i64,
        ended_at: Option<OffsetDateTime>,
    }
}

composite! {
    /// The slot a transaction has.
    InSlot is "tx_slot" {
        nonce: Option<i64>,
        tx_hash: Option<Vec<u8>>,
        bound_at: Option<OffsetDateTime>,
    }
}

composite! {
    /// What was mined in it.
    InReceipt is "tx_receipt" {
        mined_hash: Option<Vec<u8>>,
        mined_as: Option<String>,
        block_number: Option<i64>,
        block_hash: Option<Vec<u8>>,
        status: Option<bool>,
        gas_used: Option<i64>,
        price: Option<String>,
        contract_address: Option<Vec<u8>>,
        mined_at: Option<OffsetDateTime>,
    }
}

composite! {
    /// What is said about it.
    InRemarks is "tx_remarks" {
        failure_code: Option<String>,
        failure_reason: Option<String>,
        wait_reason: Option<String>,
        amended: Option<String>,
    }
}

impl InMove {
    pub(super) fn of(lane: i64, write: &TxWrite) -> Self {
        let facts = write.facts();
        Self {
            lane,
            tx_id: write.tx_id().0,
            ord: write.place().map(|place| signed(place.0)),
            from_state: write.from().name().to_owned(),
            from_seq: signed(write.from_seq().0),
            tells: write.tells(),
            state: facts.state.name().to_owned(),
            sub_state: facts.sub_state.map(|sub| sub.name().to_owned()),
            seq: signed(facts.seq.0),
            ended_at: facts.ended_at.map(|ended| at(ended.as_micros())),
        }
    }
}

impl From<&TxFacts> for InSlot {
    fn from(facts: &TxFacts) -> Self {
        let FlatFacts { nonce, tx_hash, bound_at, .. } = facts.into();
        Self { nonce, tx_hash, bound_at: bound_at.map(at) }
    }
}

impl From<&TxFacts> for InReceipt {
    fn from(facts: &TxFacts) -> Self {
        let facts = FlatFacts::from(facts);
        Self {
            mined_hash: facts.mined_hash,
            mined_as: facts.mined_as,
            block_number: facts.block_number,
            block_hash: facts.block_hash,
            status: facts.status,
            gas_used: facts.gas_used,
            price: facts.effective_gas_price,
            contract_address: facts.contract_address,
            mined_at: facts.mined_at.map(at),
        }
    }
}

impl From<&TxFacts> for InRemarks {
    fn from(facts: &TxFacts) -> Self {
        let FlatFacts { failure_code, failure_reason, wait_reason, amended, .. } = facts.into();
        Self { failure_code, failure_reason, wait_reason, amended }
    }
}

composite! {
    /// New signed bytes.
    InAttempt is "attempt_write" {
        lane: i64,
        nonce: i64,
        n: i32,
        tx_id: Option<Uuid>,
        kind: String,
        route: String,
        hash: Vec<u8>,
        raw: Vec<u8>,
        fees: String,
        next_send_at: OffsetDateTime,
    }
}

impl InAttempt {
    pub(super) fn of(lane: i64, attempt: &NewAttempt) -> Self {
        Self {
            lane,
            nonce: signed(attempt.nonce.0),
            n: i32::try_from(attempt.n).unwrap_or(i32::MAX),
            tx_id: attempt.tx_id.map(|tx_id| tx_id.0),
            kind: attempt.kind.name().to_owned(),
            route: attempt.route.name().to_owned(),
            hash: attempt.hash.to_vec(),
            raw: attempt.raw.to_vec(),
            fees: to_json(&attempt.fees),
            next_send_at: at(attempt.next_send_at.as_micros()),
        }
    }
}
