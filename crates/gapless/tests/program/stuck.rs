//! `gapless stuck plan`: what the governor would do, asked of a running node.

use gapless_testkit::anvil::{Anvil, AnvilOptions};
use gapless_testkit::process::Signal;
use gapless_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{ADDRESS, PATIENCE, SINK, Setup, end, program};

#[tokio::test]
async fn the_plan_tells_what_the_governor_would_do_and_changes_nothing() {
    let extra_args = vec!["--no-mining".to_owned()];
    let anvil = Anvil::start(AnvilOptions { extra_args, ..AnvilOptions::default() }).await.unwrap();
    let setup = Setup::new(&anvil.url());
    let steps =
        "[{ after = \"6h\", action = \"bump\", max = 3 }, { after = \"7h\", action = \"placeholder\" }]";
    let env = [
        ("GAPLESS__STUCK__STALL_AFTER", "1s"),
        ("GAPLESS__STUCK__MAX_AGE", "1d"),
        ("GAPLESS__STUCK__STEPS", steps),
    ];
    let node = setup.serve_with("node.log", &env).await;
    let ask = async |args: &[&str]| {
        let output = program().args(args).env("GAPLESS_URL", &setup.url).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
    };
    let (code, told, said) = ask(&["stuck", "plan"]).await;
    assert_eq!((code, told.trim()), (Some(0), "nothing is stuck"), "{said}");

    let body = json!({ "submitter": ADDRESS, "requestId": "r", "payload": { "to": SINK, "value": "1" } });
    let (_, made) = setup.post("/api/v1/tx", &body).await;
    let tx_id = made["txId"].as_str().unwrap();
    let planned = || async {
        let (_, told, _) = ask(&["stuck", "plan"]).await;
        told.contains(tx_id).then_some(told)
    };
    let told = eventually(PATIENCE, "the transaction to stall", planned).await.unwrap();
    let line = told.lines().next().unwrap();
    for part in ["TRACKING", "sent 1 times", "now: keepTrying", "next: bump (steps[0]) at 20"] {
        assert!(line.contains(part), "{part}: {line}");
    }

    let (code, told, said) = ask(&["--json", "stuck", "plan", "--submitter", ADDRESS]).await;
    assert_eq!(code, Some(0), "{said}");
    let plan: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(plan["items"][0]["next"]["action"], "bump", "{plan}");
    let (_, events) = setup.get(&format!("/api/v1/tx/{tx_id}/events")).await.unwrap();
    let last = events["items"].as_array().and_then(|all| all.last()).cloned();
    assert_eq!(last.unwrap()["type"], "tx.submitted", "{events}");
    let (code, _, said) = ask(&["stuck", "plan", "--submitter", "eip155:31337:nobody"]).await;
    assert!(code == Some(1) && said.contains("invalid-request"), "{said}");
    assert_eq!(ask(&["stuck", "plann"]).await.0, Some(2));
    assert!(end(node, Signal::SIGTERM).await.success());
}
