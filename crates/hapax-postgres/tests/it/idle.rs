//! A relay that has nothing to do: what it asks of the database, and how commits of other processes
//! wake it.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{
    limits::POLL_ASLEEP,
    relay::{Destination, Node, Relay, RelayHandle, Settings},
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
    store::{DeadLetters as _, Source as _},
};
use hapax_postgres::Postgres;
use hapax_testkit::{
    clock::seeded_random,
    postgres::{Cluster, Database},
    proxy::{Deed, Moment, Proxy},
    wait::{Patience, answered, eventually, pace},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use crate::fixture::{Fixture, PATIENCE, clock, settings};

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
const SLEEP: &str = include_str!("../../queries/outbox/sleep.sql");
const WAKE: &str = include_str!("../../queries/outbox/wake.sql");

/// Counts the events that it takes.
#[derive(Clone, Default)]
struct Counter {
    taken: Arc<AtomicUsize>,
    refuses: Arc<AtomicBool>,
}

impl Counter {
    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

impl Sink for Counter {
    fn kind(&self) -> &'static str {
        "counter"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        let refuses = self.refuses.load(Ordering::SeqCst);
        let outcome = |_: &Offer| {
            if refuses {
                return Err(SinkError::rejected("told", "told to"));
            }
            self.taken.fetch_add(1, Ordering::SeqCst);
            Ok(Receipt::default())
        };
        let outcomes = offers.iter().map(outcome).collect();
        Box::pin(async move { outcomes })
    }
}

/// Receives the notifications of producers.
struct Ears {
    heard: mpsc::UnboundedReceiver<String>,
    _client: Client,
}

impl Ears {
    async fn of(fixture: &Fixture) -> Self {
        let url = fixture.database.url();
        let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        let (sender, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message {
                    let _sent = sender.send(notification.payload().to_owned());
                }
            }
        });
        client.batch_execute("LISTEN hapax_outbox").await.unwrap();
        Self {
            heard,
            _client: client,
        }
    }

    /// Runs statements, and returns how often they notify.
    async fn count(&mut self, fixture: &Fixture, sql: &str) -> usize {
        fixture.run(sql).await;
        fixture.run("NOTIFY hapax_outbox, 'end'").await;
        let mut count = 0;
        while answered(PATIENCE, self.heard.recv()).await.unwrap() != "end" {
            count += 1;
        }
        count
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_relay_of_eighty_partitions_runs_at_most_three_transactions_a_second() {
    const BEHIND: &str = "
        SELECT count(*) FROM hapax.position
        WHERE frontier < (SELECT max(id) FROM hapax.outbox_event)";
    let fixture = Fixture::new().await;
    let counter = Counter::default();
    let relay = spawn(&fixture.store, &counter, 20, 4);
    let before = quiet(&fixture).await;
    fixture.run(EMIT).await;
    eventually(PATIENCE, async || counter.taken() == 20).await;
    // Those partitions pass the event too that do not have it.
    eventually(PATIENCE, async || fixture.count(BEHIND).await == 0).await;
    let after = quiet(&fixture).await;
    // Each partition reads and records a few times, and this test polls, but no partition polls for
    // itself: that would be 1,600 transactions a second.
    let run = after.0 - before.0;
    let seconds = i64::try_from((after.1 - before.1).as_secs()).unwrap();
    assert!(run <= 3_000 + 3 * seconds, "{run} in {seconds} s");
    assert_eq!(counter.taken(), 20);
    asleep(&fixture).await;
    relay.drain().await;
    eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 0).await;
}

/// Waits for some seconds in which the relay runs three transactions per second or less. Returns
/// the number of transactions so far, and the time.
async fn quiet(fixture: &Fixture) -> (i64, Instant) {
    const RUN: &str = "
        SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    const HEARTBEATS: &str = "SELECT last_value FROM hapax.heartbeat_number";
    // The queries below, which are counted too. A prepared query is one transaction. An unprepared
    // query would be three: it is prepared, executed and closed.
    const OURS: i64 = 4;
    asleep(fixture).await;
    let run = fixture.plain.prepare(RUN).await.unwrap();
    let heartbeats = fixture.plain.prepare(HEARTBEATS).await.unwrap();
    let count = async |query: &Statement| -> i64 {
        let row = fixture.plain.query_one(query, &[]).await;
        row.unwrap().get(0)
    };
    // Sessions report their statistics late, so the first intervals contain what was before.
    let patience = Patience::within(6 * PATIENCE);
    loop {
        let heard = count(&heartbeats).await;
        let (began, before) = (Instant::now(), count(&run).await);
        pace(Duration::from_secs(10)).await;
        let (after, seconds) = (count(&run).await, seconds_since(began));
        // The heartbeats prove that the relay lives. On a busy machine they come late.
        let heard = count(&heartbeats).await - heard;
        if heard >= 4 && after - before - OURS <= 3 * seconds {
            return (after, Instant::now());
        }
        patience.pause().await;
    }
}

