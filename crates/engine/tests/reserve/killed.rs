//! A process that is killed in the middle of its closure: whoever goes on finds no hole.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use gapless_core::ids::Nonce;
use gapless_testkit::anvil::Anvil;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::{Node, instant, named, quick, sqlite, submitter};

fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/with_nonce");
    assert!(program.exists(), "{} is not built: cargo build --example with_nonce", program.display());
    program
}

fn run(anvil: &Anvil, file: &Path, words: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(program())
        .arg(anvil.url())
        .arg(file)
        .args(words)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_in_its_closure_leaves_no_hole() {
    let (folder, anvil) = (tempfile::tempdir().unwrap(), instant().await);
    let file = folder.path().join("gapless.db");
    let (mut child, mut says) = run(&anvil, &file, &["order-1", "hold"]);
    assert_eq!(says.next_line().await.unwrap().as_deref(), Some("nonce 0"));
    child.start_kill().unwrap();
    child.wait().await.unwrap();

    // Asked again, it is the same request, and its nonce was given to a process that is dead.
    let (mut child, mut says) = run(&anvil, &file, &["order-1"]);
    assert_eq!(says.next_line().await.unwrap().as_deref(), Some("order-1 reservation-expired"));
    child.wait().await.unwrap();
    let (mut child, mut says) = run(&anvil, &file, &["order-2"]);
    let nonce = says.next_line().await.unwrap().unwrap();
    assert!(nonce.starts_with("nonce "), "{nonce}");
    assert_eq!(says.next_line().await.unwrap().as_deref(), Some("order-2 CONFIRMED"));
    assert!(child.wait().await.unwrap().success());

    let node = Node::start(sqlite(folder.path()).await, &anvil, quick()).await;
    let used = node.handle.submitter(&submitter()).await.unwrap().next_nonce.unwrap();
    assert!(used <= Nonce(2));
    node.run_has_no_hole(&anvil, used.0).await;
    let dead = node.handle.by_request(&submitter(), &named("order-1").request_id).await.unwrap();
    assert_eq!(dead.failure.unwrap().code.as_str(), "reservation-expired");
    let receiver = "0x5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";
    assert_eq!(anvil.rpc("eth_getBalance", json!([receiver, "latest"])).await.unwrap(), "0x1", "paid once");
    node.stopped().await;
}
