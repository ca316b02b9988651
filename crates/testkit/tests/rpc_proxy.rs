//! Each fault of the JSON-RPC proxy, before a real node.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use gapless_testkit::{
    Error,
    anvil::{Anvil, AnvilOptions},
    json_rpc,
    rpc_proxy::{Fault, RpcProxy, Rule},
    wait::eventually,
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::timeout};

const SOON: Duration = Duration::from_secs(20);
const NOT_NOW: Duration = Duration::from_millis(300);
const SEND: &str = "eth_sendTransaction";

/// One node for all tests; each uses an account of its own.
async fn node() -> &'static Anvil {
    static NODE: OnceCell<Anvil> = OnceCell::const_new();
    NODE.get_or_init(|| async { Anvil::start(AnvilOptions::default()).await.unwrap() }).await
}

/// A proxy before the node, seen from one account.
struct Scene {
    proxy: RpcProxy,
    account: Value,
}

impl Scene {
    async fn new(account: usize) -> Self {
        let proxy = RpcProxy::start(node().await.url()).unwrap();
        let account = node().await.rpc("eth_accounts", json!([])).await.unwrap()[account].clone();
        Self { proxy, account }
    }

    fn transfer(&self) -> Value {
        json!([{"from": self.account, "to": self.account, "value": "0x1"}])
    }

    async fn send(&self) -> Result<Value, Error> {
        json_rpc::call(&self.proxy.url(), SEND, self.transfer()).await
    }

    async fn chain_id(&self) -> Result<Value, Error> {
        json_rpc::call(&self.proxy.url(), "eth_chainId", json!([])).await
    }

