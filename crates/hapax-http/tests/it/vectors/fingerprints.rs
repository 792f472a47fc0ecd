//! Vectors of fingerprints.

use axum::{
    Router,
    body::Body,
    routing::{any, post},
};
use hapax_http::{FingerprintMode, Idempotency, Settings};
use hapax_sqlite::Sqlite;
use hapax_testkit::vectors::{Data, Vectors};
use http::{Method, Request, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Refusal, mode, with_lines};
use crate::stage::{Stage, post_json, send};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Input {
    mode: String,
    service: Option<String>,
    method: String,
    template: String,
    target: String,
    headers: Vec<(String, Data)>,
    body: Data,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Expect {
    Fingerprint(String),
    Problem(Refusal),
}

#[tokio::test]
async fn the_vectors_of_fingerprints_hold() {
    let vectors: Vectors<Input, Expect> = Vectors::load("fingerprint.json");
    let stage = Stage::new().await;
    let mut results = Vec::new();
    for (number, input) in vectors.inputs().enumerate() {
        let key = format!("k{number}");
        results.push(result(&stage, key, input).await);
    }
    vectors.check(results);
}

async fn result(stage: &Stage, key: String, input: &Input) -> Expect {
    let method: Method = input.method.parse().unwrap();
    let operation = idempotency(stage, input.service.clone()).operation(&input.template);
    let operation = operation.fingerprint(mode(&input.mode));
    let layer = match method {
        Method::POST | Method::PATCH => operation,
        _ => operation.also(method.clone()),
    };
    let router = Router::new().route("/{*path}", any(async || "done").layer(layer));
    let request = Request::builder().method(method).uri(&input.target);
    let request = request.header("idempotency-key", &key);
    let request = request.body(Body::from(input.body.bytes())).unwrap();
    let request = with_lines(request, &input.headers);
    let sent = send(stage.named(router), request).await;
    if !sent.status.is_success() {
        return Expect::Problem(Refusal::of(&sent));
    }
    let fingerprint = stage.store.read(move |db| {
        let sql = "SELECT lower(hex(fingerprint)) FROM hapax_idempotency_key WHERE key = ?1";
        db.query_row(sql, [key], |row| row.get(0))
    });
    Expect::Fingerprint(fingerprint.await.unwrap())
}

fn idempotency(stage: &Stage, service: Option<String>) -> Idempotency<Sqlite> {
    let mut settings = Settings::new(stage.clock.clone(), stage.random.clone());
    settings.service = service;
    Idempotency::new(stage.store.clone(), settings)
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    mode: String,
    first: String,
    second: String,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Same {
    equal: bool,
}

#[tokio::test]
async fn the_vectors_of_requests_that_are_the_same_hold() {
    let vectors: Vectors<Pair, Same> = Vectors::load("fingerprint-pairs.json");
    let mut stage = Stage::new().await;
    for mode in FingerprintMode::ALL {
        let path = format!("/{}", mode.as_str());
        let layer = stage.idempotency.operation(&path).fingerprint(mode);
        stage.route(&path, post(async || "done").layer(layer));
    }
    let mut results = Vec::new();
    for (number, pair) in vectors.inputs().enumerate() {
        let (path, key) = (format!("/{}", pair.mode), format!("k{number}"));
        let first = stage.send(post_json(&path, &key, &pair.first)).await;
        assert_eq!(first.idempotency(), Some("stored"), "{pair:?}");
        let second = stage.send(post_json(&path, &key, &pair.second)).await;
        let equal = second.idempotency() == Some("replayed");
        assert!(equal || second.status == StatusCode::CONFLICT, "{pair:?}");
        results.push(Same { equal });
    }
    vectors.check(results);
}
