//! `hapax gateway` as a process: the quick start, a kill, and decisions about unknown outcomes.

use std::{fs, time::Duration};

use hapax_testkit::{
    http::{HttpClient, HttpReceiver, HttpReply, HttpResponse},
    port::free_port,
    postgres::Database,
    program::Program,
    wait::eventually,
};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::hapax::{PATIENCE, hapax, run};

const UNKNOWN: &str = "CONFLICT.idempotency.outcome_unknown";
const OPERATION: &str = "gateway:POST /{*path}";

/// A gateway in front of a receiver.
struct Scene {
    folder: TempDir,
    database: String,
    address: String,
    upstream: String,
    client: HttpClient,
}

impl Scene {
    fn new(upstream: &HttpReceiver) -> Self {
        let folder = TempDir::new().unwrap();
        // The key of a gateway that was killed is free soon.
        fs::write(
            folder.path().join("hapax.toml"),
            "[gateway]\nlease = \"300ms\"\n",
        )
        .unwrap();
        Self {
            database: format!("sqlite:{}", folder.path().join("gateway.db").display()),
            address: format!("127.0.0.1:{}", free_port()),
            upstream: format!("http://{}", upstream.address()),
            client: HttpClient::new(),
            folder,
        }
    }

    /// Starts the gateway, and waits until it listens.
    async fn start(&self) -> Program {
        self.start_with(None).await
    }

    /// Starts the gateway, which is killed when it reaches a failpoint for the nth time.
    #[cfg(debug_assertions)]
    async fn start_at(&self, failpoint: &str, nth: u32) -> Program {
        self.start_with(Some((failpoint, nth))).await
    }

    async fn start_with(&self, failpoint: Option<(&str, u32)>) -> Program {
        let config = self.folder.path().join("hapax.toml");
        let mut command = hapax(&[
            "gateway",
            "--config",
            &config.display().to_string(),
            "--database",
            &self.database,
            "--upstream",
            &self.upstream,
            "--listen",
            &self.address,
        ]);
        if let Some((failpoint, nth)) = failpoint {
            command.env("HAPAX_FAILPOINT", format!("{failpoint}:{nth}"));
        }
        let mut program = Program::start(command, &self.folder.path().join("log"));
        eventually(PATIENCE, async || {
            let has_ended = program.has_ended();
            let is_expected = failpoint.is_some();
            assert!(
                !has_ended || is_expected,
                "the gateway ended: {}",
                program.log()
            );
            has_ended || TcpStream::connect(&self.address).await.is_ok()
        })
        .await;
        program
    }

    async fn post(&self, key: &str) -> Option<HttpResponse> {
        let url = format!("http://{}/orders", self.address);
        let key = [("idempotency-key", key)];
        self.client.post(&url, &key, "{}").await.ok()
    }

    /// The code of the problem that a retry gets.
    async fn code(&self, key: &str) -> String {
        let answer = self.post(key).await;
        let problem = answer.and_then(|answer| answer.json().ok());
        problem.map_or_else(String::new, |problem| {
            problem["code"].as_str().unwrap_or_default().to_owned()
        })
    }
}

