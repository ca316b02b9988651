//! `gapless serve` as its users run it: a process of its own with a configuration in a file.

use std::fmt::Write as _;
use std::time::Duration;

use alloy_primitives::{Address, keccak256};
use anyhow::Context;
use gapless_testkit::cpu;
use gapless_testkit::process::{Guarded, Launch, ScratchDir, free_port};
use serde_json::json;

use super::accounts::Account;
use super::parts::Database;
use super::scrape::Scrape;

/// How long it may take to answer: on a busy machine with many submitters.
const READY: Duration = Duration::from_secs(60);
/// How long it may take over its drain.
const GRACE: Duration = Duration::from_secs(10);

/// How a measured node is set up.
pub(super) struct Setup<'a> {
    pub(super) chain: &'a str,
    pub(super) rpc: &'a str,
    pub(super) database: &'a Database<'a>,
    pub(super) accounts: &'a [Account],
    pub(super) mode: &'static str,
    pub(super) window: u64,
    pub(super) confirmations: u64,
    /// The longest queue that will be asked for.
    pub(super) queue: u64,
}

/// A running node.
pub(super) struct Served {
    // Before the folder, so that it is told to stop first.
    process: Guarded,
    http: reqwest::Client,
    url: String,
    _folder: ScratchDir,
}

impl Served {
    /// Starts it in a folder and waits until it answers. Nothing of the caller's environment reaches it: a store or
    /// a setting named there is not this measurement's.
    pub(super) async fn start(folder: ScratchDir, setup: &Setup<'_>) -> anyhow::Result<Self> {
        let port = free_port()?;
        let file = folder.path().join("gapless.toml");
        std::fs::write(&file, configuration(&folder, port, setup)?)?;
        let program = std::env::current_exe().context("finding this program")?;
        let mut launch = Launch::new("/usr/bin/env").args(["-i", "RUST_LOG=warn"]);
        launch = launch.arg(program).args(["serve", "--config"]).arg(&file);
        launch.log = "gapless.log".to_owned();
        launch.grace = GRACE;
        let process = Guarded::start(&folder, &launch)?;
        let url = format!("http://127.0.0.1:{port}");
        let http = reqwest::Client::builder().no_proxy().build()?;
        let alive = || async {
            let asked = http.get(format!("{url}/livez")).send().await;
            asked.is_ok_and(|answer| answer.status().is_success())
        };
        process.wait_ready(READY, alive).await?;
        Ok(Self { process, http, url, _folder: folder })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(cpu::of_process(self.process.pid())?)
    }

    pub(super) fn peak_memory(&self) -> anyhow::Result<u64> {
        Ok(cpu::peak_memory(self.process.pid())?)
    }

    pub(super) async fn scrape(&self) -> anyhow::Result<Scrape> {
        Scrape::of(&self.http, &self.url).await
    }

    /// Makes so many submitters known that nobody uses; their names, as a store writes them.
    pub(super) async fn register(&self, chain: &str, word: &str, count: u64) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for number in 0..count {
            let hash = keccak256(format!("{word} idle {number}"));
            let address = Address::from_slice(&hash[12..]);
            let name = format!("{chain}:{address:#x}");
            let body = json!({ "submitter": name });
            let answer = self.http.post(format!("{}/api/v1/submitters", self.url)).json(&body).send().await?;
            answer.error_for_status().context("registering an idle submitter")?;
            names.push(name);
        }
        Ok(names)
    }

    /// The last lines of its log.
    pub(super) fn log(&self) -> String {
        self.process.log_tail()
    }
}

fn configuration(folder: &ScratchDir, port: u16, setup: &Setup<'_>) -> anyhow::Result<String> {
    let Setup { chain, rpc, mode, window, confirmations, queue, .. } = setup;
    let (store, schema) = (&setup.database.url, &setup.database.schema);
    let mut text = format!(
        "[node]\nid = \"bench\"\ndrain_timeout = \"5s\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n[store]\nurl = \"{store}\"\nschema = \"{schema}\"\n\
         [limits]\nqueued_per_submitter = {queue}\n[confirmations]\nrequired = {confirmations}\n\
         [nonce]\nmode = \"{mode}\"\nmax_in_flight = {window}\n[[chains]]\nid = \"{chain}\"\nrpc = [\"{rpc}\"]\n"
    );
    for account in setup.accounts {
        let key_file = account.key_file(folder.path())?;
        writeln!(
            text,
            "[[submitters]]\nchain = \"{chain}\"\naddress = \"{}\"\nsigner = {{ private_key_file = \"{}\" }}",
            account.address,
            key_file.display()
        )?;
    }
    Ok(text)
}
