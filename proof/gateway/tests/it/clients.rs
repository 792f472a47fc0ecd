//! Clients that other people have written: curl, Node's HTTP/2, and httpx.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use hapax_testkit::{certify::certify, program::succeed};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    gateway::{Gateway, Home, Store, configuration},
    upstream::{Upstream, python, script},
};

/// A gateway with a listener for TLS, and the file of its authority.
struct Encrypted {
    gateway: Gateway,
    folder: TempDir,
}

impl Encrypted {
    async fn before(upstream: &Upstream) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certify(folder.path(), "localhost").unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let tls = format!(
            "listen = \"LISTEN\"\ntls = {{ certificate = {:?}, key = {:?} }}",
            path("server.pem"),
            path("server.key")
        );
        let plain = configuration(upstream.address(), "");
        let settings = plain.replace("listen = \"LISTEN\"", &tls);
        let home = Home::fresh(Store::Sqlite).await;
        let gateway = Gateway::start(&home, &settings).await;
        Self { gateway, folder }
    }

    fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.gateway.address().port())
    }
}

#[tokio::test]
async fn curl_gets_its_answer_again_over_each_protocol() {
    let upstream = Upstream::python();
    let plain = Gateway::before(upstream.address()).await;
    let encrypted = Encrypted::before(&upstream).await;
    let url = format!("http://{}", plain.address());
    let authority = encrypted.authority().display().to_string();
    let tls = ["--cacert", &authority];
    let ways = [
        ("1.1", url.clone(), vec!["--http1.1"]),
        ("2", url.clone(), vec!["--http2-prior-knowledge"]),
        // An upgrade to HTTP/2 is not offered, so the client stays with HTTP/1.1.
        ("1.1", url, vec!["--http2"]),
        ("1.1", encrypted.url(), [&tls[..], &["--http1.1"]].concat()),
        ("2", encrypted.url(), [&tls[..], &["--http2"]].concat()),
    ];
    for (number, (version, url, arguments)) in ways.into_iter().enumerate() {
        let key = format!("curl-{number}");
        let first = curl(&url, &key, &arguments).await;
        let again = curl(&url, &key, &arguments).await;
        for (answer, said) in [(&first, "stored"), (&again, "replayed")] {
            let last = answer.lines().next_back().unwrap_or_default();
            let expected = format!("201 {version} {said}; upstream=opaque");
            assert_eq!(last, expected, "{arguments:?}: {answer}");
        }
        assert_eq!(first.lines().next(), again.lines().next(), "{arguments:?}");
        assert_eq!(upstream.lines_of(&key).len(), 1, "{arguments:?}");
    }
}

/// Sends an order with curl. Returns the body, and a line with status, version and the mark of Hapax.
async fn curl(url: &str, key: &str, arguments: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--noproxy",
        "*",
        "--max-time",
        "20",
    ])
    .args(arguments)
    .args(["--header", &format!("Idempotency-Key: {key}")])
    .args(["--json", &format!(r#"{{"for": "{key}"}}"#)])
    .args([
        "--write-out",
        "\n%{http_code} %{http_version} %header{idempotency-status}",
    ])
    .arg(format!("{url}/orders"));
    let output = succeed(curl).await;
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn streams_of_node_on_one_connection_are_each_answered_once() {
    let upstream = Upstream::python();
    let plain = Gateway::before(upstream.address()).await;
    let encrypted = Encrypted::before(&upstream).await;
    let url = format!("http://{}", plain.address());
    let authority = encrypted.authority().display().to_string();
    for (prefix, url, more) in [("h2c", url, None), ("h2", encrypted.url(), Some(authority))] {
        let keys: Vec<String> = (0..20).map(|number| format!("{prefix}-{number}")).collect();
        let mut node = Command::new("node");
        node.arg(script("clients/http2.mjs"));
        node.args([url, keys.join(",")]).args(more);
        let said = run(node).await;
        check(&said, &keys, &upstream);
    }
}

#[tokio::test]
async fn httpx_over_http2_gets_its_answers_again_and_streams_both_ways() {
    let upstream = Upstream::python();
    let encrypted = Encrypted::before(&upstream).await;
    let keys: Vec<String> = (0..5).map(|number| format!("httpx-{number}")).collect();
    let mut python = python("clients/http2.py");
    python.args([encrypted.url(), keys.join(",")]);
    python.arg(encrypted.authority());
    let said = run(python).await;
    check(&said, &keys, &upstream);
    assert_eq!(said["first"][0]["version"], "HTTP/2", "{said}");
    assert_eq!(said["uploaded"], 4 << 20, "{said}");
    assert_eq!(said["downloaded"], 4 << 20, "{said}");
}

async fn run(mut command: Command) -> Value {
    command.stdin(Stdio::null());
    let output = succeed(command).await;
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that each key was answered with the same bytes twice, and acted once.
fn check(said: &Value, keys: &[String], upstream: &Upstream) {
    for (number, key) in keys.iter().enumerate() {
        let (first, again) = (&said["first"][number], &said["again"][number]);
        for (answer, mark) in [(first, "stored"), (again, "replayed")] {
            assert_eq!(answer["key"], key.as_str(), "{said}");
            assert_eq!(answer["status"], 201, "{said}");
            assert_eq!(answer["said"], format!("{mark}; upstream=opaque"), "{said}");
        }
        assert_eq!(first["body"], again["body"], "{key}");
        assert_eq!(upstream.lines_of(key).len(), 1, "{key}");
    }
}
