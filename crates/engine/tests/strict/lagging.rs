//! Backends behind one URL that differ: some answers come from a node that is blocks behind. Counts then contradict each
//! other, and none of that is anybody's foreign use.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gapless_core::condition::Condition;
use gapless_core::event::EventKind;
use gapless_core::wait::WaitReason;
use gapless_engine::LaneSettings;
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy};
use serde_json::{Value, json};

use crate::support::{Node, address, count, entry, memory, mine, nonce_of, number, quick, ticking, unmined};

/// What a node that is behind would say, block by block.
#[derive(Default)]
struct Past {
    blocks: BTreeMap<u64, (Value, Value)>,
    numbers: HashMap<String, u64>,
}

impl Past {
    /// The head, and the count at it, of a backend this many blocks behind.
    fn behind(&self, by: u64) -> Option<(u64, &Value, &Value)> {
        let head = *self.blocks.last_key_value()?.0;
        let (number, (block, count)) = self.blocks.range(..=head.checked_sub(by)?).next_back()?;
        Some((*number, block, count))
    }
}

/// Follows the chain and remembers what each block's node would have said.
async fn remember(anvil: &Anvil, past: &Mutex<Past>) {
    let known = past.lock().unwrap().blocks.last_key_value().map(|(number, _)| *number);
    let head = number(&anvil.rpc("eth_blockNumber", json!([])).await.unwrap());
    for at in known.map_or(0, |known| known + 1)..=head {
        let name = format!("{at:#x}");
        let block = anvil.rpc("eth_getBlockByNumber", json!([name, false])).await.unwrap();
        let count = anvil.rpc("eth_getTransactionCount", json!([address(), name])).await.unwrap();
        let mut past = past.lock().unwrap();
        past.numbers.insert(block["hash"].as_str().unwrap().to_owned(), at);
        past.blocks.insert(at, (block, count));
    }
}

