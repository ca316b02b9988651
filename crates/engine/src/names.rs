//! Names of the metrics, as the contract fixes them. No label grows with submitters or transactions.

/// Lease acquisitions by result.
pub const LEASE_ACQUIRE: &str = "gapless_lease_acquire_total";
/// Writes refused by the fence, by operation.
pub const LEASE_FENCED: &str = "gapless_lease_fenced_total";
/// Create calls by result.
pub const TX_CREATE: &str = "gapless_tx_create_total";
/// Broadcasts by result.
pub const TX_SUBMIT: &str = "gapless_tx_submit_total";
/// Receipt look-ups by result.
pub const RECEIPT_CHECK: &str = "gapless_receipt_check_total";
/// Resubmissions by result.
pub const RESUBMIT: &str = "gapless_resubmit_total";
/// Ends by result.
pub const FINALITY: &str = "gapless_finality_total";
/// Reorgs deeper than promised.
pub const DEEP_REORG: &str = "gapless_deep_reorg_total";
/// Invariant violations by kind; always zero.
pub const INVARIANT: &str = "gapless_invariant_violation_total";
/// Seconds from POST to commit.
pub const ACCEPT_SECONDS: &str = "gapless_accept_seconds";
/// Seconds from acceptance to the first broadcast.
pub const ACCEPTED_TO_SENT: &str = "gapless_accepted_to_sent_seconds";
/// Seconds from the first broadcast to a block.
pub const SENT_TO_MINED: &str = "gapless_sent_to_mined_seconds";
/// Seconds from a block to the end.
pub const MINED_TO_CONFIRMED: &str = "gapless_mined_to_confirmed_seconds";
/// Lanes per commit.
pub const STORE_BATCH: &str = "gapless_store_batch_size";
/// Seconds per commit.
pub const STORE_COMMIT: &str = "gapless_store_commit_seconds";
