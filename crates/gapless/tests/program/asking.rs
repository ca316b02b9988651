//! The commands that ask why, and those that ask for something, over a running node.

use std::time::Duration;

use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::process::Signal;
use serde_json::Value;

use crate::support::{ADDRESS, SINK, Setup, end, program};

#[tokio::test]
async fn the_client_explains_lists_nonces_and_commands() {
    let block_time = Some(Duration::from_secs(1));
    let anvil = Anvil::start(AnvilOptions { block_time, ..AnvilOptions::default() }).await.unwrap();
    let setup = Setup::new(&anvil.url());
    let node = setup.serve("node.log").await;
    let ask = async |args: &[&str]| {
        let output = program().args(args).env("GAPLESS_URL", &setup.url).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
    };
    let (code, told, _) = ask(&["submitter", "nonces", ADDRESS]).await;
    assert_eq!((code, told.lines().count()), (Some(0), 1), "only the heading: {told}");

    let send = ["--json", "tx", "send", "--submitter", ADDRESS, "--request-id", "one", "--to", SINK];
    let (code, told, said) = ask(&[&send[..], &["--value", "3", "--watch"]].concat()).await;
    assert_eq!(code, Some(0), "{said}");
    let view: Value = serde_json::from_str(&told).unwrap();
    let (id, hash) = (view["txId"].as_str().unwrap(), view["txHash"].as_str().unwrap());

    let (code, told, said) = ask(&["tx", "explain", id]).await;
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(told.starts_with("Confirmed: It was mined in block ") && told.contains(hash), "{told}");
    assert!(told.contains("next: Nothing: it has ended."), "{told}");
    let (_, told, _) = ask(&["tx", "explain", id, "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["reason"], "Confirmed");

    let (code, told, _) = ask(&["submitter", "nonces", ADDRESS]).await;
    assert_eq!((code, told.lines().count()), (Some(0), 2), "{told}");
    let line = told.lines().nth(1).unwrap();
    assert!(line.starts_with("0 ") && line.contains("resolved") && line.contains(hash), "{told}");
    let (_, told, _) = ask(&["submitter", "nonces", ADDRESS, "--from", "0", "--to", "1", "--json"]).await;
    let page: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&page["items"][0]["txId"], &page["items"][0]["status"]), (&view["txId"], &"resolved".into()));
    let (code, told, said) = ask(&["submitter", "nonces", ADDRESS, "--from", "3", "--to", "1"]).await;
    assert!(code == Some(1) && told.is_empty() && said.contains("invalid-request"), "{said}");

    let fee = ["--max-fee-per-gas", "1"];
    for args in [vec!["tx", "cancel", id], [&["tx", "replace", id][..], &fee].concat()] {
        let (code, told, said) = ask(&args).await;
        assert!(code == Some(1) && told.is_empty() && said.contains("already-final"), "{args:?}: {said}");
    }
    for args in
        [&["tx", "replace", id][..], &["tx", "cancel"], &["submitter", "nonces", ADDRESS, "--from", "x"]]
    {
        assert_eq!(ask(args).await.0, Some(2), "{args:?}");
    }
    assert!(end(node, Signal::SIGTERM).await.success());
}

#[tokio::test]
async fn the_document_and_the_completions_need_no_node() {
    let run = async |args: &[&str]| {
        let output = program().args(args).output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, told) = run(&["openapi"]).await;
    let document: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &document["openapi"]), (Some(0), &"3.1.0".into()));
    for shell in ["bash", "zsh", "fish"] {
        let (code, told) = run(&["completions", shell]).await;
        assert!(code == Some(0) && told.contains("reset-nonce"), "{shell}: {told}");
    }
    assert_eq!(run(&["completions", "abacus"]).await.0, Some(2));
}
