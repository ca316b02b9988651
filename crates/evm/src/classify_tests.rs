//! Every text ever seen, plain and as providers wrap it, with the class it must give.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Class by its stable code, fragments as nodes write them.
const CORPUS: &[(&str, &[&str])] = &[
    (
        "nonce-too-low",
        &[
            "nonce too low: next nonce 7, tx nonce 5",
            "nonce too low",
            "OldNonce, Current nonce: 7, nonce of rejected tx: 5",
            "OldNonce",
            "Nonce too low",
            "Nonce too low. Expected nonce to be 7 but got 5",
            "Transaction nonce too low",
            "nonce too low: address 0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266, tx: 5 state: 7",
            "nonce too low. allowed nonce range: 7 - 57, actual: 5",
            "current nonce (7) > tx nonce (5)",
            "Nonce too low. Provided nonce:",
            "Pool(Stale)",
            "invalid nonce; got 5, expected 7",
            "invalid nonce; got M, expected N",
            "nonce is too low",
            "nonce has already been used",
            "transaction already finalized",
        ],
    ),
    (
        "nonce-gap",
        &[
            "nonce too high: tx nonce 9, gapped nonce 7",
            "nonce too high",
            "NonceGap, Future nonce. Expected nonce: 7",
            "nonce too far in future",
            "Nonce too high",
            "nonce is too distant from current sender nonce",
            "An invalid transaction with a lower nonce exists",
            "Nonce too high. Expected nonce to be 7 but got 9. Note that transactions can't be queued when automining",
            "invalid transaction nonce",
            "invalid nonce; got 9, expected 7",
        ],
    ),
    (
        "already-known",
        &[
            "already known",
            "known transaction: 0x9f3c",
            "existing txn with same hash",
            "AlreadyKnown",
            "Known transaction",
            "transaction already imported",
            "Known transaction: 0x9f3c",
            "transaction 0x9f3c is already in the system",
            "alreadyknown",
            "tx already exists in cache",
            "pending transaction with same hash already exists",
            "Pool(AlreadyImported)",
            "Transaction with the same hash was already imported",
        ],
    ),
    (
        "replacement-underpriced",
        &[
            "replacement transaction underpriced",
            "could not replace existing tx",
            "insufficient gas price to replace existing transaction",
            "at least 1100000000 is necessary to replace",
            "An existing transaction had higher priority",
            "there is another tx which has the same nonce",
            "future transaction tries to replace pending",
            "Transaction gas price is too low. There is another transaction with same nonce in the queue. Try increasing the gas price or incrementing the nonce.",
            "ReplacementNotAllowed",
            "insertion of another transaction with the same nonce is in progress",
            "OwnNonceAlreadyUsed",
        ],
    ),
    (
        "underpriced",
        &[
            "transaction underpriced",
            "transaction gas price below minimum: gas tip cap 1, minimum needed 25000000000",
            "priority fee below minimum required priority fee",
            "underpriced",
            "fee too low",
            "FeeTooLow",
            "FeeTooLowToCompete",
            "Gas price below configured minimum gas price",
            "gas price too low",
            "less than gas price minimum floor",
            "Transaction fee too low",
            "unacceptable gas price",
        ],
    ),
    (
        "below-base-fee",
        &[
            "max fee per gas less than block base fee",
            "max fee per gas less than block base fee: address 0xf39F, maxFeePerGas: 1, baseFee: 7",
            "Gas price below current base fee",
            "gas price less than block base fee",
            "max fee per blob gas less than block blob gas fee",
        ],
    ),
    (
        "account-limit",
        &[
            "account limit exceeded: pooled 16 txs",
            "spammer",
            "rejected due to 0xf39F being identified as a spammer",
        ],
    ),
    (
        "pool-full",
        &[
            "txpool is full",
            "sub-pool is full",
            "queue full",
            "sequencer pending tx pool full, please try again",
            "Transaction pool is full",
            "There are too many transactions in the queue",
        ],
    ),
    (
        "insufficient-funds",
        &[
            "insufficient funds for gas * price + value: balance 1, tx cost 2, overshot 1",
            "insufficient funds for gas * price + value: balance 1, queued cost 1, tx cost 2, overshot 2",
            "insufficient funds for transfer",
            "transaction would cause overdraft",
            "insufficient funds for gas * price + value: have 1 want 2",
            "Insufficient funds for gas * price + value",
            "Upfront cost exceeds account balance",
            "InsufficientFunds",
            "sender doesn't have enough funds to send tx",
            "not enough funds for gas",
            "INSUFFICIENT_PAYER_BALANCE",
            "Signer had insufficient balance",
        ],
    ),
    (
        "node-fee-cap",
        &["tx fee (1.50 ether) exceeds the configured cap (1.00 ether)", "Transaction fee cap exceeded"],
    ),
    (
        "invalid-fees",
        &[
            "max priority fee per gas higher than max fee per gas",
            "max priority fee per gas exceeds max fee per gas",
            "exceeds max fee per gas",
        ],
    ),
    ("type-conflict", &["address already reserved", "pending transaction type conflict"]),
    (
        "delegation-limit",
        &[
            "in-flight transaction limit reached for delegated accounts",
            "gapped-nonce tx from delegated accounts",
            "authority already reserved",
            "authority nonce too low",
            "delegation nonce gap",
        ],
    ),
    (
        "invalid",
        &[
            "exceeds max transaction gas limit",
            "intrinsic gas too low",
            "intrinsic gas too low: gas 20000, minimum needed 21000",
            "Intrinsic gas exceeds gas limit",
            "insufficient gas for floor data gas cost: gas 37000, minimum needed 61000",
            "transaction gas limit too high (cap: 16777216, tx: 20000000)",
            "nonce has max value",
            "invalid sender",
            "negative value",
            "oversized data",
            "max initcode size exceeded",
            "sender not an eoa",
            "SenderIsContract",
            "Int256Overflow",
            "forbidden sender address",
        ],
    ),
    (
        "wrong-endpoint",
        &[
            "transaction type not supported",
            "invalid chain id",
            "invalid chain id for signer",
            "invalid sender: invalid chain id for signer: have 1 want 5",
            "unknown transaction type",
        ],
    ),
    (
        "unavailable",
        &[
            "exceeds block gas limit",
            "intrinsic gas too high -- tx.gas_limit > env.block.gas_limit",
            "GasLimitExceeded",
            "execution reverted",
            "execution reverted: insufficient funds for gas",
            "execution reverted: nonce too low",
            "i/o timeout",
            "Initial sync is still in progress",
            "Transaction pool not enabled",
            "node is syncing",
            "Transaction pool is not ready",
            "server shutting down",
            "daily request count exceeded, request rate limited",
            "Too Many Requests",
            "the method eth_sendRawTransaction does not exist/is not available",
        ],
    ),
    ("unknown", &["the moon is in the wrong phase", "", "nonce", "transaction failed", "low"]),
];

