//! The logs as machines read them: every critical write says who wrote, for whom, and under which token.

use std::collections::BTreeMap;

use gapless_testkit::rpc_proxy::{Fault, Rule};
use serde_json::Value;
use uuid::Uuid;

use crate::audit::Audit;
use crate::support::ADDRESS;
use crate::world::{Blocks, World, names};

/// How often each (transaction, token) was written.
fn counted(writes: impl Iterator<Item = (Uuid, i64)>) -> BTreeMap<(Uuid, i64), usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        *counts.entry(write).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn every_critical_write_is_logged_with_submitter_tx_id_node_id_and_fencing_token() {
    let mut world = World::on_postgres(Blocks::Ticking).await;
    let mut audit = Audit::start(world.db.as_ref().unwrap()).await;
    // A refusal and the sending that follows it are writes too, the second without any new fact.
    let full = Fault::ErrorWithoutForward { code: -32_000, message: "txpool is full".into() };
    let refusing = world.proxy.add(Rule::new("eth_sendRawTransaction", full).times(2));
    world.serve(0, &[]).await;
    let ids = names("order", 3);
    for id in &ids {
        world.post(0, id).await;
    }
    world.assert_all_happened_once(0, &ids).await;
    assert_eq!(world.proxy.fired(refusing), 2);

    let log = world.log(0);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let submitter = format!("eip155:31337:{ADDRESS}");
    let written = lines.iter().filter(|line| line["message"] == "written").map(|line| {
        assert_eq!((&line["node_id"], &line["submitter"]), (&"node-a".into(), &submitter.as_str().into()));
        let tx_id = line["tx_id"].as_str().and_then(|id| id.parse().ok());
        (tx_id.unwrap(), line["fencing_token"].as_i64().unwrap())
    });
    let (told, happened) = (counted(written), counted(audit.touched().await.into_iter()));
    assert_eq!(told, happened, "one line per write that the database saw");
    // Bound, mined, ended; the first was refused twice and sent again twice, and its reason to wait ended when it was taken.
    assert_eq!(happened.values().copied().max(), Some(3 + 4 + 1));
    assert_eq!(happened.len(), ids.len());
}
