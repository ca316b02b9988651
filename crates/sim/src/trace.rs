//! What happened, line by line, in simulated time. Two runs of one seed write the same bytes, so nothing that differs
//! between processes (addresses, real time, the order of a hash map) may come in here.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// Lines kept of a run whose whole trace nobody asked for.
const TAIL: usize = 80;

pub(crate) struct Trace {
    began: Instant,
    lines: Mutex<VecDeque<String>>,
    whole: bool,
}

impl Trace {
    pub(crate) fn new(began: Instant, whole: bool) -> Self {
        Self { began, lines: Mutex::default(), whole }
    }

    pub(crate) fn line(&self, who: &str, what: &str) {
        let elapsed = self.began.elapsed();
        let mut line = String::with_capacity(24 + who.len() + what.len());
        // Writing to a string cannot fail.
        let _ = write!(line, "{:>4}.{:03} {who:<7} {what}", elapsed.as_secs(), elapsed.subsec_millis());
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.whole && lines.len() == TAIL {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }
}
