//! Traps: what happens to the one request a test has its eye on.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::{oneshot, watch},
};

use super::connection::HISTORY;
use crate::{Error, Result};

/// How long a server that got its request is given to answer before its connection is closed.
const MOMENT: Duration = Duration::from_secs(10);

/// What to do at the first chunk from a client that completes the pattern.
///
/// The pattern is looked for in the raw stream. With PostgreSQL's extended protocol a statement's text travels
/// ahead of its execution, so take the text of a plain query (`COMMIT` is one) or a bound value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The chunk and all that follows is held back, and the client is cut off at once. The server's side stays
    /// open and silent until [`TrapHandle::release`] lets the held bytes through; dropping the handle instead
    /// closes it, and the request was never made.
    HoldRequestAndCut {
        /// The bytes to wait for.
        pattern: Vec<u8>,
    },
    /// The client is cut off first, then the chunk is forwarded; the server's side stays open until it has
    /// answered. The request is made, and the client cannot know.
    ForwardAndCut {
        /// The bytes to wait for.
        pattern: Vec<u8>,
    },
}

impl Trap {
    /// [`Trap::HoldRequestAndCut`] for this pattern.
    pub fn hold(pattern: impl AsRef<[u8]>) -> Self {
        Self::HoldRequestAndCut { pattern: pattern.as_ref().to_vec() }
    }

    /// [`Trap::ForwardAndCut`] for this pattern.
    pub fn forward(pattern: impl AsRef<[u8]>) -> Self {
        Self::ForwardAndCut { pattern: pattern.as_ref().to_vec() }
    }

    fn pattern(&self) -> &[u8] {
        match self {
            Self::HoldRequestAndCut { pattern } | Self::ForwardAndCut { pattern } => pattern,
        }
    }

    /// Whether the pattern ends in the part of `stream` after the first `known` bytes.
    fn matches(&self, stream: &[u8], known: usize) -> bool {
        let pattern = self.pattern();
        // A longer one could never be seen whole.
        if pattern.is_empty() || pattern.len() > HISTORY {
            return false;
        }
        let from = known.saturating_sub(pattern.len() - 1);
        stream[from..].windows(pattern.len()).any(|window| window == pattern)
    }
}

/// How far a trap has come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Armed,
    Fired,
    Forwarded,
    Answered(Vec<u8>),
}

/// The test's end of a trap. Its waits have no time limit of their own.
#[derive(Debug)]
pub struct TrapHandle {
    stage: watch::Receiver<Stage>,
    release: Option<oneshot::Sender<()>>,
}

impl TrapHandle {
    /// Waits until the trap has sprung and the client has been cut off.
    pub async fn fired(&mut self) -> Result<()> {
        self.reach(Stage::Fired).await.map(drop)
    }

    /// Lets the held request through, and returns when it has been handed to the server. For a trap that holds
    /// nothing, waits until the request has been handed over.
    pub async fn release(&mut self) -> Result<()> {
        if let Some(release) = self.release.take() {
            let _ = release.send(());
        }
        self.reach(Stage::Forwarded).await.map(drop)
    }

    /// Waits for the server's first answer to the request, and returns its bytes: none if the server closed the
    /// connection instead.
    pub async fn server_answered(&mut self) -> Result<Vec<u8>> {
        match self.reach(Stage::Answered(Vec::new())).await? {
            Stage::Answered(bytes) => Ok(bytes),
            _ => Ok(Vec::new()),
        }
    }

    async fn reach(&mut self, stage: Stage) -> Result<Stage> {
        let reached = self.stage.wait_for(|now| *now >= stage).await;
        reached.map(|now| now.clone()).map_err(|_| {
            Error::Misuse(format!("the trap's connection or proxy ended before it came to {stage:?}"))
        })
    }
}

/// A trap waiting for its request.
#[derive(Debug)]
struct Armed {
    trap: Trap,
    stage: watch::Sender<Stage>,
    release: oneshot::Receiver<()>,
}

/// All traps of a proxy, oldest first.
#[derive(Debug, Default)]
pub(super) struct Traps(Mutex<Vec<Armed>>);

impl Traps {
    pub(super) fn arm(&self, trap: Trap) -> TrapHandle {
        let (stage, seen) = watch::channel(Stage::Armed);
        let (sender, release) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Armed { trap, stage, release });
        TrapHandle { stage: seen, release: Some(sender) }
    }

    /// Springs the oldest trap that `stream` completes with the bytes after `known`, and takes those bytes.
    pub(super) fn spring(&self, stream: &[u8], known: usize) -> Option<Sprung> {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        armed.retain(|armed| !armed.stage.is_closed());
        let at = armed.iter().position(|armed| armed.trap.matches(stream, known))?;
        Some(Sprung { armed: armed.remove(at), held: stream[known..].to_vec() })
    }
}

/// A trap that has got its request.
#[derive(Debug)]
pub(super) struct Sprung {
    armed: Armed,
    held: Vec<u8>,
}

impl Sprung {
    /// Plays the rest of the scene with the server. The client has been cut off already.
    pub(super) async fn play(self, (mut read, mut write): (OwnedReadHalf, OwnedWriteHalf)) {
        let Armed { trap, stage, release } = self.armed;
        stage.send_replace(Stage::Fired);
        if matches!(trap, Trap::HoldRequestAndCut { .. }) && release.await.is_err() {
            return;
        }
        if write.write_all(&self.held).await.is_err() {
            return;
        }
        stage.send_replace(Stage::Forwarded);

        // Also when the handle is gone: closing with an answer unread could take the request back.
        let mut answer = vec![0; 64 * 1024];
        if let Ok(Ok(n)) = tokio::time::timeout(MOMENT, read.read(&mut answer)).await {
            answer.truncate(n);
            stage.send_replace(Stage::Answered(answer));
        }
    }
}
