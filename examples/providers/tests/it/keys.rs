//! Each idempotency key is decided once.

use serde_json::json;
use tokio::task::JoinSet;

use crate::provider::{Provider, charge};

#[tokio::test]
async fn the_same_request_under_a_key_is_the_same_result_again() {
    let provider = Provider::payment();
    let first = provider.told(201, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(
        (&first["kind"], &first["key"]),
        (&json!("charge"), &json!("k"))
    );
    assert!(first["id"].as_str().unwrap().starts_with("ch_"));
    let again = provider.told(201, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(again, first);
    assert_eq!(provider.entries().await, std::slice::from_ref(&first));
    let found = provider.get("/operations/k").await.unwrap();
    assert_eq!((found.status, found.json().unwrap()), (200, first));
    assert_eq!(provider.get("/operations/other").await.unwrap().status, 404);
}

#[tokio::test]
async fn another_request_under_a_key_is_refused() {
    let provider = Provider::payment();
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
    let other = json!({ "card": "tok_ok", "amount": 501, "currency": "EUR" });
    let refused = provider.told(409, "/charges", "k", other).await;
    assert_eq!(refused["code"], "key_reused");
    let kind = provider
        .told(409, "/authorizations", "k", charge("tok_ok"))
        .await;
    assert_eq!(kind["code"], "key_reused");
    assert_eq!(provider.entries().await.len(), 1);
}

#[tokio::test]
async fn a_decline_is_remembered_under_its_key() {
    let provider = Provider::payment();
    for _ in 0..2 {
        let declined = provider
            .told(402, "/charges", "k", charge("tok_declined"))
            .await;
        assert_eq!(declined["code"], "declined");
    }
    let found = provider.get("/operations/k").await.unwrap().json().unwrap();
    assert_eq!(
        (&found["kind"], &found["code"]),
        (&json!("declined"), &json!("declined"))
    );
    assert_eq!(provider.entries().await.len(), 1);
    let other = provider.told(409, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(other["code"], "key_reused");
}

#[tokio::test]
async fn calls_under_one_key_at_once_apply_once() {
    let provider = std::sync::Arc::new(Provider::payment());
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let provider = std::sync::Arc::clone(&provider);
        calls.spawn(async move { provider.told(201, "/charges", "k", charge("tok_ok")).await });
    }
    let answers = calls.join_all().await;
    assert!(answers.iter().all(|answer| answer == &answers[0]));
    assert_eq!(provider.entries().await.len(), 1);
    assert_eq!(provider.calls("charge").await, 20);
}

#[tokio::test]
async fn what_is_not_understood_is_refused_and_decides_nothing() {
    let provider = Provider::payment();
    for body in [
        json!({ "card": "tok_ok", "amount": 0, "currency": "EUR" }),
        json!({ "card": "tok_ok", "amount": 5, "currency": "eur" }),
        json!({ "card": "tok_other", "amount": 5, "currency": "EUR" }),
        json!({ "card": "tok_ok", "amount": 5, "currency": "EUR", "more": 1 }),
        json!({}),
    ] {
        let outcome = provider.told(400, "/charges", "k", body).await;
        assert_eq!(outcome["code"], "invalid");
    }
    let body = charge("tok_ok").to_string();
    let keyless = provider.post_text("/charges", &[], body.clone()).await;
    assert_eq!(keyless.unwrap().json().unwrap()["code"], "key_missing");
    let key = [("idempotency-key", "k")];
    let long = format!("{body}{}", " ".repeat(100_000));
    let long = provider.post_text("/charges", &key, long).await.unwrap();
    assert_eq!(
        (long.status, &long.json().unwrap()["code"]),
        (413, &json!("too_large"))
    );
    assert!(provider.entries().await.is_empty());
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
}
