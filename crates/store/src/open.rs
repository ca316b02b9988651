//! From a URL to a store, or to a clear word why not.

use std::path::PathBuf;
use std::str::FromStr;

use gapless_core::ports::store::StoreError;
use thiserror::Error;

/// Why a store could not be opened. Nothing was written.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Not a store we know.
    #[error("unknown store URL `{0}`; use sqlite://FILE, postgres://user@host/db or memory://")]
    UnknownScheme(String),
    /// The schema needs a newer binary.
    #[error("the schema needs binary generation {min_binary} or newer, this is {binary}; upgrade gapless")]
    SchemaTooNew {
        /// What the schema asks for.
        min_binary: u32,
        /// What this is.
        binary: u32,
    },
    /// The schema lacks migrations.
    #[error("the schema is at migration {found}, this binary needs {needed}; run `gapless migrate`")]
    SchemaTooOld {
        /// What was found.
        found: i64,
        /// What is needed.
        needed: i64,
    },
    /// Another process has the file.
    #[error("{0} is in use by another process")]
    Locked(PathBuf),
    /// Asking again will not help: wrong credentials, no such database, an address that is none.
    #[error("the database refuses this node: {0}; look at store.url")]
    Refused(String),
    /// The store itself said no.
    #[error("the store cannot be opened: {0}")]
    Store(#[from] StoreError),
}

impl OpenError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownScheme(_) => "unknown-store-url",
            Self::SchemaTooNew { .. } => "schema-too-new",
            Self::SchemaTooOld { .. } => "schema-too-old",
            Self::Locked(_) => "store-locked",
            Self::Refused(_) => "store-refused",
            Self::Store(error) => error.code(),
        }
    }
}

/// A store's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process's memory; gone with it.
    Memory,
    /// An SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database.
    Postgres(String),
}

impl FromStr for StoreUrl {
    type Err = OpenError;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let unknown = || OpenError::UnknownScheme(url.to_owned());
        match url.split_once("://").ok_or_else(unknown)? {
            ("memory", _) => Ok(Self::Memory),
            ("sqlite", path) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            ("postgres" | "postgresql", rest) if !rest.is_empty() => Ok(Self::Postgres(url.to_owned())),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_named_with_what_would_work() {
        for bad in ["mysql://x", "gapless.db", "sqlite://", ""] {
            let error = bad.parse::<StoreUrl>().unwrap_err();
            assert_eq!(error.code(), "unknown-store-url");
            assert!(error.to_string().contains("sqlite://FILE"), "{error}");
        }
        assert_eq!("memory://".parse::<StoreUrl>().unwrap(), StoreUrl::Memory);
        assert_eq!("sqlite://a/b.db".parse::<StoreUrl>().unwrap(), StoreUrl::Sqlite("a/b.db".into()));
    }
}
