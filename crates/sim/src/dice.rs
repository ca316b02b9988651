//! The only randomness of a world. One stream, drawn in the order in which things happen: the same seed and the same
//! code give the same draws.

use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;

pub(crate) struct Dice(Mutex<Rng>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::with_seed(seed)))
    }

    fn roll<T>(&self, with: impl FnOnce(&mut Rng) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True so many times in a thousand.
    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.between(0..=999) < per_mille
    }

    pub(crate) fn between(&self, range: RangeInclusive<u64>) -> u64 {
        self.roll(|rng| rng.u64(range))
    }

    pub(crate) fn millis(&self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.between(range))
    }

    /// An index below `len`, which is not zero.
    pub(crate) fn index(&self, len: usize) -> usize {
        self.roll(|rng| rng.usize(..len))
    }

    pub(crate) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.roll(|rng| rng.fill(&mut bytes));
        bytes
    }
}
