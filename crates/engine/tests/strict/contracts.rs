//! Contracts in a few bytes: whether something happened, and how often, is read from the chain and not from our tables.

use alloy_primitives::U256;

/// Counts calls by their first word: `sstore(word, sload(word) + 1)`.
pub(crate) const LEDGER: [u8; 11] = [0x60, 0, 0x35, 0x80, 0x54, 0x60, 1, 0x01, 0x90, 0x55, 0x00];

/// An empty call sets the flag (slot 0). Any other call reverts unless it is set, and is counted (slot 1).
pub(crate) const FLAG: [u8; 33] = [
    0x36, 0x60, 0x0a, 0x57, // a call with data goes on at 0x0a
    0x60, 1, 0x60, 0, 0x55, 0x00, // sstore(0, 1)
    0x5b, 0x60, 0, 0x54, 0x60, 0x16, 0x57, // with the flag, on at 0x16
    0x60, 0, 0x60, 0, 0xfd, // revert
    0x5b, 0x60, 1, 0x54, 0x60, 1, 0x01, 0x60, 1, 0x55, 0x00, // sstore(1, sload(1) + 1)
];

/// Reverts with `Error(words)`.
pub(crate) fn reverting(words: &str) -> Vec<u8> {
    let mut answer = vec![0x08, 0xc3, 0x79, 0xa0];
    answer.extend(U256::from(32).to_be_bytes::<32>());
    answer.extend(U256::from(words.len()).to_be_bytes::<32>());
    answer.extend_from_slice(words.as_bytes());
    answer.resize(100, 0);
    // Copy the answer, which stands behind the code, to memory and revert with it.
    let mut runtime = vec![0x60, 100, 0x60, 12, 0x60, 0, 0x39, 0x60, 100, 0x60, 0, 0xfd];
    runtime.extend(answer);
    runtime
}

/// Init code that leaves `runtime` behind.
pub(crate) fn deploying(runtime: &[u8]) -> Vec<u8> {
    let length = u8::try_from(runtime.len()).unwrap();
    let mut init = vec![0x60, length, 0x60, 12, 0x60, 0, 0x39, 0x60, length, 0x60, 0, 0xf3];
    init.extend(runtime);
    init
}
