//! A node's own counters, read from `/metrics`.

use std::collections::BTreeMap;

use anyhow::Context;

/// Every sample by its name with labels.
#[derive(Debug, Default)]
pub(super) struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// Asks a node.
    pub(super) async fn of(http: &reqwest::Client, url: &str) -> anyhow::Result<Self> {
        let answer = http.get(format!("{url}/metrics")).send().await.context("asking for metrics")?;
        Ok(Self::parse(&answer.error_for_status()?.text().await?))
    }

    fn parse(text: &str) -> Self {
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// A sample; zero if it is not there.
    pub(super) fn at(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// What it grew by since another scrape.
    pub(super) fn since(&self, before: &Self, name: &str) -> f64 {
        self.at(name) - before.at(name)
    }

    /// The upper bound of the bucket in which a share of a histogram without labels lies; none if nothing was recorded, or it
    /// lies above all bounds.
    pub(super) fn quantile(&self, histogram: &str, share: f64) -> Option<f64> {
        let all = self.at(&format!("{histogram}_count"));
        let start = format!("{histogram}_bucket{{le=\"");
        let bound = |name: &str| name.strip_prefix(&start)?.strip_suffix("\"}")?.parse::<f64>().ok();
        let mut buckets: Vec<(f64, f64)> =
            self.0.iter().filter_map(|(name, count)| Some((bound(name)?, *count))).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let found = buckets.into_iter().find(|(_, count)| all > 0.0 && *count >= all * share);
        found.map(|(bound, _)| bound).filter(|bound| bound.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_quantiles_are_read_from_the_text() {
        let text = "# HELP a x\na_total{result=\"new\"} 7\nb_bucket{le=\"0.1\"} 50\nb_bucket{le=\"1\"} 99\n\
                    b_bucket{le=\"+Inf\"} 100\nb_count 100\nb_sum 9.5\n";
        let scrape = Scrape::parse(text);
        assert_eq!(scrape.at("a_total{result=\"new\"}"), 7.0);
        assert_eq!(scrape.since(&Scrape::default(), "b_count"), 100.0);
        assert_eq!(scrape.quantile("b", 0.5), Some(0.1));
        assert_eq!(scrape.quantile("b", 0.99), Some(1.0));
        assert_eq!(scrape.quantile("b", 1.0), None);
        assert_eq!(scrape.quantile("c", 0.5), None);
    }
}
