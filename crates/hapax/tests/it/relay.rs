//! Tests of the relay's guarantees, with a real store and receivers that fail.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    event::NewEvent,
    limits,
    relay::{Destination, Order},
    sink::{Receipt, SinkError},
    store::{DeadLetters, Settlements},
};
use hapax_testkit::{
    clock::seeded_random,
    wait::{eventually, pace},
};
use tokio::sync::Semaphore;

use crate::{
    recorder::{Recorder, Reply},
    stage::{PATIENCE, Stage},
};

#[tokio::test]
async fn every_committed_event_arrives_in_commit_order() {
    let stage = Stage::new();
    stage.emit_many(2_500, 7).await;
    let sink = Recorder::taking().batches(100);
    let destination = Stage::destination("d", &sink).concurrency(1);
    let relay = stage.relay(vec![destination]);
    eventually(PATIENCE, async || sink.taken().len() == 2_500).await;
    assert!(sink.taken().is_sorted());
    stage.emit(&["late"]).await;
    eventually(PATIENCE, async || sink.taken().len() == 2_501).await;
    relay.drain().await;
    assert_eq!(stage.backlog("d").await, 0);
}

#[tokio::test]
async fn a_destination_that_is_down_affects_no_other_and_catches_up() {
    let stage = Stage::new();
    let up = Recorder::taking();
    let down = Recorder::new(|_| unavailable());
    let patient = "0s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s";
    let relay = stage.relay(vec![
        Stage::destination("up", &up),
        Stage::destination("down", &down).schedule(patient.parse().unwrap()),
    ]);
    stage.emit_many(200, 200).await;
    eventually(PATIENCE, async || up.taken().len() == 200).await;
    assert!(down.taken().is_empty());
    down.now(|_| Reply::Take);
    stage.as_time_passes(|| down.taken().len() == 200).await;
    relay.drain().await;
    check_once(&up, 200);
    check_once(&down, 200);
}

#[tokio::test]
async fn an_open_breaker_spends_no_attempts() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| unavailable());
    let relay = stage.relay(vec![Stage::destination("d", &sink).concurrency(1)]);
    stage.emit_many(50, 50).await;
    eventually(PATIENCE, async || sink.offers().len() == 10).await;
    // One second less than the time of the probe: events that are due are not offered.
    for _ in 0..9 {
        stage.clock.advance(Duration::from_secs(1));
        eventually(PATIENCE, async || stage.store.backlog("d").await.is_ok()).await;
    }
    assert_eq!(sink.offers().len(), 10);
    sink.now(|_| Reply::Take);
    stage.as_time_passes(|| sink.taken().len() == 50).await;
    relay.drain().await;
    assert_eq!(stage.dead("d").await, []);
}

#[tokio::test]
async fn order_is_kept_per_key_whatever_fails() {
    let stage = Stage::new();
    let random = seeded_random(3);
    // Each offer fails with a probability of one third, so keys are blocked and released all the
    // time.
    let sink = Recorder::new(move |_| match random.bits() % 3 {
        0 => unavailable(),
        _ => Reply::Take,
    });
    let destination = Stage::destination("d", &sink)
        .order(Order::Key)
        .schedule(["1s"; 60].join(",").parse().unwrap());
    let relay = stage.relay(vec![destination]);
    stage.emit_many(300, 5).await;
    stage.as_time_passes(|| sink.taken().len() >= 300).await;
    relay.drain().await;
    check_once(&sink, 300);
    let mut last = BTreeMap::new();
    for position in sink.taken() {
        let before = last.insert(position % 5, position);
        assert!(
            before.is_none_or(|before| before < position),
            "key {}",
            position % 5
        );
    }
}

#[tokio::test]
async fn a_key_waits_for_its_failing_event_while_others_go_on() {
    let stage = Stage::new();
    let sink = Recorder::except(1, || Reply::Fail(SinkError::rejected("no", "poison")));
    let relay = stage.relay(vec![Stage::destination("d", &sink).order(Order::Key)]);
    stage.emit(&["a", "a", "b", "a"]).await;
    eventually(PATIENCE, async || {
        sink.taken() == [3] && stage.dead("d").await == [(1, 1)]
    })
    .await;
    // The events after it were never offered.
    assert_eq!(
        sink.offers()
            .iter()
            .filter(|(position, _)| [2, 4].contains(position))
            .count(),
        0
    );
    assert!(stage.store.discard("d", 1, "test").await.unwrap());
    stage.as_time_passes(|| sink.taken() == [3, 2, 4]).await;
    stage.emit(&["a"]).await;
    stage.as_time_passes(|| sink.taken() == [3, 2, 4, 5]).await;
    relay.drain().await;
}

