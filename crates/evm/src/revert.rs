//! What a contract said when it reverted. Return data comes from strangers' code, so every offset in it
//! is checked.

use alloy_primitives::U256;
use alloy_primitives::hex;
use gapless_core::text::NodeText;
use serde_json::Value;

use crate::rpc::NodeError;

/// `Error(string)`.
const ERROR: [u8; 4] = [0x08, 0xc3, 0x79, 0xa0];
/// `Panic(uint256)`.
const PANIC: [u8; 4] = [0x4e, 0x48, 0x7b, 0x71];
/// A custom error's arguments are shown up to here.
const MAX_SHOWN: usize = 256;

/// The reason, from the return data if there is any, else in the node's words.
pub(crate) fn reason(error: &NodeError) -> NodeText {
    match return_data(error.data.as_ref()) {
        Some(data) if !data.is_empty() => NodeText::new(&in_words(&data)),
        _ => NodeText::new(&error.message),
    }
}

/// Return data, wherever clients put it: as text, with words before it, or one level down.
pub(crate) fn return_data(data: Option<&Value>) -> Option<Vec<u8>> {
    match data? {
        Value::String(text) => {
            let digits = &text[text.find("0x")? + 2..];
            let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            hex::decode(&digits[..end]).ok()
        }
        Value::Object(fields) => {
            ["data", "result", "output"].iter().find_map(|key| return_data(fields.get(*key)))
        }
        _ => None,
    }
}

fn in_words(data: &[u8]) -> String {
    let Some((selector, arguments)) = data.split_first_chunk::<4>() else {
        return format!("reverted with {}", hex::encode_prefixed(data));
    };
    match *selector {
        ERROR => match text(arguments) {
            Some(text) => text,
            None => format!("reverted with a malformed Error(string): {}", shown(data)),
        },
        PANIC => match word(arguments, 0).and_then(|code| u64::try_from(code).ok()) {
            Some(code) => format!("panic 0x{code:02x}: {}", panic_meaning(code)),
            None => format!("reverted with a malformed Panic(uint256): {}", shown(data)),
        },
        _ if arguments.is_empty() => format!("custom error {}", hex::encode_prefixed(selector)),
        _ => format!("custom error {} with {}", hex::encode_prefixed(selector), shown(arguments)),
    }
}

fn shown(data: &[u8]) -> String {
    hex::encode_prefixed(&data[..data.len().min(MAX_SHOWN)])
}

fn word(data: &[u8], at: usize) -> Option<U256> {
    data.get(at..at.checked_add(32)?).map(U256::from_be_slice)
}

/// The one string argument of an ABI encoding.
fn text(arguments: &[u8]) -> Option<String> {
    let offset = usize::try_from(word(arguments, 0)?).ok()?;
    let length = usize::try_from(word(arguments, offset)?).ok()?;
    let start = offset.checked_add(32)?;
    let bytes = arguments.get(start..start.checked_add(length)?)?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// As the Solidity documentation lists them.
const fn panic_meaning(code: u64) -> &'static str {
    match code {
        0x00 => "raised by the compiler",
        0x01 => "assertion failed",
        0x11 => "arithmetic overflow or underflow",
        0x12 => "division by zero",
        0x21 => "conversion to an enum out of range",
        0x22 => "a storage byte array is badly encoded",
        0x31 => "pop on an empty array",
        0x32 => "index out of bounds",
        0x41 => "too much memory allocated",
        0x51 => "call of an uninitialised function",
        _ => "unknown cause",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn said(data: Value) -> String {
        reason(&NodeError { code: 3, message: "execution reverted".into(), data: Some(data) }).to_string()
    }

    fn error_string(text: &str) -> Vec<u8> {
        let mut data = ERROR.to_vec();
        data.extend(U256::from(32).to_be_bytes::<32>());
        data.extend(U256::from(text.len()).to_be_bytes::<32>());
        data.extend(text.as_bytes());
        data.resize(data.len().next_multiple_of(32) + 4, 0);
        data
    }

    #[test]
    fn every_kind_of_reason_is_read() {
        let text = hex::encode_prefixed(error_string("not the owner"));
        assert_eq!(said(json!(text)), "not the owner");
        assert_eq!(said(json!(format!("Reverted {text}"))), "not the owner");
        assert_eq!(said(json!({ "data": text })), "not the owner");
        let panic = format!("0x4e487b71{:064x}", 0x11);
        assert_eq!(said(json!(panic)), "panic 0x11: arithmetic overflow or underflow");
        assert_eq!(said(json!("0xdeadbeef")), "custom error 0xdeadbeef");
        assert_eq!(said(json!("0xdeadbeef01")), "custom error 0xdeadbeef with 0x01");
        assert_eq!(said(json!("0x01")), "reverted with 0x01");
        assert_eq!(said(json!("0x")), "execution reverted");
        assert_eq!(said(Value::Null), "execution reverted");
    }

    #[test]
    fn lying_offsets_and_lengths_are_no_string() {
        for (at, lie) in [(4, U256::MAX), (4, U256::from(1_000)), (36, U256::MAX), (36, U256::from(1_000))] {
            let mut data = error_string("x");
            data[at..at + 32].copy_from_slice(&lie.to_be_bytes::<32>());
            assert!(said(json!(hex::encode_prefixed(data))).contains("malformed"));
        }
    }

    proptest! {
        #[test]
        fn any_return_data_gives_words(tail in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3) {
            let mut data = match kind { 0 => ERROR.to_vec(), 1 => PANIC.to_vec(), _ => Vec::new() };
            data.extend(tail);
            let _ = in_words(&data);
        }
    }
}
