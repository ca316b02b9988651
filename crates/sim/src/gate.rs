//! A node's tasks, held together: a crash drops all of them between two polls, a freeze stops polling them while the
//! world goes on.
//!
//! Every await of a node is the end of a poll, so a crash that may come before any poll is a crash at any await point.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use gapless_engine::tasks::{Task, Tasks};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

#[derive(Default)]
struct Inside {
    tasks: Vec<AbortHandle>,
    dead: bool,
    frozen: bool,
    waiting: Vec<Waker>,
    /// Polls left until it crashes by itself.
    fuse: Option<u64>,
}

/// The gate through which all polls of a node go.
#[derive(Default)]
pub(crate) struct Gate {
    inside: Mutex<Inside>,
    crashed: Notify,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(task));
    }

    fn spawn_boxed(self: &Arc<Self>, task: Task) {
        let gated = Gated { gate: self.clone(), task };
        let mut inside = self.lock();
        if !inside.dead {
            inside.tasks.push(tokio::spawn(gated).abort_handle());
        }
    }

    pub(crate) fn tasks(self: &Arc<Self>) -> Tasks {
        let gate = self.clone();
        Tasks::new(move |task| gate.spawn_boxed(task))
    }

    /// From here on no task of this node is polled again.
    pub(crate) fn crash(&self) {
        let mut inside = self.lock();
        inside.dead = true;
        inside.waiting.clear();
        let tasks = std::mem::take(&mut inside.tasks);
        drop(inside);
        tasks.iter().for_each(AbortHandle::abort);
        self.crashed.notify_one();
    }

    /// Crashes before the poll after so many more.
    pub(crate) fn crash_after(&self, polls: u64) {
        self.lock().fuse = Some(polls);
    }

    /// Takes back an announced crash that has not come yet.
    pub(crate) fn disarm(&self) {
        self.lock().fuse = None;
    }

    pub(crate) async fn crashed(&self) {
        self.crashed.notified().await;
    }

    pub(crate) fn freeze(&self) {
        self.lock().frozen = true;
    }

    /// Whether anybody was there to go on.
    pub(crate) fn thaw(&self) -> bool {
        let mut inside = self.lock();
        inside.frozen = false;
        let waiting = std::mem::take(&mut inside.waiting);
        let alive = !inside.dead;
        drop(inside);
        waiting.into_iter().for_each(Waker::wake);
        alive
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.lock().frozen
    }

    /// Whether a task may be polled now.
    fn lets_through(&self, context: &Context<'_>) -> bool {
        let mut inside = self.lock();
        if inside.dead {
            return false;
        }
        if inside.frozen {
            inside.waiting.push(context.waker().clone());
            return false;
        }
        match &mut inside.fuse {
            Some(0) => {
                drop(inside);
                self.crash();
                false
            }
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }
}

struct Gated {
    gate: Arc<Gate>,
    task: Task,
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.gate.lets_through(context) { self.task.as_mut().poll(context) } else { Poll::Pending }
    }
}
