//! A chain that was restarted under its id: block 0 is another. What is stored speaks of a chain that is gone, and bytes
//! signed for the old one are valid on the new one, where nobody asked for them. So the lane holds and sends nothing at all
//! until a human has decided, or the old chain is back.

use gapless_core::condition::HoldCause;

use super::memory::Memory;
use super::{Lane, Stop};

impl Lane {
    /// Whether the endpoints serve another chain than the one this process has followed.
    pub(super) async fn is_another_chain(&mut self, memory: &mut Memory) -> Result<bool, Stop> {
        if let Some((was, now)) = self.chain.heads.genesis_changed() {
            memory.saw_another_chain = true;
            let words = format!("the chain's block 0 was {was} and is {now}: it was restarted under its id");
            self.hold(memory, HoldCause::Genesis, &words).await?;
            return Ok(true);
        }
        if std::mem::take(&mut memory.saw_another_chain) {
            self.heal(memory, HoldCause::Genesis).await?;
        }
        // Another process saw it, and nobody has said since which chain this one is.
        Ok(memory.cursor.cursor.conditions.holds.contains_key(&HoldCause::Genesis))
    }
}
