//! `gapless dev`.

use std::process::Stdio;
use std::time::Duration;

use gapless_testkit::process::Signal;
use gapless_testkit::wait::eventually;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, end, program};

#[tokio::test]
async fn dev_once_ends_well_when_the_samples_are_confirmed() {
    let run = program().args(["dev", "--once", "--listen", "127.0.0.1:0"]).output();
    let output = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("6 transactions CONFIRMED"), "{told}");
    for sample in ["sample-0-2", "sample-1-2"] {
        assert!(
            told.lines().any(|line| line.starts_with(sample) && line.contains("CONFIRMED 2/2")),
            "{told}"
        );
    }
}

/// Runs `dev` until it has said what to try, then ends it.
async fn started_and_ended(signal: Signal) {
    let mut child = program()
        .args(["dev", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = String::new();
    let read = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            said.push_str(&line);
            said.push('\n');
            if line.starts_with("Stop with") {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();

    // The line works as printed.
    let curl: String =
        said.lines().skip_while(|line| !line.contains("curl")).take(2).collect::<Vec<_>>().join("\n");
    let mut sent = tokio::process::Command::new("sh")
        .args(["-c", &curl])
        .env("no_proxy", "*")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answer = String::new();
    sent.stdout.take().unwrap().read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"requestId\":\"hello-1\""), "{curl}\n{answer}");

    let chain = said.lines().find_map(|line| line.trim().strip_prefix("chain ")).unwrap().trim();
    let address = chain.strip_prefix("http://").unwrap().to_owned();
    assert!(TcpStream::connect(&address).await.is_ok(), "{address}");
    let status = end(child, signal).await;
    assert_eq!(status.success(), signal != Signal::SIGKILL, "{status}");
    let gone = || async { TcpStream::connect(&address).await.is_err().then_some(()) };
    eventually(Duration::from_secs(10), "the chain to end", gone).await.unwrap();
}

#[tokio::test]
async fn dev_ends_its_chain_when_it_is_stopped() {
    started_and_ended(Signal::SIGINT).await;
}

#[tokio::test]
async fn dev_ends_its_chain_even_when_it_is_killed() {
    started_and_ended(Signal::SIGKILL).await;
}
