//! What an operator does in another process while a relay runs: the relay obeys within a second.
//!
//! The operator's handle shares nothing with the store in memory, as in another process.

use std::time::{Duration, Instant};

use hapax::{
    admin::{Actor, DeliveryAdmin as _, DestinationAdmin as _, JobAdmin as _, JobStep},
    sink::SinkError,
    store::{Settlements as _, StoreError},
};
use hapax_testkit::{assert_matches, wait::eventually};

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

/// How soon a relay knows of a change. The tests allow twice as much, because the machine may be
/// busy.
const SOON: Duration = Duration::from_secs(1);

fn ops() -> Actor {
    Actor::new("ops")
}

/// The positions that were taken. Without an order, several may be offered at once.
fn sorted(sink: &Recorder) -> Vec<i64> {
    let mut taken = sink.taken();
    taken.sort_unstable();
    taken
}

fn refuse() -> Reply {
    Reply::Fail(SinkError::rejected("status", "the receiver rejects it"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_another_process_replays_is_offered_at_once() {
    let stage = Stage::new();
    let sink = Recorder::except(1, refuse);
    let relay = stage.relay(vec![Stage::destination("orders", &sink)]);
    stage.emit(&["a", "b"]).await;
    eventually(PATIENCE, async || stage.dead("orders").await == [(1, 1)]).await;
    sink.now(|_| Reply::Take);
    let operator = stage.operator();
    operator
        .replay_dead_letter(&ops(), "orders", 1)
        .await
        .unwrap();
    let replayed = Instant::now();
    eventually(PATIENCE, async || sink.taken() == [2, 1]).await;
    assert!(replayed.elapsed() < 2 * SOON, "{:?}", replayed.elapsed());
    relay.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_payload_is_what_the_relay_offers() {
    let stage = Stage::new();
    let sink = Recorder::except(1, refuse);
    let relay = stage.relay(vec![Stage::destination("orders", &sink)]);
    stage
        .emit_event(hapax::event::NewEvent::json(
            "order.created",
            &serde_json::json!({"card": 1, "to": "x"}),
        ))
        .await;
    eventually(PATIENCE, async || stage.dead("orders").await == [(1, 1)]).await;
    sink.now(|offer| match &offer.event().payload {
        hapax::event::Payload::Json(text) if text == r#"{"card":2,"to":"x"}"# => Reply::Take,
        _ => refuse(),
    });
    let operator = stage.operator();
    let ops = ops();
    let edited = operator.edit_dead_letter(&ops, "orders", 1, r#"{"card":2}"#);
    edited.await.unwrap();
    eventually(PATIENCE, async || sink.taken() == [1]).await;
    relay.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discarded_dead_letter_frees_its_order_key() {
    let stage = Stage::new();
    let sink = Recorder::except(1, refuse);
    let ordered = Stage::destination("orders", &sink).order(hapax::relay::Order::Key);
    let relay = stage.relay(vec![ordered]);
    stage.emit(&["a", "a"]).await;
    eventually(PATIENCE, async || stage.dead("orders").await == [(1, 1)]).await;
    assert!(sink.taken().is_empty());
    let operator = stage.operator();
    let ops = ops();
    let discarded = operator.discard_dead_letter(&ops, "orders", 1, "paid in cash");
    discarded.await.unwrap();
    eventually(PATIENCE, async || sink.taken() == [2]).await;
    relay.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_destination_is_offered_nothing_until_it_is_resumed() {
    let stage = Stage::new();
    let (sink, other) = (Recorder::taking(), Recorder::taking());
    let relay = stage.relay(vec![
        Stage::destination("orders", &sink),
        Stage::destination("audit", &other),
    ]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || {
        sink.taken() == [1] && other.taken() == [1]
    })
    .await;
    let operator = stage.operator();
    assert!(operator.pause_destination(&ops(), "orders").await.unwrap());
    assert!(!operator.pause_destination(&ops(), "orders").await.unwrap());
    // Events of this second may still be offered. The other destination shows that time passes.
    let paused = Instant::now();
    let mut late = Vec::new();
    while paused.elapsed() < 3 * SOON {
        let count = other.taken().len();
        stage.emit(&["b"]).await;
        let emitted = Instant::now();
        eventually(PATIENCE, async || other.taken().len() > count).await;
        if emitted.duration_since(paused) > 2 * SOON {
            late.extend(other.taken().last().copied());
        }
    }
    assert!(!late.is_empty());
    let taken = sink.taken();
    assert!(
        !late.iter().any(|position| taken.contains(position)),
        "{late:?}: {taken:?}"
    );
    assert!(operator.resume_destination(&ops(), "orders").await.unwrap());
    eventually(PATIENCE, async || sorted(&sink) == sorted(&other)).await;
    relay.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_was_paused_before_the_start_is_offered_nothing() {
    let stage = Stage::new();
    let (sink, other) = (Recorder::taking(), Recorder::taking());
    let destinations = || {
        vec![
            Stage::destination("orders", &sink),
            Stage::destination("audit", &other),
        ]
    };
    let relay = stage.relay(destinations());
    eventually(PATIENCE, async || {
        stage.operator().partitions(None).await.unwrap().len() == 2
    })
    .await;
    relay.drain().await;
    let operator = stage.operator();
    operator.pause_destination(&ops(), "orders").await.unwrap();
    stage.emit(&["a", "b"]).await;
    let relay = stage.relay(destinations());
    eventually(PATIENCE, async || sorted(&other) == [1, 2]).await;
    relay.drain().await;
    assert!(sink.taken().is_empty());
    assert_eq!(stage.backlog("orders").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_destination_is_served_again_after_it_is_resumed() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| {
        Reply::Fail(SinkError::Gone {
            receipt: hapax::sink::Receipt::default(),
            source: "410".into(),
        })
    });
    let relay = stage.relay(vec![Stage::destination("orders", &sink)]);
    stage.emit(&["a"]).await;
    let operator = stage.operator();
    eventually(PATIENCE, async || {
        let partitions = operator.partitions(Some("orders")).await.unwrap();
        partitions.iter().any(|it| it.disabled_at.is_some())
    })
    .await;
    sink.now(|_| Reply::Take);
    assert!(operator.resume_destination(&ops(), "orders").await.unwrap());
    eventually(PATIENCE, async || sink.taken().contains(&1)).await;
    let partitions = operator.partitions(Some("orders")).await.unwrap();
    assert_eq!(partitions[0].disabled_at, None);
    relay.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_destination_is_given_up_and_its_rows_are_deleted() {
    let stage = Stage::new();
    let (sink, other) = (Recorder::except(1, refuse), Recorder::taking());
    let relay = stage.relay(vec![
        Stage::destination("orders", &sink),
        Stage::destination("audit", &other),
    ]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || stage.dead("orders").await == [(1, 1)]).await;
    let operator = stage.operator();
    let job = operator.remove_destination(&ops(), "orders").await.unwrap();
    // The relay gives it up within the second, before the job deletes anything.
    let removed = Instant::now();
    eventually(PATIENCE, async || {
        stage.emit(&["b"]).await;
        let count = stage.event_count().await;
        eventually(PATIENCE, async || other.taken().len() == count).await;
        removed.elapsed() > 2 * SOON && sink.offers().len() < count
    })
    .await;
    let offers = sink.offers().len();
    stage.clock.advance(Duration::from_secs(6));
    let mut runs = 0;
    loop {
        match operator.run_job().await.unwrap() {
            JobStep::Batch { ended: true, .. } => break,
            JobStep::Batch { .. } => runs += 1,
            ran => panic!("{ran:?}"),
        }
        assert!(runs < 100, "the removal does not end");
    }
    assert_eq!(operator.job(&ops(), job.id).await.unwrap().state, "done");
    assert!(
        operator
            .partitions(Some("orders"))
            .await
            .unwrap()
            .is_empty()
    );
    assert!(stage.dead("orders").await.is_empty());
    stage.emit(&["c"]).await;
    let count = stage.event_count().await;
    eventually(PATIENCE, async || other.taken().len() == count).await;
    assert_eq!(sink.offers().len(), offers);
    relay.drain().await;
}

/// A relay that did not notice the removal in time, because its process was stopped, cannot write.
#[tokio::test]
async fn a_removed_destination_cannot_be_opened_and_its_last_owner_is_fenced() {
    use hapax::{delivery::Settlement, store::Partitions as _};

    let stage = Stage::new();
    let first = stage.store.open("orders").await.unwrap();
    let operator = stage.operator();
    operator.remove_destination(&ops(), "orders").await.unwrap();
    let refused = stage.store.open("orders").await;
    assert_matches!(refused, Err(StoreError::Statement { .. }));
    stage.clock.advance(Duration::from_secs(6));
    while operator.run_job().await.unwrap() != JobStep::Nothing {}
    let settlement = |epoch| Settlement {
        destination: "orders".to_owned(),
        epoch,
        ..Settlement::default()
    };
    let late = stage.store.settle(settlement(first.epoch)).await;
    assert_matches!(late, Err(StoreError::Fenced));
    // Created again, it has higher epochs than before.
    let spec = r#"{"sink":{"file":{"path":"/tmp/x"}}}"#;
    let ops = ops();
    let created = operator.create_destination(&ops, "orders", spec, None);
    created.await.unwrap();
    let again = stage.store.open("orders").await.unwrap();
    assert!(again.epoch > first.epoch, "{} {}", again.epoch, first.epoch);
    let late = stage.store.settle(settlement(first.epoch)).await;
    assert_matches!(late, Err(StoreError::Fenced));
    stage.store.settle(settlement(again.epoch)).await.unwrap();
}
