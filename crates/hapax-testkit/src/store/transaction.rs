//! Conformance tests of transactions: rows, events and acceptances are one commit.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use hapax::{
    event::{Headers, NewEvent, Payload},
    inbox::Acceptance,
    limits::{EVENTS_PER_TRANSACTION_MAX, PAYLOAD_BYTES_MAX},
    outbox::{EventError, OutboxEvent},
    store::{Effect, Keys, Transaction},
};

use super::{
    StoreUnderTest, Tx,
    fixture::{Fixture, run_or_replay},
};
use crate::{
    assert_matches,
    events::{claim, event, message, response, single_shot},
};

/// A commit keeps the rows, the events and the acceptances.
pub async fn a_commit_keeps_rows_events_and_acceptances<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let tx = busy_transaction(&fixture, "kept").await;
    tx.commit().await.expect("it is committed");
    check_kept(&fixture, Acceptance::Duplicate, &["kept"]).await;
    let fixture = fixture.reopen().await;
    check_kept(&fixture, Acceptance::Duplicate, &["kept"]).await;
}

/// A rollback keeps no row, no event and no acceptance.
pub async fn a_rollback_keeps_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    busy_transaction(&fixture, "rolled back")
        .await
        .rollback()
        .await;
    check_kept(&fixture, Acceptance::First, &[]).await;
}

/// A transaction that is dropped is rolled back.
pub async fn a_dropped_transaction_keeps_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    drop(busy_transaction(&fixture, "dropped").await);
    check_kept(&fixture, Acceptance::First, &[]).await;
}

/// A response without a key keeps its effect and is not stored.
pub async fn an_answer_without_a_key_only_keeps_the_effect<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let tx = busy_transaction(&fixture, "kept").await;
    let kept_for = tx.complete(&response("{}"), Effect::Keep).await;
    assert_eq!(kept_for.expect("it is committed"), Duration::ZERO);
    check_kept(&fixture, Acceptance::Duplicate, &["kept"]).await;
}

/// A refusal without a key keeps nothing, not even acceptances.
pub async fn a_dropped_effect_without_a_key_keeps_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let tx = busy_transaction(&fixture, "dropped").await;
    let kept_for = tx.complete(&response("{}"), Effect::Drop).await;
    assert_eq!(kept_for.expect("it is rolled back"), Duration::ZERO);
    check_kept(&fixture, Acceptance::First, &[]).await;
}

/// An event that is not valid is refused alone.
pub async fn a_refused_event_leaves_the_transaction_usable<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.begin().await;
    S::write_row(&mut tx, "before").await;
    tx.emit(event("1")).expect("an event is emitted");
    let large = Payload::Json(format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX)));
    let too_large = tx.emit(NewEvent::new("order.created", large));
    assert_matches!(too_large, Err(EventError::TooLarge { .. }));
    for refused in [
        NewEvent::new("order.created", Payload::Json("{".to_owned())),
        NewEvent::json("order created", &1),
        event("2").header("x", "a\r\nb: c"),
    ] {
        let refused = tx.emit(refused);
        assert_matches!(refused, Err(EventError::Malformed { .. }));
    }
    tx.emit(event("3")).expect("an event is emitted");
    S::write_row(&mut tx, "after").await;
    tx.commit().await.expect("it is committed");
    assert_eq!(fixture.rows().await, ["after", "before"]);
    assert_eq!(fixture.events().await.len(), 2);
}

/// A transaction accepts a limited number of events, and refuses more before it commits.
pub async fn a_transaction_carries_no_more_events_than_the_bound<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.begin().await;
    for number in 0..EVENTS_PER_TRANSACTION_MAX {
        tx.emit(NewEvent::json("order.created", &number))
            .expect("an event is emitted");
    }
    let one_more = tx.emit(event("one more"));
    assert_matches!(one_more, Err(EventError::TooLarge { .. }));
    tx.commit().await.expect("it is committed");
    assert_eq!(fixture.events().await.len(), EVENTS_PER_TRANSACTION_MAX);
}

/// Each concurrent transaction keeps exactly what it commits.
pub async fn transactions_at_once_keep_exactly_what_they_commit<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let ended = (0..120).map(|number| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            let mut tx = store.begin(None, Headers::new()).await.expect("it opens");
            S::write_row(&mut tx, &number.to_string()).await;
            tx.emit(event(&number.to_string()))
                .expect("an event is emitted");
            match number % 3 {
                0 => tx.commit().await.expect("it is committed"),
                1 => tx.rollback().await,
                _ => drop(tx),
            }
        })
    });
    for one in join_all(ended).await {
        one.expect("no panic");
    }
    let mut kept: Vec<_> = (0..120)
        .step_by(3)
        .map(|number: u32| number.to_string())
        .collect();
    kept.sort();
    assert_eq!(fixture.rows().await, kept);
    let mut outcome: Vec<_> = fixture
        .events()
        .await
        .iter()
        .filter_map(|event| Some(event.event.aggregate.as_ref()?.id.clone()))
        .collect();
    outcome.sort();
    assert_eq!(outcome, kept);
}

