//! Two nodes on one PostgreSQL: one is killed at any moment, the other goes on, and each effect happens once.

use gapless_testkit::process::Signal;

use crate::support::ended;
use crate::world::{Blocks, World, names};

#[tokio::test]
async fn the_other_node_takes_over_from_a_killed_one_and_loses_and_doubles_nothing() {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    world.serve(0, &[]).await;
    let ids = names("order", 6);
    let first = world.post(0, &ids[0]).await;
    world.runs_the_lane(0, 0).await;
    world.serve(1, &[]).await;
    for (i, id) in ids.iter().enumerate() {
        world.post(i % 2, id).await;
    }
    ended(&world.setups[1], &first).await;
    world.signal(0, Signal::SIGKILL);
    world.assert_all_happened_once(1, &ids).await;
    world.runs_the_lane(1, 1).await;
}
