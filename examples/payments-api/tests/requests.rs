//! The program, as a client uses it that repeats every request.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

use std::{path::Path, process::Command, time::Duration};

use axum::http::Method;
use hapax_sqlite::rusqlite::Connection;
use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    port::free_port,
    program::Program,
    wait::eventually,
};
use tempfile::TempDir;

const START: Duration = Duration::from_secs(20);
const ORDER: &str = r#"{
    "customerId": "cus_123",
    "amount": 4200,
    "currency": "USD"
  }"#;

/// A running program with its folder.
struct Api {
    client: HttpClient,
    address: String,
    _program: Program,
    folder: TempDir,
}

#[tokio::test]
async fn an_order_that_is_sent_three_times_is_placed_once() {
    let api = Api::start().await;
    let key = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    let first = api.post("/orders", key, ORDER).await;
    assert_eq!(first.status, 201, "{}", first.text());
    for body in [
        ORDER,
        ORDER,
        r#"{"currency":"USD","amount":4200.0,"customerId":"cus_123"}"#,
        r#"{"customerId":"cus_123","amount":4.2e3,"currency":"USD"}"#,
    ] {
        check_replays(&api.post("/orders", key, body).await, &first);
    }
    for other in [
        ORDER.replace("4200", "4201"),
        ORDER.replace("4200", "4200.5"),
        ORDER.replace("4200", "\"4200\""),
        ORDER.replace("USD", "EUR"),
        ORDER.replace("cus_123", "cus_124"),
    ] {
        let other = api.post("/orders", key, &other).await;
        assert_eq!(other.status, 409, "{}", other.text());
    }
    assert_eq!(api.count("placed_order"), 1);
    assert_eq!(api.count("hapax_outbox_event"), 1);
}

#[tokio::test]
async fn a_payment_under_a_readable_key_happens_once() {
    let api = Api::start().await;
    let body = r#"{ "amount": 10000, "currency": "INR" }"#;
    let first = api.post("/payments", "ord-2026-04-1234567", body).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.json().unwrap()["currency"], "INR");
    let again = api.post("/payments", "ord-2026-04-1234567", body).await;
    check_replays(&again, &first);
    let next = api.post("/payments", "ord-2026-04-1234568", body).await;
    assert_eq!(next.status, 201, "{}", next.text());
    assert_eq!(api.count("payment"), 2);
}

#[tokio::test]
async fn a_payment_in_cents_happens_once() {
    let api = Api::start().await;
    let key = "7b36f0d3-4a2d-4f5c-9c77-7f2a7c9c2f2a";
    let body = r#"{ "amountCents": 4999, "currency": "USD" }"#;
    let first = api.post("/api/payments", key, body).await;
    assert_eq!(first.status, 201, "{}", first.text());
    check_replays(&api.post("/api/payments", key, body).await, &first);
    let other = body.replace("4999", "4998");
    let other = api.post("/api/payments", key, &other).await;
    assert_eq!(other.status, 409, "{}", other.text());
    assert_eq!(api.count("payment"), 1);
}

#[tokio::test]
async fn a_payment_without_a_key_or_with_a_bad_amount_is_refused() {
    let api = Api::start().await;
    let body = r#"{ "amount": 10000, "currency": "INR" }"#;
    let bare = api.send(Method::POST, "/payments", None, body).await;
    assert_eq!(bare.status, 400, "{}", bare.text());
    for amount in ["0", "-1", "0.5", "\"1\"", "null"] {
        let bad = body.replace("10000", amount);
        let bad = api.post("/payments", "k", &bad).await;
        assert_eq!(bad.status, 400, "{}", bad.text());
    }
    assert_eq!(api.count("payment"), 0);
}

#[tokio::test]
async fn an_address_that_is_set_ten_times_without_a_key_changes_once() {
    let api = Api::start().await;
    for _ in 0..10 {
        let body = r#"{ "email": "a@b.com" }"#;
        let set = api.send(Method::PUT, "/users/123/email", None, body).await;
        assert_eq!(
            (set.status, set.text().as_str()),
            (200, r#"{"email":"a@b.com"}"#)
        );
    }
    assert_eq!(api.count("user WHERE email = 'a@b.com'"), 1);
    assert_eq!(api.count("hapax_outbox_event"), 1);
}

impl Api {
    async fn start() -> Self {
        let (folder, client) = (tempfile::tempdir().unwrap(), HttpClient::new());
        let address = format!("127.0.0.1:{}", free_port());
        let program = program(folder.path(), &address);
        let url = format!("http://{address}/orders");
        eventually(START, async || client.get(&url).await.is_ok()).await;
        Self {
            client,
            address,
            _program: program,
            folder,
        }
    }

    async fn post(&self, path: &str, key: &str, body: &str) -> HttpResponse {
        self.send(Method::POST, path, Some(key), body).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> HttpResponse {
        let url = format!("http://{}{path}", self.address);
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        let sent = self
            .client
            .send(method, &url, &headers, body.to_owned().into());
        sent.await.unwrap()
    }

    /// The number of rows in the database.
    fn count(&self, rows: &str) -> i64 {
        let database = Connection::open(self.folder.path().join("payments.db")).unwrap();
        let sql = format!("SELECT count(*) FROM {rows}");
        database.query_row(&sql, [], |row| row.get(0)).unwrap()
    }
}

fn program(folder: &Path, address: &str) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payments-api"));
    command.current_dir(folder).arg(address);
    Program::start(command, &folder.join("log"))
}

#[track_caller]
fn check_replays(again: &HttpResponse, first: &HttpResponse) {
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
}
