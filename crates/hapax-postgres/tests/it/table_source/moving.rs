//! Moving rows into the outbox: in order, by one mover at a time, past rows that are locked,
//! without end.

use std::{collections::BTreeSet, time::Duration};

use hapax_postgres::{Imported, Moved, TableSource};
use hapax_testkit::wait::eventually;
use tokio::sync::oneshot;

use super::{TOPIC, events, imported, kinds, move_batch, samples::AGGREGATE, topic};
use crate::fixture::{Fixture, PATIENCE};

#[tokio::test]
async fn of_two_that_move_one_does_and_the_other_says_so() {
    let (fixture, mine) = imported(TOPIC, topic()).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('a', '{}')")
        .await;
    let other = fixture.beside().await;
    let mut named = topic();
    // The lock depends on the table, not on the name of the source.
    named.name = "otherwise".to_owned();
    let theirs = Imported::open(&other.store, named).await.unwrap();
    fixture
        .run(
            "BEGIN; SELECT pg_advisory_xact_lock(
            hashtext('hapax.set_aside'), 'outbox'::regclass::oid::int4)",
        )
        .await;
    let busy = Moved {
        is_busy: true,
        ..Moved::default()
    };
    assert_eq!(move_batch(&mine).await, busy);
    assert_eq!(move_batch(&theirs).await, busy);
    fixture.run("COMMIT").await;
    assert_eq!(move_batch(&theirs).await.rows, 1);
    assert_eq!(move_batch(&mine).await, Moved::default());
}

#[tokio::test]
async fn a_row_that_somebody_holds_is_passed_and_its_key_waits_for_it() {
    let (fixture, imported) = imported(&AGGREGATE.ddl(), AGGREGATE.table()).await;
    fixture
        .run(
            "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, sequence, payload)
         SELECT 'order', aggregate, aggregate || number, number, '{}'
         FROM unnest('{a,b}'::text[]) AS aggregate, generate_series(1, 3) AS number",
        )
        .await;
    let other = fixture.database.client().await;
    let hold = "BEGIN; SELECT FROM outbox WHERE aggregate_id = 'a' AND sequence = 2 FOR UPDATE";
    other.batch_execute(hold).await.unwrap();
    assert_eq!(move_batch(&imported).await.rows, 4);
    assert_eq!(kinds(&fixture).await, ["a1", "b1", "b2", "b3"]);
    assert_eq!(move_batch(&imported).await.rows, 0);
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(move_batch(&imported).await.rows, 2);
    assert_eq!(kinds(&fixture).await, ["a1", "b1", "b2", "b3", "a2", "a3"]);
}

/// However many rows wait for a locked row, the rows of other aggregates are moved.
#[tokio::test]
async fn a_busy_aggregate_that_waits_stops_no_other() {
    let (fixture, imported) = imported(&AGGREGATE.ddl(), AGGREGATE.table()).await;
    fixture.run("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, sequence, payload)
         SELECT 'order', aggregate, aggregate || number, number, '{}'
         FROM unnest('{a,b}'::text[]) AS aggregate, generate_series(1, 600) AS number;
         INSERT INTO outbox (aggregate_type, aggregate_id, event_type, sequence, payload)
         SELECT 'order', 'c', 'c' || number, number + 600, '{}' FROM generate_series(1, 3) AS number")
    .await;
    let other = fixture.database.client().await;
    let hold =
        "BEGIN; SELECT FROM outbox WHERE sequence = 1 AND aggregate_id IN ('a', 'b') FOR UPDATE";
    other.batch_execute(hold).await.unwrap();
    assert_eq!(move_batch(&imported).await.rows, 3);
    assert_eq!(kinds(&fixture).await, ["c1", "c2", "c3"]);
    assert_eq!(move_batch(&imported).await, Moved::default());
    other.batch_execute("COMMIT").await.unwrap();
    while move_batch(&imported).await.rows > 0 {}
    let all = kinds(&fixture).await;
    for aggregate in ["a", "b"] {
        let mine = all.iter().filter(|kind| kind.starts_with(aggregate));
        let expected: Vec<_> = (1..=600)
            .map(|number| format!("{aggregate}{number}"))
            .collect();
        assert!(mine.eq(&expected), "{aggregate} is out of order");
    }
}

#[tokio::test]
async fn a_row_that_another_publisher_took_meanwhile_is_not_moved() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('theirs', '{}'), ('ours', '{}')")
        .await;
    let other = fixture.database.client().await;
    let take = "BEGIN; UPDATE outbox SET published_at = now() WHERE topic = 'theirs'";
    other.batch_execute(take).await.unwrap();
    assert_eq!(move_batch(&imported).await.rows, 1);
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(move_batch(&imported).await.rows, 0);
    assert_eq!(kinds(&fixture).await, ["ours"]);
}

#[tokio::test]
async fn a_row_has_one_id_for_all_time() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('a', '{}'), ('b', '{}')")
        .await;
    move_batch(&imported).await;
    // If the service publishes a row again, consumers see the event id that they know.
    fixture.run("UPDATE outbox SET published_at = NULL").await;
    move_batch(&imported).await;
    let events = events(&fixture).await;
    let ids: Vec<_> = events.iter().map(|it| it.event.id.to_string()).collect();
    assert_eq!(ids[..2], ids[2..]);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 2);
    assert!(ids.iter().all(|id| &id[14..15] == "8"), "{ids:?}");
}

