//! Query strings, read as strictly as bodies: an unknown name is an error that names the nearest one.

use axum::http::Uri;
use gapless_core::limits::MAX_PAGE;

use crate::near::nearest;
use crate::problem::Problem;

/// Items of a page unless the caller says otherwise.
const PAGE: usize = 100;

/// The parameters of one call.
#[derive(Debug)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads a query; every name must be one of `known`.
    pub(crate) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let query = uri.query().unwrap_or_default().as_bytes();
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query).into_owned().collect();
        for (name, _) in &pairs {
            if !known.contains(&name.as_str()) {
                let hint = match nearest(name, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if known.is_empty() => "none is taken here".to_owned(),
                    None => format!("known are {}", known.join(", ")),
                };
                return Err(Problem::invalid(format!("unknown query parameter `{name}`; {hint}")));
            }
        }
        Ok(Self(pairs))
    }

    /// All values of a parameter; empty ones do not count.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that may be given once.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.all(name);
        let first = values.next();
        match values.next() {
            Some(_) => Err(Problem::invalid(format!("query parameter `{name}` is given more than once"))),
            None => Ok(first),
        }
    }

    /// The value of a parameter that must be given.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Problem> {
        self.one(name)?.ok_or_else(|| Problem::invalid(format!("query parameter `{name}` is missing")))
    }

    /// The page's length.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.one("limit")? else { return Ok(PAGE) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
        limit.ok_or_else(|| Problem::invalid(format!("`limit` must be a number from 1 to {MAX_PAGE}")))
    }
}
