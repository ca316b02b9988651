//! Which calls are broken, how, and how often.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

/// Makes the answer a client sees from its request and the node's answer, both whole JSON-RPC objects.
pub type Transform = Arc<dyn Fn(&Value, Value) -> Value + Send + Sync>;

/// Makes a result from a request alone.
pub type Invention = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// Chooses the error that a request is refused with, if it is.
pub type Judgement = Arc<dyn Fn(&Value) -> Option<(i64, String)> + Send + Sync>;

/// What happens to a call.
#[derive(Clone)]
#[non_exhaustive]
pub enum Fault {
    /// Forwarded; then the connection is closed without an answer.
    DropAnswer,
    /// Not forwarded and not answered. The other calls of its batch are; one that came alone finds the connection closed.
    Lose,
    /// Not forwarded; answered with this error.
    ErrorWithoutForward {
        /// JSON-RPC error code.
        code: i64,
        /// JSON-RPC error message.
        message: String,
    },
    /// Forwarded; answered with this error whatever the node said.
    ErrorAfterForward {
        /// JSON-RPC error code.
        code: i64,
        /// JSON-RPC error message.
        message: String,
    },
    /// Judged by the request: refused and not forwarded, or left to the next rule. See also [`Fault::refuse`].
    RefuseIf(Judgement),
    /// Not forwarded; answered with this result.
    FixedResult(Value),
    /// Not forwarded; answered with a result made from the request. See also [`Fault::answer`].
    Answer(Invention),
    /// Forwarded; the node's answer is changed on its way back. See also [`Fault::result`].
    Result(Transform),
    /// Forwarded at once; the answer comes this much later.
    Delay(Duration),
    /// Not forwarded; never answered, the connection staying open.
    Hang,
    /// Not forwarded; the whole HTTP request is answered with this status and no body.
    HttpStatus(u16),
}

impl Fault {
    /// [`Fault::Result`] with this function.
    pub fn result(change: impl Fn(&Value, Value) -> Value + Send + Sync + 'static) -> Self {
        Self::Result(Arc::new(change))
    }

    /// [`Fault::Answer`] with this function.
    pub fn answer(invent: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::Answer(Arc::new(invent))
    }

    /// [`Fault::RefuseIf`] with this function.
    pub fn refuse(judge: impl Fn(&Value) -> Option<(i64, String)> + Send + Sync + 'static) -> Self {
        Self::RefuseIf(Arc::new(judge))
    }

    /// What happens to this very call; nothing if it is judged well.
    fn judged(self, call: &Value) -> Option<Self> {
        match self {
            Self::RefuseIf(judge) => {
                judge(call).map(|(code, message)| Self::ErrorWithoutForward { code, message })
            }
            fault => Some(fault),
        }
    }

    /// Whether the node gets the call.
    pub(super) fn forwards(&self) -> bool {
        match self {
            Self::DropAnswer | Self::ErrorAfterForward { .. } | Self::Result(_) | Self::Delay(_) => true,
            Self::Lose
            | Self::ErrorWithoutForward { .. }
            | Self::RefuseIf(_)
            | Self::FixedResult(_)
            | Self::Answer(_)
            | Self::Hang
            | Self::HttpStatus(_) => false,
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropAnswer => f.write_str("DropAnswer"),
            Self::Lose => f.write_str("Lose"),
            Self::ErrorWithoutForward { code, message } => {
                write!(f, "ErrorWithoutForward({code}, {message})")
            }
            Self::ErrorAfterForward { code, message } => write!(f, "ErrorAfterForward({code}, {message})"),
            Self::RefuseIf(_) => f.write_str("RefuseIf(..)"),
            Self::FixedResult(result) => write!(f, "FixedResult({result})"),
            Self::Answer(_) => f.write_str("Answer(..)"),
            Self::Result(_) => f.write_str("Result(..)"),
            Self::Delay(by) => write!(f, "Delay({by:?})"),
            Self::Hang => f.write_str("Hang"),
            Self::HttpStatus(status) => write!(f, "HttpStatus({status})"),
        }
    }
}

/// A fault, the calls it is for, and how often it strikes.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The method, or `*` for any.
    pub method: String,
    /// What happens.
    pub fault: Fault,
    /// At most this often; `None` for ever.
    pub times: Option<u32>,
    /// Only at every n-th matching call; `None` at each.
    pub every: Option<u32>,
    /// Only with this luck; `None` always.
    pub luck: Option<Luck>,
}

/// So many matching calls of a hundred, the same ones for the same seed.
#[derive(Clone, Copy, Debug)]
pub struct Luck {
    /// Out of a hundred.
    pub percent: u32,
    /// Decides which.
    pub seed: u64,
}

impl Luck {
    /// Whether it strikes at the n-th call.
    fn strikes(self, n: u32) -> bool {
        // SplitMix64: neighbours have nothing in common, so no rhythm of a caller falls in with it.
        let mut mixed = self.seed.wrapping_add(u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 100 < u64::from(self.percent)
    }
}

impl Rule {
    /// Strikes at every call of `method`.
    pub fn new(method: impl Into<String>, fault: Fault) -> Self {
        Self { method: method.into(), fault, times: None, every: None, luck: None }
    }

    /// Strikes this often and then never again.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Strikes at the n-th matching call, the 2n-th, and so on.
    #[must_use]
    pub fn every(mut self, every: u32) -> Self {
        self.every = Some(every);
        self
    }

    /// Strikes at so many calls of a hundred, without rhythm, and at the same ones for the same seed.
    #[must_use]
    pub fn by_luck(mut self, percent: u32, seed: u64) -> Self {
        self.luck = Some(Luck { percent, seed });
        self
    }
}

/// Names a rule for its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

#[derive(Debug)]
struct Entry {
    id: RuleId,
    rule: Rule,
    seen: u32,
    fired: u32,
}

impl Entry {
    /// Counts the call, and says what happens to it if the rule strikes at it.
    fn strike(&mut self, method: &str, call: &Value) -> Option<Fault> {
        if self.rule.method != "*" && self.rule.method != method {
            return None;
        }
        self.seen += 1;
        let due = self.rule.every.is_none_or(|every| self.seen.is_multiple_of(every))
            && self.rule.luck.is_none_or(|luck| luck.strikes(self.seen))
            && self.rule.times.is_none_or(|times| self.fired < times);
        let fault = due.then(|| self.rule.fault.clone()).and_then(|fault| fault.judged(call));
        self.fired += u32::from(fault.is_some());
        fault
    }
}

/// All rules, oldest first.
#[derive(Debug, Default)]
pub(super) struct Rules {
    entries: Mutex<Vec<Entry>>,
    next: AtomicU64,
}

impl Rules {
    pub(super) fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next.fetch_add(1, Ordering::Relaxed));
        self.entries().push(Entry { id, rule, seen: 0, fired: 0 });
        id
    }

    pub(super) fn remove(&self, id: RuleId) {
        self.entries().retain(|entry| entry.id != id);
    }

    pub(super) fn clear(&self) {
        self.entries().clear();
    }

    pub(super) fn fired(&self, id: RuleId) -> u32 {
        self.entries().iter().find(|entry| entry.id == id).map(|entry| entry.fired).unwrap_or_default()
    }

    /// The fault for a call. Only rules up to the one that strikes have seen the call.
    pub(super) fn strike(&self, method: &str, call: &Value) -> Option<Fault> {
        self.entries().iter_mut().find_map(|entry| entry.strike(method, call))
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
