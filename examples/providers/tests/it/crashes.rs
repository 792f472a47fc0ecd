//! Applied operations survive a kill, and an incomplete last line of the ledger is cut off.

use std::{fs, io::Write as _};

use serde_json::json;

use crate::provider::{Provider, charge};

#[tokio::test]
async fn what_was_applied_before_a_kill_is_there_after_it_and_its_key_answers_the_same() {
    let mut provider = Provider::payment();
    let first = provider.told(201, "/charges", "k", charge("tok_ok")).await;
    provider
        .told(402, "/charges", "d", charge("tok_declined"))
        .await;
    provider.misbehave("charge", "applied_then_lost", 1).await;
    let lost = provider.post("/charges", "l", charge("tok_ok")).await;
    assert!(lost.is_none());
    let before = provider.entries().await;
    provider.killed_and_started_again(|_| {});
    assert_eq!(provider.entries().await, before);
    let again = provider.told(201, "/charges", "k", charge("tok_ok")).await;
    assert_eq!(again, first);
    let found = provider.told(201, "/charges", "l", charge("tok_ok")).await;
    assert_eq!(found, before[2]);
    provider
        .told(402, "/charges", "d", charge("tok_declined"))
        .await;
    let refunds = format!("/charges/{}/refunds", first["id"].as_str().unwrap());
    provider
        .told(201, &refunds, "r", json!({ "amount": 500 }))
        .await;
    provider.killed_and_started_again(|_| {});
    let beyond = provider
        .told(409, &refunds, "s", json!({ "amount": 1 }))
        .await;
    assert_eq!(beyond["code"], "exceeds");
}

#[tokio::test]
async fn a_line_that_a_crash_tore_is_cut_off_and_said() {
    let mut provider = Provider::payment();
    provider.told(201, "/charges", "k", charge("tok_ok")).await;
    provider.killed_and_started_again(|ledger| {
        let mut file = fs::File::options().append(true).open(ledger).unwrap();
        file.write_all(b"{\"key\":\"torn\",\"ask").unwrap();
    });
    let said = provider.said();
    assert!(said.contains("torn line"), "{said}");
    assert_eq!(provider.entries().await.len(), 1);
    assert_eq!(provider.get("/operations/torn").await.unwrap().status, 404);
    provider
        .told(201, "/charges", "torn", charge("tok_ok"))
        .await;
    provider.killed_and_started_again(|_| {});
    assert_eq!(provider.entries().await.len(), 2);
}

#[tokio::test]
async fn a_call_that_is_cut_off_while_it_is_slow_was_applied() {
    let mut provider = Provider::payment();
    let slow = provider.post("/charges", "k", charge("tok_slow"));
    tokio::select! {
        _ = slow => panic!("the slow call ended before its three seconds"),
        () = hapax_testkit::wait::eventually(std::time::Duration::from_secs(2), async || {
            !provider.entries().await.is_empty()
        }) => {}
    }
    provider.killed_and_started_again(|_| {});
    assert_eq!(provider.entries().await.len(), 1);
}
