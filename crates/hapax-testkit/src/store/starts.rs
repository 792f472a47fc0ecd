//! Conformance tests of where a destination starts in the outbox.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    delivery::{Frontier, Start},
    event::{EventId, Headers},
    store::{Keys, Starts, Transaction},
};

use super::{
    DeliveriesUnderTest,
    fixture::{Fixture, PATIENCE},
    steps::{HOOK, MAIL},
};
use crate::{events::event, wait::eventually};

const HOUR: Duration = Duration::from_hours(1);

/// A destination that starts now receives what is committed afterwards, and nothing before that.
pub async fn a_destination_that_starts_now_receives_what_commits_afterwards<
    S: DeliveriesUnderTest,
>() {
    let (fixture, _) = Fixture::<S>::with_events(3).await;
    assert!(record(&fixture, HOOK, Start::Now).await);
    let later = fixture.emit(vec![event("later")]).await;
    check_receives(&fixture, HOOK, &later).await;
    assert_eq!(fixture.backlog(HOOK).await.events, 1);
    let fixture = fixture.reopen().await;
    let latest = fixture.emit(vec![event("latest")]).await;
    check_receives(&fixture, HOOK, &[later, latest].concat()).await;
}

/// In an empty outbox, a destination that starts now receives everything.
pub async fn in_an_empty_outbox_now_is_the_beginning<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    assert!(record(&fixture, HOOK, Start::Now).await);
    let fixture = fixture.reopen().await;
    let later = fixture.emit(vec![event("a"), event("b")]).await;
    check_receives(&fixture, HOOK, &later).await;
}

/// A destination that starts at the beginning receives everything, as without a record. Neither is
/// affected by the start of a destination with another name.
pub async fn a_destination_that_starts_at_the_beginning_receives_everything<
    S: DeliveriesUnderTest,
>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let all: Vec<_> = events.iter().map(|one| one.event.id).collect();
    assert!(record(&fixture, HOOK, Start::Now).await);
    assert!(record(&fixture, MAIL, Start::Beginning).await);
    let begins_alike = format!("{HOOK}s");
    for destination in [MAIL, &*begins_alike, &begins_alike[..1]] {
        check_receives(&fixture, destination, &all).await;
    }
    check_receives(&fixture, HOOK, &[]).await;
}

/// A destination that starts at a time receives the events that were created at it or later. If
/// there are none yet, it receives what is committed afterwards.
pub async fn a_destination_that_starts_at_a_time_receives_what_was_created_since<
    S: DeliveriesUnderTest,
>() {
    let fixture = Fixture::<S>::fresh().await;
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    for name in ["first", "second", "third"] {
        times.push(fixture.clock.now());
        ids.extend(fixture.emit(vec![event(name)]).await);
        fixture.clock.advance(HOUR);
    }
    let moment = Duration::from_millis(1);
    let cases = [
        ("first", times[0], 0),
        ("second", times[1], 1),
        ("after-second", times[1].after(moment), 2),
        ("third", times[2], 2),
        ("after-third", times[2].after(moment), 3),
        ("future", times[2].after(100 * HOUR), 3),
    ];
    for (destination, time, _) in cases {
        assert!(record(&fixture, destination, Start::At(time)).await);
    }
    ids.extend(fixture.emit(vec![event("fourth")]).await);
    for (destination, _, skipped) in cases {
        check_receives(&fixture, destination, &ids[skipped..]).await;
    }
}

/// While events are committed, a start skips none that is committed afterwards, and all that were
/// committed before.
pub async fn a_start_among_writers_skips_nothing_that_commits_afterwards<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let progress = Arc::new(Progress::default());
    let writer = tokio::spawn(write(fixture.store().clone(), Arc::clone(&progress)));
    let is_half_done = async || progress.committed.load(Ordering::SeqCst) >= EVENTS / 2;
    eventually(PATIENCE, is_half_done).await;
    let before = progress.committed.load(Ordering::SeqCst);
    assert!(record(&fixture, HOOK, Start::Now).await);
    let after = progress.begun.load(Ordering::SeqCst);
    let ids = writer.await.expect("no panic");
    let opened = fixture.open(HOOK).await;
    let (events, _) = fixture.events_beyond(opened.checkpoint.frontier).await;
    let received: Vec<_> = events.iter().map(|one| one.event.id).collect();
    assert!(received.ends_with(&ids[after..]), "an event was skipped");
    let is_old = |id: &EventId| ids[..before].contains(id);
    assert!(!received.iter().any(is_old), "an old event was received");
}

