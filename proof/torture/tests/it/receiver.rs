//! The receiver of webhooks, which every run relies on: it accepts each event once, and only with a
//! valid signature.

use std::{
    path::Path,
    process::{Child, Command},
};

use hapax::{Timestamp, signature};
use hapax_testkit::{http::HttpClient, port::free_port, wait::Patience};
use serde_json::Value;
use tempfile::TempDir;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"type":"order.created","data":{"id":"ord_1"}}"#;

#[tokio::test]
async fn an_event_that_arrives_twice_has_one_effect() {
    let receiver = Receiver::start().await;
    assert!(receiver.http.get(&receiver.url("/normal")).await.is_ok());
    for _ in 0..2 {
        assert_eq!(receiver.post("ev_1", SECRET).await, Some(204));
    }
    let effects: Vec<_> = receiver
        .ledger("arrived")
        .iter()
        .map(|it| it["effect"] == true)
        .collect();
    assert_eq!(effects, [true, false]);
    assert_eq!(receiver.ledger("responded").len(), 2);
}

#[tokio::test]
async fn an_event_with_another_signature_has_no_effect() {
    let receiver = Receiver::start().await;
    let another = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    assert_eq!(receiver.post("ev_1", another).await, Some(401));
    assert!(receiver.ledger("arrived").is_empty());
    assert_eq!(receiver.ledger("unverified")[0]["id"], "ev_1");
}

#[tokio::test]
async fn a_response_is_lost_after_the_effect_and_recorded() {
    let receiver = Receiver::start().await;
    let is_lost = |line: &&Value| line["mode"] == "response lost" || line["mode"] == "endless body";
    for number in 0..400 {
        let id = format!("ev_{number}");
        if receiver.post(&id, SECRET).await.is_none() {
            let arrived = receiver.ledger("arrived");
            let lost: Vec<_> = arrived.iter().filter(is_lost).collect();
            assert_eq!(lost.len(), 1, "{id}");
            assert_eq!(
                (&lost[0]["id"], &lost[0]["effect"]),
                (&id.into(), &true.into())
            );
            return;
        }
    }
    panic!("no response was lost");
}

struct Receiver {
    child: Child,
    folder: TempDir,
    port: u16,
    http: HttpClient,
}

impl Receiver {
    async fn start() -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracles/receiver.py");
        let this = std::env::current_exe().unwrap();
        let packages = this.ancestors().map(|it| it.join("oracles"));
        let packages = packages.filter(|it| it.is_dir()).last().unwrap();
        let mut python = Command::new("python3");
        python
            .arg(script)
            .env("PYTHONPATH", packages)
            .args(["--secret", SECRET, "--seed", "1"]);
        python.args(["--port", &port.to_string(), "--ledger"]);
        let child = python
            .arg(folder.path().join("hook.jsonl"))
            .spawn()
            .unwrap();
        let receiver = Self {
            child,
            folder,
            port,
            http: HttpClient::new(),
        };
        let patience = Patience::within(std::time::Duration::from_secs(30));
        while receiver
            .http
            .get(&receiver.url("/available"))
            .await
            .is_err()
        {
            patience.pause().await;
        }
        receiver
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sends an event; returns the status of the response, if there is one.
    async fn post(&self, id: &str, secret: &str) -> Option<u16> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the receiver uses the system clock"
        )]
        let seconds = Timestamp::from(std::time::SystemTime::now()).as_secs();
        let signer: signature::Signer = secret.parse().unwrap();
        let signature = signature::sign(id, seconds, BODY.as_bytes(), [&signer]);
        let headers = [
            (signature::ID_HEADER, id),
            (signature::TIMESTAMP_HEADER, &seconds.to_string()),
            (signature::SIGNATURE_HEADER, &signature),
        ];
        let response = self
            .http
            .post(&self.url("/hook"), &headers, BODY.to_owned())
            .await;
        response.ok().map(|it| it.status)
    }

    /// The lines of a kind in its ledger.
    fn ledger(&self, what: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("hook.jsonl")).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["what"] == what).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
