//! SIGTERM in the middle of work: an orderly end, and another node goes on at once.

use std::time::Duration;

use gapless_testkit::process::Signal;
use gapless_testkit::wait::eventually;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::world::{Blocks, World, names};

#[tokio::test]
async fn sigterm_under_load_ends_well_and_the_other_node_goes_on_within_a_second() {
    let mut world = World::on_postgres(Blocks::AtOnce).await;
    // Nobody finds the work by looking around: the one that goes must say that it goes.
    let alone = [("GAPLESS_TEST_SWEEP", "off")];
    world.serve(0, &alone).await;
    let ids = names("order", 150);
    world.post(0, &ids[0]).await;
    world.runs_the_lane(0, 0).await;
    world.serve(1, &alone).await;
    let mut db = PgConnection::connect(&world.db.as_ref().unwrap().url).await.unwrap();

    let (early, late) = ids.split_at(100);
    for id in early {
        world.post(0, id).await;
    }
    // Only to the one that goes: news at the other would make it look at the lane by itself.
    let posting = async {
        for id in late {
            let _ = world.try_post(0, id).await;
        }
    };
    let taking_over = async {
        let told = Instant::now();
        world.signal(0, Signal::SIGTERM);
        loop {
            let owner: String = sqlx::query_scalar("SELECT owner_node FROM submitter_lease")
                .fetch_one(&mut db)
                .await
                .unwrap();
            if owner == "node-b" || told.elapsed() > PATIENCE {
                return told.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (took, ()) = tokio::join!(taking_over, posting);
    assert!(took < Duration::from_secs(1), "{took:?} from SIGTERM to the takeover");
    assert!(world.gone(0).await.success());
    let unfinished = world.log(0).lines().any(|line| line.contains("\"parting\":\"Unfinished\""));
    assert!(unfinished, "the node was not under load: {}", world.log(0));

    for id in late {
        world.post(1, id).await;
    }
    world.assert_mined(ids.len()).await;
    world.anvil.rpc("anvil_mine", json!(["0x2"])).await.unwrap();
    world.assert_all_happened_once(1, &ids).await;
}

#[tokio::test]
async fn a_node_that_is_told_to_stop_while_nothing_happens_leaves_no_work_behind() {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    world.serve(0, &[]).await;
    let ids = names("order", 1);
    world.assert_all_happened_once(0, &ids).await;
    let settled = || async { (world.submitter(0).await?["open"] == 0).then_some(()) };
    eventually(PATIENCE, "nothing to be open", settled).await.unwrap();
    world.signal(0, Signal::SIGTERM);
    assert!(world.gone(0).await.success());
    world.serve(1, &[]).await;
    world.assert_all_happened_once(1, &ids).await;
}
