//! What is known of one endpoint. Pure: time comes in as an argument.
//!
//! Two things are kept apart. *Standing* says whether the endpoint is who it should be, and only a
//! check of chain id and genesis improves it. *Cooling* says when it may be asked again, and any answer
//! ends it. Besides, one that let somebody wait in vain, or that owes an answer for long, is asked after those that answer, so
//! that a black hole costs those who fell into it and nobody else (an error that comes at once costs nobody anything); and
//! an endpoint that stays behind the others is asked last: one that repeats a block for ever answers quickly and without an
//! error, and everything it says is old.

use std::ops::RangeInclusive;
use std::time::Duration;

use alloy_primitives::B256;
use tokio::time::Instant;

use super::{Trouble, TroubleKind};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A server may ask for more patience than we would show by ourselves, but not for ever.
const LONGEST_OBEDIENCE: Duration = Duration::from_secs(30);
/// How far an endpoint may trail the others' heads before they are preferred.
const LAG: u64 = 3;
/// For how long it may trail them by less without moving.
const LAG_TIME: Duration = Duration::from_secs(3);
/// How long an answer may be owed before others are preferred.
const SILENT: Duration = Duration::from_secs(1);
/// When a head that stays the same is worth a word.
const STILL: Duration = Duration::from_secs(10);

/// Why an endpoint is not used although it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Quarantine {
    ChainId {
        found: u64,
        wanted: u64,
    },
    Genesis {
        found: B256,
        wanted: B256,
    },
    /// It refused bytes of ours with words that only another chain's node would use.
    Said(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Unverified,
    Verified,
    Quarantined(Quarantine),
}

#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) standing: Standing,
    failures: u32,
    /// Whether the last one who asked waited in vain.
    hung: bool,
    not_before: Option<Instant>,
    trouble: Option<String>,
    head: Option<Named>,
    behind_since: Option<Instant>,
    /// Exchanges under way, and since when it has answered none of them.
    owed: u32,
    owed_since: Option<Instant>,
}

/// The head an endpoint named last.
#[derive(Debug, Clone, Copy)]
struct Named {
    head: u64,
    first: Instant,
    last: Instant,
}

impl Health {
    pub(crate) const fn new() -> Self {
        Self {
            standing: Standing::Unverified,
            failures: 0,
            hung: false,
            not_before: None,
            trouble: None,
            head: None,
            behind_since: None,
            owed: 0,
            owed_since: None,
        }
    }

