//! What `/metrics` tells, against the contract's list.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::process::Signal;
use gapless_testkit::wait::eventually;
use serde_json::json;

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end, ended};

/// The contract's names with their labels. What is not built yet is not told yet.
const CONTRACT: &str = "
    gapless_lease_acquire_total{result} gapless_lease_fenced_total{operation} gapless_tx_create_total{result}
    gapless_tx_submit_total{result} gapless_receipt_check_total{result} gapless_receipt_backlog{chain}
    gapless_confirmations_new_fork_total gapless_deep_reorg_total gapless_resubmit_total{result}
    gapless_finality_total{result} gapless_stuck_decision_total{action} gapless_placeholder_total{reason}
    gapless_tx_requeued_total{reason} gapless_queue_depth{chain} gapless_in_flight{chain}
    gapless_submitters{chain,condition} gapless_outbox_pending gapless_nonce_gap_total
    gapless_unknown_node_error_total gapless_invariant_violation_total{kind} gapless_accept_seconds
    gapless_accepted_to_sent_seconds gapless_sent_to_mined_seconds gapless_accepted_to_mined_seconds
    gapless_mined_to_confirmed_seconds gapless_store_batch_size gapless_store_commit_seconds
    gapless_rpc_seconds{method} gapless_rpc_requests_total gapless_rpc_calls_total";

/// What was scraped: every sample by name and labels.
struct Scraped {
    text: String,
    samples: BTreeMap<String, f64>,
}

impl Scraped {
    async fn of(setup: &Setup) -> Self {
        let text = setup.text("/metrics").await.unwrap();
        let line =
            |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
        let samples = text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect();
        Self { text, samples }
    }

    /// Names with the labels that their samples carry; a histogram's own parts are folded.
    fn shapes(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut shapes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for sample in self.samples.keys() {
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| {
                let base = name.strip_suffix(part)?;
                self.text.contains(&format!("# TYPE {base} histogram")).then_some(base)
            });
            let shape = shapes.entry(base.unwrap_or(name).to_owned()).or_default();
            let names = labels.trim_end_matches('}').split("\",").filter_map(|label| label.split_once('='));
            shape.extend(names.map(|(label, _)| label.to_owned()).filter(|label| label != "le"));
        }
        shapes
    }

    fn at(&self, sample: &str) -> f64 {
        *self.samples.get(sample).unwrap_or_else(|| panic!("no {sample} in\n{}", self.text))
    }
}

fn contract() -> BTreeMap<String, BTreeSet<String>> {
    let one = |text: &str| {
        let (name, labels) = text.split_once('{').unwrap_or((text, ""));
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        (name.to_owned(), labels.map(str::to_owned).collect())
    };
    CONTRACT.split_whitespace().map(one).collect()
}

#[tokio::test]
async fn every_metric_of_the_contract_is_there_from_the_start_and_moves() {
    let block_time = Some(Duration::from_secs(1));
    let anvil = Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap();
    let setup = Setup::new(&anvil.url());
    let node = setup.serve("node.log").await;
    let before = Scraped::of(&setup).await;
    assert_eq!(before.shapes(), contract());
    for described in contract().keys() {
        assert!(before.text.contains(&format!("# HELP {described} ")), "{described} is not described");
    }
    assert_eq!(before.at("gapless_tx_create_total{result=\"new\"}"), 0.0);
    assert_eq!(before.at("gapless_accepted_to_mined_seconds_count"), 0.0);

    let body = json!({ "submitter": ADDRESS, "requestId": "one", "payload": { "to": SINK, "value": "7" } });
    let (status, made) = setup.post("/api/v1/tx", &body).await;
    assert_eq!(status, 202, "{made}");
    assert_eq!(setup.post("/api/v1/tx", &body).await.0, 200);
    let tx_id = made["txId"].as_str().unwrap();
    assert_eq!(ended(&setup, tx_id).await["state"], "CONFIRMED");
    let after = Scraped::of(&setup).await;
    for (sample, least) in [
        ("gapless_tx_create_total{result=\"new\"}", 1.0),
        ("gapless_tx_create_total{result=\"known\"}", 1.0),
        ("gapless_tx_submit_total{result=\"accepted\"}", 1.0),
        ("gapless_receipt_check_total{result=\"found\"}", 1.0),
        ("gapless_finality_total{result=\"confirmed\"}", 1.0),
        ("gapless_lease_acquire_total{result=\"insert\"}", 1.0),
        ("gapless_accept_seconds_count", 2.0),
        ("gapless_accepted_to_sent_seconds_count", 1.0),
        ("gapless_sent_to_mined_seconds_count", 1.0),
        ("gapless_accepted_to_mined_seconds_count", 1.0),
        ("gapless_mined_to_confirmed_seconds_count", 1.0),
        ("gapless_store_batch_size_count", 3.0),
        ("gapless_store_commit_seconds_count", 3.0),
        ("gapless_rpc_seconds_count{method=\"eth_sendRawTransaction\"}", 1.0),
        ("gapless_rpc_seconds_count{method=\"eth_getBlockByNumber\"}", 1.0),
        ("gapless_rpc_requests_total", 2.0),
        ("gapless_rpc_calls_total", 2.0),
    ] {
        assert!(after.at(sample) >= least, "{sample} is {}", after.at(sample));
    }
    assert_eq!(after.at("gapless_receipt_backlog{chain=\"eip155:31337\"}"), 0.0);
    assert_eq!(after.shapes(), contract(), "nothing else came up");
    let told = after.text.to_lowercase();
    assert!(!told.contains(&ADDRESS.to_lowercase()) && !told.contains(tx_id), "a label grows");

    let (_, view) = setup.get(&format!("/api/v1/submitters/{ADDRESS}")).await.unwrap();
    let balance = anvil.rpc("eth_getBalance", json!([ADDRESS, "latest"])).await.unwrap();
    assert_eq!(view["balance"], balance, "{view}");
    assert!(view["balanceFetchedAt"].is_string(), "{view}");
    assert!(end(node, Signal::SIGTERM).await.success());
}

#[tokio::test]
async fn queues_and_conditions_are_counted_by_chain() {
    let setup = Setup::new("http://127.0.0.1:1");
    let node = setup.serve("node.log").await;
    for n in 0..3 {
        let body = json!({ "submitter": ADDRESS, "requestId": n.to_string(), "payload": { "to": SINK } });
        assert_eq!(setup.post("/api/v1/tx", &body).await.0, 202);
    }
    let counted = || async {
        let scraped = Scraped::of(&setup).await;
        let queued = scraped.at("gapless_queue_depth{chain=\"eip155:31337\"}") == 3.0;
        // Nobody answers at that address: nothing is bound, and everything still queues.
        let told = scraped.at("gapless_submitters{chain=\"eip155:31337\",condition=\"disabled\"}") == 1.0;
        (queued && told).then_some(())
    };
    eventually(PATIENCE, "the count", counted).await.unwrap();
    assert!(end(node, Signal::SIGTERM).await.success());
}
