//! A tracker that runs, and nodes that are told what to mine.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256};
use gapless_core::ports::chain::{BlockRef, Chain};
use gapless_engine::heads::{Heads, Ring, Tracker};
use gapless_evm::{EvmChain, EvmOptions};
use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Far beyond what anything takes here, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// How often trackers look, unless a test is about that.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// A tracker at work; it stops when dropped.
pub(crate) struct Following {
    pub(crate) heads: Heads,
    pub(crate) chain: Arc<EvmChain>,
    _stop: DropGuard,
}

impl Following {
    pub(crate) fn start(urls: &[String], poll: Duration) -> Self {
        let recheck = Duration::from_millis(200);
        let options = EvmOptions { timeout: Duration::from_secs(5), recheck, ..EvmOptions::new(31337, urls) };
        let chain = Arc::new(EvmChain::new(&options).unwrap());
        let (tracker, heads) = Tracker::new(chain.clone(), poll);
        let stop = CancellationToken::new();
        tokio::spawn(tracker.run(stop.clone()));
        Self { heads, chain, _stop: stop.drop_guard() }
    }

    /// Waits until the ring's head is this one, and checks the ring.
    pub(crate) async fn at(&self, head: BlockRef) -> Arc<Ring> {
        let what = format!("the head {} {}", head.number, head.hash);
        let ring = self.until(&what, |ring| ring.head().is_some_and(|seen| seen.this == head)).await;
        linked(&ring);
        ring
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Ring) -> bool) -> Arc<Ring> {
        let look = || async { Some(self.heads.ring()).filter(|ring| holds(ring)) };
        eventually(LONG, what, look).await.unwrap_or_else(|error| {
            panic!("{error}: {:?} {:?}", self.heads.ring().head(), self.chain.endpoints())
        })
    }

    pub(crate) fn head(&self) -> BlockRef {
        self.heads.ring().head().unwrap().this
    }
}

/// Whether the kept blocks are one run without a hole.
fn linked(ring: &Ring) {
    let lowest = ring.lowest().unwrap().this.number;
    let above = ring.blocks_after(lowest);
    assert!((lowest + 1..).zip(&above).all(|(number, block)| block.number == number), "{above:?}");
    assert_eq!(ring.head().unwrap().this.number, lowest + above.len() as u64);
}

/// A node that mines when told.
pub(crate) async fn node() -> Anvil {
    node_with(&[]).await
}

pub(crate) async fn node_with(extra: &[&str]) -> Anvil {
    let extra_args = [&["--no-mining"], extra].concat().into_iter().map(str::to_owned).collect();
    Anvil::start(AnvilOptions { extra_args, ..AnvilOptions::default() }).await.unwrap()
}

/// Blocks mined from here on differ from those mined for another `mark`, whatever the clock says.
pub(crate) async fn fork(node: &Anvil, mark: u8) {
    node.rpc("anvil_setCoinbase", json!([Address::repeat_byte(mark)])).await.unwrap();
}

/// Mines, and says what the head is then.
pub(crate) async fn mine(node: &Anvil, blocks: u64) -> BlockRef {
    node.rpc("anvil_mine", json!([format!("{blocks:#x}")])).await.unwrap();
    head(node).await
}

pub(crate) async fn head(node: &Anvil) -> BlockRef {
    named(&latest(node).await)
}

pub(crate) async fn at(node: &Anvil, number: u64) -> BlockRef {
    named(&node.rpc("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await.unwrap())
}

pub(crate) async fn latest(node: &Anvil) -> Value {
    node.rpc("eth_getBlockByNumber", json!(["latest", false])).await.unwrap()
}

fn named(block: &Value) -> BlockRef {
    let number = block["number"].as_str().unwrap().trim_start_matches("0x");
    let hash: B256 = block["hash"].as_str().unwrap().parse().unwrap();
    BlockRef { number: u64::from_str_radix(number, 16).unwrap(), hash }
}