/// A caller that leaves while it waits for its turn does not block others.
pub async fn a_caller_that_leaves_while_it_waits_delays_no_other<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let tx = fixture.claim(claim("k")).await;
    let waiting: Vec<_> = (0..20)
        .map(|number| {
            let (store, key) = (fixture.store().clone(), format!("k{}", number % 2));
            tokio::spawn(async move { store.claim(claim(&key)).await.map(drop) })
        })
        .collect();
    for one in &waiting {
        tokio::task::yield_now().await;
        one.abort();
    }
    tx.rollback().await;
    for key in ["k", "k0", "k1"] {
        fixture.run(claim(key), key, &response(key)).await;
    }
    assert_eq!(fixture.rows().await, ["k", "k0", "k1"]);
}

/// If a caller leaves while its response is being stored, everything is committed or nothing.
pub async fn an_abandoned_completion_is_whole_or_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for number in 0..20 {
        let key = number.to_string();
        let mut tx = fixture.claim(claim(&key)).await;
        S::write_row(&mut tx, &key).await;
        tx.emit(event(&key)).expect("an event is emitted");
        drop(tx.complete(&response(&key), Effect::Keep).now_or_never());
    }
    for number in 0..20 {
        let key = number.to_string();
        let outcome = run_or_replay::<S>(fixture.store(), claim(&key), &key).await;
        assert_eq!(outcome, response(&key));
    }
    assert_eq!(fixture.rows().await.len(), 20);
    assert_eq!(fixture.events().await.len(), 20);
}

/// If a row is visible, its event and its response are, too, because all were committed together.
pub async fn whoever_sees_a_row_finds_its_event_and_its_answer<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let write = async {
        for number in 0..WATCHED {
            let text = number.to_string();
            if number.is_multiple_of(2) {
                run_or_replay::<S>(fixture.store(), claim(&text), &text).await;
            } else {
                let mut plan = single_shot(claim(&text), vec![S::row_statement(&text)], &text);
                plan.events.push(event(&text));
                fixture.store().execute_plan(plan).await.expect("it runs");
            }
        }
    };
    // The events and the responses are read at different times, so one may be missing for a moment
    // only.
    let events = watch(&fixture, async |_| abouts(&fixture).await);
    let responses = watch(&fixture, async |rows| {
        let mut taken = HashSet::new();
        for row in rows {
            let record = fixture.store().look_up(&claim(&row).scope).await;
            taken.extend(record.expect("a key is read").map(|_| row));
        }
        taken
    });
    tokio::join!(write, events, responses);
}

/// The number of rows that are watched while they are committed.
const WATCHED: usize = 100;

/// Polls for new rows until all exist, and requires that `found` contains each of them.
async fn watch<S: StoreUnderTest>(
    fixture: &Fixture<S>,
    found: impl AsyncFn(Vec<String>) -> HashSet<String>,
) {
    let mut seen = HashSet::new();
    while seen.len() < WATCHED {
        let rows = fixture.rows().await;
        let new: Vec<_> = rows.into_iter().filter(|row| !seen.contains(row)).collect();
        if new.is_empty() {
            continue;
        }
        let found = found(new.clone()).await;
        let alone: Vec<_> = new.iter().filter(|row| !found.contains(*row)).collect();
        assert!(
            alone.is_empty(),
            "rows without their events or responses: {alone:?}"
        );
        seen.extend(new);
    }
}

/// The aggregates of the events in the outbox.
async fn abouts<S: StoreUnderTest>(fixture: &Fixture<S>) -> HashSet<String> {
    let events = fixture.events().await;
    let about = |event: &Arc<OutboxEvent>| Some(event.event.aggregate.as_ref()?.id.clone());
    events.iter().filter_map(about).collect()
}

/// A transaction that has done something of every kind.
async fn busy_transaction<S: StoreUnderTest>(fixture: &Fixture<S>, row: &str) -> Tx<S> {
    let mut tx = fixture.begin().await;
    S::write_row(&mut tx, row).await;
    tx.emit(event("1")).expect("an event is emitted");
    let accepted = tx.accept(&message("mailer", "m1", "hello")).await;
    assert_eq!(accepted.expect("the message is checked"), Acceptance::First);
    tx
}

async fn check_kept<S: StoreUnderTest>(fixture: &Fixture<S>, again: Acceptance, rows: &[&str]) {
    let mut tx = fixture.begin().await;
    let accepted = tx.accept(&message("mailer", "m1", "hello")).await;
    assert_eq!(accepted.expect("the message is checked"), again);
    tx.rollback().await;
    assert_eq!(fixture.rows().await, rows);
    assert_eq!(fixture.events().await.len(), rows.len());
}