#[tokio::test]
async fn key_skip_goes_on_behind_an_event_that_died() {
    let stage = Stage::new();
    let sink = Recorder::except(1, unavailable);
    let relay = stage.relay(vec![Stage::destination("d", &sink).order(Order::KeySkip)]);
    stage.emit(&["a", "a", "a"]).await;
    stage.as_time_passes(|| sink.taken() == [2, 3]).await;
    relay.drain().await;
    assert_eq!(stage.dead("d").await, [(1, 3)]);
}

#[tokio::test]
async fn a_dead_letter_that_is_replayed_arrives_with_its_log() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| unavailable());
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    stage.emit(&["a"]).await;
    stage.as_time_passes(|| sink.offers().len() == 3).await;
    eventually(PATIENCE, async || stage.dead("d").await == [(1, 3)]).await;
    let letter = stage.store.dead_letters("d", 0, 1).await.unwrap().remove(0);
    assert_eq!(
        letter
            .log
            .iter()
            .map(|attempt| attempt.number)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(letter.last_error, "sink is unavailable: on purpose");
    sink.now(|_| Reply::Take);
    assert!(stage.store.replay("d", 1).await.unwrap());
    stage.as_time_passes(|| sink.taken() == [1]).await;
    relay.drain().await;
    assert_eq!(stage.dead("d").await, []);
}

#[tokio::test]
async fn a_crash_at_any_moment_loses_nothing_and_keeps_the_order() {
    let stage = Stage::new();
    let random = seeded_random(4);
    let sink = Recorder::new(move |_| match random.bits() % 20 {
        0 => unavailable(),
        1 => Reply::Hang,
        2 => Reply::TakeAndHang,
        _ => Reply::Take,
    });
    let destination = || {
        Stage::destination("d", &sink)
            .order(Order::Key)
            .schedule(["0s"; 80].join(",").parse().unwrap())
    };
    stage.emit_many(400, 20).await;
    let random = seeded_random(5);
    for _ in 0..60 {
        let enough = sink.offers().len() + usize::try_from(random.bits() % 20).unwrap();
        let relay = stage.relay(vec![destination()]);
        let is_over = || sink.offers().len() >= enough || is_stuck(&sink, 400, 20);
        stage.as_time_passes(is_over).await;
        drop(relay);
    }
    sink.now(|_| Reply::Take);
    let relay = stage.relay(vec![destination()]);
    stage.as_time_passes(|| sink.counts().len() == 400).await;
    relay.drain().await;
    assert_eq!(stage.dead("d").await, []);
    check_first_deliveries_in_order(&sink.taken(), 20);
    let duplicates: usize = sink.counts().values().map(|count| count - 1).sum();
    assert!(duplicates > 0, "the crashes interrupted no delivery");
}

#[tokio::test]
async fn an_event_that_kills_its_relay_runs_out_of_attempts() {
    let stage = Stage::new();
    let sink = Recorder::new(|_| Reply::Hang);
    stage.emit(&["a"]).await;
    for attempt in 1..=3 {
        let relay = stage.relay(vec![Stage::destination("d", &sink)]);
        stage
            .as_time_passes(|| sink.offers().last() == Some(&(1, attempt)))
            .await;
        drop(relay);
    }
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    eventually(PATIENCE, async || stage.dead("d").await == [(1, 3)]).await;
    assert_eq!(sink.offers(), [(1, 1), (1, 2), (1, 3)]);
    drop(relay);
}

#[tokio::test]
async fn draining_lets_what_is_on_the_wire_arrive() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    stage.emit_many(1_000, 10).await;
    for _ in 0..20 {
        let before = sink.taken().len();
        let relay = stage.relay(vec![Stage::destination("d", &sink).concurrency(4)]);
        eventually(PATIENCE, async || {
            sink.taken().len() > before || before == 1_000
        })
        .await;
        relay.drain().await;
    }
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    eventually(PATIENCE, async || sink.counts().len() == 1_000).await;
    relay.drain().await;
    check_once(&sink, 1_000);
}

