//! A store that is set back to an earlier state while a relay runs: every event that is committed
//! afterwards is delivered.

use hapax_testkit::wait::eventually;

use crate::{
    recorder::Recorder,
    stage::{PATIENCE, Stage},
};

const D: &str = "d";

#[tokio::test]
async fn of_a_store_that_is_set_back_under_a_relay_every_later_event_arrives() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let relay = stage.relay(vec![Stage::destination(D, &sink)]);
    delivered(&stage, &sink, 3).await;
    let image = stage.image();
    delivered(&stage, &sink, 5).await;
    stage.set_back(&image);
    delivered(&stage, &sink, 2).await;
    assert_eq!(relay.stopped(D), None);
    // The relay has dropped the lost events that it had read.
    assert!(sink.counts().values().all(|times| *times == 1));
    relay.drain().await;
}

/// The relay has a higher epoch than the store, although no other relay took over.
#[tokio::test]
async fn a_relay_that_began_after_the_copy_was_taken_goes_on_too() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let first = stage.relay(vec![Stage::destination(D, &sink)]);
    delivered(&stage, &sink, 3).await;
    let image = stage.image();
    first.drain().await;
    let relay = stage.relay(vec![Stage::destination(D, &sink)]);
    delivered(&stage, &sink, 5).await;
    stage.set_back(&image);
    delivered(&stage, &sink, 2).await;
    assert_eq!(relay.stopped(D), None);
    // The relay has dropped the lost events that it had read.
    assert!(sink.counts().values().all(|times| *times == 1));
    relay.drain().await;
}

/// The relay has nothing to settle. It compares the checkpoint that it knows with the one in the
/// store.
#[tokio::test]
async fn an_idle_relay_notices_and_delivers_what_the_copy_had_not_settled() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let first = stage.relay(vec![Stage::destination(D, &sink)]);
    delivered(&stage, &sink, 3).await;
    first.drain().await;
    stage.emit_many(2, 2).await;
    let image = stage.image();
    let relay = stage.relay(vec![Stage::destination(D, &sink)]);
    eventually(PATIENCE, async || sink.offers().len() == 5).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    stage.set_back(&image);
    eventually(PATIENCE, async || sink.offers().len() == 7).await;
    relay.drain().await;
}

/// Commits `count` events and waits until all events have been taken and are settled.
async fn delivered(stage: &Stage, sink: &Recorder, count: usize) {
    let before = sink.counts().len();
    stage.emit_many(count, 8).await;
    eventually(PATIENCE, async || sink.counts().len() == before + count).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
}
