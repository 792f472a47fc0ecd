//! The relay when its store, its clock, its sinks or its settings cause trouble.

use std::{
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hapax::{
    event::NewEvent,
    failpoint::Failpoints,
    limits::{BREAKER_OPEN, FAILING_MAX, STORE_BACKOFF, UNSETTLED_EVENTS},
    relay::{Order, Relay, Settings},
    sink::{Receipt, SinkError},
    store::DeadLetters as _,
};
use hapax_testkit::{clock::seeded_random, wait::eventually};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::sync::Semaphore;

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

#[tokio::test]
async fn an_event_that_hung_until_a_crash_does_not_keep_the_rest_from_being_read() {
    let stage = Stage::new();
    stage.emit_many(UNSETTLED_EVENTS, 1).await;
    stage.emit_many(1_500, 1).await;
    let sink = Recorder::except(1, || Reply::Hang).batches(100);
    let destination = || {
        Stage::destination("d", &sink)
            .schedule("0s,0s,0s".parse().unwrap())
            .timeout(Duration::from_hours(1))
    };
    let relay = stage.relay(vec![destination()]);
    // Everything that may be read is read and settled, except for the batch with the first event.
    eventually(PATIENCE, async || {
        let left = stage.backlog("d").await;
        left <= 1_500 + 100
    })
    .await;
    drop(relay);
    sink.now(|_| Reply::Take);
    let relay = stage.relay(vec![destination()]);
    let all = UNSETTLED_EVENTS + 1_500;
    stage.as_time_passes(|| sink.counts().len() == all).await;
    relay.drain().await;
}

#[tokio::test]
async fn draining_outlasts_a_store_that_fails_for_a_moment() {
    let stage = Stage::new();
    let (gate, tries) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let sink = gated(&gate);
    let mut settings = Settings::new(stage.clock.clock(), seeded_random(2));
    let seen = Arc::clone(&tries);
    settings.failpoints = Failpoints::calling(move |name| {
        if name == "relay.settle.before" {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    let destinations = vec![Stage::destination("d", &sink)];
    let relay = Relay::spawn(
        &stage.store,
        destinations,
        &settings,
        &stage.store.notifier(),
    );
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || sink.offers() == [(1, 1)]).await;
    stage.rename("hapax_checkpoint", "hidden").await;
    let before = tries.load(Ordering::SeqCst);
    let draining = tokio::spawn(relay.drain());
    gate.add_permits(1);
    eventually(PATIENCE, async || tries.load(Ordering::SeqCst) > before).await;
    stage.rename("hidden", "hapax_checkpoint").await;
    draining.await.unwrap();
    assert_eq!(
        stage.backlog("d").await,
        0,
        "the delivered event must be settled"
    );
}

#[tokio::test]
async fn an_event_that_cannot_be_read_holds_up_nothing_before_it() {
    let stage = Stage::new();
    stage.emit(&["a", "b"]).await;
    stage
        .execute("UPDATE hapax_outbox_event SET headers = 'torn' WHERE id = 2")
        .await;
    let gate = Arc::new(Semaphore::new(0));
    let sink = gated(&gate);
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    eventually(PATIENCE, async || sink.offers() == [(1, 1)]).await;
    gate.add_permits(1);
    eventually(PATIENCE, async || stage.backlog("d").await == 1).await;
    gate.add_permits(1);
    stage
        .execute("UPDATE hapax_outbox_event SET headers = '{}' WHERE id = 2")
        .await;
    eventually(PATIENCE, async || sink.taken() == [1, 2]).await;
    relay.drain().await;
}

#[tokio::test]
async fn what_arrived_is_written_down_at_once_however_long_nothing_could_be_read() {
    let stage = Stage::new();
    stage.emit(&["a", "b"]).await;
    stage
        .execute("UPDATE hapax_outbox_event SET headers = 'torn' WHERE id = 2")
        .await;
    let gate = Arc::new(Semaphore::new(0));
    let sink = gated(&gate);
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    eventually(PATIENCE, async || sink.offers() == [(1, 1)]).await;
    // By now the pause between two reads is seconds long.
    let began = Instant::now();
    eventually(PATIENCE, async || began.elapsed() > STORE_BACKOFF.1).await;
    gate.add_permits(1);
    let arrived = Instant::now();
    eventually(PATIENCE, async || stage.backlog("d").await == 1).await;
    assert!(
        arrived.elapsed() < STORE_BACKOFF.1 / 5,
        "it took {:?}",
        arrived.elapsed()
    );
    relay.drain().await;
}

/// This holds for any number of such events. The clock does not advance, so a breaker that opened
/// would stay open.
#[tokio::test]
async fn events_that_the_receiver_declines_hold_up_none_of_those_behind_them() {
    let stage = Stage::new();
    stage.emit_many(90, 90).await;
    stage.emit(&["good", "better"]).await;
    let sink = Recorder::new(|offer| match offer.event.position {
        ..=90 => Reply::Fail(SinkError::declined("unroutable", "no queue listens")),
        _ => Reply::Take,
    });
    let destination = Stage::destination("d", &sink).concurrency(1);
    let relay = stage.relay(vec![destination]);
    eventually(PATIENCE, async || sink.taken() == [91, 92]).await;
    // They are retried by the schedule, and end as dead letters.
    eventually(PATIENCE, async || {
        stage.clock.advance(Duration::from_millis(500));
        stage.dead("d").await.len() == 90
    })
    .await;
    let tried = stage.store.attempts("d", 1).await.unwrap();
    let outcomes: Vec<_> = tried.iter().map(|it| it.outcome.as_str()).collect();
    assert_eq!(outcomes, ["declined"; 3]);
    relay.drain().await;
}

/// If a receiver responds with 500, it may be down or it may reject one type. The probe uses an
/// event of another type.
#[tokio::test]
async fn a_type_at_which_the_receiver_fails_holds_up_others_for_a_few_probes_at_most() {
    let stage = Stage::new();
    stage.emit_many(90, 90).await;
    let good = NewEvent::json("order.paid", &1).about("order", "good");
    stage.emit_event(good).await;
    let sink = Recorder::new(|offer| match offer.event.event.kind.as_str() {
        "order.created" => unavailable(),
        _ => Reply::Take,
    });
    let destination = Stage::destination("d", &sink)
        .concurrency(1)
        .schedule("0s,1h".parse().unwrap());
    let relay = stage.relay(vec![destination]);
    eventually(PATIENCE, async || sink.offers().len() == 10).await;
    stage.as_time_passes(|| sink.taken() == [91]).await;
    let offers = sink.offers();
    let before = offers.iter().position(|(position, _)| *position == 91);
    assert!(before.unwrap() <= 10 + 3, "{offers:?}");
    relay.drain().await;
}

/// A spill parks events by key and leaves them like this: the first event of the key hangs, and
/// does not delay the others.
#[tokio::test]
async fn what_was_blocked_by_its_key_does_not_wait_for_it_where_no_order_is_kept() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| unavailable());
    let destination = |order| {
        Stage::destination("d", &sink)
            .order(order)
            .concurrency(64)
            .schedule(["1s"; 60].join(",").parse().unwrap())
            .timeout(Duration::from_hours(1))
    };
    let relay = stage.relay(vec![destination(Order::Key)]);
    stage.emit(&["a"; 40]).await;
    eventually(PATIENCE, async || stage.parked("d").await == 40).await;
    relay.drain().await;
    sink.now(|offer| match offer.event.position {
        1 => Reply::Hang,
        _ => Reply::Take,
    });
    let _relay = stage.relay(vec![destination(Order::None)]);
    stage.as_time_passes(|| sink.counts().len() == 39).await;
    eventually(PATIENCE, async || stage.backlog("d").await == 1).await;
}

#[tokio::test]
async fn what_was_blocked_goes_on_when_order_is_no_longer_kept() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| unavailable());
    let destination = |order| {
        Stage::destination("d", &sink)
            .order(order)
            .schedule(["1s"; 60].join(",").parse().unwrap())
    };
    let relay = stage.relay(vec![destination(Order::Key)]);
    stage.emit(&["a", "a", "a"]).await;
    eventually(PATIENCE, async || stage.parked("d").await == 3).await;
    relay.drain().await;
    // The delivery fails once more without its key, and then succeeds.
    let tried = sink.offers().len();
    let relay = stage.relay(vec![destination(Order::None)]);
    stage.as_time_passes(|| sink.offers().len() > tried).await;
    sink.now(|_| Reply::Take);
    stage.as_time_passes(|| sink.counts().len() == 3).await;
    relay.drain().await;
    assert_eq!(stage.backlog("d").await, 0);
}