    /// An exchange begins.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.owed = self.owed.saturating_add(1);
        self.owed_since.get_or_insert(now);
    }

    /// An exchange is over: it was answered, or nobody waits for it any more.
    pub(crate) fn over(&mut self, answered: bool, now: Instant) {
        self.owed = self.owed.saturating_sub(1);
        match (self.owed, answered) {
            (0, _) => self.owed_since = None,
            (_, true) => self.owed_since = Some(now),
            (_, false) => {}
        }
    }

    /// Whether those that answer are to be preferred.
    pub(crate) fn is_failing(&self, now: Instant) -> bool {
        let silent = self.owed_since.is_some_and(|since| now.saturating_duration_since(since) > SILENT);
        self.hung || silent
    }

    fn cooled(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|then| then <= now)
    }

    pub(crate) fn is_verified(&self) -> bool {
        self.standing == Standing::Verified
    }

    /// Whether it may be asked now.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.is_verified() && self.cooled(now)
    }

    /// Whether its identity should be checked now. In need, words alone keep nobody out.
    pub(crate) fn is_due(&self, now: Instant, in_need: bool) -> bool {
        match &self.standing {
            Standing::Verified => false,
            Standing::Quarantined(Quarantine::Said(_)) if in_need => true,
            Standing::Unverified | Standing::Quarantined(_) => self.cooled(now),
        }
    }

    /// When it may be asked or checked next.
    pub(crate) fn next_chance(&self, now: Instant) -> Instant {
        self.not_before.unwrap_or(now).max(now)
    }

    /// The head it named last, as long as it is in order.
    pub(crate) fn head(&self) -> Option<u64> {
        self.head.filter(|_| self.looks_healthy()).map(|named| named.head)
    }

    /// Whether it has not named its head for so long.
    pub(crate) fn head_is_older_than(&self, age: Duration, now: Instant) -> bool {
        self.head.is_none_or(|named| now.saturating_duration_since(named.last) > age)
    }

    /// Whether others are to be preferred; `best` is the highest head that is named now.
    pub(crate) fn is_lagging(&mut self, best: u64, now: Instant) -> bool {
        let Some(named) = self.head else { return false };
        if named.head >= best {
            self.behind_since = None;
            return false;
        }
        let since = *self.behind_since.get_or_insert(now);
        named.head.saturating_add(LAG) < best || now.saturating_duration_since(since) > LAG_TIME
    }

    /// An exchange worked.
    pub(crate) fn answered(&mut self) {
        if self.is_verified() {
            self.not_before = None;
        }
        self.failures = 0;
        self.hung = false;
        self.trouble = None;
    }

    /// An exchange failed. Many calls failing at once count as one failure. `jitter` is within 0..1.
    pub(crate) fn failed(&mut self, trouble: &Trouble, now: Instant, jitter: f64) {
        if trouble.kind == TroubleKind::Busy {
            // Our doing, not the endpoint's.
            return;
        }
        self.trouble = Some(trouble.text.clone());
        self.hung |= trouble.kind == TroubleKind::TimedOut;
        if trouble.kind == TroubleKind::NotSent && self.is_verified() {
            // Whoever comes back at this address has to show who it is.
            self.standing = Standing::Unverified;
        }
        if !self.cooled(now) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let asked = match trouble.kind {
            TroubleKind::Status { retry_after, .. } => retry_after.unwrap_or_default().min(LONGEST_OBEDIENCE),
            _ => Duration::ZERO,
        };
        let pause = pause(self.failures, FIRST_PAUSE..=LONGEST_PAUSE, jitter);
        self.not_before = Some(now + pause.max(asked));
    }

    pub(crate) fn verified(&mut self) {
        self.standing = Standing::Verified;
        self.answered();
    }

    pub(crate) fn quarantine(&mut self, reason: Quarantine, until: Instant) {
        self.standing = Standing::Quarantined(reason);
        self.head = None;
        self.not_before = Some(until);
        self.failures = 0;
    }

    /// It named its head.
    pub(crate) fn saw_head(&mut self, head: u64, now: Instant) {
        let same = self.head.filter(|named| named.head == head);
        if same.is_none() {
            self.behind_since = None;
        }
        self.head = Some(Named { head, first: same.map_or(now, |named| named.first), last: now });
    }

    /// For humans.
    pub(crate) fn detail(&self) -> String {
        match (&self.standing, &self.trouble, self.head) {
            (Standing::Quarantined(Quarantine::ChainId { found, wanted }), ..) => {
                format!("quarantined: it serves chain {found}, not {wanted}")
            }
            (Standing::Quarantined(Quarantine::Genesis { found, wanted }), ..) => {
                format!("quarantined: its block 0 is {found}, not {wanted}")
            }
            (Standing::Quarantined(Quarantine::Said(text)), ..) => {
                format!("quarantined: it cannot be what it claims: {text}")
            }
            (_, Some(trouble), _) => trouble.clone(),
            (Standing::Unverified, None, _) => "not asked yet".to_owned(),
            (Standing::Verified, None, None) => "verified".to_owned(),
            (Standing::Verified, None, Some(Named { head, first, last })) => {
                match last.saturating_duration_since(first) {
                    still if still >= STILL => format!("head {head}, unchanged for {}s", still.as_secs()),
                    _ => format!("head {head}"),
                }
            }
        }
    }

    /// Fit for use as far as anybody knows.
    pub(crate) fn looks_healthy(&self) -> bool {
        self.is_verified() && self.trouble.is_none()
    }
}

