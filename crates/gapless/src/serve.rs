//! `gapless serve`: a node until it is told to stop.

use crate::config::Config;
use crate::logs;
use crate::node::{Node, told_to_stop};

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) async fn run(config: Config) -> anyhow::Result<()> {
    logs::start(config.log.format, "info");
    let mut node = tokio::select! {
        node = Node::start(&config) => node?,
        // Nothing runs yet that would have to be drained.
        told = told_to_stop() => return told,
    };
    let failed = tokio::select! {
        told = told_to_stop() => told.err(),
        error = node.ended() => Some(error),
    };
    match failed {
        None => {
            node.stop().await;
            Ok(())
        }
        Some(error) => Err(error),
    }
}
