//! A contract that counts how often each request took effect: the chain's own word, not our tables'.

use std::collections::BTreeMap;

use alloy_primitives::{B256, U256, hex, keccak256};
use gapless_testkit::anvil::Anvil;
use serde_json::{Value, json};

use crate::support::ADDRESS;

/// Where the contract lives.
pub(crate) const PLACE: &str = "0x0000000000000000000000000000000000c0ffee";

/// `record(bytes32 id)`: adds one to the storage word `id` and logs the new count under the topic `id`.
///
/// ```text
/// 60 04  PUSH1 4         the argument follows the selector
/// 35     CALLDATALOAD    id
/// 80     DUP1            id id
/// 54     SLOAD           id count
/// 60 01  PUSH1 1
/// 01     ADD             id count+1
/// 80     DUP1
/// 60 00  PUSH1 0
/// 52     MSTORE          id count+1            memory[0..32] = count+1
/// 81     DUP2            id count+1 id
/// 55     SSTORE          id                    storage[id] = count+1
/// 60 20  PUSH1 32
/// 60 00  PUSH1 0
/// a1     LOG1                                  log(memory[0..32], topic id)
/// 00     STOP
/// ```
const CODE: &str = "0x600435805460010180600052815560206000a100";

/// Puts the contract on a chain, without using anybody's nonce.
pub(crate) async fn deploy(anvil: &Anvil) {
    anvil.rpc("anvil_setCode", json!([PLACE, CODE])).await.unwrap();
}

/// The payload that records a request.
pub(crate) fn payload(request_id: &str) -> Value {
    json!({ "to": PLACE, "data": record(key(request_id)) })
}

/// The call data that records a word.
pub(crate) fn record(word: B256) -> String {
    let selector = &keccak256("record(bytes32)")[..4];
    hex::encode_prefixed([selector, word.as_slice()].concat())
}

/// Every word that was ever recorded, with the count that it was logged with.
pub(crate) async fn recorded(anvil: &Anvil) -> Vec<(B256, U256)> {
    let all = json!([{ "address": PLACE, "fromBlock": "0x0", "toBlock": "latest" }]);
    let logs = anvil.rpc("eth_getLogs", all).await.unwrap();
    let word = |value: &Value| value.as_str().unwrap().parse::<B256>().unwrap();
    let one = |log: &Value| (word(&log["topics"][0]), U256::from_be_bytes(word(&log["data"]).0));
    logs.as_array().unwrap().iter().map(one).collect()
}

fn key(request_id: &str) -> B256 {
    keccak256(request_id)
}

/// How often a request took effect.
pub(crate) async fn effects(anvil: &Anvil, request_id: &str) -> u64 {
    let count = anvil.rpc("eth_getStorageAt", json!([PLACE, key(request_id), "latest"])).await.unwrap();
    U256::from_be_bytes(count.as_str().unwrap().parse::<B256>().unwrap().0).to()
}

/// The chain's view: each request took effect once, by a run of nonces without a hole, and nothing else was sent.
pub(crate) async fn assert_once_each(anvil: &Anvil, request_ids: &[String]) {
    let read = async |method: &str, params: Value| anvil.rpc(method, params).await.unwrap();
    let recorded: BTreeMap<B256, U256> = recorded(anvil).await.into_iter().collect();
    for id in request_ids {
        assert_eq!(recorded.get(&key(id)), Some(&U256::from(1)), "effects of {id}");
    }
    let head = number(&read("eth_blockNumber", json!([])).await);
    let mut nonces = Vec::new();
    for block in 1..=head {
        let block = read("eth_getBlockByNumber", json!([format!("{block:#x}"), true])).await;
        let sent = block["transactions"].as_array().unwrap().iter();
        nonces.extend(
            sent.filter(|tx| tx["from"] == ADDRESS.to_lowercase().as_str()).map(|tx| number(&tx["nonce"])),
        );
    }
    let expected: Vec<u64> = (0..request_ids.len() as u64).collect();
    assert_eq!(nonces, expected, "nonces in the order of the chain");
    for tag in ["latest", "pending"] {
        let count = read("eth_getTransactionCount", json!([ADDRESS, tag])).await;
        assert_eq!(number(&count), request_ids.len() as u64, "{tag}");
    }
}

pub(crate) fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}
