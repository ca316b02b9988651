//! How many transactions of one account nodes let be in flight, where that is fewer than the window asks for.
//!
//! Nodes limit what one account may have in their pools, and one that is delegated (EIP-7702) to a single transaction. The
//! slots they turned away are bound already, and stay so: what must not happen is that a lane goes on binding nonces which
//! nobody takes. The limit is learnt from refusals and unlearnt by progress, in growing steps, because nobody tells when it
//! is lifted. It may be forgotten at any time: the next refusal teaches it again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::named::named_enum;
use crate::outcome::SendOutcome;
use crate::time::Tick;

named_enum! {
    /// What narrows a window.
    pub enum Narrowing {
        /// A pool holds no more of one account.
        AccountLimit = "account-limit",
        /// A delegated account may have one transaction in flight.
        Delegated = "delegation-limit",
        /// A pool holds transactions of another type of this account.
        TypeConflict = "type-conflict",
    }
}

impl Narrowing {
    /// What a refusal says about the window, if anything.
    #[must_use]
    pub const fn of(outcome: &SendOutcome) -> Option<Self> {
        match outcome {
            SendOutcome::AccountLimit => Some(Self::AccountLimit),
            SendOutcome::DelegationLimit => Some(Self::Delegated),
            SendOutcome::TypeConflict => Some(Self::TypeConflict),
            _ => None,
        }
    }
}

/// A window that is smaller than it is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Narrowed {
    /// So many may be in flight.
    pub size: u64,
    /// Why.
    pub cause: Narrowing,
}

impl Narrowed {
    /// In a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let size = self.size;
        match self.cause {
            Narrowing::AccountLimit => {
                format!("nodes hold no more than {size} transactions of this account at once")
            }
            Narrowing::Delegated => {
                format!(
                    "the account is delegated (EIP-7702): nodes let {size} of its transactions be in flight"
                )
            }
            Narrowing::TypeConflict => format!(
                "a pool holds transactions of another type of this account: {size} may be in flight until they are gone"
            ),
        }
    }
}

/// A delegated account is tried again after this, and ever more seldom.
const DELEGATED: Duration = Duration::from_secs(60);
const DELEGATED_AT_MOST: Duration = Duration::from_secs(960);

/// The window of one lane, as far as nodes allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    narrowed: Option<Narrowed>,
    /// By how much it grows next.
    step: u64,
    /// Not to grow before.
    rests_until: Option<Tick>,
    /// For how long it rested last.
    rest: Duration,
}

impl Default for Window {
    fn default() -> Self {
        Self::as_last_seen(None)
    }
}

impl Window {
    /// As it was when somebody last wrote it down.
    #[must_use]
    pub const fn as_last_seen(narrowed: Option<Narrowed>) -> Self {
        Self { narrowed, step: 1, rests_until: None, rest: Duration::ZERO }
    }

    /// How many may be in flight, of so many that are allowed. Never none: somebody has to try.
    #[must_use]
    pub fn limit(&self, most: u64) -> u64 {
        self.narrowed.map_or(most, |narrowed| narrowed.size.min(most))
    }

    /// What is to be shown, if it is narrowed.
    #[must_use]
    pub const fn narrowed(&self) -> Option<Narrowed> {
        self.narrowed
    }

    /// A node turned a slot away that has so many open ones below it. The lowest one that is turned away tells the limit;
    /// those above it add nothing.
    pub fn turned_away(&mut self, cause: Narrowing, below: u64, now: Tick) {
        let size = match cause {
            Narrowing::Delegated => 1,
            Narrowing::AccountLimit | Narrowing::TypeConflict => below.max(1),
        };
        let known = self.narrowed.map_or(u64::MAX, |narrowed| narrowed.size);
        if size <= known {
            self.narrowed = Some(Narrowed { size, cause });
        }
        self.step = 1;
        if cause == Narrowing::Delegated && self.rests_until.is_none_or(|until| now >= until) {
            self.rest = (self.rest * 2).clamp(DELEGATED, DELEGATED_AT_MOST);
            self.rests_until = Some(now.plus(self.rest));
        }
    }

