//! Two relays with one store: one carries, the other waits for its death.

use std::{sync::Arc, time::Duration};

use hapax::{
    relay::{Destination, Relay, RelayHandle, Settings},
    sink::{Receipt, SinkError},
    store::Deliveries,
};
use hapax_testkit::{clock::seeded_random, wait::eventually};
use tokio::time::Instant;

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

const D: &str = "d";
const TAKE_OVER: Duration = Duration::from_millis(500);
/// Signs of life in twice as long as an owner may be silent.
const SIGNS: usize = 10;

#[tokio::test]
async fn a_relay_that_stands_by_takes_over_from_an_owner_that_died() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| Reply::Take);
    let [waiting, owner] = two_relays(&stage, &sink).await;
    stage.emit(&["a"]).await;
    stage.as_time_passes(|| sink.taken() == [1]).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    drop(owner);
    stage.emit(&["b"]).await;
    stage.as_time_passes(|| sink.taken() == [1, 2]).await;
    assert_eq!(waiting.stopped(D), None);
    waiting.drain().await;
}

#[tokio::test]
async fn what_the_dead_owner_had_on_the_wire_is_offered_again_and_nothing_else() {
    let stage = Stage::new();
    let sink = Recorder::new(|offer| match offer.event.position {
        5 => Reply::TakeAndHang,
        _ => Reply::Take,
    });
    let [waiting, owner] = two_relays(&stage, &sink).await;
    stage.emit_many(9, 9).await;
    stage.as_time_passes(|| sink.taken().len() == 9).await;
    let settled = async || stage.backlog(D).await == 1;
    eventually(PATIENCE, settled).await;
    drop(owner);
    sink.now(|_| Reply::Take);
    stage.as_time_passes(|| sink.taken().len() == 10).await;
    eventually(PATIENCE, async || stage.backlog(D).await == 0).await;
    assert_eq!(sink.counts()[&5], 2);
    assert_eq!(sink.taken().len(), 10);
    waiting.drain().await;
}

#[tokio::test]
async fn a_relay_that_stands_by_leaves_an_idle_owner_alone() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| Reply::Take);
    let [waiting, owner] = two_relays(&stage, &sink).await;
    check_kept(&stage).await;
    assert_eq!(
        (waiting.stopped(D), owner.stopped(D)),
        (Some("standby"), None)
    );
}

#[tokio::test]
async fn a_relay_that_stands_by_enables_no_destination_that_its_owner_disabled() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| {
        Reply::Fail(SinkError::Gone {
            receipt: Receipt::default(),
            source: "410".into(),
        })
    });
    let [waiting, owner] = two_relays(&stage, &sink).await;
    stage.emit(&["a"]).await;
    let disabled = || owner.stopped(D) == Some("disabled");
    stage.as_time_passes(disabled).await;
    check_kept(&stage).await;
    assert!(disabled());
    assert_eq!(sink.offers().len(), 1);
    drop(waiting);
}

#[tokio::test]
async fn an_owner_that_is_disabled_finds_out_that_it_was_replaced() {
    let stage = Stage::new();
    let gone = || SinkError::Gone {
        receipt: Receipt::default(),
        source: "410".into(),
    };
    let sink = Recorder::new(move |_| Reply::Fail(gone()));
    let first = relay(&stage, &sink);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || first.stopped(D) == Some("disabled")).await;
    sink.now(|_| Reply::Take);
    let second = relay(&stage, &sink);
    stage
        .as_time_passes(|| first.stopped(D) == Some("standby"))
        .await;
    stage.as_time_passes(|| sink.taken() == [1]).await;
    second.drain().await;
}

#[tokio::test]
async fn time_without_a_store_is_no_silence_of_the_owner() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| Reply::Take);
    let [waiting, owner] = two_relays(&stage, &sink).await;
    let epoch = epoch(&stage).await;
    stage.rename("hapax_checkpoint", "hidden").await;
    let away = Instant::now();
    stage
        .as_time_passes(|| away.elapsed() > 2 * TAKE_OVER)
        .await;
    stage.rename("hidden", "hapax_checkpoint").await;
    check_kept(&stage).await;
    assert_eq!(self::epoch(&stage).await, epoch);
    assert_eq!(waiting.stopped(D), Some("standby"));
    owner.drain().await;
}

#[tokio::test]
async fn a_relay_that_stands_by_drains_at_once() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| Reply::Take);
    let [waiting, owner] = two_relays(&stage, &sink).await;
    let begun = Instant::now();
    waiting.drain().await;
    assert!(begun.elapsed() < TAKE_OVER);
    drop(owner);
}

/// The first to open stands by: the second owns the destination.
async fn two_relays(stage: &Stage, sink: &Recorder) -> [RelayHandle; 2] {
    let first = relay(stage, sink);
    eventually(PATIENCE, async || {
        stage.store.owner(D).await.unwrap().is_some()
    })
    .await;
    let second = relay(stage, sink);
    stage
        .as_time_passes(|| first.stopped(D) == Some("standby"))
        .await;
    [first, second]
}

fn relay(stage: &Stage, sink: &Recorder) -> RelayHandle {
    let mut settings = Settings::new(stage.clock.clock(), seeded_random(2));
    settings.take_over = Some(TAKE_OVER);
    let destination =
        Destination::new(D, Arc::new(sink.clone())).schedule("0s,1s,1s".parse().unwrap());
    Relay::spawn(
        &stage.store,
        vec![destination],
        &settings,
        &stage.store.wake(),
    )
}

/// Watches so many signs of life, and sees one owner alone.
async fn check_kept(stage: &Stage) {
    let first = stage.store.owner(D).await.unwrap().unwrap();
    let (mut last, mut signs) = (first, 0);
    eventually(PATIENCE, async || {
        stage.clock.advance(Duration::from_millis(1));
        let now = stage.store.owner(D).await.unwrap().unwrap();
        signs += usize::from(now.seen_at != last.seen_at);
        last = now;
        signs == SIGNS
    })
    .await;
    assert_eq!(
        last.epoch, first.epoch,
        "somebody took the destination over"
    );
}

async fn epoch(stage: &Stage) -> i64 {
    stage.store.owner(D).await.unwrap().unwrap().epoch
}
