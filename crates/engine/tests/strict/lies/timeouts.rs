//! Nodes that do not answer to a good part of what they are asked. A time-out says nothing, and nothing is concluded from it.

use std::time::Duration;

use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::submitter::SubmitterId;
use gapless_engine::LaneSettings;
use gapless_engine::handle::Request;
use gapless_evm::{EvmOptions, LocalSigner};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule};
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::support::{Node, entry, instant, quick};

const ACCOUNTS: u64 = 6;
const EACH: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn thirty_of_a_hundred_calls_that_time_out_cost_time_and_nothing_else() {
    let anvil = instant().await;
    let proxies = [RpcProxy::start(anvil.url()).unwrap(), RpcProxy::start(anvil.url()).unwrap()];
    let mut rules = Vec::new();
    for (proxy, seed) in proxies.iter().zip(1..) {
        // Half of those that time out have reached the node all the same.
        let late = Fault::Delay(Duration::from_secs(2));
        rules.push((proxy, proxy.add(Rule::new("*", Fault::Hang).by_luck(15, seed))));
        rules.push((proxy, proxy.add(Rule::new("*", late).by_luck(18, seed + 10))));
    }
    let urls = proxies.iter().map(RpcProxy::url);
    let options = EvmOptions { timeout: Duration::from_millis(120), ..EvmOptions::new(31337, urls) };
    let (retry, resubmit) = (Duration::from_millis(10), Some(Duration::from_millis(500)));
    let keys: Vec<String> = (1..=ACCOUNTS).map(|n| format!("0x{:064x}", n + 0x71e0)).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let node = Node::through_with(&options, LaneSettings { retry, resubmit, ..quick(0) }, &keys).await;
    let mut all = Vec::new();
    for (first, key) in (0..).step_by(EACH as usize).zip(keys) {
        let account = SubmitterId::evm(31337, LocalSigner::from_hex(key, None).unwrap().address());
        let rich = json!([account.address().unwrap(), "0x56bc75e2d63100000"]);
        anvil.rpc("anvil_setBalance", rich).await.unwrap();
        let mut ids = Vec::new();
        for n in first..first + EACH {
            ids.push(node.submit(Request { submitter: account.clone(), ..entry(n) }).await);
        }
        all.push((account, first, ids));
    }
    for (account, first, ids) in &all {
        node.each_took_effect_once_of(&anvil, account, *first, ids).await;
    }
    assert!(rules.iter().all(|(proxy, rule)| proxy.fired(*rule) > 10), "the faults struck");
    proxies.iter().for_each(RpcProxy::clear);
    for (account, ..) in &all {
        eventually(Duration::from_secs(60), "everything to be well", || async {
            (node.handle.submitter(account).await.unwrap().condition == Condition::Ok).then_some(())
        })
        .await
        .unwrap();
    }
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.stopped().await;
}
