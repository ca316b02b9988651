//! A real node: it mines, dies, comes back, and stands still.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use gapless_testkit::{
    anvil::{Anvil, AnvilOptions},
    process,
    wait::eventually,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

async fn transfer(node: &Anvil) -> Value {
    let accounts = node.rpc("eth_accounts", json!([])).await.unwrap();
    let send = json!([{"from": accounts[0], "to": accounts[1], "value": "0x1"}]);
    node.rpc("eth_sendTransaction", send).await.unwrap()
}

async fn receipt(node: &Anvil, hash: &Value) -> Option<Value> {
    let receipt = node.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
    (!receipt.is_null()).then_some(receipt)
}

#[tokio::test]
async fn an_instant_node_mines_a_transfer_at_once() {
    let options = AnvilOptions { chain_id: 4242, accounts: 3, ..AnvilOptions::default() };
    let node = Anvil::start(options).await.unwrap();
    assert_eq!(node.rpc("eth_chainId", json!([])).await.unwrap(), json!("0x1092"));
    assert_eq!(node.rpc("eth_accounts", json!([])).await.unwrap().as_array().unwrap().len(), 3);
    let hash = transfer(&node).await;
    let mined = || receipt(&node, &hash);
    let receipt = eventually(SOON, "the transfer's receipt", mined).await.unwrap();
    assert_eq!(receipt["status"], "0x1");
    assert!(node.rpc("no_such_method", json!([])).await.is_err());
}

#[tokio::test]
async fn a_node_with_a_block_time_mines_by_the_clock() {
    let options = AnvilOptions { block_time: Some(Duration::from_millis(300)), ..AnvilOptions::default() };
    let node = Anvil::start(options).await.unwrap();
    let hash = transfer(&node).await;
    eventually(SOON, "the transfer's receipt", || receipt(&node, &hash)).await.unwrap();
}

#[tokio::test]
async fn a_restart_keeps_the_chain_and_a_kill_loses_it() {
    let node = Anvil::start(AnvilOptions { keep_state: true, ..AnvilOptions::default() }).await.unwrap();
    let url = node.url();
    let kept = transfer(&node).await;
    eventually(SOON, "the first receipt", || receipt(&node, &kept)).await.unwrap();
    node.restart().await.unwrap();
    assert_eq!(node.url(), url);
    assert!(receipt(&node, &kept).await.is_some());

    let lost = transfer(&node).await;
    eventually(SOON, "the second receipt", || receipt(&node, &lost)).await.unwrap();
    let before = node.pid().unwrap();
    node.kill9().await.unwrap();
    assert!(!process::is_alive(before));
    assert!(node.rpc("eth_chainId", json!([])).await.is_err());
    node.restart().await.unwrap();
    assert!(receipt(&node, &kept).await.is_some());
    assert!(receipt(&node, &lost).await.is_none());
}

#[tokio::test]
async fn a_frozen_node_answers_after_it_thaws() {
    let node = Anvil::start(AnvilOptions::default()).await.unwrap();
    node.freeze().await.unwrap();
    let mut answer = Box::pin(node.rpc("eth_blockNumber", json!([])));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut answer).await.is_err());
    node.thaw().unwrap();
    tokio::time::timeout(SOON, answer).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_dropped_node_leaves_no_process() {
    let node = Anvil::start(AnvilOptions::default()).await.unwrap();
    let (pid, folder) = (node.pid().unwrap(), node.state_file().parent().unwrap().to_owned());
    assert!(folder.exists());
    drop(node);
    let gone = || async { (!process::is_alive(pid) && !folder.exists()).then_some(()) };
    eventually(SOON, "the node and its folder to vanish", gone).await.unwrap();
}
