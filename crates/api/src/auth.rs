//! API keys: who may do what, for which submitters.
//!
//! Only a key's SHA-256 is kept. Keys are drawn at random, so there is nothing to guess from a hash, and comparing
//! hashes tells an outsider nothing about a key.

use std::collections::BTreeSet;

use axum::http::{HeaderMap, header};
use gapless_core::submitter::SubmitterId;
use gapless_core::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::ApiState;
use crate::problem::{Code, Problem};

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyScope {
    /// Submit transactions.
    Submit,
    /// Read transactions, events and submitters.
    Read,
    /// Commands to lanes, and what operators see.
    Operate,
    /// Register submitters, and everything else.
    Admin,
}

impl KeyScope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Submit, Self::Read, Self::Operate, Self::Admin];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// The scope of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its name, for the audit.
    pub name: String,
    /// SHA-256 of the key.
    pub hash: [u8; 32],
    /// What it allows.
    pub scopes: BTreeSet<KeyScope>,
    /// For whom; none: for all.
    pub submitters: Option<BTreeSet<SubmitterId>>,
    /// Until when.
    pub expires_at: Option<Timestamp>,
}

/// All keys.
#[derive(Debug, Clone, Default)]
pub struct Keys(pub Vec<ApiKey>);

/// Whoever called, as far as we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller(Option<ApiKey>);

impl Caller {
    /// Its name, for the audit.
    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or("local", |key| &key.name)
    }

    /// Whether it may concern itself with a submitter.
    pub(crate) fn sees(&self, submitter: &SubmitterId) -> bool {
        self.limits().is_none_or(|allowed| allowed.contains(submitter))
    }

    /// The submitters it is limited to.
    pub(crate) fn limits(&self) -> Option<&BTreeSet<SubmitterId>> {
        self.0.as_ref()?.submitters.as_ref()
    }

    /// Refuses a submitter that is none of its business.
    pub(crate) fn about(&self, submitter: &SubmitterId) -> Result<(), Problem> {
        if self.sees(submitter) {
            return Ok(());
        }
        Err(Problem::new(Code::Forbidden, format!("this API key is not for {submitter}")))
    }
}

impl ApiState {
    /// Who calls, and whether that allows what is asked.
    pub(crate) fn caller(&self, headers: &HeaderMap, scope: KeyScope) -> Result<Caller, Problem> {
        self.caller_with(headers, &[scope])
    }

    /// The same where any of several scopes will do.
    pub(crate) fn caller_with(&self, headers: &HeaderMap, scopes: &[KeyScope]) -> Result<Caller, Problem> {
        if self.keys.0.is_empty() {
            return Ok(Caller(None));
        }
        let unauthorized = |detail: &str| Problem::new(Code::Unauthorized, detail);
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given
            .and_then(|text| text.split_once(' '))
            .filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        let (_, token) = token.ok_or_else(|| unauthorized("send `authorization: Bearer KEY`"))?;
        let hash: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        let key = self
            .keys
            .0
            .iter()
            .find(|key| key.hash == hash)
            .ok_or_else(|| unauthorized("the API key is unknown"))?;
        if key.expires_at.is_some_and(|end| end <= self.clock.now()) {
            return Err(unauthorized("the API key has expired"));
        }
        let allowed = scopes.iter().chain([&KeyScope::Admin]).any(|scope| key.scopes.contains(scope));
        if !allowed {
            let names: Vec<String> = scopes.iter().map(|scope| format!("`{}`", scope.name())).collect();
            let detail = format!("this needs the scope {}", names.join(" or "));
            return Err(Problem::new(Code::Forbidden, detail));
        }
        Ok(Caller(Some(key.clone())))
    }
}
