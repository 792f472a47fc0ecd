//! Tests of live updates, which are sent to a limited number of watchers.

use std::time::Duration;

use http::Method;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::scene::{ALICE, OPERATOR, Scene};

/// The maximum number of watchers of a console.
const LIVE_MAX: usize = 64;
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that receives live updates.
struct Watcher(BufReader<TcpStream>);

impl Watcher {
    async fn open(scene: &Scene, cookie: &str) -> Self {
        let mut stream = TcpStream::connect(scene.address).await.unwrap();
        let host = scene.address;
        let asked = format!(
            "GET /console/live HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        Self(BufReader::new(stream))
    }

    /// Waits until the server closes the connection.
    async fn ends(&mut self) {
        let outcome = async { while self.line("data: ").await.is_some() {} };
        timeout(PATIENCE, outcome)
            .await
            .expect("the connection must be closed in time");
    }

    /// Returns the next line with this prefix, or `None` if the connection is closed first.
    async fn line(&mut self, begin: &str) -> Option<String> {
        let mut line = String::new();
        let reading = async {
            loop {
                line.clear();
                if self.0.read_line(&mut line).await.unwrap() == 0 {
                    return None;
                }
                if line.starts_with(begin) {
                    return Some(line.clone());
                }
            }
        };
        timeout(PATIENCE, reading)
            .await
            .expect("the update must arrive in time")
    }
}

#[tokio::test]
async fn live_figures_end_with_the_session_or_the_server() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let mut watcher = Watcher::open(&scene, ops.cookie()).await;
    let outcome = watcher.line("data: ").await.unwrap();
    let outcome: serde_json::Value =
        serde_json::from_str(outcome.trim_start_matches("data: ")).unwrap();
    let why = outcome["why"].as_str().unwrap();
    assert!(
        why.contains("behind dead letter") || why.contains("Behind dead letter"),
        "{why}"
    );
    assert!(!why.contains("<script>"));
    assert!(outcome["figures"].as_str().unwrap().contains("<svg"));
    let csrf_token = crate::scene::seal_of(&ops.get("/console").await);
    ops.post("/console/logout", &format!("seal={csrf_token}"))
        .await;
    watcher.ends().await;

    let again = scene.sign_in(OPERATOR).await;
    let mut watcher = Watcher::open(&scene, again.cookie()).await;
    watcher.line("data: ").await.unwrap();
    scene.console.close();
    watcher.ends().await;
}

#[tokio::test]
async fn a_tenant_sees_only_its_own_rows_whoever_else_watches() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let alice = scene.sign_in(ALICE).await;
    let others = ["globex", "turtle", "hooks", "held"];
    for (browser, is_told) in [(&ops, true), (&alice, false), (&ops, true)] {
        let mut watcher = Watcher::open(&scene, browser.cookie()).await;
        let outcome = watcher.line("data: ").await.unwrap();
        let found: Vec<_> = others
            .into_iter()
            .filter(|it| outcome.contains(it))
            .collect();
        assert_eq!(!found.is_empty(), is_told, "{found:?}: {outcome}");
    }
}

#[tokio::test]
async fn one_viewer_too_many_is_asked_to_retry() {
    let scene = Scene::local().await;
    let mut watchers = Vec::new();
    for _ in 0..LIVE_MAX {
        let mut watcher = Watcher::open(&scene, "").await;
        assert!(watcher.line("HTTP/1.1 ").await.unwrap().contains("200"));
        watchers.push(watcher);
    }
    let answer = scene.send(Method::GET, "/console/live", &[], "").await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    assert_eq!(
        scene.send(Method::GET, "/console", &[], "").await.status,
        200
    );
    drop(watchers);
    hapax_testkit::wait::eventually(PATIENCE, async || {
        let mut watcher = Watcher::open(&scene, "").await;
        watcher.line("HTTP/1.1 ").await.unwrap().contains("200")
    })
    .await;
}
