//! One error type for the whole kit: tests print it and stop, so it carries what a reader needs and no more.

use std::{fmt, io, path::PathBuf, time::Duration};

/// What the parts of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error from code that a test handed to the kit.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a part could not be started, steered or asked.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program the part needs is not on this machine. Tests fail on this; they never skip.
    #[error("no `{program}` program found; looked in {looked_in}; {hint}")]
    MissingProgram {
        /// The program's name.
        program: &'static str,
        /// Where it was looked for.
        looked_in: String,
        /// How to get it.
        hint: &'static str,
    },
    /// The operating system refused something.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// The refusal.
        source: io::Error,
    },
    /// A signal could not be sent.
    #[error("sending {signal} to process {pid}")]
    Signal {
        /// The signal's name.
        signal: &'static str,
        /// The process it was meant for.
        pid: i32,
        /// The refusal.
        source: nix::Error,
    },
    /// A server ended, or a helper program failed, before it was of use.
    #[error("{program} ended early{}; its log {log} ends with:\n{tail}", status.map(|s| format!(" with status {s}")).unwrap_or_default(), log = log.display())]
    Ended {
        /// The program's name.
        program: String,
        /// Its exit status, where known.
        status: Option<i32>,
        /// Where its output went.
        log: PathBuf,
        /// The last lines of that output.
        tail: String,
    },
    /// A server is running but did not answer in time.
    #[error("{program} did not become ready within {waited:?}; its log {log} ends with:\n{tail}", log = log.display())]
    NotReady {
        /// The program's name.
        program: String,
        /// How long it was given.
        waited: Duration,
        /// Where its output went.
        log: PathBuf,
        /// The last lines of that output.
        tail: String,
    },
    /// Something awaited did not happen.
    #[error("gave up after {waited:?} waiting for {what}")]
    Timeout {
        /// What was awaited.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// A part was asked for something it cannot do in its present state.
    #[error("{0}")]
    Misuse(String),
    /// An administrative statement failed.
    #[error("{doing}")]
    Sql {
        /// What was being done.
        doing: String,
        /// PostgreSQL's answer.
        source: sqlx::Error,
    },
    /// A node could not be reached, or did not speak JSON.
    #[error("{doing}")]
    Http {
        /// What was being done.
        doing: String,
        /// What went wrong.
        source: reqwest::Error,
    },
    /// A node answered with an error.
    #[error("{method} was answered with an error: {answer}")]
    Rpc {
        /// The method called.
        method: String,
        /// The error object.
        answer: serde_json::Value,
    },
    /// The caller's own preparation of a template database failed.
    #[error("preparing template database `{name}`")]
    Template {
        /// The template's name.
        name: String,
        /// What the caller's code returned.
        source: BoxError,
    },
}

/// Tests unwrap, and unwrapping prints this: so it is the message, the causes and the log, not the fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, "\n  caused by: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl Error {
    /// Wraps an operating system refusal with what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Wraps a database refusal with what was being done.
    pub(crate) fn sql(doing: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Sql { doing, source }
    }
}