#[tokio::test]
async fn of_two_destinations_with_one_name_the_first_is_carried_alone() {
    let stage = Stage::new();
    let (first, second) = (Recorder::taking(), Recorder::taking());
    let relay = stage.relay(vec![
        Stage::destination("d", &first),
        Stage::destination("d", &second),
    ]);
    stage.emit_many(50, 5).await;
    eventually(PATIENCE, async || first.taken().len() == 50).await;
    assert_eq!(relay.stopped("d"), None);
    relay.drain().await;
    assert!(second.offers().is_empty());
}

#[tokio::test]
async fn enabling_what_is_not_disabled_is_not_remembered() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| gone());
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    assert!(relay.enable("d"));
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || relay.stopped("d") == Some("disabled")).await;
    stage.emit(&["b"; 20]).await;
    assert_eq!(relay.stopped("d"), Some("disabled"));
    assert_eq!(sink.offers(), [(1, 1)]);
}

#[test]
fn a_disabled_destination_still_says_how_far_behind_it_is() {
    watched(async |handle| {
        let stage = Stage::new();
        let sink = Recorder::new(|_| gone());
        let relay = stage.relay(vec![Stage::destination("d", &sink)]);
        stage.emit(&["a"]).await;
        eventually(PATIENCE, async || relay.stopped("d") == Some("disabled")).await;
        stage.emit(&["b", "c"]).await;
        let line = "hapax_outbox_backlog_events{destination=\"d\"} 3";
        eventually(PATIENCE, async || handle.render().contains(line)).await;
    });
}

