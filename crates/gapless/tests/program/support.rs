//! Starting the program and asking it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gapless_testkit::process::{Signal, free_port, send};
use gapless_testkit::wait::eventually;
use serde_json::Value;
use tokio::process::{Child, Command};

pub(crate) const KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
pub(crate) const ADDRESS: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
pub(crate) const SINK: &str = "0x000000000000000000000000000000000000dEaD";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program, not started yet.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gapless"));
    command.kill_on_drop(true).stdin(Stdio::null());
    command
}

/// A configuration for a chain, in a folder of its own.
pub(crate) struct Setup {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    client: reqwest::Client,
}

impl Setup {
    pub(crate) fn new(rpc: &str) -> Self {
        Self::through(&[rpc.to_owned()])
    }

    /// On a chain with these endpoints.
    pub(crate) fn through(endpoints: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("key"), KEY).unwrap();
        let text = format!(
            "[node]\nid = \"node-a\"\ndrain_timeout = \"10s\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n\
             [store]\nurl = \"sqlite://{}\"\n[confirmations]\nrequired = 2\n[log]\nformat = \"json\"\n\
             [[chains]]\nid = \"eip155:31337\"\nrpc = {endpoints:?}\n[[submitters]]\nchain = \"eip155:31337\"\n\
             address = \"{ADDRESS}\"\nsigner = {{ private_key_file = \"{}\" }}\n",
            at("gapless.db"),
            at("key"),
        );
        std::fs::write(at("gapless.toml"), text).unwrap();
        // A connection per call: nodes die here, and a kept connection would remember them.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { folder, url: format!("http://127.0.0.1:{port}"), client }
    }

    pub(crate) fn config(&self) -> std::path::PathBuf {
        self.folder.path().join("gapless.toml")
    }

    /// A further chain, with the same account on it.
    pub(crate) fn add_chain(&self, number: u64, endpoint: &str) {
        let mut text = std::fs::read_to_string(self.config()).unwrap();
        text += &format!(
            "[[chains]]\nid = \"eip155:{number}\"\nrpc = [\"{endpoint}\"]\n[[submitters]]\n\
             chain = \"eip155:{number}\"\naddress = \"{ADDRESS}\"\nsigner = {{ private_key_file = \"{}\" }}\n",
            self.folder.path().join("key").display(),
        );
        std::fs::write(self.config(), text).unwrap();
    }

    /// Further submitters: of these addresses, the first of which is the second that a phrase gives.
    pub(crate) fn add_submitters(&self, phrase: &str, addresses: &[String]) {
        let phrase_file = self.folder.path().join("phrase");
        std::fs::write(&phrase_file, phrase).unwrap();
        let mut text = std::fs::read_to_string(self.config()).unwrap();
        for (place, address) in (1..).zip(addresses) {
            text += &format!(
                "[[submitters]]\nchain = \"eip155:31337\"\naddress = \"{address}\"\n\
                 signer = {{ mnemonic_file = \"{}\", path = \"m/44'/60'/0'/0/{place}\" }}\n",
                phrase_file.display(),
            );
        }
        std::fs::write(self.config(), text).unwrap();
    }

    /// A node, when it answers. Its log goes to a file of the folder.
    pub(crate) async fn serve(&self, log: &str) -> Child {
        self.serve_with(log, &[]).await
    }

    pub(crate) async fn serve_with(&self, log: &str, env: &[(&str, &str)]) -> Child {
        let child = self.spawn(log, env);
        self.answers().await;
        child
    }

    /// Starts a node and does not wait for anything. A log that is there is gone on with.
    pub(crate) fn spawn(&self, log: &str, env: &[(&str, &str)]) -> Child {
        let path = self.folder.path().join(log);
        let log = std::fs::File::options().create(true).append(true).open(path).unwrap();
        program()
            .args(["serve", "--config"])
            .arg(self.config())
            .envs(env.iter().copied())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Waits until the node answers.
    pub(crate) async fn answers(&self) {
        let up = || async { self.get("/livez").await.map(|_| ()) };
        eventually(PATIENCE, "the node to answer", up).await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Option<(u16, Value)> {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.json().await.unwrap_or(Value::Null)))
    }

    /// An answer that is not JSON.
    pub(crate) async fn text(&self, path: &str) -> Option<String> {
        self.client.get(format!("{}{path}", self.url)).send().await.ok()?.text().await.ok()
    }

    /// What a node has logged so far.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.try_post(path, body).await.unwrap()
    }

    pub(crate) async fn try_post(&self, path: &str, body: &Value) -> reqwest::Result<(u16, Value)> {
        let response = self.client.post(format!("{}{path}", self.url)).json(body).send().await?;
        Ok((response.status().as_u16(), response.json().await.unwrap_or(Value::Null)))
    }
}

/// Follows a transaction to its end.
pub(crate) async fn ended(setup: &Setup, tx_id: &str) -> Value {
    let mut seq = 0;
    for _ in 0..60 {
        let path = format!("/api/v1/tx/{tx_id}?wait=5s&after={seq}");
        let (status, view) = setup.get(&path).await.unwrap();
        assert_eq!(status, 200, "{view}");
        if !matches!(view["state"].as_str(), Some("QUEUED" | "TRACKING")) {
            return view;
        }
        seq = view["seq"].as_u64().unwrap();
    }
    panic!("{tx_id} does not end");
}

/// Sends a signal and waits for the end.
pub(crate) async fn end(mut child: Child, signal: Signal) -> std::process::ExitStatus {
    send(i32::try_from(child.id().unwrap()).unwrap(), signal).unwrap();
    tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap()
}

/// Lines of a log that hold a text.
pub(crate) fn lines_with(file: &Path, text: &str) -> Vec<String> {
    let log = std::fs::read_to_string(file).unwrap();
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}
