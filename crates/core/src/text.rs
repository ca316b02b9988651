//! Texts that came from outside (nodes, signers): kept for the reader, never trusted.
//!
//! PostgreSQL refuses U+0000 in a text, and one such byte would poison a whole batch of lanes, so
//! it is stripped here, before it can reach a store.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_NODE_TEXT_BYTES;

/// A bounded text without U+0000.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct NodeText(String);

impl NodeText {
    /// Strips U+0000 and cuts at the limit, on a character boundary.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut kept: String = text.chars().filter(|c| *c != '\0').collect();
        if kept.len() > MAX_NODE_TEXT_BYTES {
            let cut = (0..=MAX_NODE_TEXT_BYTES).rev().find(|at| kept.is_char_boundary(*at)).unwrap_or(0);
            kept.truncate(cut);
        }
        Self(kept)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for NodeText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<NodeText> for String {
    fn from(text: NodeText) -> Self {
        text.0
    }
}

impl fmt::Display for NodeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_stripped_and_length_is_bounded_on_a_character() {
        assert_eq!(NodeText::new("nonce\0 too low").as_str(), "nonce too low");
        let long = NodeText::new(&"é".repeat(MAX_NODE_TEXT_BYTES));
        assert_eq!(long.as_str().len(), MAX_NODE_TEXT_BYTES);
        assert!(NodeText::new(&format!("x{}", "é".repeat(600))).as_str().len() <= MAX_NODE_TEXT_BYTES);
    }
}
