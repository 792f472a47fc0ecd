//! Starts a provider as a separate process, with a ledger that survives its restarts.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    program::Program,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running provider.
pub(crate) struct Provider {
    program: Program,
    path: &'static str,
    url: String,
    client: HttpClient,
    folder: TempDir,
}

impl Provider {
    /// Starts a payment provider with an empty ledger.
    pub(crate) fn payment() -> Self {
        Self::start(env!("CARGO_BIN_EXE_payment-provider"))
    }

    /// Starts a shipping provider with an empty ledger.
    pub(crate) fn shipping() -> Self {
        Self::start(env!("CARGO_BIN_EXE_shipping-provider"))
    }

    fn start(path: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (program, url) = start(path, folder.path());
        Self {
            program,
            path,
            url,
            client: HttpClient::new(),
            folder,
        }
    }

    /// Kills the provider with SIGKILL, runs `meddle` on its ledger, and starts it again.
    pub(crate) fn killed_and_started_again(&mut self, meddle: impl FnOnce(&Path)) {
        self.program.kill();
        meddle(&self.ledger_file());
        (self.program, self.url) = start(self.path, self.folder.path());
    }

    pub(crate) fn ledger_file(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// Returns what the provider has written to stderr, across all restarts.
    pub(crate) fn said(&self) -> String {
        self.program.log()
    }

    /// Posts under a key; returns `None` if the response was lost.
    pub(crate) async fn post(&self, path: &str, key: &str, body: Value) -> Option<HttpResponse> {
        self.post_text(path, &[("idempotency-key", key)], body.to_string())
            .await
    }

    pub(crate) async fn post_text(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Option<HttpResponse> {
        let url = format!("{}{path}", self.url);
        self.client.post(&url, headers, body).await.ok()
    }

    pub(crate) async fn get(&self, path: &str) -> Option<HttpResponse> {
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

/// A charge of 500.
pub(crate) fn charge(card: &str) -> Value {
    json!({ "card": card, "amount": 500, "currency": "EUR" })
}

fn start(path: &str, folder: &Path) -> (Program, String) {
    let mut command = Command::new(path);
    command
        .args(["--listen", "127.0.0.1:0", "--ledger"])
        .arg(folder.join("ledger"))
        .stdin(Stdio::null());
    let (program, first) = Program::announced(command, &folder.join("log"));
    let url = first.strip_prefix("listening on ");
    let url = url.unwrap_or_else(|| panic!("the provider did not start: {first:?}"));
    (program, url.to_owned())
}
