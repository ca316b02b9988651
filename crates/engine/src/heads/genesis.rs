//! Whether this is still the chain it was: block 0 as first seen, and when to look at it again.

use std::time::Duration;

use alloy_primitives::B256;
use tokio::time::Instant;

/// How often to ask although nothing looks strange.
const ROUTINE: Duration = Duration::from_secs(300);
/// How often to ask while something does.
const DOUBT: Duration = Duration::from_secs(10);

/// What is known of block 0.
#[derive(Debug, Default)]
pub(super) struct Watch {
    first: Option<B256>,
    asked: Option<Instant>,
    doubted: Option<Instant>,
}

impl Watch {
    /// Whether to ask now; takes it that this is done.
    pub(super) fn is_due(&mut self, doubtful: bool, now: Instant) -> bool {
        let passed =
            |since: Option<Instant>, span| since.is_none_or(|since| now.duration_since(since) >= span);
        let due =
            self.first.is_none() || passed(self.asked, ROUTINE) || doubtful && passed(self.doubted, DOUBT);
        if due {
            self.asked = Some(now);
            if doubtful {
                self.doubted = Some(now);
            }
        }
        due
    }

    /// Block 0 as first seen and as found, if these differ.
    pub(super) fn compare(&mut self, found: B256) -> Option<(B256, B256)> {
        let first = *self.first.get_or_insert(found);
        (first != found).then_some((first, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_0_is_asked_for_at_first_then_rarely_and_in_doubt_at_once_but_not_without_end() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        assert!(watch.is_due(false, now) && watch.is_due(false, now));
        let (one, other) = (B256::repeat_byte(1), B256::repeat_byte(2));
        assert_eq!(watch.compare(one), None);
        assert!(!watch.is_due(false, now));
        assert!(watch.is_due(true, now) && !watch.is_due(true, now));
        assert!(watch.is_due(true, now + DOUBT) && !watch.is_due(false, now + DOUBT));
        assert!(watch.is_due(false, now + DOUBT + ROUTINE));
        assert_eq!(watch.compare(other), Some((one, other)));
        assert_eq!(watch.compare(one), None);
    }
}
