//! Reading the outbox: the frontier among writers that commit late, run long or roll back, and
//! readers that restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use hapax::{
    Random,
    delivery::{Checkpoint, Frontier, Settlement, Shards},
    limits::READ_BYTES,
    store::{Partitions, Settlements, Source},
};
use hapax_postgres::Postgres;
use hapax_testkit::clock::seeded_random;
use tokio_postgres::Client;

use crate::fixture::Fixture;

const EMIT: &str = "
    INSERT INTO hapax.outbox_event
        (event_id, type, aggregate_type, aggregate_id, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', 'key', $1::text, $2::text, '{}', now()
    FROM generate_series(1, $3::int)";

/// Starts the next rotation, as the purge does.
pub(crate) const TURN: &str = "
    SELECT setval('hapax.outbox_event_id', (last_value >> 36) + 1 << 36)
    FROM hapax.outbox_event_id";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_writers_do_all_that_is_committed_is_read_once_and_in_order() {
    let fixture = Fixture::new().await;
    let beside = fixture.beside().await;
    let keys =
        "CREATE TABLE key AS SELECT number::text AS name FROM generate_series(0, 5) AS number";
    fixture.run(keys).await;
    let done = Arc::new(AtomicBool::new(false));
    let stores = [fixture.store.clone(), beside.store.clone()];
    let reader = tokio::spawn(read_on(stores, Arc::clone(&done)));
    let mut writers = Vec::new();
    for seed in 0..8 {
        let client = fixture.database.client().await;
        writers.push(tokio::spawn(write(client, seeded_random(seed), 60)));
    }
    for number in 0..2 {
        let client = fixture.database.client().await;
        let random = seeded_random(100 + number);
        writers.push(tokio::spawn(write_long(
            client,
            random,
            format!("long{number}"),
        )));
    }
    // Meanwhile the outbox rotates through its segments under all writers.
    for _ in 0..6 {
        fixture.run(TURN).await;
        fixture.run("SELECT pg_sleep(0.1)").await;
    }
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let read = reader.await.unwrap();
    let misplaced = "SELECT count(*) FROM hapax.outbox_event WHERE segment <> (id >> 36 & 7)";
    assert_eq!(fixture.count(misplaced).await, 0);
    let turns = "SELECT count(DISTINCT id >> 36) FROM hapax.outbox_event";
    assert!(fixture.count(turns).await > 3);
    let rows = fixture
        .plain
        .query("SELECT id FROM hapax.outbox_event", &[]);
    let committed: BTreeSet<i64> = rows.await.unwrap().iter().map(|row| row.get(0)).collect();
    let positions: BTreeSet<i64> = read.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions.len(), read.len(), "an event was read twice");
    assert_eq!(positions, committed);
    assert!(!read.is_sorted(), "no transaction committed late");
    let mut last = BTreeMap::new();
    for (position, key) in read {
        let before = last.insert(key, position);
        assert!(before < Some(position), "{position} after {before:?}");
    }
}

/// Reads with random limits on either node, starting each time from the last frontier only. Ends
/// when a read that began after the writers ended finds nothing.
async fn read_on(stores: [Postgres; 2], done: Arc<AtomicBool>) -> Vec<(i64, String)> {
    let (random, mut frontier, mut read) = (seeded_random(50), Frontier::default(), Vec::new());
    loop {
        let is_last = done.load(Ordering::SeqCst);
        let store = &stores[chance(&random, 2)];
        let limit = 1 + chance(&random, 40);
        let batch = Source::read(store, &frontier, Shards::ALL, limit)
            .await
            .unwrap();
        assert!(batch.events.len() <= limit);
        if is_last && batch.events.is_empty() {
            return read;
        }
        // Now and then the frontier is not stored, as when a destination found no events.
        if !batch.events.is_empty() || chance(&random, 2) == 0 {
            frontier = batch.frontier;
        }
        read.extend(batch.events.iter().map(|event| {
            let about = event.event.aggregate.as_ref().unwrap();
            (event.position, about.id.clone())
        }));
    }
}

