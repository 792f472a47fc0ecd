//! Vectors of what is stored: by the status of a response, and which of its headers.

use axum::{Router, body::Body, response::Response, routing::post};
use hapax::idempotency::{OnFailure, StoredResponse};
use hapax_testkit::vectors::{Data, Vectors};
use http::{HeaderName, Request, StatusCode};
use serde::{Deserialize, Serialize};

use super::{line, profile};
use crate::stage::{Stage, send};

/// The response headers that the layers set, or that axum computes.
const OWN: [&str; 4] = [
    "idempotency-key",
    "idempotency-status",
    "x-request-id",
    "content-length",
];

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    status: u16,
    headers: Vec<(String, Data)>,
    per_request: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Headers {
    stored: Vec<(String, Data)>,
    first_only: Vec<(String, Data)>,
}

#[tokio::test]
async fn the_vectors_of_stored_headers_hold() {
    let vectors: Vectors<Answer, Headers> = Vectors::load("stored-headers.json");
    let stage = Stage::new().await;
    let mut results = Vec::new();
    for (number, answer) in vectors.inputs().enumerate() {
        let key = format!("k{number}");
        results.push(headers(&stage, key, answer).await);
    }
    vectors.check(results);
}

async fn headers(stage: &Stage, key: String, answer: &Answer) -> Headers {
    let per_request = answer.per_request.iter();
    let per_request = per_request.map(|name| name.parse::<HeaderName>().unwrap());
    let operation = stage.idempotency.operation("/headers");
    let layer = operation.per_request_headers(per_request);
    let status = StatusCode::from_u16(answer.status).unwrap();
    let lines: Vec<_> = answer.headers.iter().map(line).collect();
    let handler = move || {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        for (name, value) in lines {
            response.headers_mut().append(name, value);
        }
        std::future::ready(response)
    };
    let router = Router::new().route("/headers", post(handler).layer(layer));
    let request = Request::post("/headers").header("idempotency-key", &key);
    let request = request.body(Body::empty()).unwrap();
    let sent = send(stage.named(router), request).await;
    assert_eq!(sent.idempotency(), Some("stored"), "{answer:?}");
    let block = stage.store.read(move |db| {
        let sql = "SELECT response_headers FROM hapax_idempotency_key WHERE key = ?1";
        db.query_row(sql, [key], |row| row.get::<_, Vec<u8>>(0))
    });
    let stored = StoredResponse::parse_header_block(&block.await.unwrap()).unwrap();
    let stored = sorted(stored.iter().map(|(name, value)| (&**name, &**value)));
    let lines = sent.headers.iter();
    let lines = lines.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let is_first_only = |name: &str| {
        let is_stored = stored.iter().any(|(stored, _)| stored == name);
        !is_stored && !OWN.contains(&name)
    };
    let first_only = sorted(lines.filter(|(name, _)| is_first_only(name)));
    Headers { stored, first_only }
}

/// Header lines, sorted by name. The values of one name keep their order.
fn sorted<'a>(lines: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<(String, Data)> {
    let lines = lines.map(|(name, value)| (name.to_owned(), Data::of(value)));
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by(|(first, _), (second, _)| first.cmp(second));
    lines
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Service {
    profile: String,
    on_failure: String,
    statuses: Vec<u16>,
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ByStatus {
    with_effect: Vec<u16>,
    effect_free: Vec<u16>,
    released: Vec<u16>,
}

#[tokio::test]
async fn the_vectors_of_what_is_stored_by_status_hold() {
    let vectors: Vectors<Service, ByStatus> = Vectors::load("stored-by-status.json");
    let mut results = Vec::new();
    for service in vectors.inputs() {
        results.push(by_status(service).await);
    }
    vectors.check(results);
}

async fn by_status(service: &Service) -> ByStatus {
    let on_failure = match &*service.on_failure {
        "release" => OnFailure::Release,
        "store" => OnFailure::Store,
        other => panic!("unknown setting {other}"),
    };
    let profile = profile(&service.profile);
    let layer = |layer: hapax_http::OperationLayer<_>| layer.profile(profile);
    let stage = Stage::with(|it| it.on_failure = on_failure, layer).await;
    let mut found = ByStatus::default();
    for status in &service.statuses {
        // A UUID v7, for the profile that requires one.
        let key = format!("017f22e2-79b0-7cc3-98c4-{status:012}");
        let before = stage.effects().await;
        let sent = stage.post(&key, &format!("{{\"answer\":{status}}}")).await;
        assert_eq!(sent.status.as_u16(), *status, "{service:?}");
        let has_effect = stage.effects().await > before;
        let list = match (sent.idempotency(), has_effect) {
            (Some("stored"), true) => &mut found.with_effect,
            (Some("stored"), false) => &mut found.effect_free,
            (None, false) => &mut found.released,
            other => panic!("{status} is {other:?}"),
        };
        list.push(*status);
    }
    found
}