#[tokio::test]
async fn the_quick_start_protects_every_post_with_a_key() {
    let upstream = HttpReceiver::start().await;
    upstream.reply(HttpReply::status(201).body("made"));
    let scene = Scene::new(&upstream);
    let mut gateway = scene.start().await;
    let first = scene.post("k").await.unwrap();
    assert_eq!((first.status, first.text()), (201, "made".to_owned()));
    let again = scene.post("k").await.unwrap();
    let status = again.header("idempotency-status");
    assert_eq!(status, Some("replayed; upstream=opaque"));
    assert_eq!(upstream.received().len(), 1);
    gateway.stop().await;
    let mut gateway = scene.start().await;
    assert_eq!(scene.post("k").await.unwrap().body, first.body);
    assert_eq!(upstream.received().len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn it_is_not_ready_while_its_database_refuses_writes() {
    let upstream = HttpReceiver::start().await;
    let database = Database::fresh().await;
    let mut scene = Scene::new(&upstream);
    scene.database = database.url();
    let health = format!("127.0.0.1:{}", free_port());
    let settings = format!("[gateway]\nhealth = \"{health}\"\n");
    fs::write(scene.folder.path().join("hapax.toml"), settings).unwrap();
    // This session began before, so it stays able to write.
    let client = database.client().await;
    let mut gateway = scene.start().await;
    let ready = async || {
        let url = format!("http://{health}/readyz");
        let answer = scene.client.get(&url).await.unwrap();
        let status = answer.json().unwrap()["status"].clone();
        (
            answer.status,
            status.as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(ready().await, (200, "ready".to_owned()));
    for (change, expected) in [
        (
            "SET default_transaction_read_only = on",
            (503, "database accepts no writes".to_owned()),
        ),
        (
            "RESET default_transaction_read_only",
            (200, "ready".to_owned()),
        ),
    ] {
        let alter = format!("ALTER DATABASE {} {change}", database.name());
        client.batch_execute(&alter).await.unwrap();
        if expected.0 == 503 {
            // The setting applies to new sessions. Those that are read-only are closed by the gateway.
            database.terminate_backends("hapax").await;
        }
        eventually(PATIENCE, async || ready().await == expected).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_is_killed_leaves_an_unknown_outcome_that_can_be_decided() {
    let upstream = HttpReceiver::start().await;
    upstream.reply(HttpReply::status(201).after(Duration::from_hours(1)));
    let scene = Scene::new(&upstream);
    let mut gateway = scene.start().await;
    let waiting = scene.post("k");
    tokio::select! {
        answer = waiting => panic!("the service does not respond: {answer:?}"),
        _ = upstream.received_at_least(1) => gateway.kill(),
    }
    upstream.reply(HttpReply::status(201).body("made"));
    let mut gateway = scene.start().await;
    eventually(PATIENCE, async || scene.code("k").await == UNKNOWN).await;
    assert_eq!(upstream.received().len(), 1);

    let database = ["--database", &scene.database];
    let list = ["gateway", "unknown", "list", "--json"];
    let listed = run(&[&list[..], &database].concat()).ended(0).json();
    let item = &listed["items"][0];
    assert_eq!(
        (&item["key"], &item["reason"]),
        (&"k".into(), &"stopped".into())
    );
    let show = ["gateway", "unknown", "show", OPERATION, "k"];
    let shown = run(&[&show[..], &database].concat());
    assert!(shown.ended(0).stdout.contains("stopped"));

    let decide = [
        "gateway",
        "unknown",
        "decide",
        OPERATION,
        "k",
        "--did-not-happen",
        "--reason",
        "no row",
        "--yes",
    ];
    let shown = run(&[&show[..], &["--json"], &database].concat());
    let shown = shown.ended(0).json();
    // A retry that is refused in the meantime does not prevent the decision.
    assert_eq!(scene.code("k").await, UNKNOWN);
    let seen = ["--if-version", shown["version"].as_str().unwrap()];
    run(&[&decide[..], &seen, &database].concat()).ended(0);
    let again = scene.post("k").await.unwrap();
    assert_eq!((again.status, again.text()), (201, "made".to_owned()));
    assert_eq!(upstream.received().len(), 2);
    run(&[&decide[..], &database].concat()).ended(3);
    gateway.stop().await;
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_gateway_that_dies_anywhere_sends_no_request_twice() {
    for failpoint in [
        "gateway.send.before",
        "gateway.send.after",
        "gateway.response.read",
    ] {
        let upstream = HttpReceiver::start().await;
        upstream.reply(HttpReply::status(201).body("made"));
        let scene = Scene::new(&upstream);
        let mut gateway = scene.start_at(failpoint, 1).await;
        assert!(scene.post("k").await.is_none(), "{failpoint}");
        gateway.ended().await;
        let sent = upstream.received().len();
        let mut gateway = scene.start().await;
        eventually(PATIENCE, async || scene.code("k").await == UNKNOWN).await;
        assert_eq!(upstream.received().len(), sent, "{failpoint}");
        gateway.stop().await;
    }
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_gateway_that_dies_around_a_commit_sends_a_request_at_most_once() {
    // The commits of a request are that of its key, with the phase `sent`, and that of its response.
    for failpoint in ["sqlite.commit.before", "sqlite.commit.after"] {
        for hit in 1..=2 {
            let upstream = HttpReceiver::start().await;
            upstream.reply(HttpReply::status(201).body("made"));
            let scene = Scene::new(&upstream);
            // The tables exist before, so that only the commits of requests count.
            scene.start().await.stop().await;
            let mut gateway = scene.start_at(failpoint, hit).await;
            let first = scene.post("k").await;
            gateway.kill();
            let mut gateway = scene.start().await;
            eventually(PATIENCE, async || {
                let answer = scene.post("k").await;
                answer.is_some_and(|answer| answer.status == 201)
                    || scene.code("k").await == UNKNOWN
            })
            .await;
            let sent = upstream.received().len();
            assert!(sent <= 1, "{failpoint} {hit}: {first:?}");
            gateway.stop().await;
        }
    }
}

#[tokio::test]
async fn a_configuration_with_an_error_is_refused() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("hapax.toml");
    fs::write(
        &config,
        "[gateway.routes.a]\npath = \"a\"\nupstream = \"b\"\n",
    )
    .unwrap();
    let database = format!("sqlite:{}", folder.path().join("gateway.db").display());
    let config = config.display().to_string();
    let ran = run(&["gateway", "--config", &config, "--database", &database]).ended(2);
    assert!(ran.stderr.contains("gateway.routes.a.upstream"), "{ran:?}");
}
