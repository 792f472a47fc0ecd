//! Tests of `hapax relay` with the database of a service in Python, which contains no Rust.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use bytes::Bytes;
use hapax_testkit::{
    http::{HttpClient, HttpReceiver},
    port::free_port,
    postgres::Database,
    wait::eventually,
};

use crate::hapax::{PATIENCE, Relay, migrate, webhook};

const JSON: (&str, &str) = ("content-type", "application/json");
const TABLES: &str = include_str!("../../../../examples/sql-contract/migrations/0001_shop.sql");

#[tokio::test]
async fn the_events_of_a_service_in_python_are_delivered() {
    let database = Database::fresh().await;
    migrate(&database.url());
    database.client().await.batch_execute(TABLES).await.unwrap();
    let receiver = HttpReceiver::start().await;
    let service = Service::start(&database.url());
    let relay = Relay::start(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    let order = |key: &'static str| {
        let url = format!("{}/orders", service.url);
        async move {
            let body = Bytes::from_static(br#"{"item":"tea","amount":5}"#);
            HttpClient::new()
                .post(&url, &[JSON, ("idempotency-key", key)], body)
                .await
        }
    };
    eventually(PATIENCE, async || {
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

/// The service of the example as a separate process. Dropping it kills the process.
struct Service {
    child: Child,
    url: String,
}

impl Service {
    fn start(database: &str) -> Self {
        let port = free_port().to_string();
        let sources =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sql-contract/python");
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("beside_python.log");
        let log = File::create(log).unwrap();
        let mut command = Command::new("python3");
        command
            .args([
                "-m",
                "uvicorn",
                "app:app",
                "--no-access-log",
                "--port",
                &port,
            ])
            .current_dir(sources)
            .env("PYTHONPATH", packages())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("DATABASE_URL", database)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Self {
            child: command.spawn().unwrap(),
            url: format!("http://127.0.0.1:{port}"),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The folder with the Python packages of the example, which `cargo x contract` installs.
fn packages() -> PathBuf {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../sql-contract/python");
    let there = packages.join("installed").exists();
    assert!(
        there,
        "the packages of the examples are not installed: run `cargo x contract` once"
    );
    packages.canonicalize().unwrap()
}
