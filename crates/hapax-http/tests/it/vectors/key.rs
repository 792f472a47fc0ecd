//! Vectors of the `Idempotency-Key` header.

use axum::{body::Body, routing::post};
use hapax::key::{IdempotencyKey, parse_header};
use hapax_http::{Profile, problem};
use hapax_testkit::vectors::{Data, Vectors};
use http::{HeaderValue, Request};
use serde::{Deserialize, Serialize};

use super::{Refusal, profile};
use crate::stage::Stage;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Input {
    profile: String,
    values: Vec<Data>,
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    echo: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Refusal>,
}

#[tokio::test]
async fn the_vectors_of_the_key_hold() {
    let vectors: Vectors<Input, Expect> = Vectors::load("idempotency-key.json");
    let mut stage = Stage::new().await;
    for profile in Profile::ALL {
        let path = format!("/{}", profile.as_str());
        let layer = stage.idempotency.operation(&path).profile(profile);
        stage.route(&path, post(async || "done").layer(layer));
    }
    let mut results = Vec::new();
    for (number, input) in vectors.inputs().enumerate() {
        results.push(result(&stage, number, input).await);
    }
    vectors.check(results);
}

async fn result(stage: &Stage, number: usize, input: &Input) -> Expect {
    let path = format!("/{}", profile(&input.profile).as_str());
    // Each case has a tenant, because many of them have the same key.
    let tenant = format!("tenant-{number}");
    let request = Request::post(path).header("authorization", &tenant);
    let mut request = request.body(Body::empty()).unwrap();
    for value in &input.values {
        let value = value.bytes();
        let Ok(value) = HeaderValue::from_bytes(&value) else {
            return parsed(&value);
        };
        request.headers_mut().append("idempotency-key", value);
    }
    let sent = stage.send(request).await;
    if !sent.status.is_success() {
        return Expect {
            problem: Some(Refusal::of(&sent)),
            ..Expect::default()
        };
    }
    Expect {
        key: stored_key(stage, tenant).await,
        echo: sent.header("idempotency-key").map(str::to_owned),
        problem: None,
    }
}

/// The result of a value that no HTTP server accepts.
fn parsed(value: &[u8]) -> Expect {
    let Ok(key) = parse_header(value) else {
        let invalid = problem::KEY_INVALID;
        return Expect {
            problem: Some(Refusal {
                status: invalid.status().as_u16(),
                code: invalid.name().to_owned(),
            }),
            ..Expect::default()
        };
    };
    let echo = IdempotencyKey::new(&*key).unwrap().quoted().into_owned();
    Expect {
        key: Some(key.into_owned()),
        echo: Some(echo),
        problem: None,
    }
}

async fn stored_key(stage: &Stage, tenant: String) -> Option<String> {
    let key = stage.store.read(move |db| {
        let sql = "SELECT max(key) FROM hapax_idempotency_key WHERE tenant = ?1";
        db.query_row(sql, [tenant], |row| row.get::<_, Option<String>>(0))
    });
    key.await.unwrap()
}
