//! Typed identifiers and counters. None of them can be confused with another, and none is made
//! up here: random parts come from the caller.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::limits::{MAX_REQUEST_ID_BYTES, MAX_SCOPE_BYTES};
use crate::submitter::SubmitterId;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id! {
    /// The opaque id a business gets back for an accepted request (UUID v7).
    TxId
}
uuid_id! {
    /// One operator or business command for a lane (UUID v7); inserting it twice is harmless.
    CommandId
}
uuid_id! {
    /// Whoever holds a reserved nonce. Drawn per reservation: a late holder never matches again.
    LockOwner
}
uuid_id! {
    /// Changes whenever the database may have lost acknowledged commits. Event cursors carry it.
    Epoch
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The next value. Saturates: a store refuses the last one long before.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// An account's transaction count, and the number of one slot.
    Nonce
}
counter! {
    /// Rises at every takeover of a submitter; a write that carries an older one changes nothing.
    FencingToken
}
counter! {
    /// Rises with every write to a lane. A change names the version it was planned on.
    Version
}
counter! {
    /// Position of an event in its transaction's history: 1, 2, 3, …
    Seq
}
counter! {
    /// Acceptance order, drawn from one database sequence.
    Order
}

/// What is wrong with an identifier a user gave us.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdError {
    /// Zero bytes long.
    #[error("{what} is empty")]
    Empty {
        /// The field.
        what: &'static str,
    },
    /// Longer than the limit.
    #[error("{what} has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// The field.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Contains U+0000, which PostgreSQL cannot store in a text.
    #[error("{what} contains U+0000")]
    Nul {
        /// The field.
        what: &'static str,
    },
}

impl IdError {
    /// Stable code for API answers.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "invalid-request"
    }
}

fn checked(what: &'static str, limit: usize, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > limit {
        return Err(IdError::TooLong { what, bytes: text.len(), limit });
    }
    if text.contains('\0') {
        return Err(IdError::Nul { what });
    }
    Ok(())
}

/// The caller's own name for a request: 1 to 200 bytes of UTF-8 without U+0000, otherwise free.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Checks and wraps a request id.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        checked("requestId", MAX_REQUEST_ID_BYTES, text)?;
        Ok(Self(text.into()))
    }

    /// The text as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a request id is unique: the submitter or the pool *as addressed* by the caller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Scope(Arc<str>);

impl Scope {
    /// Checks and wraps a scope name (a pool's).
    pub fn parse(text: &str) -> Result<Self, IdError> {
        checked("scope", MAX_SCOPE_BYTES, text)?;
        Ok(Self(text.into()))
    }

    /// The text as stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&SubmitterId> for Scope {
    fn from(submitter: &SubmitterId) -> Self {
        Self(submitter.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_one_to_two_hundred_bytes_of_anything_but_nul() {
        for good in ["a", "order:17/4", "注文-42", &"x".repeat(200)] {
            assert_eq!(RequestId::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(RequestId::parse(""), Err(IdError::Empty { what: "requestId" }));
        assert_eq!(RequestId::parse("a\0b"), Err(IdError::Nul { what: "requestId" }));
        assert_eq!(
            RequestId::parse(&"é".repeat(101)),
            Err(IdError::TooLong { what: "requestId", bytes: 202, limit: 200 })
        );
    }
}
