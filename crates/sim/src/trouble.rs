//! What befalls nodes: they crash, at once or a few polls later, or freeze for up to two and a half leases and then go on
//! as if nothing had happened.

use std::sync::Arc;

use crate::gate::Gate;
use crate::node::Node;
use crate::world::World;

/// Makes trouble until it is over, then leaves every node running.
pub(crate) async fn befall(world: Arc<World>, nodes: Arc<[Arc<Node>]>) {
    let lease = u64::try_from(world.scenario.lease.as_millis()).unwrap_or(u64::MAX);
    while world.is_troubled() {
        tokio::time::sleep(world.dice.millis(100..=2_500)).await;
        if world.goes_wrong(world.scenario.rates.lies) {
            world.lie_for(world.dice.millis(3_000..=20_000));
        }
        if !world.goes_wrong(world.scenario.rates.trouble) {
            continue;
        }
        let node = &nodes[world.dice.index(nodes.len())];
        let gate = node.running().gate;
        match world.dice.between(0..=3) {
            0 => gate.crash(),
            1 => gate.crash_after(world.dice.between(0..=300)),
            _ if gate.is_frozen() => {}
            _ => {
                let how_long = world.dice.millis(lease / 5..=lease * 5 / 2);
                world.tally.add("freezes");
                world.trace.line(&node.name, &format!("freezes for {how_long:?}"));
                gate.freeze();
                tokio::spawn(thaw(world.clone(), node.clone(), gate, how_long));
            }
        }
    }
}

async fn thaw(world: Arc<World>, node: Arc<Node>, gate: Arc<Gate>, how_long: std::time::Duration) {
    tokio::time::sleep(how_long).await;
    if gate.thaw() {
        world.trace.line(&node.name, "goes on");
    }
}
