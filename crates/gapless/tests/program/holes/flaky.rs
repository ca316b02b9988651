//! The chain behind endpoints that do what they should not, the nodes that send through them, and how it all must end.

use std::time::Duration;

use futures::future::join_all;
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, Rule, RuleId};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use super::chain::Shown;
use super::orders::{Orders, are_marked};
use super::slots::{Timeline, events};
use crate::counter;
use crate::support::ADDRESS;
use crate::world::{NAMES, World};

const SEND: &str = "eth_sendRawTransaction";
/// What every endpoint says of marked payloads.
pub(super) const WORDS: &str = "intrinsic gas too low";
const ACCOUNTS: usize = 5;
/// The phrase that the chain's funded accounts come from.
const PHRASE: &str = "test test test test test test test test test test test junk";
/// Far beyond what it takes on a busy machine.
const LONG: Duration = Duration::from_secs(300);
/// How deep the use of a nonce by somebody else lies before it counts, on this chain.
pub(super) const PATIENCE_BLOCKS: u64 = 12;

pub(super) struct Flaky {
    pub(super) world: World,
    pub(super) accounts: Vec<String>,
    endpoints: Vec<(RpcProxy, Vec<RuleId>)>,
}

/// How far all lanes have come, taken together.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) consumed: u64,
    pub(super) open: u64,
    pub(super) queued: u64,
}

impl Flaky {
    /// A chain with so many endpoints: each drops five sends of a hundred, denies five before it forwards them and five
    /// after, and refuses all marked ones.
    pub(super) async fn start(endpoints: u64) -> Self {
        let anvil = AnvilOptions {
            block_time: Some(Duration::from_secs(1)),
            // Room in a block for whatever comes: the chain's own limits are not what is looked at.
            extra_args: vec!["--gas-limit".into(), "10000000000".into()],
            ..AnvilOptions::default()
        };
        let anvil = Anvil::start(anvil).await.unwrap();
        counter::deploy(&anvil).await;
        let endpoints: Vec<_> = (0..endpoints).map(|n| endpoint(&anvil, n)).collect();
        let urls: Vec<String> = endpoints.iter().map(|(proxy, _)| proxy.url()).collect();
        let held = anvil.rpc("eth_accounts", json!([])).await.unwrap();
        let held: Vec<String> = serde_json::from_value(held).unwrap();
        let accounts = held[..ACCOUNTS].to_vec();
        assert_eq!(accounts[0], ADDRESS.to_lowercase());
        let world = World::reaching(anvil, &urls).await;
        for setup in &world.setups {
            setup.add_submitters(PHRASE, &accounts[1..]);
        }
        Self { world, accounts, endpoints }
    }

    /// Waits until a node runs every lane, as it says itself.
    pub(super) async fn runs_every_lane(&self, n: usize) -> Progress {
        let runs = || async {
            let (_, page) = self.world.setups[n].get("/api/v1/submitters").await?;
            let items = page["items"].as_array()?;
            let all = items.len() == ACCOUNTS && items.iter().all(|item| item["ownerNode"] == NAMES[n]);
            let sum = |key: &str| items.iter().map(|item| item[key].as_u64().unwrap_or_default()).sum();
            all.then(|| Progress { consumed: sum("consumed"), open: sum("open"), queued: sum("queued") })
        };
        eventually(LONG, &format!("{} to run every lane", NAMES[n]), runs).await.unwrap()
    }

    /// Waits until a node that runs every lane has seen so many nonces used.
    pub(super) async fn goes_beyond(&self, n: usize, consumed: u64) {
        let beyond = || async { (self.runs_every_lane(n).await.consumed >= consumed).then_some(()) };
        eventually(LONG, &format!("{} to get beyond {consumed}", NAMES[n]), beyond).await.unwrap();
    }

