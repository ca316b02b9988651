//! When to look at the head next.
//!
//! Hints that there is a new head only make it look at once. While they bring the news, it looks less often by itself;
//! the first head that no hint told ends that, so a feed that dies in silence delays one head and no more. Hints that
//! bring nothing are heeded less and less: a feed that chatters makes nobody look more often than polling would.

use std::time::Duration;

/// After a broadcast a block may come at once (chains that mine on demand): look more often for a moment.
const BURST: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(40),
    Duration::from_millis(80),
];

/// How much longer the way from one look to the next may be while hints bring the news.
const PATIENCE: u32 = 4;

/// How soon after a look a hint may cause another.
const HINT_GAP: Duration = Duration::from_millis(20);

/// How many hints in a row may be quicker than the endpoint that is asked before they are taken for idle talk.
const EARLY: u32 = 3;

/// Why to look at the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// It was time.
    Timer,
    /// Somebody said that there is a new one.
    Hint,
    /// Something was sent.
    Poke,
}

/// When to look next. Pure: knows why it was looked and whether there was news.
#[derive(Debug)]
pub(super) struct Pace {
    poll: Duration,
    burst: &'static [Duration],
    /// Whether the last wait was one of a burst.
    in_burst: bool,
    /// Whether the burst is for a hint that came before what it told of.
    hint_was_early: bool,
    hints_bring_news: bool,
    /// In a row.
    empty_hints: u32,
}

impl Pace {
    pub(super) const fn new(poll: Duration) -> Self {
        Self {
            poll,
            burst: &[],
            in_burst: false,
            hint_was_early: false,
            hints_bring_news: false,
            empty_hints: 0,
        }
    }

    /// How long after a look no hint is heeded.
    pub(super) fn deaf_for(&self) -> Duration {
        let empty = self.empty_hints.saturating_sub(EARLY).min(16);
        HINT_GAP.saturating_mul(1 << empty).min(self.poll)
    }

    /// How long to wait after a look.
    pub(super) fn after(&mut self, reason: Reason, news: bool) -> Duration {
        let in_burst = std::mem::take(&mut self.in_burst);
        match (reason, news) {
            (Reason::Hint, true) => self.heed(),
            (Reason::Hint, false) => {
                self.empty_hints = self.empty_hints.saturating_add(1);
                if self.burst.is_empty() && self.empty_hints <= EARLY {
                    self.burst = &BURST[1..];
                    self.hint_was_early = true;
                }
            }
            (Reason::Poke, _) => {
                self.burst = &BURST;
                self.hint_was_early = false;
            }
            (Reason::Timer, true) if in_burst && self.hint_was_early => self.heed(),
            (Reason::Timer, true) if !in_burst => self.hints_bring_news = false,
            (Reason::Timer, _) => {}
        }
        match self.burst {
            [wait, rest @ ..] => {
                (self.burst, self.in_burst) = (rest, true);
                *wait
            }
            [] if self.hints_bring_news => self.poll * PATIENCE,
            [] => self.poll,
        }
    }

    /// A hint was true.
    const fn heed(&mut self) {
        self.hints_bring_news = true;
        self.empty_hints = 0;
        self.burst = &[];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(500);

    #[test]
    fn without_hints_it_looks_at_every_poll() {
        let mut pace = Pace::new(POLL);
        assert_eq!(pace.after(Reason::Timer, true), POLL);
        assert_eq!(pace.after(Reason::Timer, false), POLL);
    }

    #[test]
    fn hints_that_bring_news_stretch_the_poll_until_one_head_came_without() {
        let mut pace = Pace::new(POLL);
        assert_eq!(pace.after(Reason::Hint, true), POLL * PATIENCE);
        assert_eq!(pace.after(Reason::Timer, false), POLL * PATIENCE);
        assert_eq!(pace.after(Reason::Timer, true), POLL);
        assert_eq!(pace.after(Reason::Timer, false), POLL);
    }

    #[test]
    fn a_hint_ahead_of_the_endpoint_is_looked_after_for_a_moment_and_empty_ones_stretch_nothing() {
        let mut pace = Pace::new(POLL);
        let mut waits = vec![pace.after(Reason::Hint, false)];
        waits.extend((0..5).map(|_| pace.after(Reason::Timer, false)));
        assert_eq!(waits[..4], BURST[1..]);
        assert_eq!(waits[4..], [POLL, POLL]);
    }

    #[test]
    fn a_hint_that_is_always_early_is_not_idle_talk() {
        let mut pace = Pace::new(POLL);
        for _ in 0..100 {
            assert_eq!(pace.after(Reason::Hint, false), BURST[1]);
            assert_eq!(pace.after(Reason::Timer, true), POLL * PATIENCE);
        }
        assert_eq!(pace.deaf_for(), HINT_GAP);
    }

    #[test]
    fn idle_talk_is_heeded_less_and_less_until_a_hint_brings_news() {
        let mut pace = Pace::new(POLL);
        assert_eq!(pace.deaf_for(), HINT_GAP);
        for _ in 0..100 {
            pace.after(Reason::Hint, false);
        }
        assert_eq!(pace.deaf_for(), POLL);
        assert_eq!(pace.after(Reason::Hint, false), POLL);
        pace.after(Reason::Hint, true);
        assert_eq!(pace.deaf_for(), HINT_GAP);
    }

    #[test]
    fn a_poke_is_a_burst_whatever_hints_do() {
        let mut pace = Pace::new(POLL);
        pace.after(Reason::Hint, true);
        let mut waits = vec![pace.after(Reason::Poke, false)];
        waits.extend((0..6).map(|_| pace.after(Reason::Timer, true)));
        assert_eq!(waits[..5], BURST);
        assert_eq!(waits[5..], [POLL * PATIENCE, POLL], "in the end it was found by looking, not by a hint");
    }
}