#[tokio::test]
async fn what_arrives_while_draining_does_not_wait_for_the_last() {
    let stage = Stage::new();
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let sink = Recorder::new(move |offer| match offer.event.position {
        1 => Reply::Hang,
        _ => Reply::TakeWith(Arc::clone(&opened)),
    });
    let destination = Stage::destination("d", &sink).concurrency(2);
    let relay = stage.relay(vec![destination.clone()]);
    stage.emit(&["a", "b"]).await;
    eventually(PATIENCE, async || sink.offers().len() == 2).await;
    relay.set(vec![destination.paused(true)]);
    // The receiver responds some time after the pause was requested.
    pace(Duration::from_millis(100)).await;
    gate.add_permits(1);
    // Much less time than the other attempt may take.
    eventually(limits::DRAIN / 2, async || stage.backlog("d").await == 1).await;
}

#[tokio::test]
async fn retry_after_is_a_minimum() {
    let stage = Stage::new();
    let sink = Recorder::new(|offer| match offer.attempt {
        1 => Reply::Fail(SinkError::Unavailable {
            retry_after: Some(Duration::from_mins(1)),
            error_type: "status_4xx",
            receipt: Receipt::default(),
            source: "429".into(),
        }),
        _ => Reply::Take,
    });
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || {
        stage.store.next_due("d").await.unwrap().is_some()
    })
    .await;
    let due = stage.store.next_due("d").await.unwrap().unwrap();
    assert!(due.since(stage.now()) >= Duration::from_mins(1));
    stage.clock.advance(Duration::from_secs(59));
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || sink.offers().len() == 2).await;
    assert_eq!(sink.offers()[1].0, 2, "only the other event was offered");
    stage
        .as_time_passes(|| sink.offers().contains(&(1, 2)))
        .await;
    relay.drain().await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_nothing_until_it_is_enabled() {
    let stage = Stage::new();
    let gone = || SinkError::Gone {
        receipt: Receipt::default(),
        source: "410".into(),
    };
    let sink = Recorder::new(move |_| Reply::Fail(gone()));
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || relay.stopped("d") == Some("disabled")).await;
    stage.emit(&["b", "c"]).await;
    sink.now(|_| Reply::Take);
    assert_eq!(sink.offers(), [(1, 1)]);
    assert!(relay.enable("d"));
    stage.as_time_passes(|| sink.counts().len() == 3).await;
    relay.drain().await;
    check_once(&sink, 3);
}

#[tokio::test]
async fn resuming_a_destination_while_the_last_responses_arrive_enables_it() {
    let stage = Stage::new();
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let sink = Recorder::new(move |offer| match offer.event.position {
        1 => Reply::TakeWith(Arc::clone(&opened)),
        _ => Reply::Fail(SinkError::Gone {
            receipt: Receipt::default(),
            source: "410".into(),
        }),
    });
    let destination = Stage::destination("d", &sink);
    let relay = stage.relay(vec![destination.clone()]);
    stage.emit(&["a", "b"]).await;
    // The destination is being disabled, and the relay waits for the attempt in flight.
    eventually(PATIENCE, async || stage.parked("d").await == 1).await;
    sink.now(|_| Reply::Take);
    relay.set(vec![Destination {
        turn: 1,
        ..destination
    }]);
    gate.add_permits(1);
    stage.as_time_passes(|| sink.counts().len() == 2).await;
    relay.drain().await;
    check_once(&sink, 2);
}

#[tokio::test]
async fn a_sink_that_panics_fails_its_own_offers_alone() {
    let stage = Stage::new();
    let sink = Recorder::new(|offer| {
        assert!(offer.event.position != 2 || offer.attempt > 1, "on purpose");
        Reply::Take
    });
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    stage.emit(&["a", "b", "c"]).await;
    stage.as_time_passes(|| sink.counts().len() == 3).await;
    relay.drain().await;
    check_once(&sink, 3);
}

#[tokio::test]
async fn an_event_that_asks_to_wait_is_delivered_when_its_time_has_come() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    let later = stage.now().after(Duration::from_hours(1));
    stage
        .emit_event(NewEvent::json("order.created", &1).available_at(later))
        .await;
    stage.emit(&["b"]).await;
    eventually(PATIENCE, async || sink.taken() == [2]).await;
    stage.clock.set(later);
    eventually(PATIENCE, async || sink.taken() == [2, 1]).await;
    relay.drain().await;
}

