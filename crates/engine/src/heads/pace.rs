//! When to look at the head next.
//!
//! Hints that there is a new head only make it look at once. While they bring the news, it looks less often by itself;
//! the first head that no hint told ends that, so a feed that dies in silence delays one head and no more.

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
    hints_bring_news: bool,
}

impl Pace {
    pub(super) const fn new(poll: Duration) -> Self {
        Self { poll, burst: &[], hints_bring_news: false }
    }

    /// How long to wait after a look.
    pub(super) fn after(&mut self, reason: Reason, news: bool) -> Duration {
        match (reason, news) {
            (Reason::Hint, true) => {
                self.hints_bring_news = true;
                self.burst = &[];
            }
            // The hint may be quicker than the endpoint that is asked.
            (Reason::Hint, false) if self.burst.is_empty() => self.burst = &BURST[1..],
            (Reason::Timer, true) if self.burst.is_empty() => self.hints_bring_news = false,
            (Reason::Poke, _) => self.burst = &BURST,
            _ => {}
        }
        match self.burst {
            [wait, rest @ ..] => {
                self.burst = rest;
                *wait
            }
            [] if self.hints_bring_news => self.poll * PATIENCE,
            [] => self.poll,
        }
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
    fn a_poke_is_a_burst_whatever_hints_do() {
        let mut pace = Pace::new(POLL);
        pace.after(Reason::Hint, true);
        let mut waits = vec![pace.after(Reason::Poke, false)];
        waits.extend((0..5).map(|_| pace.after(Reason::Timer, true)));
        assert_eq!(waits[..5], BURST);
        assert_eq!(waits[5], POLL, "found by looking, not by a hint");
    }
}
