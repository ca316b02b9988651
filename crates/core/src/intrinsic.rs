//! What a transaction costs before it runs: our own check, so that a node's "intrinsic gas too low" need not be believed.

use crate::fees::Gas;
use crate::intent::Payload;

const TRANSFER: u64 = 21_000;
const CREATE: u64 = 32_000;
const ZERO_BYTE: u64 = 4;
const BYTE: u64 = 16;
const INIT_WORD: u64 = 2;
const LISTED_ADDRESS: u64 = 2_400;
const LISTED_KEY: u64 = 1_900;

/// The intrinsic gas of a payload (EIP-2028, EIP-2930, EIP-3860).
#[must_use]
pub fn gas(payload: &Payload) -> Gas {
    let data: u64 = payload.data.iter().map(|byte| if *byte == 0 { ZERO_BYTE } else { BYTE }).sum();
    let create = match payload.to {
        Some(_) => 0,
        None => CREATE + INIT_WORD * (payload.data.len() as u64).div_ceil(32),
    };
    let list: u64 = payload
        .access_list
        .iter()
        .map(|item| LISTED_ADDRESS + LISTED_KEY * item.storage_keys.len() as u64)
        .sum();
    Gas(TRANSFER + data + create + list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::Address;

    #[test]
    fn the_known_sums() {
        let transfer = Payload { to: Some(Address::ZERO), ..Default::default() };
        assert_eq!(gas(&transfer), Gas(21_000));
        let call = Payload { data: vec![0, 1, 2].into(), ..transfer };
        assert_eq!(gas(&call), Gas(21_036));
        let create = Payload { data: vec![1; 33].into(), ..Default::default() };
        assert_eq!(gas(&create), Gas(21_000 + 33 * 16 + 32_000 + 4));
    }
}
