//! Every limit in one place. Hitting one is a defined answer, never a surprise.

/// Longest request id, in bytes.
pub const MAX_REQUEST_ID_BYTES: usize = 200;
/// Longest scope (a CAIP-10 id or a pool's name), in bytes.
pub const MAX_SCOPE_BYTES: usize = 200;
/// Longest calldata of one request, in bytes.
pub const MAX_DATA_BYTES: usize = 131_072;
/// Most entries of an access list (addresses and storage keys counted together).
pub const MAX_ACCESS_LIST_ENTRIES: usize = 4_096;
/// Longest metadata document, in bytes of JSON.
pub const MAX_METADATA_BYTES: usize = 16_384;
/// Longest text kept of a node's or signer's answer, in bytes.
pub const MAX_NODE_TEXT_BYTES: usize = 1_024;
/// Longest signed transaction stored, in bytes.
pub const MAX_RAW_BYTES: usize = 262_144;
/// Longest node id, in bytes.
pub const MAX_NODE_ID_BYTES: usize = 128;
/// Most items of one accept call.
pub const MAX_ACCEPT_BATCH: usize = 1_000;
/// Most lanes of one commit call.
pub const MAX_COMMIT_LANES: usize = 1_000;
/// Most items that any list or peek returns at once.
pub const MAX_PAGE: usize = 1_000;
/// Most resets remembered per submitter.
pub const MAX_RESETS_KEPT: usize = 5;
/// Most steps of a policy for the stuck.
pub const MAX_STUCK_STEPS: usize = 16;
/// Most often that all its steps together may be taken for one transaction.
pub const MAX_STUCK_BUDGET: u64 = 1_000;
/// Highest nonce we bind: what a signed 64-bit column holds, far below EIP-2681's bound.
pub const MAX_NONCE: u64 = i64::MAX as u64;

const _: () = assert!(MAX_DATA_BYTES < MAX_RAW_BYTES, "any accepted payload must fit once signed");
const _: () = assert!(MAX_ACCEPT_BATCH <= MAX_PAGE, "a batch's answers must fit a page");
const _: () = assert!(MAX_REQUEST_ID_BYTES + MAX_SCOPE_BYTES < 2_000, "the unique key must fit an index row");