    /// Nonces were consumed: a little more is tried, up to `most`. By one, and by twice as much each time that nobody turns
    /// anything away.
    pub fn progressed(&mut self, most: u64, now: Tick) {
        let Some(narrowed) = self.narrowed else { return };
        if self.rests_until.is_some_and(|until| now < until) {
            return;
        }
        let size = narrowed.size.saturating_add(self.step);
        self.step = self.step.saturating_mul(2);
        if size >= most {
            *self = Self { rest: self.rest, ..Self::default() };
        } else {
            self.narrowed = Some(Narrowed { size, ..narrowed });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Tick = Tick(Duration::from_secs(1_000));

    fn later(seconds: u64) -> Tick {
        NOW.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn the_lowest_slot_turned_away_tells_the_limit() {
        let mut window = Window::default();
        assert_eq!((window.limit(50), window.narrowed()), (50, None));
        for below in 16..50 {
            window.turned_away(Narrowing::AccountLimit, below, NOW);
        }
        assert_eq!((window.limit(50), window.limit(8)), (16, 8));
        window.turned_away(Narrowing::AccountLimit, 0, NOW);
        assert_eq!(window.limit(50), 1, "somebody has to try");
    }

    #[test]
    fn it_grows_by_one_after_a_refusal_and_faster_when_none_follows() {
        let mut window = Window::default();
        window.turned_away(Narrowing::AccountLimit, 4, NOW);
        let mut sizes = Vec::new();
        for _ in 0..3 {
            window.progressed(16, NOW);
            sizes.push(window.limit(16));
        }
        window.turned_away(Narrowing::AccountLimit, 10, NOW);
        for _ in 0..4 {
            window.progressed(16, NOW);
            sizes.push(window.limit(16));
        }
        assert_eq!(sizes, [5, 7, 11, 11, 13, 16, 16]);
        assert_eq!(window, Window::default());
    }

    #[test]
    fn a_delegated_account_has_one_in_flight_for_a_while_and_longer_each_time() {
        let mut window = Window::default();
        window.turned_away(Narrowing::Delegated, 7, NOW);
        window.turned_away(Narrowing::Delegated, 8, NOW);
        window.progressed(16, later(59));
        assert_eq!(window.limit(16), 1);
        window.progressed(16, later(60));
        assert_eq!(window.limit(16), 2);
        window.turned_away(Narrowing::Delegated, 1, later(61));
        window.progressed(16, later(61 + 119));
        assert_eq!(window.limit(16), 1);
        window.progressed(16, later(61 + 120));
        assert_eq!(window.limit(16), 2);
    }

    #[test]
    fn what_was_written_down_is_read_again() {
        let mut window = Window::default();
        window.turned_away(Narrowing::Delegated, 3, NOW);
        let text = serde_json::to_string(&window.narrowed()).unwrap();
        assert_eq!(text, r#"{"size":1,"cause":"delegation-limit"}"#);
        let again = Window::as_last_seen(serde_json::from_str(&text).unwrap());
        assert_eq!((again.limit(9), again.narrowed()), (1, window.narrowed()));
    }

    proptest! {
        /// Whatever nodes say, in whatever order: between one and what is allowed; a refusal never widens it, progress never
        /// narrows it, and progress alone restores it.
        #[test]
        fn it_stays_between_one_and_what_is_allowed(
            said in prop::collection::vec((0_u8..4, 0_u64..200, 0_u64..100), 0..60),
            most in 1_u64..200,
        ) {
            let (mut window, mut now) = (Window::default(), NOW);
            for (what, below, seconds) in said {
                now = now.plus(Duration::from_secs(seconds));
                let before = window.limit(most);
                match what {
                    0 => window.turned_away(Narrowing::AccountLimit, below, now),
                    1 => window.turned_away(Narrowing::Delegated, below, now),
                    2 => window.turned_away(Narrowing::TypeConflict, below, now),
                    _ => window.progressed(most, now),
                }
                let after = window.limit(most);
                prop_assert!((1..=most).contains(&after));
                let fair = if what < 3 { after <= before } else { after >= before };
                prop_assert!(fair, "from {} to {}", before, after);
            }
            now = now.plus(DELEGATED_AT_MOST);
            for _ in 0..10 {
                window.progressed(most, now);
            }
            prop_assert_eq!((window.limit(most), window.narrowed()), (most, None));
        }
    }
}
