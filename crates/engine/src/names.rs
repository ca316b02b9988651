//! Names of the metrics, as the contract fixes them. No label grows with submitters or transactions.
//!
//! All of them are there from the start, at zero for every label value known beforehand: an alert on a rate must see
//! the first increase, and a dashboard must not ask whether "no data" is good news.

use gapless_core::submitter::ChainId;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

/// Declares the metrics with their kind, their meaning and the label values known beforehand.
macro_rules! metrics_of_the_contract {
    ($($name:ident = $text:literal, $kind:ident, $help:literal $(, $label:literal in [$($value:literal),* $(,)?])?;)+) => {
        $(#[doc = $help] pub const $name: &str = $text;)+

        /// Describes every metric and sets it to zero. Once, when the recorder is installed.
        pub fn register(chains: &[ChainId]) {
            $(metrics_of_the_contract!(@ $kind, $name, $help, chains $(, $label, [$($value),*])?);)+
        }
    };
    (@ counter, $name:ident, $help:literal, $chains:ident) => {
        describe_counter!($name, $help);
        counter!($name).absolute(0);
    };
    (@ counter, $name:ident, $help:literal, $chains:ident, $label:literal, [$($value:literal),*]) => {
        describe_counter!($name, $help);
        $(counter!($name, $label => $value).absolute(0);)*
    };
    (@ gauge, $name:ident, $help:literal, $chains:ident) => {
        describe_gauge!($name, $help);
        gauge!($name).set(0.0);
    };
    (@ by_chain, $name:ident, $help:literal, $chains:ident) => {
        describe_gauge!($name, $help);
        $chains.iter().for_each(|chain| gauge!($name, "chain" => chain.to_string()).set(0.0));
    };
    (@ by_chain, $name:ident, $help:literal, $chains:ident, $label:literal, [$($value:literal),*]) => {
        describe_gauge!($name, $help);
        for chain in $chains {
            $(gauge!($name, "chain" => chain.to_string(), $label => $value).set(0.0);)*
        }
    };
    (@ histogram, $name:ident, $help:literal, $chains:ident) => {
        describe_histogram!($name, $help);
        let _ = histogram!($name);
    };
    (@ histogram, $name:ident, $help:literal, $chains:ident, $label:literal, [$($value:literal),*]) => {
        describe_histogram!($name, $help);
        $(let _ = histogram!($name, $label => $value);)*
    };
}

metrics_of_the_contract! {
    LEASE_ACQUIRE = "gapless_lease_acquire_total", counter, "Leases asked for or renewed, by result.",
        "result" in ["insert", "renew", "takeover", "not_owner"];
    LEASE_FENCED = "gapless_lease_fenced_total", counter, "Writes refused by the fence, by operation.",
        "operation" in ["commit"];
    TX_CREATE = "gapless_tx_create_total", counter, "Requests to create a transaction, by result.",
        "result" in ["new", "known", "mismatch", "invalid", "unknown_submitter", "protected", "paused", "queue_full",
            "not_leader", "poison", "error"];
    TX_SUBMIT = "gapless_tx_submit_total", counter, "Broadcasts, by what the node answered.",
        "result" in ["accepted", "already-known", "nonce-too-low", "nonce-gap", "replacement-underpriced",
            "underpriced", "below-base-fee", "node-fee-cap", "invalid-fees", "insufficient-funds", "type-conflict",
            "delegation-limit", "account-limit", "pool-full", "unavailable", "timed-out", "invalid", "wrong-endpoint", "unknown"];
    RECEIPT_CHECK = "gapless_receipt_check_total", counter, "Receipt look-ups, by result.",
        "result" in ["found", "not_found", "error"];
    RECEIPT_BACKLOG = "gapless_receipt_backlog", by_chain, "Receipt look-ups of this node that wait for an answer.";
    NEW_FORK = "gapless_confirmations_new_fork_total", counter, "Times a mined transaction lost its block.";
    DEEP_REORG = "gapless_deep_reorg_total", counter, "Reorgs deeper than promised.";
    RESUBMIT = "gapless_resubmit_total", counter, "Same bytes sent again, by result.", "result" in ["sent"];
    FINALITY = "gapless_finality_total", counter, "Transactions whose slot became final, by result.",
        "result" in ["confirmed", "failed", "withdrawn"];
    STUCK_DECISION = "gapless_stuck_decision_total", counter, "What the policy for the stuck decided, by action.",
        "action" in ["rebroadcast", "bump", "placeholder", "escalate", "protect"];
    PLACEHOLDER = "gapless_placeholder_total", counter, "Placeholders stored for a nonce, by reason.",
        "reason" in ["recycled", "cancel", "expiry", "governor"];
    TX_REQUEUED = "gapless_tx_requeued_total", counter, "Transactions that lost their nonce, by reason.",
        "reason" in ["foreign_use", "slot_lost"];
    QUEUE_DEPTH = "gapless_queue_depth", by_chain, "Accepted and not bound, counted in the store: the same on every node.";
    IN_FLIGHT = "gapless_in_flight", by_chain, "Bound and not consumed, counted in the store: the same on every node.";
    SUBMITTERS = "gapless_submitters", by_chain, "Submitters by condition, counted in the store: the same on every node.",
        "condition" in ["ok", "hold", "protect", "paused", "out_of_funds", "disabled"];
    OUTBOX_PENDING = "gapless_outbox_pending", gauge, "Events that wait for delivery; none while events are only polled.";
    NONCE_GAP = "gapless_nonce_gap_total", counter, "Broadcasts refused because a lower nonce is missing from the pool.";
    UNKNOWN_NODE_ERROR = "gapless_unknown_node_error_total", counter, "Broadcasts refused with a text nobody has seen.";
    INVARIANT = "gapless_invariant_violation_total", counter, "Invariant violations by kind; always zero.",
        "kind" in ["lane_phase", "unsound_change", "hole", "out_of_order", "two_receipts", "unexplained", "no_receipt"];
    ACCEPT_SECONDS = "gapless_accept_seconds", histogram, "Seconds from a create call to its answer.";
    ACCEPTED_TO_SENT = "gapless_accepted_to_sent_seconds", histogram, "Seconds from acceptance to the first broadcast.";
    SENT_TO_MINED = "gapless_sent_to_mined_seconds", histogram, "Seconds from the first broadcast to a block.";
    ACCEPTED_TO_MINED = "gapless_accepted_to_mined_seconds", histogram, "Seconds from acceptance to a block.";
    MINED_TO_CONFIRMED = "gapless_mined_to_confirmed_seconds", histogram, "Seconds from a block to the end.";
    STORE_BATCH = "gapless_store_batch_size", histogram, "Lanes per commit.";
    STORE_COMMIT = "gapless_store_commit_seconds", histogram, "Seconds per commit.";
    RPC_SECONDS = "gapless_rpc_seconds", histogram, "Seconds per RPC exchange, under each method it carried.",
        "method" in ["eth_blockNumber", "eth_chainId", "eth_estimateGas", "eth_feeHistory", "eth_gasPrice",
            "eth_getBalance", "eth_getBlockByHash", "eth_getBlockByNumber", "eth_getTransactionCount",
            "eth_getTransactionReceipt", "eth_sendRawTransaction"];
}

#[cfg(test)]
mod tests {
    use gapless_core::audit::ViolationKind;
    use gapless_core::condition::Condition;

    #[test]
    fn every_condition_is_there_from_the_start() {
        let source = include_str!("names.rs");
        for condition in Condition::ALL {
            assert!(source.contains(&format!("\"{condition}\"")), "{condition}");
        }
    }

    #[test]
    fn every_violation_is_there_from_the_start() {
        let source = include_str!("names.rs");
        for kind in ViolationKind::ALL {
            assert!(source.contains(&format!("\"{kind}\"")), "{kind}");
        }
    }
}
