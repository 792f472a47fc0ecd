//! Starts a provider as a separate process, with a ledger that survives its restarts.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use hapax_testkit::http::{HttpAnswer, HttpClient};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running provider.
pub(crate) struct Provider {
    child: Child,
    program: &'static str,
    url: String,
    client: HttpClient,
    folder: TempDir,
}

impl Provider {
    /// Starts a payment provider with an empty ledger.
    pub(crate) fn payment() -> Self {
        Self::start(
            env!("CARGO_BIN_EXE_payment-provider"),
            tempfile::tempdir().unwrap(),
        )
    }

    /// Starts a shipping provider with an empty ledger.
    pub(crate) fn shipping() -> Self {
        Self::start(
            env!("CARGO_BIN_EXE_shipping-provider"),
            tempfile::tempdir().unwrap(),
        )
    }

    fn start(program: &'static str, folder: TempDir) -> Self {
        let (child, url) = spawn(program, folder.path());
        Self {
            child,
            program,
            url,
            client: HttpClient::new(),
            folder,
        }
    }

    /// Kills the provider with SIGKILL, runs `meddle` on its ledger, and starts it again.
    pub(crate) fn killed_and_started_again(&mut self, meddle: impl FnOnce(&Path)) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        meddle(&self.ledger_file());
        (self.child, self.url) = spawn(self.program, self.folder.path());
    }

    pub(crate) fn ledger_file(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// Returns what the provider has written to stderr, across all restarts.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Posts under a key; returns `None` if the response was lost.
    pub(crate) async fn post(&self, path: &str, key: &str, body: Value) -> Option<HttpAnswer> {
        self.post_text(path, &[("idempotency-key", key)], body.to_string())
            .await
    }

    pub(crate) async fn post_text(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Option<HttpAnswer> {
        let url = format!("{}{path}", self.url);
        self.client.post(&url, headers, body).await.ok()
    }

    pub(crate) async fn get(&self, path: &str) -> Option<HttpAnswer> {
        self.client.get(&format!("{}{path}", self.url)).await.ok()
    }

    /// Requests a fault for the next `count` calls of `operation`.
    pub(crate) async fn misbehave(&self, operation: &str, mode: &str, count: u64) {
        let fault = json!({ "operation": operation, "mode": mode, "count": count });
        let outcome = self.post_text("/faults", &[], fault.to_string()).await;
        assert_eq!(outcome.unwrap().status, 200);
    }

    /// Posts under a key, asserts the status of the response, and returns its body.
    pub(crate) async fn told(&self, status: u16, path: &str, key: &str, body: Value) -> Value {
        let answer = self.post(path, key, body).await.unwrap();
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        answer.json().unwrap()
    }

    /// Returns the entries of the ledger.
    pub(crate) async fn entries(&self) -> Vec<Value> {
        let ledger = self.get("/ledger").await.unwrap().json().unwrap();
        ledger["entries"].as_array().unwrap().clone()
    }

    /// Returns how often an operation was called.
    pub(crate) async fn calls(&self, operation: &str) -> u64 {
        let ledger = self.get("/ledger").await.unwrap().json().unwrap();
        ledger["calls"][operation].as_u64().unwrap_or_default()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A charge of 500.
pub(crate) fn charge(card: &str) -> Value {
    json!({ "card": card, "amount": 500, "currency": "EUR" })
}

fn spawn(program: &str, folder: &Path) -> (Child, String) {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"));
    let mut child = Command::new(program)
        .args(["--listen", "127.0.0.1:0", "--ledger"])
        .arg(folder.join("ledger"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.unwrap())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let url = first.trim_end().strip_prefix("listening on ");
    let url = url.unwrap_or_else(|| panic!("the provider did not start: {first:?}"));
    (child, url.to_owned())
}
