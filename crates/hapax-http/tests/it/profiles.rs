//! Tests of profiles: the statuses and codes of each protocol, and what each one demands.

use std::time::Duration;

use axum::{body::Body, routing::post};
use hapax::idempotency::{OnFailure, OnStoreError};
use hapax_http::{FingerprintMode, OperationLayer, Profile, Settings};
use hapax_sqlite::Sqlite;
use http::{Request, StatusCode};

use crate::stage::{Sent, Stage, post_json, send};

/// A key that every profile accepts: a UUID v7.
const KEY: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
const GATED: &str = "{\"act\":\"gate\"}";
const HOUR: Duration = Duration::from_hours(1);

const MISSING: &str = "VALIDATION.idempotency_key.missing";
const INVALID: &str = "VALIDATION.idempotency_key.invalid";
const MISMATCH: &str = "CONFLICT.idempotency.payload_mismatch";
const IN_PROGRESS: &str = "CONFLICT.idempotency.in_progress";
const EXPIRED: &str = "CONFLICT.idempotency.expired";

#[tokio::test]
async fn a_mismatch_has_the_status_and_the_code_of_the_profile() {
    for (profile, status, code) in [
        (Profile::Hapax, 409, MISMATCH),
        (Profile::Ietf, 422, MISMATCH),
        (Profile::Stripe, 400, MISMATCH),
        (Profile::Acp, 422, "idempotency_conflict"),
        (Profile::Ucp, 409, MISMATCH),
        (Profile::Adcp, 409, "IDEMPOTENCY_CONFLICT"),
        (Profile::Iceberg, 409, MISMATCH),
    ] {
        for cache_bytes in [0, 1 << 20] {
            let settings = |it: &mut Settings| {
                it.profile = profile;
                it.cache_bytes = cache_bytes;
            };
            let stage = Stage::with(settings, |it| it).await;
            stage.post(KEY, "{}").await;
            let other = stage.post(KEY, "{\"answer\":202}").await;
            check(&other, status, code, MISMATCH);
            assert_eq!(other.json()["retryable"], false);
            assert_eq!(other.header("retry-after"), None);
            assert_eq!(other.header("idempotency-key"), Some(KEY));
            assert_eq!((stage.runs(), stage.effects().await), (1, 1));
            let again = stage.post(KEY, "{}").await;
            assert_eq!(again.idempotency(), Some("replayed"), "{profile:?}");
        }
    }
}

#[tokio::test]
async fn a_key_in_progress_has_the_code_of_the_profile() {
    for (profile, code) in [
        (Profile::Hapax, IN_PROGRESS),
        (Profile::Ietf, IN_PROGRESS),
        (Profile::Stripe, IN_PROGRESS),
        (Profile::Acp, "idempotency_in_flight"),
        (Profile::Ucp, IN_PROGRESS),
        (Profile::Adcp, "IDEMPOTENCY_IN_FLIGHT"),
        (Profile::Iceberg, IN_PROGRESS),
    ] {
        let settings = |it: &mut Settings| {
            it.profile = profile;
            it.wait = Duration::from_millis(20);
        };
        let stage = Stage::with(settings, |it| it).await;
        let request = post_json("/effects", KEY, GATED);
        let first = tokio::spawn(send(stage.router.clone(), request));
        stage.entered(1).await;
        let second = stage.post(KEY, GATED).await;
        check(&second, 409, code, IN_PROGRESS);
        assert_eq!(second.json()["retryable"], true);
        assert_eq!(second.header("retry-after"), Some("1"));
        let seconds = (profile == Profile::Adcp).then_some(1);
        assert_eq!(second.json()["retry_after"].as_u64(), seconds);
        stage.props.gate.add_permits(1);
        assert_eq!(first.await.unwrap().idempotency(), Some("stored"));
    }
}

#[tokio::test]
async fn an_operation_may_have_another_profile_than_its_service() {
    let mut stage = Stage::with(|_| {}, |layer| layer.profile(Profile::Acp)).await;
    let layer = stage.idempotency.operation("/own");
    stage.route("/own", post(async || "done").layer(layer));
    stage.post("k", "{}").await;
    let other = stage.post("k", "{\"answer\":202}").await;
    check(&other, 422, "idempotency_conflict", MISMATCH);
    stage.send(post_json("/own", "k", "{}")).await;
    let other = stage.send(post_json("/own", "k", "[]")).await;
    other.check_problem(409, MISMATCH);
}

