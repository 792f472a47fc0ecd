//! Each fault has its documented effect, for the requested number of calls.

use std::time::{Duration, Instant};

use crate::provider::{Provider, charge};

#[tokio::test]
async fn applied_then_lost_is_in_the_ledger_and_unanswered() {
    let provider = Provider::payment();
    provider.misbehave("charge", "applied_then_lost", 1).await;
    let lost = provider.post("/charges", "k", charge("tok_ok")).await;
    assert!(lost.is_none());
    let entries = provider.entries().await;
    assert_eq!(entries.len(), 1);
    let again = provider.told(201, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(again, entries[0]);
}

#[tokio::test]
async fn lost_before_and_error_before_apply_nothing() {
    let provider = Provider::payment();
    provider.misbehave("charge", "lost_before", 1).await;
    provider.misbehave("any", "error_before", 1).await;
    let lost = provider.post("/charges", "k", charge("tok_ok")).await;
    assert!(lost.is_none());
    let failed = provider.told(500, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(failed["code"], "internal");
    assert!(provider.entries().await.is_empty());
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
}

#[tokio::test]
async fn error_after_has_applied() {
    let provider = Provider::payment();
    provider.misbehave("charge", "error_after", 1).await;
    provider.told(500, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(provider.entries().await.len(), 1);
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(provider.entries().await.len(), 1);
}

#[tokio::test]
async fn a_slow_call_is_applied_at_once_and_answered_late() {
    let provider = Provider::payment();
    provider.misbehave("charge", "slow", 1).await;
    let began = Instant::now();
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
    assert!(began.elapsed() >= Duration::from_secs(3));
}

#[tokio::test]
async fn a_duplicate_shows_what_exists() {
    let provider = Provider::payment();
    provider.misbehave("charge", "duplicate", 1).await;
    let first = provider.told(201, "/charges", "k", charge("tok_ok")).await;
    let outcome = provider.told(409, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(
        (&outcome["code"], &outcome["id"]),
        (&"duplicate".into(), &first["id"])
    );
    assert_eq!(outcome["existing"], first);
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
}

#[tokio::test]
async fn a_look_up_can_fail_too_and_ok_ends_it() {
    let provider = Provider::payment();
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
    provider.misbehave("lookup", "lost_before", 1).await;
    provider.misbehave("lookup", "error_before", 99).await;
    assert!(provider.get("/operations/k").await.is_none());
    assert_eq!(provider.get("/operations/k").await.unwrap().status, 500);
    provider.misbehave("lookup", "ok", 1).await;
    assert_eq!(provider.get("/operations/k").await.unwrap().status, 200);
    let unknown = r#"{"operation":"pay","mode":"slow","count":1}"#;
    let outcome = provider.post_text("/faults", &[], unknown.to_owned()).await;
    assert_eq!(outcome.unwrap().status, 400);
}

#[tokio::test]
async fn a_card_misbehaves_as_its_name_says() {
    let provider = Provider::payment();
    for _ in 0..2 {
        let lost = provider
            .post("/charges", "a", charge("tok_timeout_applied"))
            .await;
        assert!(lost.is_none());
        provider.told(500, "/charges", "b", charge("tok_5xx")).await;
    }
    assert_eq!(provider.entries().await.len(), 1);
    assert_eq!(provider.get("/operations/a").await.unwrap().status, 200);
    let card = "tok_timeout_not_applied";
    assert!(provider.post("/charges", "c", charge(card)).await.is_none());
    assert_eq!(provider.get("/operations/c").await.unwrap().status, 404);
    provider.told(201, "/charges", "c", charge(card)).await;
    provider.told(201, "/charges", "c", charge(card)).await;
    assert_eq!(provider.entries().await.len(), 2);
}
