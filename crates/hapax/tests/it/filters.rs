//! Filters on the content of events: an event that does not match is skipped like one of another
//! type.

use hapax::{
    event::{NewEvent, Payload},
    filter::Filter,
    relay::Order,
    sink::SinkError,
};
use hapax_testkit::wait::eventually;
use serde_json::json;

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

#[tokio::test]
async fn an_event_that_does_not_match_the_filter_is_not_delivered_and_delays_nothing() {
    let stage = Stage::new();
    let (large, small) = (Recorder::taking(), Recorder::taking());
    // One at a time, so that they arrive in the order of their commits.
    let destination = |name: &str, sink: &Recorder, of: &str| {
        let destination = Stage::destination(name, sink).concurrency(1);
        destination.filter(filter(of))
    };
    let relay = stage.relay(vec![
        destination("large", &large, r#"{"/amount": {"$gte": 100}}"#),
        destination("small", &small, r#"{"/amount": {"$lt": 100}}"#),
    ]);
    for amount in ["99.99", "100.00", "1e3", "\"100\""] {
        stage.emit_event(order("a", amount)).await;
    }
    stage
        .emit_event(NewEvent::json("order.created", &json!({})))
        .await;
    eventually(PATIENCE, async || {
        large.taken() == [2, 3] && small.taken() == [1]
    })
    .await;
    for name in ["large", "small"] {
        eventually(PATIENCE, async || stage.backlog(name).await == 0).await;
        assert_eq!(stage.parked(name).await, 0);
    }
    relay.drain().await;
}

/// The events that do not match are no part of the order: they are neither blocked nor delivered.
#[tokio::test]
async fn order_is_kept_among_the_events_that_match_a_filter() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| Reply::Fail(SinkError::unavailable("status_5xx", "503")));
    let destination = Stage::destination("d", &sink)
        .order(Order::Key)
        .filter(filter(r#"{"/amount": {"$gte": 100}}"#))
        .schedule(["1s"; 60].join(",").parse().unwrap());
    let relay = stage.relay(vec![destination]);
    for amount in ["100", "1", "200", "2", "300"] {
        stage.emit_event(order("a", amount)).await;
    }
    stage.as_time_passes(|| !sink.offers().is_empty()).await;
    eventually(PATIENCE, async || stage.parked("d").await == 3).await;
    sink.now(|_| Reply::Take);
    stage.as_time_passes(|| sink.taken().len() == 3).await;
    assert_eq!(sink.taken(), [1, 3, 5]);
    eventually(PATIENCE, async || stage.backlog("d").await == 0).await;
    relay.drain().await;
}

#[tokio::test]
async fn a_changed_filter_applies_to_the_events_that_are_read_afterwards() {
    let stage = Stage::new();
    let sink = Recorder::taking();
    let destination = Stage::destination("d", &sink);
    let of = |text: &str| destination.clone().filter(filter(text));
    let relay = stage.relay(vec![of(r#"{"/amount": 1}"#)]);
    stage.emit_event(order("a", "1")).await;
    stage.emit_event(order("a", "2")).await;
    eventually(PATIENCE, async || sink.taken() == [1]).await;
    eventually(PATIENCE, async || stage.backlog("d").await == 0).await;
    relay.set(vec![of(r#"{"/amount": 2}"#)]);
    // Until the relay has applied the change, it uses the old filter.
    let is_taken_again = async || {
        let epoch = "SELECT epoch FROM hapax_checkpoint WHERE destination = 'd'";
        let read = stage
            .store
            .read(move |rows| rows.query_row(epoch, [], |row| row.get(0)));
        read.await.is_ok_and(|epoch: i64| epoch == 2)
    };
    eventually(PATIENCE, is_taken_again).await;
    stage.emit_event(order("a", "1")).await;
    stage.emit_event(order("a", "2")).await;
    eventually(PATIENCE, async || sink.taken() == [1, 4]).await;
    relay.drain().await;
}

fn filter(text: &str) -> Filter {
    text.parse().unwrap()
}

/// An order whose amount is written in this way.
fn order(id: &str, amount: &str) -> NewEvent {
    let payload = format!("{{\"amount\": {amount}}}");
    NewEvent::new("order.created", Payload::Json(payload)).about("order", id)
}
