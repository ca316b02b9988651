//! Child processes that cannot outlive the test process.
//!
//! A test that is killed runs no destructors, and asking the kernel for a parent-death signal needs `unsafe`.
//! So each server runs under a small `sh` watchdog that blocks reading a pipe whose other end this process
//! holds. However this process ends, the kernel closes the pipe, and the watchdog stops the server. A second
//! watchdog owns the folder ([`ScratchDir`]) and removes it once every server in it has been stopped.

mod guarded;
mod inspect;
mod port;
mod scratch;

pub use guarded::{Guarded, Launch};
pub use inspect::{children, is_alive};
pub use nix::sys::signal::Signal;
pub use port::free_port;
pub use scratch::{Owner, ScratchDir};

pub use guarded::send;

pub(crate) use guarded::wait_stopped;