    /// Waits until a node shows a submitter whose next request would find a free nonce.
    pub(super) async fn has_a_free_nonce_and_no_queue(&self, asked: usize) {
        let has = || async {
            let (_, page) = self.world.setups[asked].get("/api/v1/submitters").await?;
            let ready = |item: &Value| item["queued"] == 0 && item["recyclable"].as_u64() > Some(0);
            page["items"].as_array()?.iter().any(ready).then_some(())
        };
        eventually(LONG, "a free nonce that nobody is queued for", has).await.unwrap();
    }

    /// Waits until every request has ended.
    pub(super) async fn all_ended(&self, asked: usize) {
        let ended = || async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            for state in ["QUEUED", "TRACKING", "STUCK"] {
                let path = format!("/api/v1/tx?state={state}&limit=1");
                let (status, page) = self.world.setups[asked].get(&path).await?;
                if status != 200 || !page["items"].as_array()?.is_empty() {
                    return None;
                }
            }
            Some(())
        };
        if let Err(error) = eventually(LONG, "every request to end", ended).await {
            let submitters = self.world.setups[asked].get("/api/v1/submitters").await;
            let left = self.world.setups[asked].get("/api/v1/tx?state=TRACKING&limit=3").await;
            panic!("{error}: {submitters:#?}\n{left:#?}");
        }
    }

    /// The whole promise, by the word of the chain and by what a node tells; how many placeholders there are.
    pub(super) async fn assert_healed(&self, asked: usize, orders: &Orders) -> u64 {
        let shown = Shown::of(&self.world.anvil).await;
        shown.assert_each_once(&self.world.anvil, &self.accounts, orders).await;
        let events = events(&self.world.setups[asked]).await;
        let each = self.accounts.iter().enumerate();
        let each = each.map(async |(place, account)| {
            let setup = &self.world.setups[asked];
            let timeline = Timeline::of(setup, account, &events).await;
            let made = timeline.assert_free_nonces_went_to_the_next(place, orders);
            assert_eq!(shown.placeholders_of(account), made, "placeholders of {account} on the chain");
            timeline.assert_ends(setup, &shown, orders, place).await;
            self.world.assert_sound(asked, account).await;
            made.len() as u64
        });
        let placeholders = join_all(each).await.into_iter().sum();
        self.world.assert_none_counted(asked).await;
        placeholders
    }

    /// What a node has counted.
    pub(super) async fn counted(&self, asked: usize, sample: &str) -> u64 {
        let metrics = self.world.setups[asked].text("/metrics").await.unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(sample));
        line.unwrap_or_else(|| panic!("no {sample}")).trim().parse().unwrap()
    }

    /// Every fault of every endpoint struck, and not only now and then.
    pub(super) fn assert_struck(&self) {
        let struck = |(proxy, rules): &(RpcProxy, Vec<RuleId>)| -> Vec<u32> {
            rules.iter().map(|rule| proxy.fired(*rule)).collect()
        };
        let struck: Vec<Vec<u32>> = self.endpoints.iter().map(struck).collect();
        println!("refused as invalid, dropped, denied before and denied after, by endpoint: {struck:?}");
        assert!(struck[0].iter().all(|times| *times >= 150), "{struck:?}");
        assert!(struck.iter().flatten().all(|times| *times > 0), "{struck:?}");
    }
}

/// A way to the chain with all its faults, by a luck of its own.
fn endpoint(anvil: &Anvil, n: u64) -> (RpcProxy, Vec<RuleId>) {
    let proxy = RpcProxy::start(anvil.url()).unwrap();
    let refuse = |request: &Value| {
        let marked = request["params"][0].as_str().is_some_and(are_marked);
        marked.then(|| (-32_000, WORDS.to_owned()))
    };
    let message = || "internal error".to_owned();
    let faults = [
        Fault::Lose,
        Fault::ErrorWithoutForward { code: -32_603, message: message() },
        Fault::ErrorAfterForward { code: -32_603, message: message() },
    ];
    let mut rules = vec![proxy.rule(SEND, Fault::refuse(refuse))];
    for (seed, fault) in (10 * n..).zip(faults) {
        rules.push(proxy.add(Rule::new(SEND, fault).by_luck(5, seed)));
    }
    (proxy, rules)
}
