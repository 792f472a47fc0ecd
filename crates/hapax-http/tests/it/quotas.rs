//! Tests of quotas: new keys beyond them are refused, stored responses are still replayed.

use hapax::{idempotency::OnExpired, quota::Quota};
use hapax_http::Settings;

use crate::stage::{Stage, post_json};

#[tokio::test]
async fn who_is_over_the_quota_gets_no_new_key_and_every_answer_that_is_stored() {
    let stage = Stage::with(keys(2), |layer| layer).await;
    let first = stage.post("1", "{}").await;
    stage.post("2", "{}").await;
    let refused = stage.post("3", "{}").await;
    refused.check_problem(429, "RATE_LIMIT.quota");
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(refused.header("idempotency-key"), Some("3"));
    assert_eq!((stage.runs(), stage.effects().await), (2, 2));
    let again = stage.post("1", "{}").await;
    assert_eq!(again.idempotency(), Some("replayed"));
    assert_eq!((again.status, again.body), (first.status, first.body));
    let other = stage.post("1", "{\"answer\":202}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn one_tenants_quota_is_no_others() {
    let stage = Stage::with(keys(1), |layer| layer).await;
    stage.post("1", "{}").await;
    let mut request = post_json("/effects", "2", "{}");
    let bob = http::HeaderValue::from_static("bob");
    request.headers_mut().insert("authorization", bob);
    assert_eq!(stage.send(request).await.status, 201);
}

#[tokio::test]
async fn what_other_nodes_stored_counts_once_it_was_counted() {
    let mut stage = Stage::with(keys(1), |layer| layer).await;
    // Another node on the same store, which has not counted what the first one stored.
    let mut settings = Settings::new(stage.clock.clone(), stage.random.clone());
    keys(1)(&mut settings);
    let other = hapax_http::Idempotency::new(stage.store.clone(), settings);
    let made = axum::routing::post(async || http::StatusCode::CREATED);
    stage.route("/other", made.layer(other.operation("/other")));
    stage.post("1", "{}").await;
    other.count_usage().await.unwrap();
    let refused = stage.send(post_json("/other", "2", "{}")).await;
    refused.check_problem(429, "RATE_LIMIT.quota");
    // After the key has expired, there is space again.
    stage.pass(hapax::limits::RETENTION);
    other.count_usage().await.unwrap();
    let made = stage.send(post_json("/other", "2", "{}")).await;
    assert_eq!(made.status, 201);
}

#[tokio::test]
async fn bytes_are_bounded_too_and_an_expired_key_is_a_new_one() {
    let bytes = |settings: &mut Settings| {
        settings.on_expired = OnExpired::New;
        settings.quota = Quota {
            keys: None,
            bytes: Some(1),
        };
    };
    let stage = Stage::with(bytes, |layer| layer).await;
    assert_eq!(stage.post("1", "{}").await.status, 201);
    stage.pass(hapax::limits::RETENTION);
    // Usage was not counted since. The expired key is treated as a new one, and refused.
    let refused = stage.post("1", "{}").await;
    refused.check_problem(429, "RATE_LIMIT.quota");
    stage.idempotency.count_usage().await.unwrap();
    assert_eq!(stage.post("1", "{}").await.status, 201);
}

fn keys(most: u64) -> impl Fn(&mut Settings) {
    move |settings| {
        settings.quota = Quota {
            keys: Some(most),
            bytes: None,
        };
    }
}
