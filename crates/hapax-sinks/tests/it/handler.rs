//! The handler sink with a real store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    delivery::{Frontier, Shards},
    event::{NewEvent, Payload},
    outbox::OutboxEvent,
    sink::{Offer, Sink as _, SinkError},
    store::{Source, Transaction as _},
};
use hapax_sinks::handler::{Handler, HandlerError};
use hapax_sqlite::{Sqlite, Tx};
use hapax_testkit::assert_matches;
use tempfile::TempDir;

use crate::{
    consumer::store,
    events::{any_offer, deliver, offer},
};

#[tokio::test]
async fn an_event_that_is_offered_often_has_its_effect_once() {
    let (store, _directory) = open().await;
    let (runs, counted) = counter();
    let handler = Handler::new(store.clone(), "ledger", move |tx: &mut Tx, event| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(write(tx, event.kind.clone()))
    })
    .unwrap();
    for _ in 0..3 {
        deliver(&handler, any_offer()).await.unwrap();
    }
    assert_eq!((runs.load(Ordering::SeqCst), rows(&store).await), (1, 1));
    let batch: Vec<_> = (2..6).map(|n| offer(n, NewEvent::json("a", &n))).collect();
    assert!(handler.deliver(&batch).await.iter().all(Result::is_ok));
    assert_eq!(rows(&store).await, 5);
}

#[tokio::test]
async fn two_consumers_take_the_same_event_once_each() {
    let (store, _directory) = open().await;
    for consumer in ["ledger", "ledger", "mail"] {
        let handler = Handler::new(store.clone(), consumer, |tx: &mut Tx, event| {
            Box::pin(write(tx, event.kind.clone()))
        });
        deliver(&handler.unwrap(), any_offer()).await.unwrap();
    }
    assert_eq!(rows(&store).await, 2);
}

#[tokio::test]
async fn a_known_id_with_another_payload_is_rejected_and_has_no_effect() {
    let (store, _directory) = open().await;
    let handler = Handler::new(store.clone(), "ledger", |tx: &mut Tx, event| {
        Box::pin(write(tx, event.kind.clone()))
    })
    .unwrap();
    let first = any_offer();
    let mut event = first.event().clone();
    event.payload = Payload::Json("2".to_owned());
    let event = Arc::new(OutboxEvent { position: 2, event });
    deliver(&handler, first).await.unwrap();
    let error = deliver(
        &handler,
        Offer {
            event,
            attempt: 1,
            trace: None,
        },
    )
    .await
    .unwrap_err();
    assert_matches!(
        error,
        SinkError::Rejected {
            error_type: "mismatch",
            ..
        }
    );
    assert_eq!(rows(&store).await, 1);
}

#[tokio::test]
async fn a_failure_undoes_the_effect_and_says_again_or_never() {
    let (store, _directory) = open().await;
    let (attempts, counted) = counter();
    let handler = Handler::new(store.clone(), "ledger", move |tx: &mut Tx, event| {
        let attempt = counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            write(tx, event.kind.clone()).await?;
            let retry_after = Some(Duration::from_secs(9));
            match attempt {
                0 => Err(HandlerError::Again {
                    retry_after,
                    source: "busy".into(),
                }),
                1 => Err(HandlerError::never("no such account")),
                _ => Ok(()),
            }
        })
    })
    .unwrap();
    let again = deliver(&handler, any_offer()).await.unwrap_err();
    let SinkError::Unavailable { retry_after, .. } = again else {
        panic!("{again:?}");
    };
    assert_eq!(retry_after, Some(Duration::from_secs(9)));
    let never = deliver(&handler, any_offer()).await.unwrap_err();
    assert_eq!(
        never.error_chain(),
        "sink rejected the event: no such account"
    );
    assert_eq!(rows(&store).await, 0);
    // Neither attempt left an inbox row, so the third attempt runs.
    deliver(&handler, any_offer()).await.unwrap();
    assert_eq!(
        (attempts.load(Ordering::SeqCst), rows(&store).await),
        (3, 1)
    );
}

#[tokio::test]
async fn a_panic_undoes_the_effect_and_the_event_comes_again() {
    let (store, _directory) = open().await;
    let counted = AtomicUsize::new(0);
    let handler = Handler::new(store.clone(), "ledger", move |tx: &mut Tx, event| {
        let attempt = counted.fetch_add(1, Ordering::SeqCst);
        assert_ne!(attempt, 0, "the function panics at its start");
        Box::pin(async move {
            write(tx, event.kind.clone()).await?;
            assert_ne!(attempt, 1, "the function panics after its write");
            Ok(())
        })
    })
    .unwrap();
    for _ in 0..2 {
        let error = deliver(&handler, any_offer()).await.unwrap_err();
        assert_matches!(
            error,
            SinkError::Declined {
                error_type: "panic",
                ..
            }
        );
        assert_eq!(rows(&store).await, 0);
    }
    deliver(&handler, any_offer()).await.unwrap();
    assert_eq!(rows(&store).await, 1);
}

