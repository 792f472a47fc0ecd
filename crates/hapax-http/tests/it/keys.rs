//! Tests of the sources of keys, and of their scope.

use axum::{body::Body, routing::post};
use hapax_http::{Derived, OperationLayer, View};
use http::{Request, StatusCode};

use crate::stage::{Stage, post_json, send};

#[tokio::test]
async fn a_required_key_that_is_missing_is_refused() {
    let stage = Stage::new().await;
    let sent = stage.post("", "{}").await;
    sent.check_problem(400, "VALIDATION.idempotency_key.missing");
    assert_eq!(sent.header("idempotency-key"), None);
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_key_that_does_not_parse_is_refused_and_not_echoed() {
    let stage = Stage::new().await;
    for bad in ["a b", "\"abc", "\"\"", "\"k\"x", "a\"b"] {
        let sent = stage.post(bad, "{}").await;
        sent.check_problem(400, "VALIDATION.idempotency_key.invalid");
        assert_eq!(sent.header("idempotency-key"), None);
    }
    let twice = Request::post("/effects")
        .header("idempotency-key", "k")
        .header("idempotency-key", "k");
    let sent = stage.send(twice.body(Body::empty()).unwrap()).await;
    sent.check_problem(400, "VALIDATION.idempotency_key.invalid");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn the_quoted_and_the_bare_key_are_one_key_and_case_matters() {
    let stage = Stage::new().await;
    stage.post("abc", "{}").await;
    assert_eq!(
        stage.post("\"abc\"", "{}").await.idempotency(),
        Some("replayed")
    );
    assert_eq!(
        stage.post("\"abc\";v=1", "{}").await.idempotency(),
        Some("replayed")
    );
    assert_eq!(stage.post("ABC", "{}").await.idempotency(), Some("stored"));
    let spaced = stage.post("\"a b\"", "{}").await;
    assert_eq!(spaced.header("idempotency-key"), Some("\"a b\""));
}

#[tokio::test]
async fn an_optional_key_that_is_missing_runs_unprotected() {
    let stage = Stage::with(|_| {}, OperationLayer::optional).await;
    for effects in 1..=2 {
        let sent = stage.post("", "{}").await;
        assert_eq!(sent.status, StatusCode::CREATED);
        assert_eq!(sent.idempotency(), Some("bypassed"));
        assert_eq!(sent.header("idempotency-key"), None);
        assert_eq!(stage.effects().await, effects);
        assert_eq!(stage.events().await, effects);
    }
    let refused = stage.post("", "{\"act\":\"refuse\"}").await;
    assert_eq!(refused.idempotency(), Some("bypassed"));
    assert_eq!(stage.effects().await, 2);
    assert_eq!(stage.post("k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn an_issued_key_is_minted_and_replays_when_it_is_sent_back() {
    let stage = Stage::with(|_| {}, OperationLayer::issued).await;
    let first = stage.post("", "{}").await;
    assert_eq!(first.idempotency(), Some("stored"));
    let key = first.header("idempotency-key").unwrap().to_owned();
    assert_eq!(stage.post(&key, "{}").await.idempotency(), Some("replayed"));
    let second = stage.post("", "{}").await;
    assert_ne!(second.header("idempotency-key"), Some(&*key));
    assert_eq!(stage.effects().await, 2);
}

#[tokio::test]
async fn a_derived_key_folds_its_parts_and_nothing_else() {
    let stage = Stage::with(|_| {}, |layer| layer.derived(by_email)).await;
    let first = stage
        .post("", r#"{"email":"Ann@x.org","name":"Ann"}"#)
        .await;
    assert_eq!(first.idempotency(), Some("stored"));
    let key = first.header("idempotency-key").unwrap().to_owned();
    let hex = key.strip_prefix("derived:").unwrap();
    assert!(hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let folded = stage
        .post("", r#"{"name":"Ann","email":"ann@X.org"}"#)
        .await;
    assert_eq!(folded.idempotency(), Some("replayed"));
    assert_eq!(folded.body, first.body);
    let other = stage
        .post("", r#"{"email":"ann@x.org","name":"Anna"}"#)
        .await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(other.header("idempotency-key"), Some(&*key));
    let sent = stage
        .post("mine", r#"{"email":"ann@x.org","name":"Ann"}"#)
        .await;
    assert_eq!(sent.header("idempotency-key"), Some("mine"));
    assert_eq!(stage.effects().await, 2);
}

#[tokio::test]
async fn a_derivation_that_refuses_is_the_answer() {
    let stage = Stage::with(|_| {}, |layer| layer.derived(by_email)).await;
    let sent = stage.post("", "{}").await;
    sent.check_problem(400, "VALIDATION.member");
    assert_eq!(sent.json()["member"], "email");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_key_is_reserved_ahead_of_its_first_send() {
    let mut stage = Stage::new().await;
    let handler = stage.idempotency.reserve_handler();
    stage.route("/idempotency-keys", post(handler));
    let request = || {
        Request::post("/idempotency-keys")
            .body(Body::empty())
            .unwrap()
    };
    let reserved = stage.send(request()).await;
    assert_eq!(reserved.status, StatusCode::CREATED);
    let json = reserved.json();
    let key = json["key"].as_str().unwrap();
    assert_eq!(reserved.header("idempotency-key"), Some(key));
    assert_eq!(json["expires_at"], "2026-01-02T00:00:00Z");
    assert_eq!(stage.post(key, "{}").await.idempotency(), Some("stored"));
    assert_eq!(stage.post(key, "{}").await.idempotency(), Some("replayed"));
    assert_ne!(stage.send(request()).await.json()["key"], key);
}

#[tokio::test]
async fn an_unknown_query_reserves_no_key() {
    let mut stage = Stage::new().await;
    let handler = stage.idempotency.reserve_handler();
    stage.route("/idempotency-keys", post(handler));
    let request = Request::post("/idempotency-keys?ttl=1h");
    let refused = stage.send(request.body(Body::empty()).unwrap()).await;
    refused.check_problem(400, "VALIDATION.member");
    assert_eq!(refused.json()["member"], "ttl");
    assert_eq!(refused.header("idempotency-key"), None);
}

#[tokio::test]
async fn tenants_share_no_keys_and_a_rotated_token_still_replays() {
    let stage = Stage::new().await;
    let mut responses = Vec::new();
    for token in ["alice/1", "bob/1", "alice/2", "bob/2"] {
        let mut request = post_json("/effects", "k", "{}");
        request
            .headers_mut()
            .insert("authorization", token.parse().unwrap());
        responses.push(stage.send(request).await);
    }
    let status: Vec<_> = responses
        .iter()
        .map(|sent| sent.idempotency().unwrap())
        .collect();
    assert_eq!(status, ["stored", "stored", "replayed", "replayed"]);
    assert_eq!(responses[0].body, responses[2].body);
    assert_eq!(responses[1].body, responses[3].body);
    assert_ne!(responses[0].body, responses[1].body);
}

#[tokio::test]
async fn a_request_without_a_tenant_is_refused_and_says_why() {
    let stage = Stage::new().await;
    let mut request = post_json("/effects", "k", "{}");
    request
        .headers_mut()
        .insert("authorization", "nobody".parse().unwrap());
    stage
        .send(request)
        .await
        .check_problem(500, "TRANSIENT.internal");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_service_of_one_tenant_needs_none_placed() {
    let fixed = hapax::key::Tenant::new("only").unwrap();
    let stage = Stage::with(|it| it.tenant = Some(fixed), |it| it).await;
    let mut request = post_json("/effects", "k", "{}");
    request
        .headers_mut()
        .insert("authorization", "nobody".parse().unwrap());
    assert_eq!(
        send(stage.router.clone(), request).await.idempotency(),
        Some("stored")
    );
}

fn by_email(view: &View<'_>) -> Result<Derived, hapax_http::Problem> {
    #[derive(serde::Deserialize)]
    struct Signup {
        email: String,
    }
    let signup: Signup = view.json()?;
    Ok(Derived::new().member("email", signup.email.to_lowercase()))
}
