//! Refusals that the classifier does not know, counted and kept, so that an operator can report them
//! and the table can grow. Bounded: a node that writes a new text each time must not fill the memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use gapless_core::text::NodeText;

/// Most different texts kept.
const KEPT: usize = 64;
/// Longest part of a text that tells it from others.
const TOLD_APART: usize = 200;

/// Unknown texts with how often each came.
#[derive(Debug, Default)]
pub struct UnknownTexts {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    total: u64,
    texts: HashMap<String, u64>,
}

impl UnknownTexts {
    pub(crate) fn note(&self, text: &NodeText) {
        let text = shape(text.as_str());
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.total = inner.total.saturating_add(1);
        if inner.texts.len() < KEPT || inner.texts.contains_key(&text) {
            *inner.texts.entry(text).or_default() += 1;
        }
    }

    /// How many came in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// The first 64 different ones, the most frequent first. Digits are folded to `#`.
    #[must_use]
    pub fn list(&self) -> Vec<(String, u64)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> = inner.texts.iter().map(|(text, count)| (text.clone(), *count)).collect();
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        list
    }
}

/// Numbers and hashes differ each time; what is left tells texts apart.
fn shape(text: &str) -> String {
    let mut kept = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if bare.bytes().any(|b| b.is_ascii_digit()) {
            kept.push('#');
            kept.push_str(&word[bare.len()..]);
        } else {
            kept.push_str(word);
        }
        if kept.len() > TOLD_APART {
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_numbers_only_are_one_and_their_number_is_bounded() {
        let unknown = UnknownTexts::default();
        for n in 0..10 {
            unknown.note(&NodeText::new(&format!("moon phase {n} is wrong for 0xab{n}")));
        }
        assert_eq!(unknown.list(), vec![("moon phase # is wrong for #".to_owned(), 10)]);
        for n in 0..1000u32 {
            let letters: String = n.to_string().bytes().map(|b| char::from(b - b'0' + b'a')).collect();
            unknown.note(&NodeText::new(&letters));
        }
        assert_eq!((unknown.list().len(), unknown.total()), (KEPT, 1010));
        unknown.note(&NodeText::new(&"é".repeat(500)));
    }
}
