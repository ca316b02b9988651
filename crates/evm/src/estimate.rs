//! Gas estimates. The line that must not blur: a revert is what a node says about the *call*; trouble
//! with the node is never one, or a rate limit would reject somebody's payment for good.

use alloy_primitives::Address;
use gapless_core::fees::Gas;
use gapless_core::intent::Payload;
use gapless_core::ports::chain::{ChainResult, Estimate};
use serde_json::{Value, json};

use crate::decode::{self, BlockName};
use crate::quantity::{Quantity, hex};
use crate::revert;
use crate::rpc::endpoint::Endpoint;
use crate::rpc::pool::{Pool, ReadError};
use crate::rpc::{Call, NodeError, Reply, RpcError, Trouble, wire};

/// What nodes say of a call that runs and fails. A contract's own words come after `reverted`.
const FAILS: [&str; 17] = [
    "execution reverted",
    "revert",
    "vm execution error",
    "vm exception",
    "invalid opcode",
    "bad instruction",
    "out of gas",
    "outofgas",
    "gas required exceeds",
    "always failing transaction",
    "jump destination",
    "stack underflow",
    "stack overflow",
    "evm error",
    // Nothing about the state could make these run.
    "initcode size",
    "code size",
    "intrinsic gas",
];

/// What nodes say of an account that cannot pay.
const POOR: [&str; 8] = [
    "insufficient funds",
    "insufficientfunds",
    "insufficient balance",
    "enough funds",
    "outoffunds",
    "overdraft",
    "upfront cost exceeds",
    "insufficient_payer_balance",
];

/// Asks what a payload would need on the pending state, with the head in the same batch.
pub(crate) async fn estimate(pool: &Pool, from: Address, payload: &Payload) -> ChainResult<Estimate> {
    let calls = [call(from, payload), head_call()];
    pool.read(&calls, |endpoint, replies| {
        let [gas, head] = replies else { return Err(Trouble::malformed("two answers were expected").into()) };
        answer(endpoint, gas, head)
    })
    .await
}

/// The same for several, as few requests as may be. What one endpoint could not tell in the common request is asked again by
/// itself, so that one odd answer costs only its own payload.
pub(crate) async fn estimates(
    pool: &Pool,
    from: Address,
    payloads: &[&Payload],
    most: usize,
) -> Vec<ChainResult<Estimate>> {
    let mut answers = Vec::with_capacity(payloads.len());
    let size = |payload: &&Payload| payload.data.len() * 2 + 512;
    for chunk in wire::chunks(payloads, most.saturating_sub(1).max(1), size) {
        let calls: Vec<Call> = chunk.iter().map(|payload| call(from, payload)).chain([head_call()]).collect();
        let read = pool.read(&calls, |endpoint, replies| {
            let Some((head, gas)) = replies.split_last().filter(|(_, gas)| gas.len() == chunk.len()) else {
                return Err(Trouble::malformed("an answer is missing").into());
            };
            Ok(gas.iter().map(|gas| answer(endpoint, gas, head).ok()).collect::<Vec<_>>())
        });
        let read = match read.await {
            Ok(read) => read,
            Err(error) => {
                answers.resize(payloads.len(), Err(error));
                return answers;
            }
        };
        for (payload, read) in chunk.iter().zip(read) {
            answers.push(match read {
                Some(estimate) => Ok(estimate),
                None => estimate(pool, from, payload).await,
            });
        }
    }
    answers
}

fn call(from: Address, payload: &Payload) -> Call {
    Call::new("eth_estimateGas", json!([transaction(from, payload), "pending"]))
}

fn head_call() -> Call {
    Call::new("eth_getBlockByNumber", json!(["latest", false]))
}

fn answer(endpoint: &Endpoint, gas: &Reply, head: &Reply) -> Result<Estimate, ReadError> {
    match gas {
        Ok(raw) => Ok(Estimate::Gas(Gas(decode::required::<Quantity<u64>>(raw)?.0))),
        Err(RpcError::Trouble(trouble)) => Err(trouble.clone().into()),
        Err(RpcError::Node(error)) => match verdict(error) {
            Verdict::Fails => {
                let head: BlockName = match head {
                    Ok(raw) => decode::required(raw)?,
                    Err(error) => return Err(Trouble::malformed(format!("no head: {error}")).into()),
                };
                endpoint.saw_head(head.named().number);
                Ok(Estimate::Reverts { reason: revert::reason(error), at: head.named() })
            }
            Verdict::Poor => Ok(Estimate::Unaffordable { reason: error.text() }),
            Verdict::Trouble(error) => Err(error),
        },
    }
}

fn transaction(from: Address, payload: &Payload) -> Value {
    let mut call = json!({ "from": from, "value": hex(payload.value.0), "data": payload.data });
    if let Some(to) = payload.to {
        call["to"] = json!(to);
    }
    if !payload.access_list.is_empty() {
        call["accessList"] = json!(payload.access_list);
    }
    call
}

enum Verdict {
    Fails,
    Poor,
    Trouble(ReadError),
}

fn verdict(error: &NodeError) -> Verdict {
    if wire::is_throttled(error) {
        return Verdict::Trouble(wire::refusal(error, "it asks for patience").into());
    }
    let text = error.message.to_ascii_lowercase();
    let has_data = revert::return_data(error.data.as_ref()).is_some_and(|data| !data.is_empty());
    // First: a contract may revert with "insufficient funds" in its own words. By convention only a
    // failed execution has code 3.
    if error.code == 3 || has_data || text.contains("revert") {
        return Verdict::Fails;
    }
    if POOR.iter().any(|words| text.contains(words)) {
        return Verdict::Poor;
    }
    if FAILS.iter().any(|words| text.contains(words)) {
        return Verdict::Fails;
    }
    Verdict::Trouble(ReadError::Refused(error.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i64, message: &str, data: Option<Value>) -> &'static str {
        match verdict(&NodeError { code, message: message.into(), data }) {
            Verdict::Fails => "fails",
            Verdict::Poor => "poor",
            Verdict::Trouble(ReadError::Trouble(_)) => "trouble",
            Verdict::Trouble(_) => "refused",
        }
    }

    #[test]
    fn only_the_call_itself_can_fail() {
        assert_eq!(kind(3, "execution reverted: insufficient funds", None), "fails");
        assert_eq!(kind(-32000, "execution reverted", None), "fails");
        assert_eq!(kind(-32015, "VM execution error.", Some(json!("Reverted 0x08c379a0"))), "fails");
        assert_eq!(kind(-32000, "gas required exceeds allowance (30000000)", None), "fails");
        assert_eq!(kind(-32000, "insufficient funds for transfer", None), "poor");
        assert_eq!(kind(-32003, "Insufficient funds for gas * price + value", None), "poor");
        assert_eq!(kind(-32005, "rate limit exceeded", None), "trouble");
        assert_eq!(kind(429, "out of gas", None), "trouble");
        assert_eq!(kind(3, "execution reverted: rate limit exceeded", None), "fails");
        assert_eq!(kind(-32000, "max initcode size exceeded: code size 50000, limit 49152", None), "fails");
        for other in ["header not found", "missing trie node", "the method is not available", "", "timeout"] {
            assert_eq!(kind(-32000, other, None), "refused", "{other}");
        }
    }
}
