//! Tests of derived keys: that clients cannot send them, and that tenants have separate keys.

use axum::{Router, body::Body, routing::post};
use hapax_http::{Derived, Idempotency, Problem, Settings, View};
use http::Request;

use crate::stage::{Sent, Stage, post_json, send};

const ANN: &str = "{\"email\":\"ann@x.org\"}";

#[tokio::test]
async fn a_client_cannot_send_a_derived_key() {
    let stage = stage().await;
    let first = stage.post("", ANN).await;
    let key = first.header("idempotency-key").unwrap().to_owned();
    for sent in [&*key, "derived:", "derived:x", &format!("\"{key}\"")] {
        let refused = stage.post(sent, "{\"email\":\"eve@x.org\"}").await;
        refused.check_problem(400, "VALIDATION.idempotency_key.invalid");
        assert_eq!(refused.header("idempotency-key"), None, "{sent}");
    }
    // The prefix is case-sensitive: this is an ordinary key.
    assert_eq!(
        stage.post("Derived:x", ANN).await.idempotency(),
        Some("stored")
    );
    assert_eq!(stage.post("", ANN).await.idempotency(), Some("replayed"));
    assert_eq!(stage.effects().await, 2);
}

/// The caller has sent no key, so the advice is not to make a new one.
#[tokio::test]
async fn a_mismatch_of_a_derived_key_says_what_a_caller_without_a_key_can_do() {
    let stage = stage().await;
    stage.post("", ANN).await;
    let other = "{\"email\":\"ann@x.org\",\"act\":\"other\"}";
    let refused = stage.post("", other).await;
    refused.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(!detail.contains("new key"), "{detail}");
    assert!(
        detail.contains("an Idempotency-Key of your own"),
        "{detail}"
    );
    // The advice is true.
    assert_eq!(stage.post("", ANN).await.idempotency(), Some("replayed"));
    assert_eq!(stage.post("own", other).await.idempotency(), Some("stored"));
    let sent = stage.post("own", "{\"email\":\"ann@x.org\"}").await;
    assert!(sent.json()["detail"].as_str().unwrap().contains("new key"));
}

#[tokio::test]
async fn an_operation_whose_keys_are_not_derived_refuses_them_too() {
    let stage = Stage::new().await;
    let refused = stage.post("derived:00", "{}").await;
    refused.check_problem(400, "VALIDATION.idempotency_key.invalid");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_derived_key_differs_from_tenant_to_tenant() {
    let stage = stage().await;
    let mut keys = Vec::new();
    for tenant in ["alice", "bob"] {
        let mut request = post_json("/effects", "", ANN);
        request
            .headers_mut()
            .insert("authorization", tenant.parse().unwrap());
        let sent = stage.send(request).await;
        assert_eq!(sent.idempotency(), Some("stored"), "{tenant}");
        keys.push(sent.header("idempotency-key").unwrap().to_owned());
    }
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn every_node_of_a_store_derives_the_same_key_and_another_store_derives_another() {
    let stage = stage().await;
    let first = stage.post("", ANN).await;
    let again = send(node(&stage), post_json("/effects", "", ANN)).await;
    assert_eq!(again.status, first.status);
    assert_eq!(again.idempotency(), Some("replayed"));
    let elsewhere = self::stage().await.post("", ANN).await;
    let key = |sent: &Sent| sent.header("idempotency-key").unwrap().to_owned();
    assert_eq!(key(&again), key(&first));
    assert_ne!(key(&elsewhere), key(&first));
}

#[tokio::test]
async fn without_the_secret_nothing_runs_unless_the_service_says_open() {
    for open in [false, true] {
        let settings = |it: &mut Settings| {
            if open {
                it.on_store_error = hapax::idempotency::OnStoreError::Open;
            }
        };
        let stage = Stage::with(settings, |layer| layer.derived(by_email)).await;
        let dropped = stage
            .store
            .write(|db| db.execute("DROP TABLE hapax_secret", []));
        dropped.await.unwrap();
        let sent = stage.post("", ANN).await;
        if open {
            assert_eq!(sent.idempotency(), Some("bypassed"));
        } else {
            sent.check_problem(503, "DEPENDENCY.unavailable");
        }
        assert_eq!(stage.effects().await, i64::from(open));
    }
}

async fn stage() -> Stage {
    Stage::with(|_| {}, |layer| layer.derived(by_email)).await
}

/// A second node on the stage's store.
fn node(stage: &Stage) -> Router {
    let settings = Settings::new(stage.clock.clone(), stage.random.clone());
    let idempotency = Idempotency::new(stage.store.clone(), settings);
    let layer = idempotency.operation("/effects").derived(by_email);
    stage.named(Router::new().route(
        "/effects",
        post(async |_: Request<Body>| "new").layer(layer),
    ))
}

fn by_email(view: &View<'_>) -> Result<Derived, Problem> {
    #[derive(serde::Deserialize)]
    struct Signup {
        email: String,
    }
    let email = view.json::<Signup>()?.email;
    Ok(Derived::new().member("email", email.to_lowercase()))
}