#[test]
fn every_fragment_gives_its_class_plain_and_wrapped() {
    for (class, fragments) in CORPUS {
        for fragment in *fragments {
            for text in [
                (*fragment).to_owned(),
                fragment.to_uppercase(),
                format!("[eth-mainnet.example] upstream error -32000: {fragment}"),
                format!("{fragment} (request 7f3a19; see https://docs.example/errors)"),
                format!("err: {fragment}: forwarded by rpc.example at block 0x12, id 41"),
                format!("{{\"message\":\"{fragment}\"}}"),
            ] {
                // Codes are not portable: whatever comes with a known text changes nothing.
                for code in [-32000, -32001, -32003, -32010, 0, 3] {
                    assert_eq!(classify(code, &text).code(), *class, "{text}");
                }
            }
        }
    }
}

#[test]
fn a_code_refines_only_what_no_text_explains() {
    assert_eq!(classify(-32005, "please wait").code(), "unavailable");
    assert_eq!(classify(429, "").code(), "unavailable");
    assert_eq!(classify(-32601, "huh").code(), "unavailable");
    assert_eq!(classify(-32005, "nonce too low").code(), "nonce-too-low");
    assert_eq!(classify(-32001, "resource not found").code(), "unknown");
}

#[test]
fn what_is_unknown_or_unavailable_may_have_been_sent() {
    for text in ["the moon is in the wrong phase", "i/o timeout", "execution reverted", "txpool is full"] {
        assert!(classify(-32000, text).is_possibly_sent(), "{text}");
    }
}

#[test]
fn the_point_is_found_in_data_too() {
    let error = |data| NodeError { code: -32603, message: "Internal error".into(), data };
    assert_eq!(refused(&error(Some(json!({"message": "nonce too low"})))).code(), "nonce-too-low");
    assert_eq!(refused(&error(Some(json!("already known")))).code(), "already-known");
    assert_eq!(refused(&error(None)).code(), "unknown");
}

#[test]
fn silence_is_never_a_refusal() {
    for kind in [
        TroubleKind::Busy,
        TroubleKind::NotSent,
        TroubleKind::TimedOut,
        TroubleKind::Broken,
        TroubleKind::Malformed,
        TroubleKind::Status { status: 503, retry_after: None },
    ] {
        assert!(silent(&Trouble::new(kind, "x")).is_possibly_sent());
    }
    assert_eq!(silent(&Trouble::new(TroubleKind::TimedOut, "x")), SendOutcome::TimedOut);
}

#[test]
fn one_accepting_wins_and_invalid_needs_everybody() {
    let text = || NodeText::new("x");
    let invalid = || SendOutcome::Invalid(text());
    for other in [
        SendOutcome::NonceTooLow,
        SendOutcome::Underpriced,
        SendOutcome::TimedOut,
        SendOutcome::Unavailable(text()),
        SendOutcome::Unknown(text()),
    ] {
        assert_eq!(more_informative(invalid(), other.clone()), other);
        assert_eq!(more_informative(other.clone(), invalid()), other);
        assert_eq!(more_informative(other.clone(), SendOutcome::Accepted), SendOutcome::Accepted);
        assert_eq!(more_informative(SendOutcome::AlreadyKnown, other), SendOutcome::AlreadyKnown);
    }
    assert_eq!(more_informative(invalid(), SendOutcome::WrongEndpoint(text())), invalid());
}

proptest! {
    #[test]
    fn any_text_has_a_class(code in any::<i64>(), text in ".{0,200}") {
        let _ = classify(code, &text);
    }

    #[test]
    fn nonces_in_any_text_never_panic(a in ".{0,8}", b in ".{0,8}") {
        let _ = classify(0, &format!("invalid nonce; got {a}, expected {b}"));
    }
}