#[tokio::test]
async fn every_post_of_an_operation_needs_a_key_in_acp() {
    let policies: [fn(OperationLayer<Sqlite>) -> OperationLayer<Sqlite>; 3] = [
        OperationLayer::required,
        OperationLayer::optional,
        OperationLayer::issued,
    ];
    for policy in policies {
        let put = |layer| policy(layer).also(http::Method::PUT);
        let stage = Stage::with(|it| it.profile = Profile::Acp, put).await;
        let sent = stage.post("", "{}").await;
        check(&sent, 400, "idempotency_key_required", MISSING);
        assert_eq!(sent.header("idempotency-key"), None);
        assert_eq!(stage.runs(), 0);
        assert_eq!(stage.post(KEY, "{}").await.idempotency(), Some("stored"));
    }
    // Other methods follow the operation.
    let put = |layer: OperationLayer<Sqlite>| layer.optional().also(http::Method::PUT);
    let stage = Stage::with(|it| it.profile = Profile::Acp, put).await;
    let request = Request::put("/effects").body(Body::empty()).unwrap();
    assert_eq!(stage.send(request).await.idempotency(), Some("bypassed"));
}

#[tokio::test]
async fn a_missing_key_has_the_code_of_the_contract_in_the_other_profiles() {
    for profile in Profile::ALL {
        if matches!(profile, Profile::Acp | Profile::Iceberg) {
            continue;
        }
        let stage = Stage::with(|it| it.profile = profile, |it| it).await;
        stage.post("", "{}").await.check_problem(400, MISSING);
        let stage = Stage::with(|it| it.profile = profile, OperationLayer::optional).await;
        let sent = stage.post("", "{}").await;
        assert_eq!(sent.idempotency(), Some("bypassed"), "{profile:?}");
    }
}

