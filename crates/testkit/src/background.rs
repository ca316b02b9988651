//! A thread with a small tokio runtime of its own.
//!
//! The proxies run on one, so that they go on working whatever becomes of the runtime of the test that started
//! them, and so that a test that blocks its runtime does not also stop the network.

use std::{
    sync::mpsc,
    thread::{self, JoinHandle},
};

use tokio::sync::oneshot;

use crate::{Error, Result};

/// Runs one future until it is dropped; dropping it drops every task and socket of the runtime.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Calls `begin` inside the new runtime, hands its first value back, and drives its second from then on.
    pub(crate) fn start<T, F>(
        name: &str,
        begin: impl FnOnce() -> Result<(T, F)> + Send + 'static,
    ) -> Result<(T, Self)>
    where
        T: Send + 'static,
        F: Future<Output = ()>,
    {
        let starting = format!("starting the thread of a {name}");
        let (stop, stopped) = oneshot::channel();
        let (began, beginning) = mpsc::sync_channel(1);
        let doing = starting.clone();
        let body = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(began.send(Err(Error::io(doing)(error)))),
            };
            runtime.block_on(async {
                match begin() {
                    Err(error) => drop(began.send(Err(error))),
                    Ok((value, serve)) => {
                        let _ = began.send(Ok(value));
                        tokio::select! { _ = stopped => {} () = serve => {} }
                    }
                }
            });
        };
        let thread =
            thread::Builder::new().name(name.to_owned()).spawn(body).map_err(Error::io(starting.clone()))?;
        let value = beginning.recv().map_err(|_| Error::Misuse(starting))??;
        Ok((value, Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Nothing on it blocks, so this is short, and afterwards its sockets are known to be closed.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