/// All partitions of a destination start at one position, although there was a crash between their
/// first openings, and events were committed meanwhile.
pub async fn partitions_start_at_one_position_across_a_crash<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(2).await;
    assert!(record(&fixture, HOOK, Start::Now).await);
    let later = fixture.emit(vec![event("a"), event("b")]).await;
    let fixture = fixture.reopen().await;
    let first = fixture.open("hook/0").await.checkpoint;
    let latest = fixture.emit(vec![event("c")]).await;
    let fixture = fixture.reopen().await;
    assert!(!record(&fixture, HOOK, Start::Now).await);
    let second = fixture.open("hook/1").await.checkpoint;
    assert_eq!(first, second);
    check_receives(&fixture, "hook/1", &[later, latest].concat()).await;
}

/// The first record of a start remains.
pub async fn a_start_is_recorded_once<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(2).await;
    assert!(record(&fixture, HOOK, Start::Now).await);
    let later = fixture.emit(vec![event("later")]).await;
    for start in [Start::Beginning, Start::Now, Start::At(fixture.clock.now())] {
        assert!(!record(&fixture, HOOK, start).await, "{start}");
    }
    let fixture = fixture.reopen().await;
    assert!(!record(&fixture, HOOK, Start::Beginning).await);
    check_receives(&fixture, HOOK, &later).await;
}

/// A destination that was opened without a record has started at the beginning, with all of its
/// partitions.
pub async fn a_destination_that_was_opened_has_started<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(2).await;
    let first = fixture.open("hook/0").await.checkpoint;
    assert!(!record(&fixture, HOOK, Start::Now).await);
    for partition in ["hook/0", "hook/1"] {
        let opened = fixture.open(partition).await.checkpoint;
        assert_eq!((&opened, opened.frontier.high), (&first, 0));
    }
    assert_eq!(first.frontier, Frontier::default());
}

/// The backlog of a partition that was never opened is what it will receive.
pub async fn a_destination_that_was_not_opened_lags_from_its_start_on<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(3).await;
    assert!(record(&fixture, HOOK, Start::Now).await);
    for partition in [HOOK, "hook/1"] {
        let backlog = fixture.backlog(partition).await;
        assert_eq!((backlog.events, backlog.oldest_at), (0, None));
    }
    fixture.clock.advance(HOUR);
    let at = fixture.clock.now();
    fixture.emit(vec![event("later")]).await;
    for partition in [HOOK, "hook/1"] {
        let backlog = fixture.backlog(partition).await;
        assert_eq!((backlog.events, backlog.oldest_at), (1, Some(at)));
    }
    assert_eq!(fixture.backlog(MAIL).await.events, 4);
}

/// Events that the writer commits.
const EVENTS: usize = 100;

/// The transactions that the writer has begun and committed.
#[derive(Debug, Default)]
struct Progress {
    begun: AtomicUsize,
    committed: AtomicUsize,
}

/// Commits events in one transaction after the other. Returns their ids.
async fn write<K: Keys>(store: K, progress: Arc<Progress>) -> Vec<EventId> {
    let mut ids = Vec::new();
    for number in 0..EVENTS {
        progress.begun.fetch_add(1, Ordering::SeqCst);
        let begun = store.begin(None, Headers::new()).await;
        let mut tx = begun.expect("a transaction can be opened");
        let id = tx.emit(event(&number.to_string()));
        ids.push(id.expect("an event is emitted"));
        tx.commit().await.expect("an event is committed");
        progress.committed.fetch_add(1, Ordering::SeqCst);
    }
    ids
}

async fn record<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    destination: &str,
    start: Start,
) -> bool {
    let recorded = fixture.store().record_start(destination, start).await;
    recorded.expect("a start is recorded")
}

/// Opens a partition and requires that these events are read from its checkpoint on.
async fn check_receives<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    partition: &str,
    expected: &[EventId],
) {
    let opened = fixture.open(partition).await;
    let (events, _) = fixture.events_beyond(opened.checkpoint.frontier).await;
    let received: Vec<_> = events.iter().map(|one| one.event.id).collect();
    assert_eq!(received, expected, "{partition}");
}
