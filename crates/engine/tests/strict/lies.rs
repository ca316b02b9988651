//! Nodes that lie. While the lie lasts, a transaction says why it waits and nothing is given up; when it stops, everything
//! that was accepted takes effect once.

mod counts;
mod dropped;
mod funds;
mod heads;
mod health;
mod invalid;
mod pools;
mod prices;
mod receipts;
mod timeouts;

use std::time::Duration;

use gapless_core::ids::TxId;
use gapless_core::state::TxState;
use gapless_core::wait::WaitReason;
use gapless_engine::view::TxView;
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::{Fault, RpcProxy, RuleId};
use gapless_testkit::wait::eventually;

use crate::support::{Node, mine};

pub(crate) const SEND: &str = "eth_sendRawTransaction";
/// Blocks come at this distance where they come by themselves.
pub(crate) const BLOCKS: Duration = Duration::from_millis(150);

/// Answers every send with this refusal; the node never sees it.
pub(crate) fn refuses(proxy: &RpcProxy, words: &str) -> RuleId {
    proxy.rule(SEND, Fault::ErrorWithoutForward { code: -32000, message: words.into() })
}

/// Waits until a rule has struck this often.
async fn struck(proxy: &RpcProxy, rule: RuleId, times: u32) {
    eventually(Duration::from_secs(60), "the fault to strike", || async {
        (proxy.fired(rule) >= times).then_some(())
    })
    .await
    .unwrap();
}

/// Mines a block now and then until a transaction is as wanted.
pub(crate) async fn blocks_until(
    anvil: &Anvil,
    node: &Node,
    id: TxId,
    what: &str,
    wanted: impl Fn(&TxView) -> bool,
) {
    eventually(Duration::from_secs(90), what, || async {
        mine(anvil, 1).await;
        tokio::time::sleep(BLOCKS).await;
        wanted(&node.handle.tx(id).await.unwrap()).then_some(())
    })
    .await
    .unwrap();
}

/// The reason why a transaction waits, once it is this one. It must be bound, and not given up.
async fn waits(node: &Node, id: TxId, code: &str) -> WaitReason {
    let view = node.until(id, code, |view| view.wait_reason.as_ref().is_some_and(|w| w.code() == code)).await;
    assert_eq!(view.state, TxState::Tracking, "{view:#?}");
    view.wait_reason.unwrap()
}
