//! The way between a node and what it asks, and everything that can go wrong on it.
//!
//! A call has three parts. *Leaving*: it waits inside the node, so a crash takes it along and a freeze makes it late (a
//! zombie's write). *Travelling*: it belongs to the world and takes effect whatever becomes of the node. *Returning*: it
//! waits inside the node again, so a crash here is a write whose answer nobody heard. A call can also never leave, lose
//! its answer, or be given up by its caller and take effect later (a ghost).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::world::World;

/// No answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It had no effect and never will.
    NotSent,
    /// It may have had its effect, or have it later.
    Unknown,
}

/// One node's way out.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) world: Arc<World>,
    pub(crate) node: Arc<str>,
}

impl Wire {
    pub(crate) fn note(&self, what: &str, words: &str) {
        self.world.trace.line(&self.node, &format!("{what}: {words}"));
    }

    /// Carries a question out, its effect, and the answer back.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: &'static str,
        effect: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Lost> {
        let world = &self.world;
        let rates = world.scenario.rates;
        let slow = world.goes_wrong(rates.slow);
        pause(if slow { world.dice.between(100..=5_000) } else { world.dice.between(0..=6) }).await;
        if world.goes_wrong(rates.not_sent) {
            self.note(what, "never left");
            return Err(Lost::NotSent);
        }
        let lost = world.goes_wrong(rates.lost);
        let ghost = world.goes_wrong(rates.ghost);
        let way = if ghost { world.dice.between(100..=6_000) } else { world.dice.between(0..=6) };
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            pause(way).await;
            // The asker may be gone; the effect is not.
            let _ = reply.send(effect.await);
        });
        if ghost || lost {
            world.tally.add(if ghost { "ghosts" } else { "lost answers" });
            self.note(what, if ghost { "given up, still on its way" } else { "its answer will be lost" });
            pause(world.dice.between(20..=800)).await;
            return Err(Lost::Unknown);
        }
        let answer = answer.await.map_err(|_| Lost::Unknown)?;
        pause(world.dice.between(0..=6)).await;
        Ok(answer)
    }
}

/// Most ways take no time at all, so that things also happen at one instant.
async fn pause(drawn: u64) {
    let millis = drawn.saturating_sub(3);
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}