#[test]
fn attempts_that_a_crash_cut_off_are_counted() {
    watched(async |handle| {
        let stage = Stage::new();
        let sink = Recorder::new(|_| Reply::Hang);
        stage.emit(&["a", "b"]).await;
        let relay = stage.relay(vec![Stage::destination("d", &sink)]);
        eventually(PATIENCE, async || sink.offers().len() == 2).await;
        drop(relay);
        let relay = stage.relay(vec![Stage::destination("d", &sink)]);
        eventually(PATIENCE, async || sink.offers().len() == 4).await;
        drop(relay);
        sink.now(|_| Reply::Take);
        let relay = stage.relay(vec![Stage::destination("d", &sink)]);
        eventually(PATIENCE, async || sink.taken().len() == 2).await;
        relay.drain().await;
        let interrupted = "outcome=\"interrupted\",error_type=\"\"} 4";
        assert!(handle.render().contains(interrupted), "{}", handle.render());
    });
}

#[tokio::test]
async fn an_event_that_makes_the_relay_panic_runs_out_of_attempts() {
    let stage = Stage::new();
    let sink = Recorder::except(1, || {
        Reply::Fail(SinkError::unavailable("told", PanicsWhenRead))
    });
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || stage.dead("d").await == [(1, 3)]).await;
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || sink.taken() == [2]).await;
    relay.drain().await;
}

