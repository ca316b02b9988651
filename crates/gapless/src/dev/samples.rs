//! A few transfers, followed through the public API until they are CONFIRMED.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{ACCOUNTS, CHAIN};
use crate::client::{Client, plain};

/// Transfers per account.
const EACH: usize = 3;
/// Where the coins go.
const SINK: &str = "0x000000000000000000000000000000000000dEaD";
/// How often the line moves while nothing happens.
const BEAT: Duration = Duration::from_millis(120);

/// One line of progress: drawn on a terminal, written as it changes elsewhere.
struct Line {
    bar: ProgressBar,
    name: String,
    said: String,
}

impl Line {
    fn new(all: &MultiProgress, name: String) -> Self {
        let bar = all.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:<12} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(name.clone());
        bar.enable_steady_tick(BEAT);
        Self { bar, name, said: String::new() }
    }

    fn say(&mut self, text: String) {
        if text == self.said {
            return;
        }
        if !std::io::stderr().is_terminal() {
            eprintln!("{:<12} {text}", self.name);
        }
        self.bar.set_message(text.clone());
        self.said = text;
    }
}

/// Sends the samples and waits for all of them.
pub(super) async fn run(url: &str) -> anyhow::Result<()> {
    let client = Client::new(url, true)?;
    let all = MultiProgress::new();
    let mut following = tokio::task::JoinSet::new();
    for (account, (address, _)) in ACCOUNTS.iter().enumerate() {
        for n in 0..EACH {
            let name = format!("sample-{account}-{n}");
            let body = json!({
                "submitter": format!("{CHAIN}:{address}"),
                "requestId": name,
                "payload": { "to": SINK, "value": "1000000000000000" },
            });
            let view = client.post(&["tx"], &body).await.with_context(|| format!("sending {name}"))?;
            following.spawn(follow(Client::new(url, true)?, Line::new(&all, name), view));
        }
    }
    while let Some(followed) = following.join_next().await {
        followed??;
    }
    eprintln!("{} transactions CONFIRMED", ACCOUNTS.len() * EACH);
    Ok(())
}

async fn follow(client: Client, mut line: Line, mut view: Value) -> anyhow::Result<()> {
    let id = plain(&view["txId"]);
    loop {
        let state = plain(&view["state"]);
        line.say(words(&view));
        match state.as_str() {
            "CONFIRMED" => {
                line.bar.finish();
                return Ok(());
            }
            "FAILED_FINAL" | "REJECTED" | "CANCELLED" | "EXPIRED" => {
                line.bar.abandon();
                bail!("{} ended as {state}: {}", line.name, plain(&view["failure"]["reason"]));
            }
            _ => {}
        }
        let seq = plain(&view["seq"]);
        // Confirmations are counted when read and have no event of their own: look every second.
        view = client.get(&["tx", &id], &[("wait", "1s"), ("after", &seq)]).await?;
    }
}

/// A view in a line.
fn words(view: &Value) -> String {
    let (state, sub) = (plain(&view["state"]), &view["subState"]);
    let mut text = if sub.is_null() { state } else { format!("{state} {}", plain(sub)) };
    let confirmations = &view["confirmations"];
    if !confirmations.is_null() {
        text.push_str(&format!(" {}/{} confirmations", confirmations["count"], confirmations["required"]));
    }
    if let Some(hash) = view["txHash"].as_str() {
        text.push_str(&format!(" {hash}"));
    }
    text
}
