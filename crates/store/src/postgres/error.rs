//! What an error of the driver tells about a write: refused, or nobody knows.

use gapless_core::ports::store::StoreError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::open::OpenError;

/// Raised by `gapless_expect`: other rows were touched than planned.
pub(super) const MISMATCH: &str = "GL001";

/// An error before anything was sent.
pub(super) fn unavailable(error: sqlx::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

/// An error of a connection that was never made: who we are is wrong, or nobody is there.
pub(super) fn connecting(error: sqlx::Error) -> OpenError {
    let refused = match &error {
        sqlx::Error::Configuration(_) => true,
        // Invalid authorization; no such database.
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| code.starts_with("28") || code == "3D000")
        }
        _ => false,
    };
    if refused { OpenError::Refused(error.to_string()) } else { unavailable(error).into() }
}

/// An error of a read.
pub(super) fn reading(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
            StoreError::Corrupt(error.to_string())
        }
        other => StoreError::Unavailable(other.to_string()),
    }
}

/// An error of a write: only the server's own word that it failed is believed.
pub(super) fn writing(error: sqlx::Error) -> StoreError {
    match class(&error) {
        Class::Unknown => StoreError::OutcomeUnknown(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// What the server's answer to a write means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The rows themselves are at fault; the same write will fail again.
    Poison,
    /// Locks, deadlocks, time-outs: nothing was written, it may work later.
    Busy,
    /// The server refused for a reason of its own.
    Refused,
    /// No word from the server.
    Unknown,
}

/// Classifies by SQLSTATE.
pub(super) fn class(error: &sqlx::Error) -> Class {
    let sqlx::Error::Database(error) = error else { return Class::Unknown };
    let error = error.downcast_ref::<PgDatabaseError>();
    if !matches!(error.severity(), PgSeverity::Error) {
        // A session that ends here may have committed before it could say so.
        return Class::Unknown;
    }
    match error.code() {
        MISMATCH => Class::Poison,
        "40001" | "40P01" | "55P03" | "57014" => Class::Busy,
        // Words of servers on their way down, of poolers and of the storage: the commit may have happened.
        "40003" | "57P01" | "57P02" | "57P03" => Class::Unknown,
        code if ["08", "58", "XX"].iter().any(|class| code.starts_with(class)) => Class::Unknown,
        code if code.starts_with("22") || code.starts_with("23") => Class::Poison,
        _ => Class::Refused,
    }
}
