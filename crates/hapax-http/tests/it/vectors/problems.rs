//! Vectors of problems: the codes, and complete responses.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use axum::{body::Body, response::IntoResponse};
use hapax::{
    idempotency::{OnExpired, OnFailure},
    limits::RETENTION,
};
use hapax_http::{
    Problem, Settings,
    problem::{self, Code},
};
use hapax_testkit::vectors::{Data, Vectors};
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};

use super::profile;
use crate::stage::{Sent, Stage, post_json, send};

/// The key of the requests: a UUID v7, for the profile that requires one.
const KEY: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";

/// The headers that are compared.
const HEADERS: [&str; 4] = [
    "content-type",
    "idempotency-key",
    "idempotency-status",
    "retry-after",
];

static CODES: [Code; 31] = [
    problem::KEY_INVALID,
    problem::KEY_MISSING,
    problem::REQUEST_TIMEOUT_INVALID,
    problem::JSON_INVALID,
    problem::MULTIPART_INVALID,
    problem::BODY_INCOMPLETE,
    problem::MEMBER_INVALID,
    problem::BODY_TOO_LARGE,
    problem::CONTENT_TYPE,
    problem::REQUEST_INVALID,
    problem::METHOD,
    problem::NOT_FOUND,
    problem::AUTH_MISSING,
    problem::AUTH_INVALID,
    problem::AUTH_FORBIDDEN,
    problem::AUTH_SIGNATURE,
    problem::PAYLOAD_MISMATCH,
    problem::IN_PROGRESS,
    problem::OUTCOME_UNKNOWN,
    problem::EXPIRED,
    problem::INBOX_MISMATCH,
    problem::PRECONDITION,
    problem::CONFLICT,
    problem::RATE_LIMIT,
    problem::QUOTA,
    problem::TIMEOUT,
    problem::UNAVAILABLE,
    problem::INTERNAL,
    problem::STATEMENT,
    problem::MISUSE,
    problem::RESPONSE_TOO_LARGE,
];

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Name {
    code: String,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Defaults {
    #[serde(rename = "type")]
    page: String,
    title: String,
    status: u16,
    retryable: bool,
}

#[tokio::test]
async fn the_vectors_of_problem_codes_hold() {
    let vectors: Vectors<Name, Defaults> = Vectors::load("problem-codes.json");
    let names: BTreeSet<_> = vectors.inputs().map(|name| &*name.code).collect();
    let codes: BTreeSet<_> = CODES.iter().map(Code::name).collect();
    assert_eq!(names, codes, "the file has every code");
    let mut results = Vec::new();
    for name in vectors.inputs() {
        let code = CODES.iter().find(|code| code.name() == name.code);
        let response = Problem::new(*code.unwrap()).into_response();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        results.push(serde_json::from_slice(&body).unwrap());
    }
    vectors.check(results);
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    situation: String,
    profile: String,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

#[tokio::test]
async fn the_vectors_of_problems_hold() {
    let vectors: Vectors<Situation, Answer> = Vectors::load("problems.json");
    let mut results = Vec::new();
    for input in vectors.inputs() {
        results.push(answer(&provoke(input).await));
    }
    vectors.check(results);
}

fn answer(sent: &Sent) -> Answer {
    let header = |name: &str| Some((name.to_owned(), sent.header(name)?.to_owned()));
    Answer {
        status: sent.status.as_u16(),
        headers: HEADERS.into_iter().filter_map(header).collect(),
        body: String::from_utf8(sent.body.clone()).unwrap(),
    }
}

/// Brings the situation about and returns its response.
async fn provoke(input: &Situation) -> Sent {
    let profile = profile(&input.profile);
    let with =
        |settings: fn(&mut Settings)| Stage::with(settings, move |layer| layer.profile(profile));
    let plain: fn(&mut Settings) = |_| {};
    match &*input.situation {
        "key missing" => {
            let required = |layer: hapax_http::OperationLayer<_>| layer.profile(profile).required();
            let stage = Stage::with(plain, required).await;
            stage.send(named("", "{}")).await
        }
        "key twice" => {
            let mut request = named("k", "{}");
            let second = HeaderValue::from_static("k");
            request.headers_mut().append("idempotency-key", second);
            with(plain).await.send(request).await
        }
        "key with a space" => with(plain).await.send(named("a b", "{}")).await,
        "key reserved" => with(plain).await.send(named("derived:a", "{}")).await,
        "key not a UUID v7" => with(plain).await.send(named("k", "{}")).await,
        "mismatch" => {
            let stage = with(plain).await;
            stage.post(KEY, "{}").await;
            stage.send(named(KEY, "{\"answer\":202}")).await
        }
        "in progress" => in_progress(&with(|it| it.wait = Duration::from_millis(20)).await).await,
        "expired" => {
            let stage = with(|it| it.on_expired = OnExpired::Gone).await;
            stage.post(KEY, "{}").await;
            stage.pass(RETENTION + Duration::from_secs(1));
            stage.send(named(KEY, "{}")).await
        }
        "JSON cut off" => with(plain).await.send(named(KEY, "{\"a\":")).await,
        "JSON with a duplicate member" => {
            let stage = with(plain).await;
            stage.send(named(KEY, "{\"a\":1,\"a\":2}")).await
        }
        "JSON nested too deep" => with(plain).await.send(named(KEY, &"[".repeat(129))).await,
        "JSON with too many members" => {
            let body = Data::Members { members: 10_001 }.bytes();
            let body = String::from_utf8(body).unwrap();
            with(plain).await.send(named(KEY, &body)).await
        }
        "multipart without a boundary" => {
            let mut request = named(KEY, "--a--");
            let multipart = HeaderValue::from_static("multipart/form-data");
            request.headers_mut().insert("content-type", multipart);
            with(plain).await.send(request).await
        }
        "handler fails" => with(plain).await.send(named(KEY, PANIC)).await,
        "handler fails and the failure is stored" => {
            let stage = with(|it| it.on_failure = OnFailure::Store).await;
            stage.send(named(KEY, PANIC)).await
        }
        "handler takes too long" => {
            let stage = with(|it| it.handler_max = Duration::from_millis(200)).await;
            stage.send(named(KEY, "{\"act\":\"hang\"}")).await
        }
        "store unavailable" => {
            let stage = with(plain).await;
            stage.lose_the_keys().await;
            stage.send(named(KEY, "{}")).await
        }
        other => panic!("unknown situation {other}"),
    }
}

const PANIC: &str = "{\"act\":\"panic\"}";

async fn in_progress(stage: &Stage) -> Sent {
    let gated = "{\"act\":\"gate\"}";
    let first = post_json("/effects", KEY, gated);
    let first = tokio::spawn(send(stage.router.clone(), first));
    stage.entered(1).await;
    let second = stage.send(named(KEY, gated)).await;
    stage.props.gate.add_permits(1);
    assert_eq!(first.await.unwrap().idempotency(), Some("stored"));
    second
}

/// A request with the id that the vectors have.
fn named(key: &str, body: &str) -> Request<Body> {
    let mut request = post_json("/effects", key, body);
    let id = HeaderValue::from_static("req-1");
    request.headers_mut().insert("x-request-id", id);
    request
}