#[tokio::test]
async fn one_event_alone_probes_a_destination_that_was_down() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| unavailable());
    let relay = stage.relay(vec![Stage::destination("d", &sink).concurrency(16)]);
    stage.emit_many(100, 100).await;
    eventually(PATIENCE, async || stage.parked("d").await == 16).await;
    stage.clock.advance(Duration::from_secs(10));
    eventually(PATIENCE, async || stage.parked("d").await == 17).await;
    stage.emit(&["later"; 10]).await;
    assert_eq!(sink.offers().len(), 17);
    drop(relay);
}

#[tokio::test]
async fn a_destination_that_fails_for_days_is_disabled_and_keeps_its_events() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| unavailable());
    let patient = ["1s"; 60].join(",").parse().unwrap();
    let relay = stage.relay(vec![Stage::destination("d", &sink).schedule(patient)]);
    stage.emit_many(20, 20).await;
    stage.clock.advance(Duration::from_secs(2));
    eventually(PATIENCE, async || stage.parked("d").await == 20).await;
    let (half, begun) = (Duration::from_mins(30), stage.now());
    // At least one event is offered as a probe twice an hour.
    while relay.stopped("d").is_none() {
        assert!(stage.now().since(begun) < FAILING_MAX + 4 * half);
        let offers = sink.offers().len();
        stage.clock.advance(half);
        eventually(PATIENCE, async || {
            // The result of the previous failure may have arrived only now.
            stage.clock.advance(BREAKER_OPEN / 2);
            sink.offers().len() > offers || relay.stopped("d").is_some()
        })
        .await;
    }
    assert_eq!(relay.stopped("d"), Some("disabled"));
    assert!(stage.now().since(begun) + 4 * half > FAILING_MAX);
    assert_eq!(stage.backlog("d").await, 20);
    relay.drain().await;
}

/// Time in which nothing was offered does not count as failing.
#[tokio::test]
async fn a_destination_that_had_nothing_to_deliver_for_days_is_not_disabled_for_a_few_failures() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| unavailable());
    let once = Stage::destination("d", &sink).schedule("0s".parse().unwrap());
    let relay = stage.relay(vec![once]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || stage.dead("d").await.len() == 1).await;
    stage.clock.advance(Duration::from_hours(5 * 24));
    stage.emit_many(12, 12).await;
    eventually(PATIENCE, async || sink.offers().len() >= 10).await;
    sink.now(|_| Reply::Take);
    stage.emit(&["b"]).await;
    stage.as_time_passes(|| !sink.taken().is_empty()).await;
    assert_eq!(relay.stopped("d"), None);
    relay.drain().await;
}

#[tokio::test]
async fn large_events_that_fall_due_together_arrive() {
    let stage = Stage::new();
    let later = stage.now().after(Duration::from_hours(1));
    let large = "x".repeat(900_000);
    for _ in 0..20 {
        stage
            .emit_event(NewEvent::json("order.created", &large).available_at(later))
            .await;
    }
    let sink = Recorder::taking();
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    eventually(PATIENCE, async || stage.parked("d").await == 20).await;
    stage.clock.set(later);
    eventually(PATIENCE, async || sink.counts().len() == 20).await;
    relay.drain().await;
}

/// Takes one event for each permit.
fn gated(gate: &Arc<Semaphore>) -> Recorder {
    let gate = Arc::clone(gate);
    Recorder::new(move |_| Reply::TakeWith(Arc::clone(&gate)))
}

/// Runs on this thread only, so that the metrics are those of this test.
fn watched(run: impl AsyncFnOnce(&PrometheusHandle)) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(run(&handle)));
}

#[derive(Debug)]
struct PanicsWhenRead;

impl fmt::Display for PanicsWhenRead {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("the error panics on purpose");
    }
}

impl Error for PanicsWhenRead {}

fn gone() -> Reply {
    Reply::Fail(SinkError::Gone {
        receipt: Receipt::default(),
        source: "410".into(),
    })
}

fn unavailable() -> Reply {
    Reply::Fail(SinkError::unavailable("told", "on purpose"))
}
