//! How an engine starts its tasks. All of them go through here, so that whoever runs the engine can own them: a
//! simulator ends or freezes a whole node between two polls.

use std::pin::Pin;
use std::sync::Arc;

/// A task: it runs until it ends by itself, and nobody waits for its value.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts tasks.
#[derive(Clone)]
pub struct Tasks(Arc<dyn Fn(Task) + Send + Sync>);

impl Tasks {
    /// Starts each task by this function.
    #[must_use]
    pub fn new(start: impl Fn(Task) + Send + Sync + 'static) -> Self {
        Self(Arc::new(start))
    }

    /// Starts a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        (self.0)(Box::pin(task));
    }
}

impl Default for Tasks {
    /// On the runtime that runs the caller.
    fn default() -> Self {
        Self::new(|task| {
            tokio::spawn(task);
        })
    }
}