/// Transactions that lock their aggregate, emit, roll back to savepoints, and sometimes roll back
/// completely.
async fn write(client: Client, random: Random, rounds: usize) {
    for _ in 0..rounds {
        client.batch_execute("BEGIN").await.unwrap();
        let key = chance(&random, 6).to_string();
        let hold = "SELECT name FROM key WHERE name = $1 FOR UPDATE";
        client.query(hold, &[&key]).await.unwrap();
        for _ in 0..=chance(&random, 3) {
            emit(&client, &key, "{}", 1 + chance(&random, 3)).await;
            if chance(&random, 3) == 0 {
                client.batch_execute("SAVEPOINT partition").await.unwrap();
                emit(&client, &key, "{}", 1).await;
                let end = ["ROLLBACK TO partition", "RELEASE partition"][chance(&random, 2)];
                client.batch_execute(end).await.unwrap();
            }
            if chance(&random, 4) == 0 {
                client.batch_execute("SELECT pg_sleep(0.01)").await.unwrap();
            }
        }
        end(&client, &random).await;
    }
}

/// Transactions that stay open while others commit.
async fn write_long(client: Client, random: Random, key: String) {
    for _ in 0..4 {
        client.batch_execute("BEGIN").await.unwrap();
        for _ in 0..10 {
            emit(&client, &key, "{}", 1 + chance(&random, 20)).await;
            client.batch_execute("SELECT pg_sleep(0.02)").await.unwrap();
        }
        end(&client, &random).await;
    }
}

async fn end(client: &Client, random: &Random) {
    let end = ["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"][chance(random, 4)];
    client.batch_execute(end).await.unwrap();
}

fn chance(random: &Random, of: usize) -> usize {
    usize::try_from(random.bits() % of as u64).unwrap()
}

async fn emit(client: &Client, key: &str, payload: &str, count: usize) {
    let count = i32::try_from(count).unwrap();
    let emitted = client.execute(EMIT, &[&key, &payload, &count]).await;
    emitted.unwrap();
}

/// Reads once; returns the positions, and the frontier after them.
async fn read(fixture: &Fixture, frontier: &Frontier, limit: usize) -> (Vec<i64>, Frontier) {
    let batch = Source::read(&fixture.store, frontier, Shards::ALL, limit)
        .await
        .unwrap();
    let positions = batch.events.iter().map(|event| event.position);
    (positions.collect(), batch.frontier)
}

/// Two connections: one has an event in an open transaction, and the other has committed three
/// events after it.
async fn one_late(fixture: &Fixture, count: usize, payload: &str) -> (Client, Frontier) {
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    emit(&late, "late", payload, count).await;
    emit(&fixture.plain, "new", "{}", 3).await;
    let first = i64::try_from(count).unwrap() + 1;
    let (positions, frontier) = read(fixture, &Frontier::default(), 10).await;
    assert_eq!(positions, [first, first + 1, first + 2]);
    (late, frontier)
}

#[tokio::test]
async fn what_commits_late_is_read_then_and_once() {
    let fixture = Fixture::new().await;
    let (late, frontier) = one_late(&fixture, 1, "{}").await;
    let (none, again) = read(&fixture, &frontier, 10).await;
    assert_eq!(none, [0; 0]);
    late.batch_execute("COMMIT").await.unwrap();
    for from in [&frontier, &again] {
        let (positions, behind) = read(&fixture, from, 10).await;
        assert_eq!(positions, [1]);
        assert_eq!(read(&fixture, &behind, 10).await.0, [0; 0]);
    }
}

#[tokio::test]
async fn what_ended_beyond_a_snapshot_is_found_while_its_first_transaction_is_open() {
    let fixture = Fixture::new().await;
    let mut other = fixture.database.client().await;
    let open = other.transaction().await.unwrap();
    let xid = "SELECT pg_current_xact_id()::text";
    let xid: String = open.query_one(xid, &[]).await.unwrap().get(0);
    emit(&fixture.plain, "key", "{}", 1).await;
    let frontier = Frontier {
        high: 1,
        snapshot: Some(format!("{xid}:{xid}: 0 - = - - 0@0").into()),
    };
    assert_eq!(read(&fixture, &frontier, 10).await.0, [1]);
}

/// Ids are drawn in the opposite order of the xids: the late transaction began last, so the
/// snapshot that passes its id does not list its xid.
#[tokio::test]
async fn what_commits_late_is_found_though_its_transaction_is_the_youngest() {
    let fixture = Fixture::new().await;
    let (old, young) = (
        fixture.database.client().await,
        fixture.database.client().await,
    );
    let mut frontier = Frontier::default();
    for round in 0..10 {
        for client in [&old, &young] {
            let begin = "BEGIN; SELECT pg_current_xact_id()";
            client.batch_execute(begin).await.unwrap();
        }
        emit(&young, "young", "{}", 1).await;
        emit(&old, "old", "{}", 1).await;
        old.batch_execute("COMMIT").await.unwrap();
        for (end, position) in [("", 2 * round + 2), ("COMMIT", 2 * round + 1)] {
            young.batch_execute(end).await.unwrap();
            let (positions, behind) = read(&fixture, &frontier, 10).await;
            assert_eq!(positions, [position]);
            frontier = behind;
        }
    }
}