#[tokio::test]
async fn what_is_prepared_delays_no_other_and_is_written_once() {
    let (store, _directory) = open().await;
    let prepared = Arc::new(AtomicUsize::new(0));
    let (counted, others) = (prepared.clone(), store.clone());
    let handler = Handler::prepared(
        store.clone(),
        "ledger",
        move |event| {
            let (counted, others) = (counted.clone(), others.clone());
            Box::pin(async move {
                counted.fetch_add(1, Ordering::SeqCst);
                // If the transaction were open already, this write would wait for its end.
                let other = others.write(|rows| rows.execute("INSERT INTO other VALUES (1)", []));
                other.await.map_err(HandlerError::again)?;
                Ok(format!("prepared {}", event.kind))
            })
        },
        |tx: &mut Tx, _, made| Box::pin(write(tx, made)),
    )
    .unwrap();
    for _ in 0..3 {
        deliver(&handler, any_offer()).await.unwrap();
    }
    assert_eq!(
        (prepared.load(Ordering::SeqCst), rows(&store).await),
        (3, 1)
    );
}

#[tokio::test]
async fn a_preparation_that_fails_or_panics_leaves_nothing_and_the_event_comes_again() {
    let (store, _directory) = open().await;
    let counted = AtomicUsize::new(0);
    let handler = Handler::prepared(
        store.clone(),
        "ledger",
        move |event| {
            let attempt = counted.fetch_add(1, Ordering::SeqCst);
            assert_ne!(attempt, 0, "the preparation panics at its start");
            Box::pin(async move {
                assert_ne!(attempt, 1, "the preparation panics half-way");
                if attempt == 2 {
                    return Err(HandlerError::never("no such file"));
                }
                Ok(event.kind.clone())
            })
        },
        |tx: &mut Tx, _, made| Box::pin(write(tx, made)),
    )
    .unwrap();
    for error_type in ["panic", "panic", "handler"] {
        let error = deliver(&handler, any_offer()).await.unwrap_err();
        assert_eq!(error.error_type(), error_type);
        assert_eq!(rows(&store).await, 0);
    }
    deliver(&handler, any_offer()).await.unwrap();
    assert_eq!(rows(&store).await, 1);
}

#[tokio::test]
async fn what_a_function_emits_carries_the_context_of_the_event() {
    let (store, _directory) = open().await;
    let handler = Handler::new(store.clone(), "ledger", |tx: &mut Tx, _| {
        Box::pin(async move {
            let emitted = tx.emit(NewEvent::json("ledger.written", &1));
            emitted.map(drop).map_err(HandlerError::never)
        })
    })
    .unwrap();
    let event = NewEvent::json("a", &1)
        .header("correlation_id", "c-1")
        .header("own", "x");
    deliver(&handler, offer(1, event)).await.unwrap();
    let batch = Source::read(&store, &Frontier::default(), Shards::ALL, 10)
        .await
        .unwrap();
    let headers = &batch.events[0].event.headers;
    assert_eq!(headers["correlation_id"], "c-1");
    assert!(!headers.contains_key("own"));
}

#[tokio::test]
async fn a_store_that_is_shut_is_unavailable() {
    let (store, _directory) = open().await;
    let handler = Handler::new(store.clone(), "ledger", |_: &mut Tx, _| {
        Box::pin(async { Ok(()) })
    })
    .unwrap();
    store.close().await.unwrap();
    let error = deliver(&handler, any_offer()).await.unwrap_err();
    assert_matches!(
        error,
        SinkError::Unavailable {
            error_type: "store",
            ..
        }
    );
}

#[tokio::test]
async fn a_consumer_without_a_name_is_refused() {
    let (store, _directory) = open().await;
    for name in [String::new(), "x".repeat(256)] {
        let handler = Handler::new(store.clone(), name, |_: &mut Tx, _| {
            Box::pin(async { Ok(()) })
        });
        assert!(handler.is_err());
    }
}

async fn write(tx: &mut Tx, kind: String) -> Result<(), HandlerError> {
    let written = tx.with(move |rows| rows.execute("INSERT INTO ledger VALUES (?1)", [kind]));
    written.await.map(drop).map_err(HandlerError::again)
}

async fn rows(store: &Sqlite) -> i64 {
    let count = |rows: &hapax_sqlite::rusqlite::Connection| {
        rows.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0))
    };
    store.read(count).await.unwrap()
}

/// A counter, and the same for a closure.
fn counter() -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    (Arc::clone(&count), count)
}

async fn open() -> (Sqlite, TempDir) {
    store("CREATE TABLE ledger (kind TEXT); CREATE TABLE other (id INTEGER)").await
}
