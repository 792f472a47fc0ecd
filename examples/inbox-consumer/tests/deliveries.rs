//! The program, as its header says to use it: one message, delivered three times.

use std::{process::Command, time::Duration};

use hapax::{Clock, signature};
use hapax_testkit::{http::HttpClient, port::free_port, program::Program, wait::eventually};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"type":"payment.succeeded","data":{"amount":500}}"#;

#[tokio::test]
async fn a_message_that_is_delivered_three_times_counts_once() {
    let (folder, client) = (tempfile::tempdir().unwrap(), HttpClient::new());
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_inbox-consumer"));
    command.current_dir(folder.path()).args([SECRET, &address]);
    let _program = Program::start(command, &folder.path().join("log"));
    let balance = format!("http://{address}/balance");
    eventually(Duration::from_secs(20), async || {
        client.get(&balance).await.is_ok()
    })
    .await;

    let now = Clock::system().now().as_secs();
    let signed = signature::sign("evt_1", now, BODY.as_bytes(), [&SECRET.parse().unwrap()]);
    let timestamp = now.to_string();
    let url = format!("http://{address}/webhooks/bank");
    for delivery in 1..=3 {
        let headers = [
            ("content-type", "application/json"),
            ("webhook-id", "evt_1"),
            ("webhook-timestamp", &timestamp),
            ("webhook-signature", &signed),
        ];
        let response = client.post(&url, &headers, BODY).await.unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        let replayed = response.header("idempotency-status") == Some("replayed");
        assert_eq!(replayed, delivery > 1);
    }
    assert_eq!(client.get(&balance).await.unwrap().text(), "500");
}
