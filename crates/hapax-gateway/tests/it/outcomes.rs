//! Unknown outcomes: the request left the gateway, and there is no complete response.

use std::time::Duration;

use hapax::admin::{Actor, KeyAdmin as _, KeyDecision, KeyFilter, KeyOutcome, KeyState};
use hapax_gateway::{
    config::OnUnknown,
    unknown::{Reason, Unknown},
};
use hapax_runtime::config::Span;

use crate::{
    stage::{Stage, check_problem},
    upstream::{Reply, Upstream, ok},
};

const UNKNOWN: &str = "CONFLICT.idempotency.outcome_unknown";
const KEY: &str = "k";

#[tokio::test]
async fn a_response_cut_at_any_byte_is_never_stored() {
    let whole = ok("201 Created", "{\"id\":7}");
    for length in 0..whole.len() {
        let part = whole[..length].to_vec();
        check_unknown(move || Reply::Cut(part.clone()), Reason::Cut, 502).await;
    }
}

#[tokio::test]
async fn a_chunked_response_without_its_end_is_never_stored() {
    let head = "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n";
    for body in ["", "2\r\n{}", "2\r\n{}\r\n", "2\r\n{}\r\n0\r\n"] {
        let part = format!("{head}{body}").into_bytes();
        check_unknown(move || Reply::Cut(part.clone()), Reason::Cut, 502).await;
    }
}

#[tokio::test]
async fn a_response_without_a_length_is_not_known_to_be_complete() {
    let part = b"HTTP/1.1 201 Created\r\n\r\n{\"id\":7}".to_vec();
    check_unknown(move || Reply::Cut(part.clone()), Reason::NoLength, 502).await;
}

#[tokio::test]
async fn a_service_that_does_not_respond_in_time_may_have_executed_the_request() {
    check_unknown(|| Reply::Nothing, Reason::Timeout, 504).await;
}

#[tokio::test]
async fn a_failure_of_the_service_is_passed_on_and_its_outcome_is_unknown() {
    // HTTP defines no statuses above 599.
    for status in [500_u16, 599, 600, 999] {
        let reply = ok(&format!("{status} Oops"), "{\"oops\":1}");
        let upstream = Upstream::start(move |_| Reply::Bytes(reply.clone())).await;
        let stage = Stage::new(&upstream, |_| {}).await;
        let first = stage.post("/orders", KEY, "{}").await;
        assert_eq!(
            (first.status, first.text()),
            (status, "{\"oops\":1}".to_owned())
        );
        assert_eq!(first.header("idempotency-status"), None);
        check_problem(&stage.post("/orders", KEY, "{}").await, 409, UNKNOWN);
        let record = record(&stage).await;
        assert_eq!(
            (record.reason, record.response_status),
            (Reason::Status, Some(status))
        );
        assert_eq!(upstream.ledger().len(), 1);
    }
}

#[tokio::test]
async fn a_response_that_is_too_long_to_be_stored_is_unknown() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{\"id\":123456}"))).await;
    let stage = Stage::new(&upstream, |route| route.response_max = 5).await;
    check_problem(&stage.post("/orders", KEY, "{}").await, 502, UNKNOWN);
    check_problem(&stage.post("/orders", KEY, "{}").await, 409, UNKNOWN);
    assert_eq!(record(&stage).await.reason, Reason::TooLarge);
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_service_that_knows_keys_receives_the_same_key_again() {
    let upstream = Upstream::start(|received| {
        let key = received.header("idempotency-key").unwrap_or_default();
        match received.before {
            0 => Reply::Cut(Vec::new()),
            _ => Reply::Bytes(ok("201 Created", &format!("\"{key}\""))),
        }
    })
    .await;
    let stage = Stage::new(&upstream, |route| route.unknown = OnUnknown::Forward).await;
    let first = stage.post("/orders", KEY, "{}").await;
    check_problem(&first, 502, "DEPENDENCY.unavailable");
    let again = stage.post("/orders", KEY, "{}").await;
    assert_eq!((again.status, again.text()), (201, "\"k\"".to_owned()));
    assert_eq!(upstream.ledger().len(), 2);
}

#[tokio::test]
async fn a_service_that_knows_keys_receives_the_form_of_the_first_attempt_again() {
    for (first, later) in [("\"k\"", "k"), ("k", "\"k\""), ("\"k\"", "\"k\";a=1")] {
        let upstream = Upstream::start(|received| {
            let key = received.header("idempotency-key").unwrap_or_default();
            match received.before {
                0 | 1 => Reply::Cut(Vec::new()),
                _ => Reply::Bytes(ok("201 Created", key)),
            }
        })
        .await;
        let stage = Stage::new(&upstream, |route| route.unknown = OnUnknown::Forward).await;
        for key in [first, later] {
            check_problem(
                &stage.post("/orders", key, "{}").await,
                502,
                "DEPENDENCY.unavailable",
            );
        }
        let last = stage.post("/orders", later, "{}").await;
        assert_eq!((last.status, last.text()), (201, first.to_owned()));
        assert_eq!(upstream.ledger().len(), 3);
    }
}

