//! Tests of stores that fail, of crashes around the commit, and of providers that disconnect.
//!
//! In each case the provider sends the request again, and there is one event.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use hapax::failpoint::Failpoints;
use hapax_testkit::wait::eventually;
use http::StatusCode;
use tokio::sync::oneshot;

use super::fixture::{Fixture, PATIENCE, SECRET, send};

const BODY: &str = r#"{"id":"evt_1","type":"invoice.paid"}"#;

#[tokio::test]
async fn a_store_that_cannot_be_used_has_the_provider_come_again() {
    let mut fixture = Fixture::new();
    fixture.store.close().await.unwrap();
    let sent = fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
    sent.check_refused(503, "DEPENDENCY.unavailable");
    assert_eq!(sent.header("retry-after"), Some("1"));
    // A wrong signature is refused as before, and says nothing of the store.
    let wrong = fixture.send("stripe", fixture.stripe("other", BODY)).await;
    wrong.check_refused(401, "AUTH.signature");
    fixture.reopen().await;
    let sent = fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
    assert_eq!(
        (sent.status, sent.header("idempotency-status")),
        (StatusCode::OK, None)
    );
    assert_eq!(fixture.events().await.len(), 1);
}

#[tokio::test]
async fn a_crash_around_the_commit_leaves_an_event_or_nothing() {
    for (place, is_kept) in [
        ("sqlite.commit.before", false),
        ("sqlite.commit.after", true),
    ] {
        let strikes = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&strikes);
        let failpoints = Failpoints::calling(move |name| {
            let is_struck = name == place && asked.swap(false, Ordering::SeqCst);
            assert!(!is_struck, "on purpose");
        });
        let fixture = Fixture::failing(failpoints);
        strikes.store(true, Ordering::SeqCst);
        let struck = fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
        struck.check_refused(503, "DEPENDENCY.unavailable");
        assert_eq!(
            fixture.events().await.len(),
            usize::from(is_kept),
            "{place}"
        );
        let again = fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
        assert_eq!(again.status, StatusCode::OK);
        let replayed = again.header("idempotency-status").is_some();
        assert_eq!(replayed, is_kept, "{place}");
        assert_eq!(fixture.events().await.len(), 1, "{place}");
    }
}

#[tokio::test]
async fn a_webhook_is_stored_although_its_provider_disconnects() {
    let fixture = Fixture::new();
    let (let_go, waits) = mpsc::channel::<()>();
    let (begin, holds) = oneshot::channel();
    let store = fixture.store.clone();
    let hold = tokio::spawn(async move {
        let hold = store.write(move |_| {
            let _heard = begin.send(());
            let _let_go = waits.recv();
            Ok(())
        });
        hold.await
    });
    holds.await.unwrap();
    let (ingest, request) = (fixture.ingest.clone(), fixture.stripe(SECRET, BODY));
    let provider = tokio::spawn(async move { send(&ingest, "stripe", request).await });
    while fixture.store.queued() == 0 {
        tokio::task::yield_now().await;
    }
    provider.abort();
    assert!(provider.await.unwrap_err().is_cancelled());
    drop(let_go);
    hold.await.unwrap().unwrap();
    eventually(PATIENCE, async || fixture.events().await.len() == 1).await;
    let again = fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
}
