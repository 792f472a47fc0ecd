//! Tests of `hapax relay` with the database of a service in Python, which contains no Rust.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use hapax_testkit::{
    http::{HttpClient, HttpReceiver},
    port::free_port,
    program::{Program, packages},
    wait::eventually,
};

use crate::hapax::{PATIENCE, migrated, start_relay, webhook};

const JSON: (&str, &str) = ("content-type", "application/json");
const TABLES: &str = include_str!("../../../../examples/sql-contract/migrations/0001_shop.sql");

#[tokio::test]
async fn the_events_of_a_service_in_python_are_delivered() {
    let database = migrated().await;
    database.client().await.batch_execute(TABLES).await.unwrap();
    let receiver = HttpReceiver::start().await;
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let mut service = start_service(&database.url(), port, folder.path());
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    let order = |key: &'static str| {
        let url = format!("http://127.0.0.1:{port}/orders");
        async move {
            let body = Bytes::from_static(br#"{"item":"tea","amount":5}"#);
            HttpClient::new()
                .post(&url, &[JSON, ("idempotency-key", key)], body)
                .await
        }
    };
    eventually(PATIENCE, async || {
        assert!(!service.has_ended(), "{}", service.log());
        order("k0").await.is_ok_and(|answer| answer.status == 201)
    })
    .await;
    for key in ["k1", "k2", "k1", "k2"] {
        assert_eq!(order(key).await.unwrap().status, 201);
    }
    // A retried request emits no further event.
    let taken = receiver.received_at_least(3).await;
    relay.stop().await;
    assert_eq!(receiver.received().len(), 3);
    for received in taken {
        let body = String::from_utf8(received.body.to_vec()).unwrap();
        assert!(
            body.starts_with(r#"{"type":"order.created""#) && body.contains("tea"),
            "{body}"
        );
    }
}

/// Starts the service of the example as a separate process on this port.
fn start_service(database: &str, port: u16, folder: &Path) -> Program {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sql-contract/python");
    let packages = packages(env!("CARGO_TARGET_TMPDIR"), "sql-contract/python");
    let mut command = Command::new("python3");
    command
        .args(["-m", "uvicorn", "app:app", "--no-access-log", "--port"])
        .arg(port.to_string())
        .current_dir(sources)
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DATABASE_URL", database)
        .stdin(Stdio::null());
    Program::start(command, &folder.join("log"))
}