#[tokio::test]
async fn a_failure_is_never_stored_in_acp() {
    for (profile, status, runs) in [
        (Profile::Hapax, Some("replayed"), 1),
        (Profile::Acp, None, 2),
    ] {
        let settings = |it: &mut Settings| {
            it.profile = profile;
            it.on_failure = OnFailure::Store;
        };
        let store = |layer: OperationLayer<Sqlite>| layer.on_failure(OnFailure::Store);
        let stage = Stage::with(settings, store).await;
        let failing = "{\"answer\":500}";
        stage.post(KEY, failing).await;
        let again = stage.post(KEY, failing).await;
        assert_eq!(again.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!((again.idempotency(), stage.runs()), (status, runs));
        assert_eq!(stage.effects().await, 0);
    }
}

#[tokio::test]
async fn adcp_stores_successful_responses_only() {
    for (profile, runs) in [(Profile::Hapax, 1), (Profile::Adcp, 2)] {
        let stage = Stage::with(|it| it.profile = profile, |it| it).await;
        let refused = "{\"answer\":402}";
        for _ in 0..2 {
            let answer = stage.post(KEY, refused).await;
            assert_eq!(answer.status, StatusCode::PAYMENT_REQUIRED, "{profile:?}");
        }
        assert_eq!(stage.runs(), runs, "{profile:?}");
        assert_eq!(stage.effects().await, 0);
    }
}

#[tokio::test]
async fn numbers_are_compared_by_value_in_acp_and_bytes_in_ucp() {
    for (profile, other_number, other_order) in [
        (Profile::Hapax, false, true),
        (Profile::Acp, true, true),
        (Profile::Ucp, false, false),
        (Profile::Adcp, true, true),
    ] {
        let stage = Stage::with(|it| it.profile = profile, |it| it).await;
        let replays = async |key: &str, second: &str| {
            let first = stage.post(key, "{\"answer\":201,\"n\":1}").await;
            assert_eq!(first.idempotency(), Some("stored"));
            stage.post(key, second).await.idempotency() == Some("replayed")
        };
        let number = replays("number", "{\"answer\":201,\"n\":1.0}").await;
        assert_eq!(number, other_number, "{profile:?}");
        let order = replays("order", "{ \"n\":1, \"answer\":201}").await;
        assert_eq!(order, other_order, "{profile:?}");
    }
}

#[tokio::test]
async fn the_service_and_the_operation_may_choose_another_mode_than_the_profile() {
    let settings = |it: &mut Settings| {
        it.profile = Profile::Ucp;
        it.fingerprint = Some(FingerprintMode::Json);
    };
    let stage = Stage::with(settings, |it| it).await;
    stage.post("k", "{}").await;
    assert_eq!(stage.post("k", "{ }").await.idempotency(), Some("replayed"));
    let raw = |layer: OperationLayer<Sqlite>| layer.fingerprint(FingerprintMode::Raw);
    let stage = Stage::with(settings, raw).await;
    stage.post("k", "{}").await;
    stage.post("k", "{ }").await.check_problem(409, MISMATCH);
}

#[tokio::test]
async fn ucp_refuses_requests_while_the_store_is_unavailable() {
    let settings = |it: &mut Settings| {
        it.profile = Profile::Ucp;
        it.on_store_error = OnStoreError::Open;
    };
    let stage = Stage::with(settings, |it| it).await;
    stage.lose_the_keys().await;
    let sent = stage.post("k", "{}").await;
    sent.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(sent.header("retry-after"), Some("1"));
    assert_eq!((stage.runs(), stage.effects().await), (0, 0));
}

#[tokio::test]
async fn responses_are_kept_for_a_day_in_acp_and_ucp() {
    for (profile, status) in [
        (Profile::Hapax, "stored"),
        (Profile::Acp, "replayed"),
        (Profile::Ucp, "replayed"),
    ] {
        let settings = |it: &mut Settings| it.profile = profile;
        let stage = Stage::with(settings, |layer| layer.retention(HOUR)).await;
        stage.post("k", "{}").await;
        stage.pass(23 * HOUR);
        let later = stage.post("k", "{}").await;
        assert_eq!(later.idempotency(), Some(status), "{profile:?}");
        stage.pass(HOUR);
        let next_day = stage.post("k", "{}").await;
        assert_eq!(next_day.idempotency(), Some("stored"), "{profile:?}");
    }
}

#[tokio::test]
async fn an_expired_key_is_refused_in_adcp() {
    let settings = |it: &mut Settings| it.profile = Profile::Adcp;
    let stage = Stage::with(settings, |layer| layer.retention(HOUR)).await;
    stage.post("k", "{}").await;
    stage.pass(HOUR);
    let later = stage.post("k", "{}").await;
    check(&later, 410, "IDEMPOTENCY_EXPIRED", EXPIRED);
    assert_eq!(stage.effects().await, 1);
}

#[tokio::test]
async fn a_key_is_optional_in_iceberg_and_must_be_a_uuid_v7() {
    let stage = Stage::with(|it| it.profile = Profile::Iceberg, |it| it).await;
    let without = stage.post("", "{}").await;
    assert_eq!(without.status, StatusCode::CREATED);
    assert_eq!(without.idempotency(), Some("bypassed"));
    for other in ["k", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f"] {
        let sent = stage.post(other, "{}").await;
        sent.check_problem(400, INVALID);
        assert_eq!(sent.header("idempotency-key"), None);
    }
    assert_eq!(stage.effects().await, 1);
    assert_eq!(stage.post(KEY, "{}").await.idempotency(), Some("stored"));
    assert_eq!(stage.post(KEY, "{}").await.idempotency(), Some("replayed"));
    let required = Stage::with(|it| it.profile = Profile::Iceberg, OperationLayer::required);
    let sent = required.await.post("", "{}").await;
    sent.check_problem(400, MISSING);
}

#[tokio::test]
async fn a_key_that_the_service_creates_in_iceberg_can_be_sent() {
    let mut stage = Stage::with(|it| it.profile = Profile::Iceberg, OperationLayer::issued).await;
    let handler = stage.idempotency.reserve_handler();
    stage.route("/idempotency-keys", post(handler));
    let request = Request::post("/idempotency-keys").body(Body::empty());
    let reserved = stage.send(request.unwrap()).await;
    let key = reserved.header("idempotency-key").unwrap();
    assert_eq!(stage.post(key, "{}").await.idempotency(), Some("stored"));
    let issued = stage.post("", "{}").await;
    let key = issued.header("idempotency-key").unwrap();
    assert_eq!(stage.post(key, "{}").await.idempotency(), Some("replayed"));
}

/// Checks the code that the client reads, and that the page is that of Hapax's own code.
#[track_caller]
fn check(sent: &Sent, status: u16, code: &str, own: &str) {
    let problem = sent.json();
    assert_eq!(sent.status, status, "{problem}");
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["status"], status);
    let page = format!("https://hapax.dev/problems/{}", own.to_lowercase());
    assert_eq!(problem["type"], page);
    let content_type = sent.header("content-type");
    assert_eq!(content_type, Some("application/problem+json"));
}