#[tokio::test]
async fn a_late_transaction_that_is_too_large_for_one_read_is_read_in_pieces() {
    let fixture = Fixture::new().await;
    let (late, mut frontier) = one_late(&fixture, 500, "{}").await;
    let other = fixture.database.client().await;
    other.batch_execute("BEGIN").await.unwrap();
    emit(&other, "other", "{}", 2).await;
    emit(&fixture.plain, "new", "{}", 1).await;
    late.batch_execute("COMMIT").await.unwrap();
    let mut all = Vec::new();
    let mut turn = 0;
    loop {
        // The next reader knows only the text of the frontier.
        let node = Fixture::on(Arc::clone(&fixture.database), |_| {});
        let store = if turn % 10 == 0 {
            node.await.store
        } else {
            fixture.store.clone()
        };
        let batch = Source::read(&store, &frontier, Shards::ALL, 7)
            .await
            .unwrap();
        if batch.events.is_empty() {
            break;
        }
        frontier = batch.frontier;
        all.extend(batch.events.iter().map(|event| event.position));
        turn += 1;
        if turn == 20 {
            // Between two pieces another transaction commits late as well.
            other.batch_execute("COMMIT").await.unwrap();
        }
    }
    let late: Vec<i64> = (1..=500).collect();
    assert_eq!(all[..500], late);
    let rest: BTreeSet<i64> = all[500..].iter().copied().collect();
    assert_eq!(rest, BTreeSet::from([504, 505, 506]));
    assert_eq!(all.len(), 503);
}

#[tokio::test]
async fn late_events_that_are_large_are_read_by_their_bytes() {
    let fixture = Fixture::new().await;
    let payload = format!("\"{}\"", "x".repeat(1_000_000));
    let (late, mut frontier) = one_late(&fixture, 8, &payload).await;
    late.batch_execute("COMMIT").await.unwrap();
    let mut all = Vec::new();
    while all.len() < 8 {
        let batch = Source::read(&fixture.store, &frontier, Shards::ALL, 100)
            .await
            .unwrap();
        let bytes = batch
            .events
            .iter()
            .map(|event| event.event.payload.bytes().len());
        let bytes: usize = bytes.sum();
        assert!(
            bytes > 0 && bytes <= READ_BYTES + 1_000_002,
            "a batch has {bytes} bytes"
        );
        all.extend(batch.events.iter().map(|event| event.position));
        frontier = batch.frontier;
    }
    assert_eq!(all, (1..=8).collect::<Vec<i64>>());
}

#[tokio::test]
async fn what_is_late_by_very_much_is_found_and_looked_for_once() {
    let fixture = Fixture::new().await;
    let (late, mut frontier) = one_late(&fixture, 1, "{}").await;
    let vain = fixture.database.client().await;
    vain.batch_execute("BEGIN").await.unwrap();
    emit(&vain, "vain", "{}", 1).await;
    emit(&fixture.plain, "many", "{}", 120_000).await;
    emit(&late, "late", "{}", 1).await;
    emit(&fixture.plain, "new", "{}", 1).await;
    frontier = read_to_the_end(&fixture, frontier).await.1;
    late.batch_execute("COMMIT").await.unwrap();
    emit(&fixture.plain, "new", "{}", 1).await;
    let (positions, behind) = read_to_the_end(&fixture, frontier).await;
    assert_eq!(positions, [1, 120_006, 120_008]);
    vain.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(read(&fixture, &behind, 10).await.0, [0; 0]);
    // The stored frontier has not moved; even so the next read does not scan all those rows again.
    let looked = rows_looked_at(&fixture).await;
    for _ in 0..20 {
        assert_eq!(read(&fixture, &behind, 10).await.0, [0; 0]);
    }
    let looked = rows_looked_at(&fixture).await - looked;
    assert!(looked < 100_000, "{looked} rows were looked at");
    emit(&fixture.plain, "new", "{}", 1).await;
    assert_eq!(read(&fixture, &behind, 10).await.0, [120_009]);
}

