//! Local time and randomness, the only two things a process may draw by itself. Both come through
//! here so that a simulator can own them.

use uuid::Uuid;

use crate::time::{Tick, Timestamp};

/// The local clock.
pub trait Clock: Send + Sync {
    /// Monotonic, counting while the machine sleeps. For deadlines.
    fn tick(&self) -> Tick;

    /// Wall-clock time. Only for embedded stores, where this process *is* the database.
    fn now(&self) -> Timestamp;

    /// A fresh id, ordered by time (UUID v7).
    fn draw(&self) -> Uuid;
}