#[tokio::test]
async fn a_status_says_nothing_of_an_earlier_request() {
    let upstream = Upstream::start(|received| match received.before {
        0 => Reply::Cut(Vec::new()),
        1 => Reply::Bytes(ok("429 Too Many Requests", "{}")),
        _ => Reply::Bytes(ok("201 Created", "{}")),
    })
    .await;
    let stage = Stage::new(&upstream, |route| route.unknown = OnUnknown::Forward).await;
    stage.post("/orders", KEY, "{}").await;
    assert_eq!(stage.post("/orders", KEY, "{}").await.status, 429);
    let kept = record(&stage).await;
    assert_eq!(
        (kept.reason, kept.response_status),
        (Reason::Status, Some(429))
    );
    assert_eq!(stage.post("/orders", KEY, "{}").await.status, 201);
}

#[tokio::test]
async fn an_operator_decides_what_has_happened() {
    let upstream = Upstream::start(|_| Reply::Cut(Vec::new())).await;
    let stage = Stage::new(&upstream, |_| {}).await;
    stage.post("/orders", KEY, "{}").await;
    let response = hapax::idempotency::StoredResponse {
        status: 201,
        headers: Vec::new(),
        body: "{\"id\":7}".into(),
    };
    decide(&stage, KeyOutcome::Happened(response)).await;
    let again = stage.post("/orders", KEY, "{}").await;
    assert_eq!((again.status, again.text()), (201, "{\"id\":7}".to_owned()));
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn an_operator_decides_that_nothing_has_happened() {
    let upstream = Upstream::start(|received| match received.before {
        0 => Reply::Cut(Vec::new()),
        _ => Reply::Bytes(ok("201 Created", "{}")),
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    stage.post("/orders", KEY, "{}").await;
    check_problem(&stage.post("/orders", KEY, "{}").await, 409, UNKNOWN);
    decide(&stage, KeyOutcome::DidNotHappen).await;
    assert_eq!(stage.post("/orders", KEY, "{}").await.status, 201);
    assert_eq!(upstream.ledger().len(), 2);
}

/// Sends a request to which the service replies so, and a retry: the outcome is unknown, and the
/// service is not called again.
async fn check_unknown(
    reply: impl Fn() -> Reply + Send + Sync + 'static,
    reason: Reason,
    status: u16,
) {
    let upstream = Upstream::start(move |_| reply()).await;
    let stage = Stage::new(&upstream, |route| {
        if reason == Reason::Timeout {
            route.timeout = Span(Duration::from_millis(200));
        }
    })
    .await;
    let first = stage.post("/orders", KEY, "{}").await;
    check_problem(&first, status, UNKNOWN);
    assert_eq!(first.header("idempotency-status"), None);
    let again = stage.post("/orders", KEY, "{}").await;
    let detail = check_problem(&again, 409, UNKNOWN);
    assert!(detail.contains(reason.sentence()), "{detail}");
    assert_eq!(upstream.ledger().len(), 1);
    let record = record(&stage).await;
    assert_eq!(record.reason, reason);
    assert_eq!(record.upstream, upstream.url());
}

/// The record of the only key in progress.
async fn record(stage: &Stage) -> Unknown {
    let admin = stage.store.admin().unwrap();
    let filter = KeyFilter {
        state: Some(KeyState::InProgress),
        ..KeyFilter::default()
    };
    let page = admin.keys(&Actor::new("ops"), &filter, None, 10).await;
    let items = page.unwrap().items;
    let [key] = items.as_slice() else {
        panic!("expected one key in progress, got {items:?}");
    };
    key.recovery_point.as_deref().unwrap().parse().unwrap()
}

/// Decides about the key `k` as an operator.
pub(crate) async fn decide(stage: &Stage, outcome: KeyOutcome) {
    let (admin, ops) = (stage.store.admin().unwrap(), Actor::new("ops"));
    let operation = "gateway:POST /{*path}";
    let found = admin.key(&ops, None, operation, KEY).await.unwrap();
    let decision = KeyDecision {
        tenant: None,
        operation: operation.to_owned(),
        key: KEY.to_owned(),
        version: found.version,
        outcome,
        reason: "found in the ledger".to_owned(),
    };
    admin.decide_key(&ops, &decision).await.unwrap();
}
