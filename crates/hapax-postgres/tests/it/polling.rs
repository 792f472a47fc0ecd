//! Polling endpoints while writers commit late or roll back, and consumers end at any moment between
//! the fetch of a page and its commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{
    Random,
    admin::{Actor, NewPollingEndpoint, PollAdmin},
    delivery::{Frontier, Start},
    poll::{
        Caller, CursorSecret, Page, PollError, PollRate, PollRequest, PollSettings, PollStore,
        Polling, Token,
    },
};
use hapax_postgres::Postgres;
use hapax_testkit::{assert_matches, clock::seeded_random};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::{fixture::Fixture, reading::TURN};

const EMIT: &str = "
    INSERT INTO hapax.outbox_event
        (event_id, type, tenant, aggregate_type, aggregate_id, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', $1::text, 'key', $2::text, '{}', '{}', now()
    FROM generate_series(1, $3::int)";
const COMMITTED: &str = "SELECT id FROM hapax.outbox_event WHERE tenant = $1::text";
const TENANTS: [&str; 3] = ["ann", "bob", "cleo"];
/// Aggregates of each tenant.
const KEYS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consumers_that_end_at_any_moment_miss_nothing_that_writers_commit() {
    let fixture = Fixture::new().await;
    let beside = fixture.beside().await;
    let keys =
        "CREATE TABLE key AS SELECT number::text AS name FROM generate_series(0, 11) AS number";
    fixture.run(keys).await;
    let done = Arc::new(AtomicBool::new(false));
    let stores = [fixture.store.clone(), beside.store.clone()];
    let mut consumers = Vec::new();
    for (number, tenant) in (0..).zip(TENANTS) {
        let token = create(&fixture.store, tenant, Some(tenant), number).await;
        let consumer = Consumer {
            nodes: stores.clone().map(|store| polling(&store)),
            name: tenant,
            token,
            random: seeded_random(70 + u64::from(number)),
            keeps_cursor: number == 0,
            done: Arc::clone(&done),
        };
        consumers.push(tokio::spawn(consumer.run()));
    }
    let mut writers = Vec::new();
    for seed in 0..6 {
        let client = fixture.database.client().await;
        writers.push(tokio::spawn(write(client, seeded_random(seed))));
    }
    // Meanwhile the outbox rotates under writers and consumers.
    for _ in 0..4 {
        fixture.run(TURN).await;
        fixture.run("SELECT pg_sleep(0.1)").await;
    }
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let mut was_late = false;
    for (tenant, received) in TENANTS.into_iter().zip(join_all(consumers).await) {
        let rows = fixture.plain.query(COMMITTED, &[&tenant]).await.unwrap();
        let committed: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let received = received.unwrap();
        was_late |= !received.once.is_sorted_by_key(|(position, _)| *position);
        received.check(tenant, &committed);
    }
    assert!(was_late, "no transaction committed late");
}

/// Transactions that lock their aggregate, emit, wait, and sometimes roll back.
async fn write(client: Client, random: Random) {
    for _ in 0..60 {
        client.batch_execute("BEGIN").await.unwrap();
        let tenant = chance(&random, TENANTS.len());
        let number = chance(&random, KEYS);
        let key = (tenant * KEYS + number).to_string();
        let hold = "SELECT name FROM key WHERE name = $1 FOR UPDATE";
        client.query(hold, &[&key]).await.unwrap();
        for _ in 0..=chance(&random, 3) {
            let count = 1 + chance(&random, 3);
            emit(&client, TENANTS[tenant], &key, count).await;
            if chance(&random, 4) == 0 {
                client.batch_execute("SELECT pg_sleep(0.01)").await.unwrap();
            }
        }
        let end = ["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"][chance(&random, 4)];
        client.batch_execute(end).await.unwrap();
    }
}

async fn emit(client: &Client, tenant: &str, key: &str, count: usize) {
    let count = i32::try_from(count).unwrap();
    let emitted = client.execute(EMIT, &[&tenant, &key, &count]).await;
    emitted.unwrap();
}

/// A customer that polls one endpoint, on either of two nodes.
struct Consumer {
    nodes: [Polling<Postgres>; 2],
    name: &'static str,
    token: Token,
    random: Random,
    /// Whether it stores the cursor together with the effect of a page. Otherwise it relies on what
    /// it has committed at the endpoint.
    keeps_cursor: bool,
    done: Arc<AtomicBool>,
}

/// The database of a consumer that has ended.
#[derive(Default)]
struct Received {
    /// The cursor after the last page of `once`, if the consumer keeps it.
    cursor: Option<String>,
    /// Positions and aggregates of the pages whose commit it knows of, or that are stored with their
    /// cursor.
    once: Vec<(i64, String)>,
    /// Positions of all pages that it has fetched.
    fetched: BTreeSet<i64>,
}

impl Consumer {
    /// Lives again and again, and ends at any moment, until everything is received.
    async fn run(self) -> Received {
        let received = Mutex::new(Received::default());
        loop {
            let millis = 2 + self.random.bits() % 150;
            let life = self.live(&received);
            if let Ok(()) = timeout(Duration::from_millis(millis), life).await {
                return received.into_inner().unwrap();
            }
        }
    }

    /// Polls until nothing is left that was committed before a poll began after the writers ended.
    async fn live(&self, received: &Mutex<Received>) {
        loop {
            let is_last = self.done.load(Ordering::SeqCst);
            let polling = &self.nodes[chance(&self.random, 2)];
            let caller = authenticate(polling, self.name, &self.token).await;
            let from = if self.keeps_cursor {
                received.lock().unwrap().cursor.clone()
            } else {
                None
            };
            let request = PollRequest {
                cursor: from.as_deref(),
                limit: 1 + chance(&self.random, 500),
                wait: Duration::from_millis(if is_last { 0 } else { 20 }),
            };
            let page = polling.poll(&caller, request).await.unwrap();
            if self.keeps_cursor {
                received.lock().unwrap().take(&page, true);
                self.commit(polling, &caller, &page).await;
            } else {
                received.lock().unwrap().take(&page, false);
                if self.commit(polling, &caller, &page).await {
                    received.lock().unwrap().confirm(&page);
                }
            }
            if is_last && page.events.is_empty() && !page.has_more {
                return;
            }
        }
    }

    /// Whether the commit has moved the position. A commit of an earlier life may have moved it
    /// meanwhile: the life ended, and the statement did not.
    async fn commit(&self, polling: &Polling<Postgres>, caller: &Caller, page: &Page) -> bool {
        match polling.commit(caller, &page.cursor, false).await {
            Ok(_) => true,
            Err(PollError::Behind { .. } | PollError::Incomparable { .. }) => false,
            Err(error) => panic!("{}: {error:?}", self.name),
        }
    }
}

impl Received {
    fn take(&mut self, page: &Page, is_stored: bool) {
        self.fetched
            .extend(page.events.iter().map(|event| event.position));
        if is_stored {
            self.confirm(page);
            self.cursor = Some(page.cursor.clone());
        }
    }

    fn confirm(&mut self, page: &Page) {
        self.once.extend(page.events.iter().map(|event| {
            let aggregate = event.event.aggregate.as_ref().unwrap();
            (event.position, aggregate.id.clone())
        }));
    }

    /// Every event was fetched, none of another tenant, each once in what is committed, and in the
    /// order of its aggregate.
    fn check(&self, tenant: &str, committed: &BTreeSet<i64>) {
        assert_eq!(&self.fetched, committed, "{tenant}");
        let once: BTreeSet<i64> = self.once.iter().map(|(position, _)| *position).collect();
        assert_eq!(once.len(), self.once.len(), "{tenant}: an event came twice");
        if self.cursor.is_some() {
            assert_eq!(&once, committed, "{tenant}");
        }
        let mut last = BTreeMap::new();
        for (position, key) in &self.once {
            let before = last.insert(key, position);
            assert!(
                before < Some(position),
                "{tenant}: {position} after {before:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_event_that_commits_late_is_polled_once_on_either_side_of_a_commit() {
    let fixture = Fixture::new().await;
    let token = create(&fixture.store, "acme", Some("ann"), 1).await;
    let polling = polling(&fixture.store);
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    emit(&late, "ann", "late", 1).await;
    emit(&fixture.plain, "ann", "new", 2).await;
    let caller = authenticate(&polling, "acme", &token).await;
    let first = poll(&polling, &caller, None).await;
    assert_eq!(positions(&first), [2, 3]);
    polling.commit(&caller, &first.cursor, false).await.unwrap();
    late.batch_execute("COMMIT").await.unwrap();
    let caller = authenticate(&polling, "acme", &token).await;
    for cursor in [None, Some(first.cursor.as_str())] {
        let second = poll(&polling, &caller, cursor).await;
        assert_eq!(positions(&second), [1]);
        let third = poll(&polling, &caller, Some(second.cursor.as_str())).await;
        assert_eq!(positions(&third), [0; 0]);
    }
}

#[tokio::test]
async fn a_cursor_is_good_after_a_failover_if_it_was_committed_and_refused_otherwise() {
    let fixture = Fixture::new().await;
    let token = create(&fixture.store, "acme", Some("ann"), 1).await;
    emit(&fixture.plain, "ann", "a", 2).await;
    let polling = polling(&fixture.store);
    let caller = authenticate(&polling, "acme", &token).await;
    let first = poll(&polling, &caller, None).await;
    polling.commit(&caller, &first.cursor, false).await.unwrap();
    emit(&fixture.plain, "ann", "a", 1).await;
    let second = poll(&polling, &caller, Some(first.cursor.as_str())).await;
    // The committed position is of the timeline before this one, as after a promotion.
    let branch = "UPDATE hapax.poll_endpoint SET snapshot = replace(snapshot, '/0000', '/F000')";
    fixture.run(branch).await;
    let caller = authenticate(&polling, "acme", &token).await;
    let again = poll(&polling, &caller, None).await;
    assert_eq!(positions(&again), positions(&second));
    // A position of another timeline that is not stored is one that may have been lost.
    let other = Frontier {
        high: caller.endpoint().committed.high + 1,
        snapshot: caller.endpoint().committed.snapshot.clone(),
    };
    let moved = fixture
        .store
        .move_committed(caller.endpoint(), &other)
        .await;
    assert!(moved.is_err(), "{moved:?}");
}

#[tokio::test]
async fn the_position_of_an_endpoint_keeps_the_sequence_from_going_below_it() {
    let fixture = Fixture::new().await;
    let token = create(&fixture.store, "acme", Some("ann"), 1).await;
    emit(&fixture.plain, "ann", "a", 5).await;
    let polling = polling(&fixture.store);
    let caller = authenticate(&polling, "acme", &token).await;
    let page = poll(&polling, &caller, None).await;
    polling.commit(&caller, &page.cursor, false).await.unwrap();
    // As after a logical replication, which copies no sequences, of a table without its last rows.
    fixture
        .run("DELETE FROM hapax.outbox_event WHERE id > 2")
        .await;
    fixture
        .run("SELECT setval('hapax.outbox_event_id', 2)")
        .await;
    let caller = authenticate(&polling, "acme", &token).await;
    let none = poll(&polling, &caller, None).await;
    assert_eq!(positions(&none), [0; 0]);
    emit(&fixture.plain, "ann", "a", 1).await;
    let caller = authenticate(&polling, "acme", &token).await;
    assert_eq!(positions(&poll(&polling, &caller, None).await), [6]);
}

#[tokio::test]
async fn a_cursor_that_was_not_moved_for_longer_than_the_retention_is_gone() {
    let fixture = Fixture::new().await;
    let token = create(&fixture.store, "acme", Some("ann"), 1).await;
    let polling = polling(&fixture.store);
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    emit(&late, "ann", "late", 1).await;
    emit(&fixture.plain, "ann", "a", 1).await;
    let caller = authenticate(&polling, "acme", &token).await;
    let page = poll(&polling, &caller, None).await;
    assert_eq!(positions(&page), [2]);
    late.batch_execute("COMMIT").await.unwrap();
    fixture.run(TURN).await;
    emit(&fixture.plain, "ann", "a", 1).await;
    // The first segment is emptied with the late event, which this consumer has not read.
    let empty = "SELECT hapax.rotate(0, now()); SELECT hapax.empty_segment(0, 0, now())";
    fixture.run(empty).await;
    let left = "SELECT count(*) FROM hapax.outbox_event";
    assert_eq!(fixture.count(left).await, 1);
    let request = PollRequest {
        cursor: Some(page.cursor.as_str()),
        ..PollRequest::default()
    };
    let gone = polling.poll(&caller, request).await;
    assert_matches!(
        gone,
        Err(PollError::Gone {
            is_set_back: false,
            oldest_at: Some(_),
            ..
        })
    );
}

/// Creates an endpoint of a tenant, or of all, that starts now.
async fn create(store: &Postgres, name: &str, tenant: Option<&str>, number: u8) -> Token {
    let token = Token::mint([number; 32]);
    let new = NewPollingEndpoint {
        name: name.to_owned(),
        tenant: tenant.map(str::to_owned),
        all_tenants: tenant.is_none(),
        types: Vec::new(),
        start: Start::Now,
        token: token.hash(),
        secret: CursorSecret::from_bytes([number; 32]),
    };
    let created = store
        .create_polling_endpoint(&Actor::new("ops"), &new)
        .await;
    created.unwrap();
    token
}

fn polling(store: &Postgres) -> Polling<Postgres> {
    let settings = PollSettings {
        rate: PollRate {
            per_second: NonZeroU32::MAX,
            burst: NonZeroU32::MAX,
        },
        ..PollSettings::default()
    };
    let clock = store.database_clock();
    Polling::new(store.clone(), &store.notifier(), clock, &settings)
}

async fn authenticate(polling: &Polling<Postgres>, name: &str, token: &Token) -> Caller {
    let caller = polling.authenticate(name, token.reveal().as_bytes()).await;
    caller.unwrap()
}

async fn poll(polling: &Polling<Postgres>, caller: &Caller, cursor: Option<&str>) -> Page {
    let request = PollRequest {
        cursor,
        ..PollRequest::default()
    };
    polling.poll(caller, request).await.unwrap()
}

fn positions(page: &Page) -> Vec<i64> {
    page.events.iter().map(|event| event.position).collect()
}

fn chance(random: &Random, of: usize) -> usize {
    usize::try_from(random.bits() % of as u64).unwrap()
}
