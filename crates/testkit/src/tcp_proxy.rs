//! A TCP proxy that fails on purpose, and at exactly the byte that matters.
//!
//! Modes imitate a bad network for everybody. A [`Trap`] waits for one request, recognised by bytes in it, and
//! breaks the connection around that request: either the server never gets it until the test says so, or the
//! server gets it and the client never hears the answer. To the client the two look the same, which is the whole
//! difficulty of a commit in doubt.

mod connection;
mod listen;
mod trap;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

pub use trap::{Trap, TrapHandle};

use crate::{Error, Result, background::Background, process::free_port};
use trap::Traps;

/// What the proxy does to traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards everything.
    Pass,
    /// Forwards everything this much later, in both directions.
    Delay(Duration),
    /// Connections stay open, new ones are accepted, and no byte passes. What was sent meanwhile arrives once
    /// the mode changes, as it does when a network heals.
    BlackHole,
    /// New connections are refused by the operating system. Live ones go on; see [`TcpProxy::cut_all`].
    Refuse,
}

/// A proxy on a loopback port. Dropping it closes everything.
#[derive(Debug)]
pub struct TcpProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    applied: watch::Receiver<Mode>,
    _background: Background,
}

/// What the test steers and the connections read.
#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    mode: watch::Sender<Mode>,
    /// Cutting is closing this channel's successor to it: every live connection holds a receiver.
    cut: Mutex<watch::Sender<bool>>,
    traps: Traps,
}

impl TcpProxy {
    /// Starts a proxy before `upstream`, in mode [`Mode::Pass`].
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let shared = Arc::new(Shared {
            upstream,
            mode: watch::Sender::new(Mode::Pass),
            cut: Mutex::new(watch::Sender::new(false)),
            traps: Traps::default(),
        });
        // Not one that the system hands to outgoing connections: it must be had again after a refusal.
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let for_thread = Arc::clone(&shared);
        let (applied, background) = Background::start("tcp-proxy", move || {
            let listener = listen::bind(addr).map_err(Error::io(format!("listening on {addr}")))?;
            let (applied, seen) = watch::channel(Mode::Pass);
            Ok((seen, listen::serve(addr, listener, for_thread, applied)))
        })?;
        Ok(Self { addr, shared, applied, _background: background })
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what happens to traffic; returns when new connections are treated accordingly.
    pub async fn set_mode(&self, mode: Mode) -> Result<()> {
        self.shared.mode.send_replace(mode);
        let mut applied = self.applied.clone();
        applied
            .wait_for(|now| *now == mode)
            .await
            .map_err(|_| Error::Misuse("the proxy has stopped".into()))?;
        Ok(())
    }

    /// Closes all live connections, on both sides, and returns when they are closed. What a trap holds stays.
    pub async fn cut_all(&self) {
        let old = {
            let mut cut = self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *cut, watch::Sender::new(false))
        };
        old.send_replace(true);
        old.closed().await;
    }

    /// Sets a trap for the first request that matches, on any connection. Dropping the handle disarms it.
    pub fn arm(&self, trap: Trap) -> TrapHandle {
        self.shared.traps.arm(trap)
    }
}

impl Shared {
    fn cut_signal(&self) -> watch::Receiver<bool> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).subscribe()
    }
}
