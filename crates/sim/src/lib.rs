//! A seeded world that holds the engine to its word.
//!
//! Two or three nodes run the *real* engine on one memory store and a simulated chain, in one thread, on tokio's paused
//! time: a minute of leases, blocks and back-offs takes milliseconds. A seed chooses everything that is open (how many,
//! how fast, in which order, what goes wrong and when), so a seed *is* a history: run it again and the same things happen,
//! byte for byte in the trace.
//!
//! What goes wrong: nodes crash between any two polls and come back; they freeze for longer than their lease and go on;
//! calls never leave, leave late, lose their answers, or take effect after their caller gave up; pools forget; heads are
//! replaced; backends lag by a head; clocks drift. After every effect on the store or the chain the invariants of
//! [`Invariant`] are looked at. Then trouble ends, and every accepted request must be confirmed within bounded time, each
//! effect on chain exactly once, the nonces without a hole.
//!
//! What is not simulated: the SQL stores (their conformance and model tests hold them to the memory store), the JSON-RPC
//! adapter, the HTTP interface. Those meet real parts in their own tests.

mod chain;
mod check;
mod client;
mod clock;
mod dice;
mod gate;
mod node;
mod run;
mod scenario;
mod store;
mod trace;
mod trouble;
mod wire;
mod world;

pub use check::{Invariant, Violation};
pub use run::{Options, Outcome, Sabotage, run};