fn seconds_since(then: Instant) -> i64 {
    i64::try_from(then.elapsed().as_secs()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_event_after_a_silence_wakes_the_relay() {
    let fixture = Fixture::new().await;
    let counter = Counter::default();
    let relay = spawn(&fixture.store, &counter, 1, 4);
    let mut waits = Vec::new();
    for number in 1..=5 {
        asleep(&fixture).await;
        let emitted_at = Instant::now();
        fixture.run(EMIT).await;
        eventually(PATIENCE, async || counter.taken() == number).await;
        waits.push(emitted_at.elapsed());
        eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 0).await;
    }
    waits.sort();
    // A poll would find the event after half the interval on average.
    assert!(waits[2] < POLL_ASLEEP / 4, "{waits:?}");
    relay.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_sleeps_finds_an_event_for_which_nobody_notifies() {
    let fixture = Fixture::new().await;
    let counter = Counter::default();
    let relay = spawn(&fixture.store, &counter, 1, 2);
    asleep(&fixture).await;
    let replicated = format!("SET session_replication_role = replica; {EMIT}");
    fixture.run(&replicated).await;
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

/// The event becomes due, and an operator in another process replays another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_sleeps_delivers_what_becomes_due() {
    const LATER: &str = "
        INSERT INTO hapax.outbox_event
            (event_id, type, payload, headers, created_at, available_at)
        VALUES (gen_random_uuid(), 'a', '{}', '{}', now(), now() + interval '3 seconds')";
    let fixture = Fixture::new().await;
    let beside = fixture.beside().await;
    let counter = Counter::default();
    let relay = spawn(&fixture.store, &counter, 1, 1);
    fixture.run(LATER).await;
    asleep(&fixture).await;
    eventually(PATIENCE, async || counter.taken() == 1).await;
    counter.refuses.store(true, Ordering::SeqCst);
    fixture.run(EMIT).await;
    let dead = "SELECT coalesce(max(position), 0) FROM hapax.delivery WHERE state = 'dead'";
    eventually(PATIENCE, async || fixture.count(dead).await > 0).await;
    counter.refuses.store(false, Ordering::SeqCst);
    asleep(&fixture).await;
    let position = fixture.count(dead).await;
    assert!(beside.store.replay("d0", position).await.unwrap());
    eventually(PATIENCE, async || counter.taken() == 2).await;
    relay.drain().await;
}

#[tokio::test]
async fn no_relay_sleeps_while_a_transaction_is_open_whose_commit_would_not_wake_it() {
    let fixture = Fixture::new().await;
    let mut other = fixture.database.client().await;
    let mut open = other.transaction().await.unwrap();
    let undone = open.savepoint("undone").await.unwrap();
    undone.execute(EMIT, &[]).await.unwrap();
    assert_eq!(ask(&fixture.plain, SLEEP).await, "none");
    undone.rollback().await.unwrap();
    assert_eq!(ask(&fixture.plain, SLEEP).await, "ours");
    fixture.run(WAKE).await;
    open.execute(EMIT, &[]).await.unwrap();
    assert_eq!(ask(&fixture.plain, SLEEP).await, "none");
    assert!(fixture.store.fall_asleep().await.unwrap().is_none());
    open.rollback().await.unwrap();
    let without_events = other.transaction().await.unwrap();
    without_events
        .execute("INSERT INTO note (text) VALUES ('a')", &[])
        .await
        .unwrap();
    let mut sleep = fixture.store.fall_asleep().await.unwrap().unwrap();
    // It emits after the sleep has begun, and wakes the relay when it commits.
    without_events.execute(EMIT, &[]).await.unwrap();
    without_events.commit().await.unwrap();
    answered(PATIENCE, sleep.woken()).await;
}

#[tokio::test]
async fn a_transaction_notifies_once_if_it_emits_while_a_relay_sleeps() {
    const MANY: &str = "
        INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
        SELECT gen_random_uuid(), 'a', '{}', '{}', now() FROM generate_series(1, 100)";
    const COPY: &str = "
        COPY hapax.outbox_event (event_id, type, payload, headers, created_at)
        FROM PROGRAM 'echo 018f4b1e-0000-7000-8000-000000000001,a,{},{},2026-01-01'
        WITH (FORMAT csv)";
    // As a table source does that finds no rows.
    const NOTHING: &str = "
        INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
        SELECT gen_random_uuid(), 'a', '{}', '{}', now() WHERE false";
    let fixture = Fixture::new().await;
    let mut ears = Ears::of(&fixture).await;
    let cases = [
        (EMIT.to_owned(), 1),
        (MANY.to_owned(), 1),
        (COPY.to_owned(), 1),
        (format!("BEGIN; {EMIT}; {MANY}; COMMIT"), 1),
        (format!("BEGIN; SAVEPOINT a; {EMIT}; RELEASE a; COMMIT"), 1),
        (
            format!("BEGIN; SAVEPOINT a; {EMIT}; ROLLBACK TO a; {EMIT}; COMMIT"),
            1,
        ),
        (
            format!("BEGIN; SAVEPOINT a; {EMIT}; ROLLBACK TO a; COMMIT"),
            0,
        ),
        (format!("BEGIN; {EMIT}; ROLLBACK"), 0),
        (NOTHING.to_owned(), 0),
        ("INSERT INTO note (text) VALUES ('a')".to_owned(), 0),
    ];
    for (sql, _) in &cases {
        assert_eq!(ears.count(&fixture, sql).await, 0, "awake: {sql}");
    }
    let sleep = fixture.store.fall_asleep().await.unwrap().unwrap();
    assert!(!sleep.is_shared());
    for (sql, notified) in &cases {
        assert_eq!(ears.count(&fixture, sql).await, *notified, "asleep: {sql}");
    }
}

#[tokio::test]
async fn a_role_that_may_only_insert_events_wakes_relays_whatever_its_search_path() {
    const ROLE: &str = "
        GRANT USAGE ON SCHEMA hapax TO pg_monitor;
        GRANT INSERT ON hapax.outbox_event TO pg_monitor;
        GRANT USAGE ON SEQUENCE hapax.outbox_event_id TO pg_monitor;
        CREATE SCHEMA evil;
        GRANT USAGE ON SCHEMA evil TO pg_monitor;
        CREATE FUNCTION evil.pg_notify(text, text) RETURNS void
            LANGUAGE plpgsql AS 'BEGIN END';
        CREATE FUNCTION evil.pg_try_advisory_xact_lock_shared(integer, integer) RETURNS boolean
            LANGUAGE sql RETURN true;
        SET SESSION AUTHORIZATION pg_monitor;
        SET search_path = evil, pg_catalog";
    let fixture = Fixture::new().await;
    let mut ears = Ears::of(&fixture).await;
    fixture.run(ROLE).await;
    assert_eq!(ears.count(&fixture, EMIT).await, 0);
    let _sleep = fixture.store.fall_asleep().await.unwrap().unwrap();
    assert_eq!(ears.count(&fixture, EMIT).await, 1);
}

#[tokio::test]
async fn the_server_ends_a_session_that_holds_the_lock_and_is_silent() {
    let fixture = Fixture::new().await;
    let mut other = fixture.database.client().await;
    assert_eq!(ask(&fixture.plain, SLEEP).await, "ours");
    assert_eq!(ask(&fixture.plain, SILENT).await, "30s");
    assert_eq!(ask(&other, SLEEP).await, "other");
    assert_eq!(ask(&other, SILENT).await, "0");
    fixture.run(WAKE).await;
    assert_eq!(ask(&fixture.plain, SILENT).await, "0");
    let open = other.transaction().await.unwrap();
    open.execute(EMIT, &[]).await.unwrap();
    assert_eq!(ask(&fixture.plain, SLEEP).await, "none");
}

const SILENT: &str = "SHOW idle_session_timeout";

async fn ask(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn two_relays_sleep_by_one_lock_and_both_are_woken() {
    let here = Fixture::new().await;
    let there = here.beside().await;
    let mut ours = here.store.fall_asleep().await.unwrap().unwrap();
    let mut theirs = there.store.fall_asleep().await.unwrap().unwrap();
    assert_eq!((ours.is_shared(), theirs.is_shared()), (false, true));
    here.run(EMIT).await;
    answered(PATIENCE, ours.woken()).await;
    answered(PATIENCE, theirs.woken()).await;
    let mut theirs = there.store.fall_asleep().await.unwrap().unwrap();
    assert!(theirs.is_shared());
    // The relay that has relied on the lock learns that it is released.
    drop(ours);
    answered(PATIENCE, theirs.woken()).await;
    eventually(PATIENCE, async || here.count(SLEEPERS).await == 0).await;
    let next = there.store.fall_asleep().await.unwrap().unwrap();
    assert!(!next.is_shared());
}

#[tokio::test]
async fn a_relay_is_awake_when_one_of_its_sessions_ends() {
    const HOLDING: &str = "
        SELECT pg_terminate_backend(pid) FROM pg_locks
        WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND objid = 1
          AND classid = 'hapax.outbox_event'::regclass
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    // The last statement of the session that listens is the empty one that shows that it works.
    const LISTENING: &str = "
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'hapax' AND query = ''";
    let fixture = Fixture::new().await;
    for ends in [HOLDING, LISTENING] {
        // The end of the connections before is noticed a moment later.
        let patience = Patience::within(PATIENCE);
        let mut sleep = loop {
            match fixture.store.fall_asleep().await {
                Ok(Some(sleep)) if !sleep.is_shared() => break sleep,
                _ => patience.pause().await,
            }
        };
        fixture.run(ends).await;
        answered(PATIENCE, sleep.woken()).await;
        drop(sleep);
        eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 0).await;
    }
}

#[tokio::test]
async fn a_relay_is_awake_when_its_sessions_are_silent() {
    let database = Arc::new(Database::fresh().await);
    let proxy = Proxy::to_postgres(database.address());
    let mut settings = settings(&proxy.url(&database.url()));
    settings.statement_max = Duration::from_secs(1);
    let store = Postgres::open(settings).await.unwrap();
    let mut sleep = store.fall_asleep().await.unwrap().unwrap();
    let is_empty = |text: &str| text.trim_matches('\0').is_empty();
    let trap = proxy.always(Moment::statement(is_empty), Deed::SwallowBefore);
    trap.sprung().await;
    answered(PATIENCE, sleep.woken()).await;
}

/// The relay polls as before while it waits for its listener.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_delivers_while_its_listener_gets_no_response() {
    let fixture = Fixture::new().await;
    let proxy = Proxy::to_postgres(fixture.database.address());
    let trap = proxy.always(Moment::containing("LISTEN"), Deed::SwallowBefore);
    let mut settings = settings(&proxy.url(&fixture.database.url()));
    settings.statement_max = 10 * PATIENCE;
    let store = Postgres::open(settings).await.unwrap();
    let counter = Counter::default();
    let relay = spawn(&store, &counter, 1, 2);
    trap.sprung().await;
    fixture.run(EMIT).await;
    eventually(PATIENCE, async || counter.taken() == 1).await;
    relay.drain().await;
}

#[tokio::test]
async fn no_relay_sleeps_behind_a_pooler() {
    let fixture = Fixture::with(|settings| settings.pooled = true).await;
    assert!(fixture.store.fall_asleep().await.unwrap().is_none());
}

/// A transaction that has notified cannot be prepared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_relay_sleeps_on_a_server_that_may_prepare_transactions() {
    let cluster = Cluster::start_with(&[("max_prepared_transactions", "4")]).await;
    let store = Postgres::open(settings(&cluster.url())).await.unwrap();
    let refused = store.fall_asleep().await.unwrap_err().error_chain();
    assert!(refused.contains("max_prepared_transactions"), "{refused}");
    let counter = Counter::default();
    let relay = spawn(&store, &counter, 1, 2);
    let client = cluster.client().await;
    let prepared = format!("BEGIN; {EMIT}; PREPARE TRANSACTION 'a'");
    client.batch_execute(&prepared).await.unwrap();
    client.batch_execute("COMMIT PREPARED 'a'").await.unwrap();
    eventually(PATIENCE, async || counter.taken() == 1).await;
    relay.drain().await;
}

/// Waits until a relay sleeps.
async fn asleep(fixture: &Fixture) {
    eventually(PATIENCE, async || fixture.count(SLEEPERS).await == 1).await;
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
