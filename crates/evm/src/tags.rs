//! Whether a node's refusal means that its chain has no such block tag.
//!
//! A refusal taken for *no tag* would let finality fall back on less than was asked for, so only words that can mean
//! nothing else count; everything else is an error, and the question is asked again.

use crate::rpc::NodeError;

const INVALID_PARAMS: i64 = -32602;
const UNKNOWN_BLOCK: i64 = -39001;

const WORDS: [&str; 5] =
    ["safe block not found", "finalized block not found", "unknown block", "block tag", "not supported"];

/// Whether the node has no block by the tag it was asked for.
pub(crate) fn is_unknown(error: &NodeError) -> bool {
    let text = error.message.to_ascii_lowercase();
    matches!(error.code, INVALID_PARAMS | UNKNOWN_BLOCK) || WORDS.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(code: i64, message: &str) -> bool {
        is_unknown(&NodeError { code, message: message.into(), data: None })
    }

    #[test]
    fn only_clear_words_mean_that_there_is_no_such_tag() {
        assert!(unknown(-39001, "Unknown block"));
        assert!(unknown(-32000, "finalized block not found"));
        assert!(unknown(-32602, "invalid argument 0: hex string without 0x prefix"));
        assert!(unknown(-32000, "The block tag `safe` is not supported"));
        assert!(!unknown(-32603, "internal error"));
        assert!(!unknown(-32000, "header not found"));
        assert!(!unknown(-32005, "rate limit exceeded"));
    }
}
