//! Destinations that are added, changed, paused and removed while the relay runs.

use std::sync::Arc;

use hapax::{
    delivery::Start,
    event::NewEvent,
    relay::{Destination, RelayHandle},
    sink::Sink,
};
use hapax_testkit::wait::eventually;

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

#[tokio::test]
async fn a_destination_that_is_added_gets_every_event_and_one_that_is_there_goes_on() {
    let stage = Stage::new();
    let (x, y) = (taking(), taking());
    let old = Destination::new("x", sink(&x));
    let relay = stage.relay(vec![old.clone()]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || x.taken() == [1]).await;
    relay.set(vec![old, Destination::new("y", sink(&y))]);
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || y.taken() == [1, 2]).await;
    eventually(PATIENCE, async || x.taken() == [1, 2]).await;
    assert_eq!(relay.stopped("y"), None);
    relay.drain().await;
}

#[tokio::test]
async fn a_destination_that_is_taken_away_is_drained_and_offered_nothing_more() {
    let stage = Stage::new();
    let (x, y) = (taking(), taking());
    let kept = Destination::new("y", sink(&y));
    let relay = stage.relay(vec![Destination::new("x", sink(&x)), kept.clone()]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || x.taken() == [1] && y.taken() == [1]).await;
    eventually(PATIENCE, async || stage.backlog("x").await == 0).await;
    relay.set(vec![kept]);
    eventually(PATIENCE, async || !relay.enable("x")).await;
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || y.taken() == [1, 2]).await;
    assert_eq!(x.taken(), [1]);
    assert_eq!(
        stage.backlog("x").await,
        1,
        "a destination that is added again continues at its checkpoint"
    );
}

#[tokio::test]
async fn a_paused_destination_keeps_its_events_until_it_goes_on() {
    let stage = Stage::new();
    let x = taking();
    let place = Destination::new("x", sink(&x));
    let relay = stage.relay(vec![place.clone()]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || x.taken() == [1]).await;
    relay.set(vec![place.clone().paused(true)]);
    eventually(PATIENCE, async || relay.stopped("x") == Some("paused")).await;
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || stage.backlog("x").await == 1).await;
    assert_eq!(x.taken(), [1]);
    relay.set(vec![place]);
    eventually(PATIENCE, async || x.taken() == [1, 2]).await;
    assert_eq!(relay.stopped("x"), None);
}

#[tokio::test]
async fn a_paused_destination_that_starts_now_misses_no_later_event() {
    let stage = Stage::new();
    stage.emit(&["a"]).await;
    let x = taking();
    let place = Destination::new("x", sink(&x)).start(Start::Now);
    let relay = stage.relay(vec![place.clone().paused(true)]);
    eventually(PATIENCE, async || relay.stopped("x") == Some("paused")).await;
    stage.emit(&["b"]).await;
    relay.set(vec![place]);
    eventually(PATIENCE, async || !x.taken().is_empty()).await;
    assert_eq!(x.taken(), [2]);
    relay.drain().await;
}

#[tokio::test]
async fn a_changed_destination_goes_on_as_it_is_now_and_repeats_nothing() {
    let stage = Stage::new();
    let (before, after) = (taking(), taking());
    let relay = stage.relay(vec![Destination::new("x", sink(&before)).only(["a"])]);
    for kind in ["a", "b"] {
        stage.emit_event(NewEvent::json(kind, &1)).await;
    }
    eventually(PATIENCE, async || before.taken() == [1]).await;
    eventually(PATIENCE, async || stage.backlog("x").await == 0).await;
    relay.set(vec![Destination::new("x", sink(&after))]);
    // Until the relay has applied the change, it uses the old settings.
    let is_taken_anew = async || {
        let epoch = "SELECT epoch FROM hapax_checkpoint WHERE destination = 'x'";
        let read = stage
            .store
            .read(move |rows| rows.query_row(epoch, [], |row| row.get(0)));
        read.await.is_ok_and(|epoch: i64| epoch == 2)
    };
    eventually(PATIENCE, is_taken_anew).await;
    stage.emit_event(NewEvent::json("b", &1)).await;
    eventually(PATIENCE, async || after.taken() == [3]).await;
    assert_eq!(before.taken(), [1]);
    relay.drain().await;
}

#[tokio::test]
async fn a_destination_that_stays_the_same_is_not_disturbed() {
    let stage = Stage::new();
    let x = Recorder::new(|_| Reply::TakeAndHang);
    let place = Destination::new("x", sink(&x));
    let relay: RelayHandle = stage.relay(vec![place.clone()]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || x.taken() == [1]).await;
    let y = taking();
    relay.set(vec![place, Destination::new("y", sink(&y))]);
    eventually(PATIENCE, async || y.taken() == [1]).await;
    assert_eq!(x.taken(), [1], "the first event is still in flight");
}

#[tokio::test]
async fn a_destination_in_partitions_gets_every_event_once() {
    let stage = Stage::new();
    let x = taking();
    let place = Destination::new("x", sink(&x)).partitions(4).unwrap();
    let relay = stage.relay(vec![place]);
    stage.emit_many(200, 40).await;
    eventually(PATIENCE, async || x.counts().len() == 200).await;
    assert!(x.counts().values().all(|offers| *offers == 1));
    assert_eq!(relay.stopped("x"), None);
    relay.drain().await;
}

/// The events are for one partition, and the others have nothing to do.
#[tokio::test]
async fn every_partition_passes_the_events_of_one() {
    let stage = Stage::new();
    let x = taking();
    let place = Destination::new("x", sink(&x)).partitions(8).unwrap();
    let relay = stage.relay(vec![place]);
    for number in 1..=5 {
        stage.emit(&["a"]).await;
        eventually(PATIENCE, async || x.taken().len() == number).await;
        for partition in 0..8 {
            let name = format!("x/{partition}");
            eventually(PATIENCE, async || stage.backlog(&name).await == 0).await;
        }
    }
    assert_eq!(x.taken(), [1, 2, 3, 4, 5]);
    relay.drain().await;
}

fn taking() -> Recorder {
    Recorder::taking()
}

fn sink(recorder: &Recorder) -> Arc<dyn Sink> {
    Arc::new(recorder.clone())
}