/// Doubling pauses, each cut by up to half so that many clients do not return in step. `jitter` is within 0..1.
pub(super) fn pause(failures: u32, range: RangeInclusive<Duration>, jitter: f64) -> Duration {
    let doubled = range.start().saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(*range.end()).mul_f64(jitter.clamp(0.0, 1.0).mul_add(-0.5, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(kind: TroubleKind) -> Trouble {
        Trouble::new(kind, "trouble")
    }

    fn verified() -> Health {
        let mut health = Health::new();
        health.verified();
        health
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_an_answer_ends_them() {
        let (mut health, mut now) = (verified(), Instant::now());
        for expected in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            health.failed(&trouble(TroubleKind::TimedOut), now, 0.0);
            assert_eq!(health.next_chance(now) - now, Duration::from_millis(expected));
            assert!(!health.is_ready(now));
            now = health.next_chance(now);
            assert!(health.is_ready(now));
        }
        health.answered();
        health.failed(&trouble(TroubleKind::TimedOut), now, 1.0);
        assert_eq!(health.next_chance(now) - now, Duration::from_millis(50));
    }

    #[test]
    fn a_hundred_calls_that_fail_together_are_one_failure() {
        let (mut health, now) = (verified(), Instant::now());
        for _ in 0..100 {
            health.failed(&trouble(TroubleKind::Broken), now, 0.0);
        }
        assert_eq!(health.next_chance(now) - now, FIRST_PAUSE);
    }

    #[test]
    fn retry_after_is_obeyed_within_reason() {
        let now = Instant::now();
        for (asked, waited) in [(2, 2), (3600, 30)] {
            let mut health = verified();
            let retry_after = Some(Duration::from_secs(asked));
            health.failed(&trouble(TroubleKind::Status { status: 429, retry_after }), now, 0.0);
            assert_eq!(health.next_chance(now) - now, Duration::from_secs(waited));
        }
    }

    #[test]
    fn an_endpoint_that_was_gone_must_show_who_it_is() {
        let (mut health, now) = (verified(), Instant::now());
        health.failed(&trouble(TroubleKind::NotSent), now, 0.0);
        assert_eq!(health.standing, Standing::Unverified);
        assert!(!health.is_due(now, true));
        assert!(health.is_due(health.next_chance(now), false));
    }

    #[test]
    fn quarantine_by_words_alone_ends_early_in_need_and_by_fact_does_not() {
        let now = Instant::now();
        let until = now + Duration::from_secs(10);
        let mut health = verified();
        health.quarantine(Quarantine::Said("invalid chain id".into()), until);
        assert!(!health.is_due(now, false) && health.is_due(now, true) && health.is_due(until, false));
        health.quarantine(Quarantine::ChainId { found: 2, wanted: 1 }, until);
        assert!(!health.is_due(now, true));
        assert!(health.detail().contains("chain 2, not 1"));
    }

    #[test]
    fn who_trails_far_or_for_long_is_asked_last_until_it_has_caught_up() {
        let (mut health, now) = (verified(), Instant::now());
        assert!(!health.is_lagging(99, now));
        health.saw_head(10, now);
        assert!(health.is_lagging(14, now));
        health.saw_head(14, now);
        assert!(!health.is_lagging(14, now) && !health.is_lagging(15, now));
        assert!(!health.is_lagging(15, now + LAG_TIME));
        let later = now + LAG_TIME * 2;
        assert!(health.is_lagging(15, later));
        health.saw_head(15, later);
        assert!(!health.is_lagging(16, later), "who moves is not stuck");
        assert!(health.is_lagging(19, later));
    }

    #[test]
    fn who_owes_an_answer_for_long_or_let_somebody_wait_in_vain_is_not_preferred() {
        let (mut health, now) = (verified(), Instant::now());
        health.asked(now);
        health.asked(now + SILENT / 2);
        assert!(!health.is_failing(now + SILENT));
        let later = now + SILENT * 2;
        assert!(health.is_failing(later));
        health.over(true, later);
        assert!(!health.is_failing(later + SILENT), "it answers, if slowly");
        health.over(false, later + SILENT);
        assert!(!health.is_failing(later + SILENT * 9), "it owes nothing");
        health.failed(&trouble(TroubleKind::TimedOut), later, 0.0);
        assert!(health.is_failing(later + LONGEST_PAUSE), "until it answers");
        health.answered();
        assert!(!health.is_failing(later + LONGEST_PAUSE));
    }

    #[test]
    fn a_head_that_stays_is_said_with_its_age() {
        let (mut health, now) = (verified(), Instant::now());
        health.saw_head(10, now);
        health.saw_head(10, now + STILL / 2);
        assert_eq!(health.detail(), "head 10");
        health.saw_head(10, now + STILL * 2);
        assert_eq!(health.detail(), "head 10, unchanged for 20s");
        health.saw_head(11, now + STILL * 3);
        assert_eq!(health.detail(), "head 11");
    }

    #[test]
    fn the_head_of_an_endpoint_that_is_not_in_order_does_not_count() {
        let (mut health, now) = (verified(), Instant::now());
        health.saw_head(10, now);
        assert_eq!(health.head(), Some(10));
        health.failed(&trouble(TroubleKind::TimedOut), now, 0.0);
        assert_eq!(health.head(), None);
        health.answered();
        assert_eq!(health.head(), Some(10));
        health.quarantine(Quarantine::Said("invalid chain id".into()), now);
        health.verified();
        assert_eq!(health.head(), None);
    }
}
