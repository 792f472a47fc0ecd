//! A relay that has nothing to do: what it asks of the database, and how commits of other processes
//! wake it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{
    relay::{Destination, Node, Relay, RelayHandle, Settings},
    sink::{Offer, Outcome, Receipt, Sink},
    store::Source as _,
};
use hapax_postgres::Postgres;
use hapax_testkit::{
    clock::seeded_random,
    wait::{Patience, answered, eventually, pace},
};

use crate::fixture::{Fixture, PATIENCE, clock};

/// Emits an event as a program without the library does.
const EMIT: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    VALUES (gen_random_uuid(), 'a', '{}', '{}', now())";
/// The sessions that hold the lock of a relay that sleeps.
const SLEEPERS: &str = "
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objid = 1
      AND classid = 'hapax.outbox_event'::regclass
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Counts the events that it takes.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Counter {
    fn taken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Sink for Counter {
    fn kind(&self) -> &'static str {
        "counter"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        self.0.fetch_add(offers.len(), Ordering::SeqCst);
        let outcomes = offers.iter().map(|_| Ok(Receipt::default())).collect();
        Box::pin(async move { outcomes })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_relay_asks_the_same_for_eighty_partitions_as_for_one() {
    const RUN: &str = "
        SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    const HEARTBEATS: &str = "SELECT last_value FROM hapax.heartbeat_number";
    let fixture = Fixture::new().await;
    let counter = Counter::default();
    let relay = spawn(&fixture.store, &counter, 20, 4);
    eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 1).await;
    // Sessions report their statistics late, so the first intervals contain the start of the relay.
    let patience = Patience::within(2 * PATIENCE);
    loop {
        let before = (fixture.count(RUN).await, fixture.count(HEARTBEATS).await);
        pace(Duration::from_secs(5)).await;
        let after = (fixture.count(RUN).await, fixture.count(HEARTBEATS).await);
        // Heartbeats are the measure of time: one a second.
        if after.1 >= before.1 + 3 && after.0 - before.0 <= 6 * (after.1 - before.1) {
            break;
        }
        patience.pause().await;
    }
    fixture.run(EMIT).await;
    eventually(PATIENCE, async || counter.taken() == 20).await;
    eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 1).await;
    relay.drain().await;
    eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_sleeps_finds_an_event_whose_notification_is_lost() {
    let fixture = Fixture::new().await;
    let counter = Counter::default();
    let relay = spawn(&fixture.store, &counter, 1, 2);
    eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 1).await;
    fixture
        .run("ALTER TABLE hapax.outbox_event DISABLE TRIGGER outbox_event_wakes_relays")
        .await;
    fixture.run(EMIT).await;
    eventually(PATIENCE, async || counter.taken() == 1).await;
    relay.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_finds_an_event_that_was_drawn_before_those_that_it_has_read() {
    let fixture = Fixture::new().await;
    let counter = Counter::default();
    let relay = spawn(&fixture.store, &counter, 1, 2);
    let mut other = fixture.database.client().await;
    let late = other.transaction().await.unwrap();
    late.execute(EMIT, &[]).await.unwrap();
    fixture.run(EMIT).await;
    eventually(PATIENCE, async || counter.taken() == 1).await;
    late.commit().await.unwrap();
    eventually(PATIENCE, async || counter.taken() == 2).await;
    relay.drain().await;
}

#[tokio::test]
async fn no_relay_sleeps_while_a_transaction_is_open_whose_commit_would_not_wake_it() {
    let fixture = Fixture::new().await;
    let mut other = fixture.database.client().await;
    let open = other.transaction().await.unwrap();
    open.execute(EMIT, &[]).await.unwrap();
    assert!(fixture.store.sleep().await.unwrap().is_none());
    open.rollback().await.unwrap();
    let without_events = other.transaction().await.unwrap();
    without_events
        .execute("INSERT INTO note (text) VALUES ('a')", &[])
        .await
        .unwrap();
    let mut sleep = fixture.store.sleep().await.unwrap().unwrap();
    // It emits after the sleep has begun, and wakes the relay when it commits.
    without_events.execute(EMIT, &[]).await.unwrap();
    without_events.commit().await.unwrap();
    answered(PATIENCE, sleep.woken()).await;
}

#[tokio::test]
async fn two_relays_sleep_by_one_lock_and_both_are_woken() {
    let here = Fixture::new().await;
    let there = here.beside().await;
    let mut ours = here.store.sleep().await.unwrap().unwrap();
    let mut theirs = there.store.sleep().await.unwrap().unwrap();
    assert_eq!((ours.is_shared(), theirs.is_shared()), (false, true));
    here.run(EMIT).await;
    answered(PATIENCE, ours.woken()).await;
    answered(PATIENCE, theirs.woken()).await;
    drop(ours);
    eventually(PATIENCE, async || here.count(SLEEPERS).await == 0).await;
    let next = there.store.sleep().await.unwrap().unwrap();
    assert!(!next.is_shared());
}

#[tokio::test]
async fn a_relay_whose_session_ends_is_awake() {
    let fixture = Fixture::new().await;
    let mut sleep = fixture.store.sleep().await.unwrap().unwrap();
    let ends = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid IN ({})",
        SLEEPERS.replace("count(*)", "pid")
    );
    fixture.run(&ends).await;
    answered(PATIENCE, sleep.woken()).await;
    eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 0).await;
    drop(sleep);
    // The next sleep has a new connection, as soon as the end of the old one is noticed.
    let patience = Patience::within(PATIENCE);
    while !matches!(fixture.store.sleep().await, Ok(Some(_))) {
        patience.pause().await;
    }
}

#[tokio::test]
async fn no_relay_sleeps_behind_a_pooler() {
    let fixture = Fixture::with(|settings| settings.pooled = true).await;
    assert!(fixture.store.sleep().await.unwrap().is_none());
}

fn spawn(store: &Postgres, counter: &Counter, destinations: usize, partitions: u8) -> RelayHandle {
    let destinations = (0..destinations).map(|number| {
        let sink = Arc::new(counter.clone());
        let destination = Destination::new(format!("d{number}"), sink);
        destination.partitions(partitions).unwrap()
    });
    let mut settings = Settings::new(clock(), seeded_random(2));
    settings.node = Some(Node::new("idle"));
    Relay::spawn(store, destinations.collect(), &settings, &store.notifier())
}