#[tokio::test]
async fn events_go_only_where_their_type_is_wanted() {
    let stage = Stage::new();
    let (orders, users) = (Recorder::taking(), Recorder::taking());
    let relay = stage.relay(vec![
        Stage::destination("orders", &orders).only(["order.*"]),
        Stage::destination("users", &users).only(["user.signed_up"]),
    ]);
    stage.emit_event(NewEvent::json("user.signed_up", &1)).await;
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || {
        orders.taken() == [2] && users.taken() == [1]
    })
    .await;
    relay.drain().await;
    assert_eq!(
        (stage.backlog("orders").await, stage.backlog("users").await),
        (0, 0)
    );
}

#[tokio::test]
async fn a_rate_holds_back_what_is_beyond_it() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let relay = stage.relay(vec![Stage::destination("d", &sink).per_second(10)]);
    stage.emit_many(30, 30).await;
    eventually(PATIENCE, async || sink.taken().len() == 1).await;
    stage.clock.advance(Duration::from_millis(500));
    eventually(PATIENCE, async || sink.taken().len() == 6).await;
    stage.as_time_passes(|| sink.taken().len() == 30).await;
    relay.drain().await;
}

#[tokio::test]
async fn two_relays_never_share_a_destination() {
    let (stage, sink) = (Stage::new(), Recorder::taking());
    let first = stage.relay(vec![Stage::destination("d", &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || sink.taken() == [1]).await;
    let second = stage.relay(vec![Stage::destination("d", &sink)]);
    eventually(PATIENCE, async || second.stopped("d").is_none()).await;
    // Each emitted event makes the first relay settle, until it detects that it was fenced.
    let emitted = AtomicU32::new(1);
    eventually(PATIENCE, async || {
        stage.emit(&["b"]).await;
        emitted.fetch_add(1, Ordering::SeqCst);
        first.stopped("d") == Some("fenced")
    })
    .await;
    let emitted = emitted.into_inner() as usize;
    eventually(PATIENCE, async || sink.counts().len() == emitted).await;
    second.drain().await;
}

#[tokio::test]
async fn a_store_that_fails_for_a_while_delays_and_loses_nothing() {
    let stage = Stage::new();
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let sink = {
        let seen = Arc::clone(&seen);
        Recorder::new(move |offer| {
            seen.lock().unwrap().insert(offer.event.position);
            Reply::Take
        })
    };
    let relay = stage.relay(vec![Stage::destination("d", &sink)]);
    stage.emit(&["a"]).await;
    eventually(PATIENCE, async || sink.taken() == [1]).await;
    stage.rename("hapax_checkpoint", "hidden").await;
    stage.emit(&["b"]).await;
    stage.rename("hidden", "hapax_checkpoint").await;
    stage.as_time_passes(|| sink.counts().len() == 2).await;
    relay.drain().await;
    check_once(&sink, 2);
}

fn unavailable() -> Reply {
    Reply::Fail(SinkError::unavailable("told", "on purpose"))
}

#[track_caller]
fn check_once(sink: &Recorder, events: usize) {
    let counts = sink.counts();
    assert_eq!(counts.len(), events);
    let twice: Vec<_> = counts
        .into_iter()
        .filter(|(_, count)| *count != 1)
        .collect();
    assert_eq!(twice, [], "positions that arrived more than once");
}

#[track_caller]
/// Whether all of the first `count` events that were not taken wait for a hanging offer of their
/// key.
fn is_stuck(sink: &Recorder, count: i64, keys: i64) -> bool {
    let hanging: HashSet<_> = sink.hanging().iter().map(|it| it % keys).collect();
    let taken = sink.counts();
    let mut left = (1..=count).filter(|it| !taken.contains_key(it));
    left.all(|it| hanging.contains(&(it % keys)))
}

/// Checks that the first delivery of each event comes after those of all earlier events of its key.
fn check_first_deliveries_in_order(taken: &[i64], keys: i64) {
    let mut seen = HashSet::new();
    let mut last = BTreeMap::new();
    for position in taken {
        if seen.insert(*position) {
            let before = last.insert(position % keys, *position);
            assert!(before.is_none_or(|before| before < *position), "{taken:?}");
        }
    }
}
