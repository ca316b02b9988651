//! `gapless dev`: a chain, a node and a few transactions, to look at and to try things on.

mod samples;

use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use std::io::Write;

use crate::anvil::Anvil;
use crate::args::DevOptions;
use crate::config::{self, Config, LogFormat};
use crate::logs;
use crate::node::{Node, told_to_stop};

/// The first two of anvil's well-known development accounts. Everybody has these keys: never fund them elsewhere.
const ACCOUNTS: [(&str, &str); 2] = [
    (
        "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
        "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    ),
    (
        "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    ),
];

/// The chain's id, as everywhere in the examples.
const CHAIN: &str = "eip155:31337";

/// Runs everything until told to stop, or with `--once` until the samples are CONFIRMED.
pub(crate) async fn run(options: &DevOptions) -> anyhow::Result<()> {
    logs::start(LogFormat::Text, "warn,gapless::node=error");
    let stop = told_to_stop();
    tokio::pin!(stop);
    let folder = tempfile::Builder::new().prefix("gapless-dev-").tempdir().context("a temporary folder")?;
    eprintln!("starting a local chain …");
    let chain = tokio::select! {
        chain = Anvil::start(folder.path()) => chain?,
        told = &mut stop => return told,
    };
    let config = configuration(folder.path(), &chain.url(), options)?;
    let node = Node::start(&config).await?;
    let url = format!("http://{}", node.address());
    eprintln!("chain {CHAIN} at {}, Gapless at {url}", chain.url());
    let sent = tokio::select! {
        sent = samples::run(&url) => sent,
        told = &mut stop => told,
    };
    let outcome = match sent {
        Ok(()) if !options.once => {
            say_next(&url, &chain.url());
            stop.await
        }
        other => other,
    };
    node.stop().await;
    drop(chain);
    outcome
}

/// The node's configuration, with the keys in files as they should be.
fn configuration(folder: &Path, rpc: &str, options: &DevOptions) -> anyhow::Result<Config> {
    let listen = free_or_other(options)?;
    let database = folder.join("gapless.db");
    let mut text = format!(
        "[node]\nid = \"dev\"\ndrain_timeout = \"5s\"\n[http]\nlisten = \"{listen}\"\n[store]\nurl = \"sqlite://{}\"\n\
         [confirmations]\nrequired = 2\n[nonce]\nreconcile_interval = \"1s\"\n\
         [[chains]]\nid = \"{CHAIN}\"\nrpc = [\"{rpc}\"]\n",
        database.display()
    );
    for (at, (address, key)) in ACCOUNTS.iter().enumerate() {
        let file = folder.join(format!("test-key-{at}"));
        let mut written = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        written.write_all(key.as_bytes())?;
        text.push_str(&format!(
            "[[submitters]]\nchain = \"{CHAIN}\"\naddress = \"{address}\"\nsigner = {{ private_key_file = \"{}\" }}\n",
            file.display()
        ));
    }
    config::parse(&text, [])
}

/// The port asked for, or any if it is taken: a demonstration should not fail over a number.
fn free_or_other(options: &DevOptions) -> anyhow::Result<std::net::SocketAddr> {
    match std::net::TcpListener::bind(options.listen) {
        Ok(_) => Ok(options.listen),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            eprintln!("{} is taken, choosing another port", options.listen);
            Ok(std::net::SocketAddr::new(options.listen.ip(), 0))
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {}", options.listen)),
    }
}

/// What to do with it.
fn say_next(url: &str, rpc: &str) {
    let (from, to) = (ACCOUNTS[0].0, ACCOUNTS[1].0);
    println!(
        "\nTry it:\n\n  curl -sS {url}/api/v1/tx -H 'content-type: application/json' \\\n    \
         -d '{{\"submitter\":\"{CHAIN}:{from}\",\"requestId\":\"hello-1\",\"payload\":{{\"to\":\"{to}\",\"value\":\"1\"}}}}'\n\n\
         Send the same line twice: it is one transaction. Then:\n\n  \
         transactions  {url}/api/v1/tx\n  events        {url}/api/v1/events\n  submitters    {url}/api/v1/submitters\n  \
         metrics       {url}/metrics\n  chain         {rpc}\n\nStop with Ctrl-C."
    );
}
