//! Hints over WebSocket make heads arrive at once; whatever becomes of the socket, heads arrive all the same.

use std::time::Duration;

use alloy_primitives::B256;
use futures::{SinkExt, StreamExt};
use gapless_core::ports::chain::Chain;
use gapless_testkit::anvil::Anvil;
use gapless_testkit::rpc_proxy::RpcProxy;
use gapless_testkit::tcp_proxy::{Mode, TcpProxy};
use gapless_testkit::wait::eventually;
use serde_json::json;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use crate::support::*;

/// A server that announces heads that do not exist, as fast as it can.
async fn chatterbox() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                let asked = socket.next().await.unwrap().unwrap();
                assert!(asked.to_text().unwrap().contains("newHeads"));
                let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": "0x1" });
                socket.send(Message::text(answer.to_string())).await.unwrap();
                let head =
                    json!({ "number": "0xffffff", "hash": B256::repeat_byte(1), "parentHash": B256::ZERO });
                let params = json!({ "subscription": "0x1", "result": head });
                let notice =
                    json!({ "jsonrpc": "2.0", "method": "eth_subscription", "params": params }).to_string();
                while socket.send(Message::text(notice.clone())).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
    format!("ws://{address}")
}

fn socket_of(proxy: &TcpProxy) -> String {
    format!("ws://{}", proxy.addr())
}

fn before(node: &Anvil) -> TcpProxy {
    TcpProxy::start(([127, 0, 0, 1], node.port()).into()).unwrap()
}

/// Mines a block and says how long it took to arrive.
async fn time_of_one(following: &Following, node: &Anvil) -> Duration {
    let head = mine(node, 1).await;
    let mined = Instant::now();
    following.at(head).await;
    mined.elapsed()
}

/// Waits until heads arrive long before a poll would bring them, several times in a row.
async fn hints_flow(following: &Following, node: &Anvil, poll: Duration) {
    let soon = || async {
        for _ in 0..5 {
            if time_of_one(following, node).await > poll / 5 {
                return None;
            }
        }
        Some(())
    };
    for _ in 0..10 {
        if soon().await.is_some() {
            return;
        }
    }
    panic!("heads never came by hints");
}

#[tokio::test]
async fn hints_bring_heads_long_before_the_next_poll() {
    let node = node().await;
    let poll = Duration::from_secs(600);
    let following = Following::start(&[node.url(), node.ws_url()], poll);
    following.at(head(&node).await).await;
    for _ in 0..10 {
        // Not once would this end in time by polling.
        time_of_one(&following, &node).await;
    }
}

#[tokio::test]
async fn a_socket_alone_is_enough_for_requests_and_hints() {
    let node = node().await;
    let following = Following::start(&[node.ws_url()], Duration::from_secs(600));
    following.at(head(&node).await).await;
    following.at(mine(&node, 1).await).await;
    let status = following.chain.endpoints();
    assert_eq!((status.len(), status[0].name.clone(), status[0].healthy), (1, node.url(), true));
}

#[tokio::test]
async fn hints_make_for_fewer_polls() {
    let node = node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let poll = Duration::from_millis(200);
    let looks = || async {
        let before = proxy.calls("eth_getBlockByNumber");
        tokio::time::sleep(poll * 12).await;
        proxy.calls("eth_getBlockByNumber") - before
    };
    let following = Following::start(&[proxy.url(), node.ws_url()], poll);
    following.at(head(&node).await).await;
    let fewer = || async {
        following.at(mine(&node, 1).await).await;
        let looked = looks().await;
        (looked <= 5).then_some(())
    };
    eventually(LONG, "fewer polls", fewer).await.unwrap();
}

#[tokio::test]
async fn heads_go_on_when_the_socket_is_cut_and_hints_come_back_with_it() {
    let node = node().await;
    let (proxy, poll) = (before(&node), Duration::from_secs(2));
    let following = Following::start(&[node.url(), socket_of(&proxy)], poll);
    following.at(head(&node).await).await;
    hints_flow(&following, &node, poll).await;

    proxy.set_mode(Mode::Refuse).await.unwrap();
    proxy.cut_all().await;
    for _ in 0..3 {
        following.at(mine(&node, 1).await).await;
    }
    assert!(following.chain.endpoints().iter().all(|endpoint| endpoint.healthy));
    proxy.set_mode(Mode::Pass).await.unwrap();
    hints_flow(&following, &node, poll).await;
    // A cut alone, between two heads.
    proxy.cut_all().await;
    hints_flow(&following, &node, poll).await;
}

#[tokio::test]
async fn a_socket_that_stays_open_and_silent_slows_nothing_down_for_long() {
    let node = node().await;
    let (proxy, poll) = (before(&node), Duration::from_secs(2));
    let requests = RpcProxy::start(node.url()).unwrap();
    let following = Following::start(&[requests.url(), socket_of(&proxy)], poll);
    following.at(head(&node).await).await;
    hints_flow(&following, &node, poll).await;
    proxy.set_mode(Mode::BlackHole).await.unwrap();
    // The first may be found by a hint that was past the proxy already; there is none left for the second.
    following.at(mine(&node, 1).await).await;
    following.at(mine(&node, 1).await).await;
    // From then on it looks as often as if there were no socket.
    let before = requests.calls("eth_getBlockByNumber");
    tokio::time::sleep(poll * 6).await;
    let looked = requests.calls("eth_getBlockByNumber") - before;
    assert!(looked >= 4, "{looked} looks in the time of 6 polls");
}

#[tokio::test]
async fn false_announcements_are_not_believed_and_cost_little() {
    let node = node().await;
    let (proxy, poll) = (RpcProxy::start(node.url()).unwrap(), Duration::from_millis(500));
    let following = Following::start(&[proxy.url(), chatterbox().await], poll);
    following.at(head(&node).await).await;
    following.at(mine(&node, 3).await).await;
    // Time to see through it.
    tokio::time::sleep(poll * 6).await;
    let before = proxy.calls("eth_getBlockByNumber");
    tokio::time::sleep(poll * 8).await;
    let looked = proxy.calls("eth_getBlockByNumber") - before;
    assert!(looked <= 20, "{looked} looks in the time of 8 polls");
    following.at(mine(&node, 1).await).await;
    assert_eq!(following.heads.last_change().unwrap().depth(), Some(0));
}

#[tokio::test]
async fn a_server_that_speaks_no_websocket_is_no_trouble() {
    let node = node().await;
    let proxy = RpcProxy::start(node.url()).unwrap();
    let mute = proxy.url().replace("http://", "ws://");
    let following = Following::start(&[node.url(), mute], POLL);
    for _ in 0..5 {
        following.at(mine(&node, 1).await).await;
    }
    assert!(following.chain.endpoints().iter().all(|endpoint| endpoint.healthy));
}