    /// How many transactions of the account the node has, asked behind the proxy's back.
    async fn sent(&self) -> u64 {
        let count =
            node().await.rpc("eth_getTransactionCount", json!([self.account, "pending"])).await.unwrap();
        u64::from_str_radix(count.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    async fn wait_sent(&self, count: u64) {
        let reached = || async { (self.sent().await == count).then_some(()) };
        eventually(SOON, "the node to have the transactions", reached).await.unwrap();
    }

    async fn batch(&self, calls: Value) -> reqwest::Result<Value> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.post(self.proxy.url()).json(&calls).send().await?.error_for_status()?.json().await
    }
}

fn call(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[tokio::test]
async fn without_rules_everything_passes_and_is_counted() {
    let scene = Scene::new(0).await;
    scene.send().await.unwrap();
    scene.wait_sent(1).await;
    assert_eq!(scene.chain_id().await.unwrap(), "0x7a69");
    assert!(matches!(
        json_rpc::call(&scene.proxy.url(), "no_such_method", json!([])).await,
        Err(Error::Rpc { .. })
    ));
    assert_eq!(scene.proxy.calls(SEND), 1);
    assert_eq!(scene.proxy.calls("*"), 3);
    assert_eq!(scene.proxy.requests(), 3);
}

#[tokio::test]
async fn a_dropped_answer_was_sent() {
    let scene = Scene::new(1).await;
    let rule = scene.proxy.add(Rule::new(SEND, Fault::DropAnswer).times(1));
    assert!(matches!(scene.send().await, Err(Error::Http { .. })));
    scene.wait_sent(1).await;
    assert_eq!(scene.proxy.fired(rule), 1);
    scene.send().await.unwrap();
    scene.wait_sent(2).await;
}

#[tokio::test]
async fn an_error_may_come_with_or_without_the_deed() {
    let scene = Scene::new(2).await;
    let message = "nonce too low".to_owned();
    let rule = scene.proxy.rule(SEND, Fault::ErrorWithoutForward { code: -32000, message: message.clone() });
    let Err(Error::Rpc { answer, .. }) = scene.send().await else { panic!("an error was due") };
    assert_eq!(answer, json!({"code": -32000, "message": message}));
    assert_eq!(scene.sent().await, 0);

    scene.proxy.remove(rule);
    scene.proxy.rule(SEND, Fault::ErrorAfterForward { code: -32000, message });
    assert!(matches!(scene.send().await, Err(Error::Rpc { .. })));
    scene.wait_sent(1).await;
}

#[tokio::test]
async fn results_can_be_invented_and_changed() {
    let scene = Scene::new(3).await;
    scene.proxy.rule(SEND, Fault::FixedResult(json!("0xabc")));
    assert_eq!(scene.send().await.unwrap(), "0xabc");
    assert_eq!(scene.sent().await, 0);

    scene.proxy.clear();
    scene.proxy.rule(
        "eth_chainId",
        Fault::result(|request, mut answer| {
            answer["result"] = json!([request["method"], answer["result"]]);
            answer
        }),
    );
    assert_eq!(scene.chain_id().await.unwrap(), json!(["eth_chainId", "0x7a69"]));
}

#[tokio::test]
async fn a_delayed_answer_was_sent_even_if_nobody_waits_for_it() {
    let scene = Scene::new(4).await;
    scene.proxy.rule(SEND, Fault::Delay(NOT_NOW));
    let arrived =
        eventually(SOON, "the call to arrive", || async { (scene.proxy.calls(SEND) == 1).then_some(()) });
    tokio::select! {
        _ = scene.send() => panic!("answered without delay"),
        arrived = arrived => arrived.unwrap(),
    }
    scene.wait_sent(1).await;
    scene.send().await.unwrap();
    scene.wait_sent(2).await;
}

#[tokio::test]
async fn a_hanging_call_was_not_sent() {
    let scene = Scene::new(5).await;
    scene.proxy.rule(SEND, Fault::Hang);
    assert!(timeout(NOT_NOW, scene.send()).await.is_err());
    assert_eq!(scene.sent().await, 0);
    assert_eq!(scene.chain_id().await.unwrap(), "0x7a69");
}

#[tokio::test]
async fn an_http_status_answers_for_the_node() {
    let scene = Scene::new(6).await;
    scene.proxy.rule("*", Fault::HttpStatus(429));
    let Err(Error::Http { source, .. }) = scene.send().await else { panic!("a status was due") };
    assert_eq!(source.status().unwrap().as_u16(), 429);
    assert_eq!(scene.sent().await, 0);
}

#[tokio::test]
async fn every_nth_call_at_most_so_many_times() {
    let scene = Scene::new(0).await;
    let fault = Fault::FixedResult(json!("struck"));
    scene.proxy.add(Rule::new("eth_chainId", fault).every(3).times(2));
    let mut struck = Vec::new();
    for n in 1..=12 {
        if scene.chain_id().await.unwrap() == "struck" {
            struck.push(n);
        }
    }
    assert_eq!(struck, [3, 6]);
}

#[tokio::test]
async fn rules_apply_to_each_item_of_a_batch() {
    let scene = Scene::new(7).await;
    let message = "no".to_owned();
    scene.proxy.rule("eth_gasPrice", Fault::ErrorWithoutForward { code: 7, message });
    scene.proxy.rule("eth_blockNumber", Fault::FixedResult(json!("0xff")));
    let none = json!([]);
    let batch = json!([
        call(1, "eth_gasPrice", &none),
        call(2, "eth_chainId", &none),
        call(3, "eth_blockNumber", &none),
        call(4, SEND, &scene.transfer()),
    ]);
    let answers = scene.batch(batch.clone()).await.unwrap();
    let ids: Vec<u64> = answers.as_array().unwrap().iter().map(|a| a["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert_eq!(answers[0]["error"], json!({"code": 7, "message": "no"}));
    assert_eq!(answers[1]["result"], "0x7a69");
    assert_eq!(answers[2]["result"], "0xff");
    scene.wait_sent(1).await;
    assert_eq!((scene.proxy.requests(), scene.proxy.calls("*")), (1, 4));

    // A fault of the whole answer lets the rest of the batch through first.
    for (fault, sent) in [(Fault::DropAnswer, 2), (Fault::HttpStatus(503), 3)] {
        let rule = scene.proxy.rule("eth_chainId", fault);
        assert!(scene.batch(batch.clone()).await.is_err());
        scene.wait_sent(sent).await;
        scene.proxy.remove(rule);
    }
    scene.proxy.rule("eth_chainId", Fault::Hang);
    assert!(timeout(NOT_NOW, scene.batch(batch)).await.is_err());
    scene.wait_sent(4).await;
}

#[tokio::test]
async fn a_lost_call_was_not_sent_and_its_batch_is_answered_without_it() {
    let scene = Scene::new(8).await;
    scene.proxy.add(Rule::new(SEND, Fault::Lose).times(2));
    assert!(matches!(scene.send().await, Err(Error::Http { .. })));
    let batch = json!([
        call(1, "eth_chainId", &json!([])),
        call(2, SEND, &scene.transfer()),
        call(3, SEND, &scene.transfer()),
    ]);
    let answers = scene.batch(batch).await.unwrap();
    let ids: Vec<u64> = answers.as_array().unwrap().iter().map(|a| a["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 3]);
    scene.wait_sent(1).await;
}

#[tokio::test]
async fn what_a_judgement_lets_pass_meets_the_next_rule() {
    let scene = Scene::new(0).await;
    let judge = |call: &Value| (call["params"][0] == "bad").then(|| (7, "no".to_owned()));
    let judged = scene.proxy.rule("eth_chainId", Fault::refuse(judge));
    let later = scene.proxy.rule("eth_chainId", Fault::FixedResult(json!("later")));
    let batch = json!([call(1, "eth_chainId", &json!(["bad"])), call(2, "eth_chainId", &json!([]))]);
    let answers = scene.batch(batch).await.unwrap();
    assert_eq!(answers[0]["error"], json!({"code": 7, "message": "no"}));
    assert_eq!(answers[1]["result"], "later");
    assert_eq!((scene.proxy.fired(judged), scene.proxy.fired(later)), (1, 1));
}

#[tokio::test]
async fn a_dead_node_shows_as_a_bad_gateway() {
    let proxy = RpcProxy::start("http://127.0.0.1:1").unwrap();
    let Err(Error::Http { source, .. }) = json_rpc::call(&proxy.url(), "eth_chainId", json!([])).await else {
        panic!("a status was due")
    };
    assert_eq!(source.status().unwrap().as_u16(), 502);
}