#[tokio::test]
async fn a_batch_is_bounded_in_rows_and_in_bytes() {
    let mut table = topic();
    table.batch = 40;
    let (fixture, imported) = imported(TOPIC, table).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload)
         SELECT 'small', '{}' FROM generate_series(1, 50);
         INSERT INTO outbox (topic, payload)
         SELECT 'large', to_json(repeat('x', 1000000)) FROM generate_series(1, 8)",
        )
        .await;
    let mut batches = Vec::new();
    loop {
        let moved = move_batch(&imported).await.rows;
        if moved == 0 {
            break;
        }
        batches.push(moved);
    }
    assert_eq!(batches, [40, 13, 3, 2]);
}

#[tokio::test]
async fn a_backlog_is_found_by_its_index_however_long_it_is() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    fixture.run(imported.index()).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload, published_at)
         SELECT 'a', '{}', CASE WHEN number <= 50000 THEN now() END
         FROM generate_series(1, 100000) AS number; ANALYZE outbox;
         INSERT INTO hapax.set_aside (source, row_key, problem, set_aside_at)
         SELECT 'orders', number, '', now()
         FROM generate_series(50001, 50100) AS number",
        )
        .await;
    let before = reads(&fixture).await;
    for _ in 0..5 {
        assert_eq!(move_batch(&imported).await.rows, 500);
    }
    let read = reads(&fixture).await - before;
    assert!(read < 20_000, "{read} rows were looked at for 2500");
}

/// A common table, whose index is by time and not by the key.
#[tokio::test]
async fn an_index_by_time_serves_if_rows_are_moved_in_its_order() {
    let ddl = "CREATE TABLE outbox (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            aggregate_type text NOT NULL,
            aggregate_id text NOT NULL,
            event_type text NOT NULL,
            sequence bigint NOT NULL,
            payload jsonb NOT NULL,
            headers jsonb NOT NULL DEFAULT '{}'::jsonb,
            created_at timestamptz NOT NULL DEFAULT now(),
            available_at timestamptz NOT NULL DEFAULT now(),
            published_at timestamptz
        );
        CREATE INDEX outbox_unpublished_idx ON outbox (available_at, id) WHERE published_at IS NULL";
    let some = |column: &str| Some(column.to_owned());
    let mut table = TableSource::new("orders", "outbox");
    table.kind = some("event_type");
    table.aggregate_type = some("aggregate_type");
    table.aggregate_id = some("aggregate_id");
    table.sequence = some("sequence");
    table.headers = some("headers");
    table.created_at = some("created_at");
    table.available_at = some("available_at");
    let (fixture, by_key) = imported(ddl, table.clone()).await;
    assert!(!by_key.is_served());
    table.order = vec!["available_at".to_owned(), "id".to_owned()];
    let by_time = Imported::open(&fixture.store, table).await.unwrap();
    assert!(by_time.is_served());
    fixture
        .run(
            "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, sequence, payload)
            VALUES ('order', 'o1', 'order.accepted', 1, '{}'), ('order', 'o1', 'order.paid', 2, '{}')",
        )
        .await;
    assert_eq!(move_batch(&by_time).await.rows, 2);
    let events = events(&fixture).await;
    let sequences = events.iter().map(|it| it.event.sequence);
    assert_eq!(sequences.collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert!(events.iter().all(|it| it.event.available_at.is_some()));
}

#[tokio::test]
async fn a_mover_goes_on_until_it_is_stopped() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    let mut subscription = fixture.store.notifier().subscribe();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(imported.clone().run(async {
        let _stopped = stopped.await;
    }));
    for count in 1..=3 {
        fixture
            .run(
                "INSERT INTO outbox (topic, payload) SELECT 'a', '{}' FROM generate_series(1, 700)",
            )
            .await;
        subscription.notified().await;
        eventually(PATIENCE, async || {
            kinds(&fixture).await.len() == count * 700
        })
        .await;
    }
    // If the table is missing, a batch fails and the running mover waits. A batch that finds the
    // other mover's lock moves nothing and does not fail, so the test repeats it.
    fixture.run("ALTER TABLE outbox RENAME TO gone").await;
    eventually(PATIENCE, async || imported.move_batch().await.is_err()).await;
    fixture.run("ALTER TABLE gone RENAME TO outbox").await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('back', '{}')")
        .await;
    eventually(PATIENCE, async || kinds(&fixture).await.len() == 2101).await;
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_constant_type_stands_only_where_there_is_an_id() {
    let ddl = "CREATE TABLE outbox (
        id bigint PRIMARY KEY, who text, payload json NOT NULL, published_at timestamptz)";
    let mut table = TableSource::new("orders", "outbox");
    table.kind_constant = Some("a".to_owned());
    table.aggregate_type_constant = Some("order".to_owned());
    table.aggregate_id = Some("who".to_owned());
    let (fixture, imported) = imported(ddl, table).await;
    fixture
        .run("INSERT INTO outbox VALUES (1, 'w', '{}'), (2, NULL, '{}')")
        .await;
    assert_eq!(move_batch(&imported).await.rows, 2);
    let events = events(&fixture).await;
    let about = events.iter().map(|it| it.event.aggregate.is_some());
    assert_eq!(about.collect::<Vec<_>>(), [true, false]);
}

/// How many rows of the table were scanned, with or without an index.
async fn reads(fixture: &Fixture) -> i64 {
    fixture
        .store
        .read("SELECT pg_stat_force_next_flush()::text", &[])
        .await
        .unwrap();
    let version = "SELECT coalesce(seq_tup_read, 0)::int8 + coalesce(idx_tup_fetch, 0)::int8
        FROM pg_stat_user_tables WHERE relname = 'outbox'";
    fixture.count(version).await
}
