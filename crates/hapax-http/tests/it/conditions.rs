//! Tests that conditional headers are part of the fingerprint.

use std::time::Duration;

use axum::body::Body;
use hapax::{
    event::Headers,
    idempotency::{Claim, OnExpired, StoredResponse},
    key::FingerprintBuilder,
    store::{ClaimOutcome, Effect, Keys as _, Transaction as _},
};
use http::Request;
use sha2::{Digest as _, Sha256};

use crate::stage::{Sent, Stage, post_json, scope};

#[tokio::test]
async fn another_condition_under_a_key_is_a_mismatch_that_says_so() {
    for header in ["if-match", "if-none-match", "if-unmodified-since"] {
        let stage = Stage::new().await;
        let first = stage.send(on(&[(header, "\"1\"")])).await;
        assert_eq!(first.idempotency(), Some("stored"));
        let again = stage.send(on(&[(header, "\"1\"")])).await;
        assert_eq!(again.idempotency(), Some("replayed"), "{header}");
        for other in [on(&[(header, "\"3\"")]), on(&[])] {
            let other = stage.send(other).await;
            other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
            let detail = other.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("If-Match"), "{detail}");
        }
        assert_eq!(stage.effects().await, 1);
    }
}

#[tokio::test]
async fn conditions_differ_by_header_and_a_list_in_two_lines_is_one_list() {
    let stage = Stage::new().await;
    let two = on(&[("if-match", "\"1\""), ("if-match", " \"2\"")]);
    assert_eq!(stage.send(two).await.idempotency(), Some("stored"));
    let one = stage.send(on(&[("if-match", "\"1\", \"2\"")])).await;
    assert_eq!(one.idempotency(), Some("replayed"));
    let other = stage.send(on(&[("if-none-match", "\"1\", \"2\"")])).await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn a_failed_precondition_releases_the_key() {
    let stage = Stage::new().await;
    for status in [412, 428] {
        let body = format!("{{\"answer\":{status}}}");
        let refused = stage.post("k", &body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.idempotency()),
            (status, None)
        );
    }
    // The corrected request runs under the key of the refused ones.
    let corrected = stage.send(on(&[("if-match", "\"2\"")])).await;
    assert_eq!(corrected.idempotency(), Some("stored"));
    assert_eq!(stage.effects().await, 1);
}

/// The stored key is one of an older version, whose fingerprint has five parts and no conditions.
#[tokio::test]
async fn a_request_without_a_condition_has_the_fingerprint_that_it_always_had() {
    let stage = Stage::new().await;
    let print = ["POST /effects", "/effects", "", "application/json"]
        .iter()
        .fold(FingerprintBuilder::new(1), |built, part| {
            built.part(part.as_bytes())
        })
        .part(&Sha256::digest(b"{}"))
        .finish();
    let claim = Claim {
        scope: scope("alice", "POST /effects", "k"),
        fingerprint: print,
        retention: Duration::from_hours(1),
        on_expired: OnExpired::New,
        context: Headers::new(),
    };
    let ClaimOutcome::Open(tx) = stage.store.claim(claim).await.unwrap() else {
        panic!("the key is free");
    };
    let response = StoredResponse {
        status: 201,
        ..StoredResponse::default()
    };
    tx.complete(&response, Effect::Keep).await.unwrap();
    let sent: Sent = stage.send(on(&[])).await;
    assert_eq!(sent.idempotency(), Some("replayed"));
    let conditional = stage.send(on(&[("if-match", "*")])).await;
    conditional.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

fn on(conditions: &[(&'static str, &'static str)]) -> Request<Body> {
    let mut request = post_json("/effects", "k", "{}");
    for (name, value) in conditions {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}
