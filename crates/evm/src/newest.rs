//! The head as last read. A block names all its transactions, and heads are looked at many times a second: while the height
//! is the same, it is not read again for a moment. Another block at the same height is noticed a moment later.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gapless_core::ports::chain::Block;
use tokio::time::Instant;

/// How long a head may stand for its height.
const FRESH: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct Newest(Mutex<Option<(Instant, Block)>>);

impl Newest {
    /// The head, if it was read a moment ago.
    pub(crate) fn fresh(&self) -> Option<Block> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, block)| block.clone())
    }

    pub(crate) fn note(&self, block: &Block) {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = Some((Instant::now(), block.clone()));
    }
}