/// Reads until no event is left; returns the positions, and the frontier after them.
async fn read_to_the_end(fixture: &Fixture, mut frontier: Frontier) -> (Vec<i64>, Frontier) {
    let mut all = Vec::new();
    loop {
        let (positions, behind) = read(fixture, &frontier, 10_000).await;
        if positions.is_empty() {
            return (all, frontier);
        }
        frontier = behind;
        all.extend(positions);
    }
}

/// How many rows the store's connections have fetched through an index.
async fn rows_looked_at(fixture: &Fixture) -> i64 {
    // Before PostgreSQL 15 a connection reports its statistics by itself, after the first statement
    // that ends half a second later.
    let version = "SELECT current_setting('server_version_num')::int8";
    let flush = if fixture.count(version).await < 150_000 {
        "SELECT 1 FROM pg_sleep(0.6)"
    } else {
        "SELECT 1 FROM pg_stat_force_next_flush()"
    };
    fixture.store.read(flush, &[]).await.unwrap();
    let fetched = "SELECT sum(idx_tup_read)::int8 FROM pg_stat_user_indexes
        WHERE indexrelname LIKE 'outbox\\_event\\_%pkey'";
    fixture.count(fetched).await
}

#[tokio::test]
async fn after_a_restore_on_another_cluster_late_events_are_read_and_others_are_not_again() {
    const AHEAD: u64 = 50_000_000;
    let fixture = Fixture::new().await;
    let (late, frontier) = one_late(&fixture, 2, "{}").await;
    late.batch_execute("COMMIT").await.unwrap();
    // The rows contain xids that this cluster has not reached.
    let ahead = "UPDATE hapax.outbox_event
        SET xid = (xid::text::int8 + 50000000)::text::xid8";
    fixture.run(ahead).await;
    let old = frontier.snapshot.clone().unwrap();
    let mut words: Vec<String> = old.split(' ').map(str::to_owned).collect();
    let plus = |xid: &str| (xid.parse::<u64>().unwrap() + AHEAD).to_string();
    let partitions: Vec<&str> = words[0].split(':').collect();
    let running = partitions[2]
        .split(',')
        .filter(|xid| !xid.is_empty())
        .map(plus);
    let running: Vec<String> = running.collect();
    words[0] = format!(
        "{}:{}:{}",
        plus(partitions[0]),
        plus(partitions[1]),
        running.join(",")
    );
    words[2] = "1".to_owned();
    let restored = Frontier {
        high: frontier.high,
        snapshot: Some(words.join(" ").into()),
    };
    // If a database was restored, opening the partition handles these xids.
    let opened = fixture.store.open("hook").await.unwrap();
    let settlement = Settlement {
        destination: "hook".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier,
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    fixture.store.settle(settlement).await.unwrap();
    let ahead = "UPDATE hapax.checkpoint_log SET snapshot = $1";
    fixture
        .plain
        .execute(ahead, &[&restored.snapshot.as_deref()])
        .await
        .unwrap();
    let (positions, mut frontier) = read(&fixture, &restored, 10).await;
    assert_eq!(positions, [1, 2]);
    for _ in 0..3 {
        emit(&fixture.plain, "new", "{}", 1).await;
        let (positions, behind) = read(&fixture, &frontier, 10).await;
        assert_eq!(positions.len(), 1);
        frontier = behind;
    }
    assert_eq!(read(&fixture, &frontier, 10).await.0, [0; 0]);
}

#[tokio::test]
async fn a_frontier_that_is_torn_is_refused() {
    let fixture = Fixture::new().await;
    let torn = Frontier {
        high: 1,
        snapshot: Some("7:9".into()),
    };
    let refused = Source::read(&fixture.store, &torn, Shards::ALL, 1)
        .await
        .unwrap_err();
    assert!(
        refused.error_chain().contains("unreadable"),
        "{}",
        refused.error_chain()
    );
}

#[tokio::test]
async fn what_cannot_be_read_hides_nothing_before_it() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, "key", "{}", 3).await;
    fixture
        .run("UPDATE hapax.outbox_event SET headers = 'torn' WHERE id = 2")
        .await;
    let (positions, frontier) = read(&fixture, &Frontier::default(), 10).await;
    assert_eq!((positions, frontier.high), (vec![1], 1));
    assert!(
        Source::read(&fixture.store, &frontier, Shards::ALL, 10)
            .await
            .is_err()
    );
    fixture
        .run("UPDATE hapax.outbox_event SET headers = '{}'")
        .await;
    assert_eq!(read(&fixture, &frontier, 10).await.0, [2, 3]);
}