/// Answers this many halves of all requests as a backend that is one to four blocks behind.
fn lag(past: &Arc<Mutex<Past>>, answered: &Arc<AtomicU64>, halves: u64) -> Fault {
    let (past, answered, requests) = (past.clone(), answered.clone(), AtomicU64::new(0));
    Fault::result(move |request, mut answer| {
        // Ids are positions in a batch: one backend answers a whole request.
        let first = u64::from(request["id"] == json!(0));
        let turn = requests.fetch_add(first, Ordering::Relaxed) + first;
        let luck = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let past = past.lock().unwrap();
        let Some((head, block, count)) = past.behind(1 + luck % 4).filter(|_| (luck >> 8) % 2 < halves)
        else {
            return answer;
        };
        answered.fetch_add(1, Ordering::Relaxed);
        let params = &request["params"];
        let newer = |number: &Value| {
            number.as_str().is_some_and(|text| {
                u64::from_str_radix(text.trim_start_matches("0x"), 16).is_ok_and(|number| number > head)
            })
        };
        match request["method"].as_str().unwrap_or_default() {
            "eth_blockNumber" => answer["result"] = block["number"].clone(),
            "eth_getBlockByNumber" if params[0] == "latest" => answer["result"] = block.clone(),
            "eth_getBlockByNumber" | "eth_getBlockByHash" if newer(&answer["result"]["number"]) => {
                answer["result"] = Value::Null;
            }
            "eth_getTransactionReceipt" if newer(&answer["result"]["blockNumber"]) => {
                answer["result"] = Value::Null;
            }
            "eth_getTransactionCount" => match params[1]["blockHash"].as_str() {
                None => answer["result"] = count.clone(),
                Some(hash) if past.numbers.get(hash).is_none_or(|number| *number > head) => {
                    answer = json!({"jsonrpc": "2.0", "id": request["id"],
                        "error": {"code": -32000, "message": "header not found"}});
                }
                Some(_) => {}
            },
            _ => {}
        }
        answer
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lagging_backend_behind_the_same_url_never_causes_protect_and_every_hold_heals() {
    let anvil = Arc::new(ticking(Duration::from_millis(300)).await);
    let past: Arc<Mutex<Past>> = Arc::default();
    let follower = tokio::spawn({
        let (anvil, past) = (anvil.clone(), past.clone());
        async move {
            loop {
                remember(&anvil, &past).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let answered = Arc::new(AtomicU64::new(0));
    proxy.rule("*", lag(&past, &answered, 1));
    let settings = LaneSettings {
        reconcile: Duration::from_millis(50),
        resubmit: Some(Duration::from_millis(700)),
        ..quick(2)
    };
    let node = Node::start(&proxy.url(), settings).await;
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(node.submit(entry(n)).await);
    }
    node.each_took_effect_once(&anvil, &ids).await;
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.until_submitter("no hold", |view| view.condition == Condition::Ok).await;
    let counts = proxy.calls("eth_getTransactionCount");
    assert!(counts > 200, "counts were compared often enough to mean something: {counts}");
    assert!(answered.load(Ordering::Relaxed) > 500, "and often by the one that is behind");
    follower.abort();
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lagging_backend_cannot_make_a_lane_start_too_low() {
    let anvil = unmined().await;
    let past: Arc<Mutex<Past>> = Arc::default();
    for _ in 0..4 {
        let sent = json!([{"from": address(), "to": address(), "value": "0x0"}]);
        anvil.rpc("eth_sendTransaction", sent).await.unwrap();
        mine(&anvil, 1).await;
        remember(&anvil, &past).await;
    }
    let head = number(&anvil.rpc("eth_blockNumber", json!([])).await.unwrap());
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let node = Node::start(&proxy.url(), quick(0)).await;
    gapless_testkit::wait::eventually(Duration::from_secs(60), "the head", || async {
        node.handle.chains().iter().any(|(_, seen, _)| *seen == Some(head)).then_some(())
    })
    .await
    .unwrap();
    let answered = Arc::new(AtomicU64::new(0));
    let rule = proxy.rule("*", lag(&past, &answered, 2));
    let id = node.submit(entry(0)).await;
    let waits = node.until(id, "the reason", |view| view.wait_reason.is_some()).await;
    assert!(matches!(waits.wait_reason, Some(WaitReason::Held { .. })), "{waits:?}");
    proxy.remove(rule);
    gapless_testkit::wait::eventually(Duration::from_secs(60), "the block", || async {
        mine(&anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        (count(&anvil).await == 5).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(nonce_of(&anvil, node.confirmed(id).await.tx_hash.unwrap()).await, 4);
    assert!(!node.ever_told(EventKind::SubmitterProtected).await);
    node.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_starts_only_where_every_endpoint_counts_the_same() {
    let anvil = unmined().await;
    for _ in 0..3 {
        let sent = json!([{"from": address(), "to": address(), "value": "0x0"}]);
        anvil.rpc("eth_sendTransaction", sent).await.unwrap();
        mine(&anvil, 1).await;
    }
    let behind = RpcProxy::start(anvil.url()).unwrap();
    let old = Fault::result(|_, mut answer| {
        answer["result"] = json!("0x1");
        answer
    });
    let rule = behind.rule("eth_getTransactionCount", old);
    let node = Node::on(memory(), &[behind.url(), anvil.url()], quick(0)).await;
    let id = node.submit(entry(0)).await;
    let waits = node.until(id, "the reason", |view| view.wait_reason.is_some()).await;
    assert!(format!("{:?}", waits.wait_reason).contains("endpoints disagree"), "{waits:?}");
    behind.remove(rule);
    gapless_testkit::wait::eventually(Duration::from_secs(60), "the block", || async {
        mine(&anvil, 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        (count(&anvil).await == 4).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(nonce_of(&anvil, node.confirmed(id).await.tx_hash.unwrap()).await, 3);
    node.stopped().await;
}
