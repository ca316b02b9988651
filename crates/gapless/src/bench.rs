//! `gapless bench`: what this machine does with a node of its own, measured and then checked on that node's chain.
//!
//! A figure counts only if the chain agrees: every request is mined once, and the nonces of every account have no hole.
//! What is compared is measured in the same run, each time on an equal fresh node: machines are noisy, and a figure from
//! yesterday proves nothing.

mod accept;
mod accounts;
mod ledger;
mod load;
mod options;
mod parts;
mod plot;
mod poster;
mod proof;
mod raw;
mod report;
mod scrape;
mod served;
mod through;

use anyhow::{Context, ensure};
use gapless_core::ports::clock::Clock;
use gapless_store::clock::SystemClock;
use indicatif::{ProgressBar, ProgressStyle};

use crate::config::LogFormat;
use crate::logs;
use crate::node::told_to_stop;
use options::{Scenario, StoreKind};
use parts::Server;
use report::{Failed, Report};
use through::Case;

pub(crate) use load::run as load;
pub(crate) use options::BenchOptions;

const PIPELINED: [u16; 3] = [1, 10, 100];
const STRICT: [u16; 1] = [200];
/// Senders of the raw tries; the best try counts.
const RAW_SENDERS: [u64; 2] = [1, 10];

/// Measures what was asked for; fails if a measurement failed, or a chain shows anything but every request once.
pub(crate) async fn run(options: &BenchOptions, json: bool) -> anyhow::Result<()> {
    logs::start(LogFormat::Text, "error");
    let report = tokio::select! {
        report = measured(options) => report?,
        told = told_to_stop() => return told,
    };
    let text = serde_json::to_string(&report)?;
    if let Some(file) = &options.json_file {
        std::fs::write(file, &text).with_context(|| format!("writing {}", file.display()))?;
    }
    if let Some(file) = &options.plot {
        std::fs::write(file, plot::svg(&report)).with_context(|| format!("writing {}", file.display()))?;
    }
    if json {
        println!("{text}");
    } else {
        print!("{}", report.text());
    }
    for Failed { what, why } in &report.failed {
        eprintln!("{what}: {why}");
    }
    ensure!(report.failed.is_empty(), "{} of the measurements failed", report.failed.len());
    Ok(())
}

/// A run under way.
struct Bench<'a> {
    options: &'a BenchOptions,
    /// Drawn anew for every run, so that no account has a past.
    word: String,
    /// So that none has one on a given node either.
    measurements: u32,
    server: Option<Server>,
    report: Report,
}

async fn measured(options: &BenchOptions) -> anyhow::Result<Report> {
    let cases = cases(options);
    let word = SystemClock.draw().simple().to_string();
    let accept = options.wants(Scenario::Accept);
    let server = if options.store.contains(&StoreKind::Postgres) && (accept || !cases.is_empty()) {
        Some(Server::start(options.database.as_deref(), &word).await?)
    } else {
        None
    };
    let report = Report {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        block_seconds: options.block_time,
        ..Report::default()
    };
    let mut bench = Bench { options, word, measurements: 0, server, report };
    if options.wants(Scenario::Raw) && !options.wants(Scenario::Pipelined) {
        bench.raw().await;
    }
    for case in cases {
        if case.mode == "pipelined" {
            bench.raw().await;
        }
        bench.through(case).await;
    }
    if accept {
        for store in &options.store {
            bench.accept(*store).await;
        }
    }
    if let Some(server) = &bench.server {
        server.tidy().await?;
    }
    bench.report.compare();
    Ok(bench.report)
}

fn cases(options: &BenchOptions) -> Vec<Case> {
    let mut cases = Vec::new();
    for store in &options.store {
        let case =
            |mode, submitters: u16, count| Case { mode, store: *store, submitters: submitters.into(), count };
        if options.wants(Scenario::Pipelined) {
            let submitters = options.submitters_or(&PIPELINED).into_iter();
            cases.extend(submitters.map(|submitters| case("pipelined", submitters, options.count)));
        }
        if options.wants(Scenario::Strict) {
            let submitters = options.submitters_or(&STRICT).into_iter();
            let count = |submitters: u16| u64::from(submitters) * u64::from(options.each);
            cases.extend(submitters.map(|submitters| case("strict", submitters, count(submitters))));
        }
    }
    cases
}

impl Bench<'_> {
    /// A word that no other measurement draws accounts from.
    fn next_word(&mut self) -> String {
        self.measurements += 1;
        format!("{} {}", self.word, self.measurements)
    }

    async fn raw(&mut self) {
        for senders in RAW_SENDERS {
            let what = format!("raw, {senders} senders");
            let bar = bar(&what, self.options.count, "mined");
            let word = self.next_word();
            let tried = raw::measure(self.options, &word, senders, &bar).await;
            bar.finish_and_clear();
            match tried {
                Ok(tried) => {
                    eprintln!("{what}: {:.0} mined/s", tried.mined_per_second);
                    self.report.raw.push(tried);
                }
                Err(error) => self.failed(what, &error),
            }
        }
    }

    async fn through(&mut self, case: Case) {
        let Case { mode, store, submitters, count } = case;
        let what = format!("{mode}, {}, {submitters} submitters", store.name());
        let bar = bar(&what, count, "CONFIRMED");
        let word = self.next_word();
        let measured = through::measure(self.options, case, &word, self.server.as_mut(), &bar).await;
        bar.finish_and_clear();
        match measured {
            Ok(outcome) => {
                eprintln!("{what}: {:.0} CONFIRMED/s", outcome.confirmed_per_second);
                self.report.runs.push(outcome);
            }
            Err(error) => self.failed(what, &error),
        }
    }

    async fn accept(&mut self, store: StoreKind) {
        let what = format!("accept, {}", store.name());
        let bar = bar(&what, self.options.count, "accepted");
        let word = self.next_word();
        let measured = accept::measure(self.options, store, &word, self.server.as_mut(), &bar).await;
        bar.finish_and_clear();
        match measured {
            Ok(found) => {
                for found in found {
                    let per_post = found.per_post;
                    eprintln!("{what}, {per_post} per POST: {:.0} accepted/s", found.accepted_per_second);
                    self.report.accept.push(found);
                }
            }
            Err(error) => self.failed(what, &error),
        }
    }

    fn failed(&mut self, what: String, error: &anyhow::Error) {
        eprintln!("{what}: failed");
        self.report.failed.push(Failed { what, why: format!("{error:#}") });
    }
}

fn bar(what: &str, count: u64, doing: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let template = format!("{what}  {{bar:40}} {{pos}}/{{len}} {doing}, {{elapsed}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}
