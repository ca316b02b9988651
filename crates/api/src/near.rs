//! What somebody probably meant.

/// Further away than this is not a slip of the pen.
const ALIKE: f64 = 0.6;

/// The candidate nearest to a name, ignoring case, `-` and `_`.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let wanted = plain(name);
    let scored =
        candidates.into_iter().map(|candidate| (strsim::jaro_winkler(&wanted, &plain(candidate)), candidate));
    scored
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_through_and_strangers_are_not() {
        let fields = ["submitter", "requestId", "payload", "fees"];
        assert_eq!(nearest("request_id", fields), Some("requestId"));
        assert_eq!(nearest("submiter", fields), Some("submitter"));
        assert_eq!(nearest("zzz", fields), None);
    }
}
