//! A receiver's database whose table refuses rows, whose schema is missing, or which is stopped.

use std::time::Duration;

use hapax::{
    event::{NewEvent, Payload},
    sink::{Offer, Sink as _},
};
use hapax_sinks::{
    postgres::{Field, Postgres, PostgresSettings},
    settings::DestinationSettings,
};
use hapax_testkit::{
    postgres::{Cluster, Database},
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio_postgres::Client;

use crate::{
    events::{PATIENCE, check_failure, deliver, deliver_all, ids, offer, offers, unavailable},
    sinks,
};

/// The migration that creates the inbox.
const MIGRATION: &str = include_str!("../../../hapax-postgres/migrations/0003_inbox.sql");

#[tokio::test]
async fn a_batch_of_5000_is_inserted_in_order_with_every_field() {
    let database = Database::empty().await;
    let direct = prepare(&database, "jsonb").await;
    let sink = to(&database);
    let mut batch = offers(4_999, 10);
    let new = NewEvent::json("order.paid", &serde_json::json!({"n": 1}))
        .about("order", "o-1")
        .sequence(7)
        .header("correlation_id", "c-1");
    batch.push(offer(5_000, new));
    assert!(sink.deliver(&batch).await.iter().all(Result::is_ok));
    assert_eq!(names(&direct).await, ids(&batch));
    let row = direct
        .query_one(
            "SELECT type, tenant, aggregate_type, aggregate_id, sequence, payload ->> 'n',
                    headers ->> 'correlation_id', created_at = '2023-11-14T22:13:20Z'
             FROM inbox_event ORDER BY position DESC LIMIT 1",
            &[],
        )
        .await
        .unwrap();
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let texts = [0, 1, 2, 3, 5, 6].map(text);
    let texts = texts.each_ref().map(Option::as_deref);
    let expected = [
        Some("order.paid"),
        None,
        Some("order"),
        Some("o-1"),
        Some("1"),
        Some("c-1"),
    ];
    assert_eq!(texts, expected);
    assert_eq!((row.get::<_, i64>(4), row.get::<_, bool>(7)), (7, true));
}

#[tokio::test]
async fn what_was_taken_before_is_taken_and_another_payload_under_its_id_is_refused() {
    let database = Database::empty().await;
    let direct = prepare(&database, "jsonb").await;
    let sink = to(&database);
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let known = offer(1, NewEvent::json("a", &1));
    deliver(&sink, known.clone()).await.unwrap();
    let other = offer(1, NewEvent::json("a", &2));
    let new = offer(2, NewEvent::json("a", &2));
    let batch = [known.clone(), new.clone(), other.clone(), new.clone()];
    let outcomes = sink.deliver(&batch).await;
    assert!(
        [0, 1, 3].into_iter().all(|at| outcomes[at].is_ok()),
        "{outcomes:?}"
    );
    check_failure(&outcomes[2], false, "mismatch", "another payload");
    assert_eq!(names(&direct).await, ids(&[known, new]));
    let page = recorder.handle().render();
    for (outcome, count) in [("accepted", 2), ("duplicate", 2), ("mismatch", 1)] {
        let counted = format!(
            "hapax_inbox_messages_total{{consumer=\"hapax\",outcome=\"{outcome}\"}} {count}"
        );
        assert!(page.contains(&counted), "{counted}\n{page}");
    }
    let complete = "SELECT count(*) FROM hapax.inbox_message
        WHERE result = 'inserted' AND processed_at >= received_at";
    let complete = direct.query_one(complete, &[]).await.unwrap();
    assert_eq!(complete.get::<_, i64>(0), 2);
}

#[tokio::test]
async fn each_source_has_ids_of_its_own() {
    let database = Database::empty().await;
    let direct = prepare(&database, "jsonb").await;
    direct.batch_execute(ANY_ID).await.unwrap();
    let (one, two) = (
        to(&database),
        sinks::postgres(database.url(), DestinationSettings::new("two"), |_| {}),
    );
    let (hello, other) = (
        offer(1, NewEvent::json("a", &1)),
        offer(1, NewEvent::json("a", &2)),
    );
    for (sink, said, not_said) in [(&one, &hello, &other), (&two, &other, &hello)] {
        for _ in 0..2 {
            deliver(sink, said.clone()).await.unwrap();
        }
        let outcomes = sink.deliver(std::slice::from_ref(not_said)).await;
        check_failure(&outcomes[0], false, "mismatch", "another payload");
    }
    assert_eq!(names(&direct).await.len(), 2);
}

/// Makes the event ids of the table not unique, so that only the inbox distinguishes events.
const ANY_ID: &str = "ALTER TABLE inbox_event DROP CONSTRAINT inbox_event_event_id_key";

#[tokio::test]
async fn two_relays_with_the_same_events_insert_each_once() {
    let database = Database::empty().await;
    let direct = prepare(&database, "jsonb").await;
    let offers = offers(500, 10);
    let mut backwards = offers.clone();
    backwards.reverse();
    let (one, other) = (to(&database), to(&database));
    let (one, other) = tokio::join!(one.deliver(&offers), other.deliver(&backwards));
    assert!(one.iter().chain(&other).all(Result::is_ok));
    assert_eq!(names(&direct).await.len(), 500);
}

#[tokio::test]
async fn rows_that_the_table_refuses_fail_alone_and_leave_no_inbox_row() {
    let database = Database::empty().await;
    let direct = prepare(&database, "jsonb").await;
    let strict = "CREATE TABLE parent (id text PRIMARY KEY);
        ALTER TABLE inbox_event ADD CHECK (type <> 'bad'),
            ADD FOREIGN KEY (aggregate_id) REFERENCES parent (id),
            ALTER COLUMN type TYPE varchar(10)";
    direct.batch_execute(strict).await.unwrap();
    let sink = to(&database);
    let json =
        |number, text: &str| offer(number, NewEvent::new("a", Payload::Json(text.to_owned())));
    let content_type = "image/x".to_owned();
    let binary = Payload::Binary {
        content_type,
        bytes: vec![0, 255].into(),
    };
    let mut batch: Vec<Offer> = (1..=100).map(|number| json(number, "1")).collect();
    batch[10] = offer(11, NewEvent::json("bad", &1));
    batch[40] = json(41, "\"\\u0000\"");
    batch[41] = offer(42, NewEvent::json("longer.than.ten", &1));
    batch[70] = offer(71, NewEvent::new("a", binary));
    batch[99] = offer(100, NewEvent::json("a", &1).about("order", "orphan"));
    let outcomes = sink.deliver(&batch).await;
    check_failure(&outcomes[10], false, "constraint", "23514");
    check_failure(&outcomes[40], false, "value", "22P05");
    check_failure(&outcomes[41], false, "value", "22001");
    check_failure(&outcomes[70], false, "payload", "not bytea");
    check_failure(&outcomes[99], true, "constraint", "23503");
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 95);
    let bad = [10, 40, 41, 70, 99];
    let good = batch.iter().enumerate().filter(|(at, _)| !bad.contains(at));
    let good: Vec<_> = good.map(|(_, offer)| offer.clone()).collect();
    assert_eq!(names(&direct).await, ids(&good));
    let accepted = direct
        .query_one("SELECT count(*) FROM hapax.inbox_message", &[])
        .await;
    assert_eq!(accepted.unwrap().get::<_, i64>(0), 95);
    direct
        .batch_execute("INSERT INTO parent VALUES ('orphan')")
        .await
        .unwrap();
    deliver(&sink, batch[99].clone()).await.unwrap();
}

#[tokio::test]
async fn a_row_that_no_partition_takes_is_written_when_there_is_one() {
    let database = Database::empty().await;
    let direct = prepare(&database, "jsonb").await;
    let split = "DROP TABLE inbox_event;
        CREATE TABLE inbox_event (event_id uuid NOT NULL, type text NOT NULL CHECK (type <> 'bad'),
            position bigint GENERATED BY DEFAULT AS IDENTITY) PARTITION BY LIST (type);
        CREATE TABLE inbox_event_a PARTITION OF inbox_event FOR VALUES IN ('a')";
    direct.batch_execute(split).await.unwrap();
    let others = [
        Field::Tenant,
        Field::AggregateType,
        Field::AggregateId,
        Field::Sequence,
        Field::Payload,
        Field::Headers,
        Field::CreatedAt,
    ];
    let sink = with(&database, |it| it.without = others.into());
    let batch: Vec<_> = (1..)
        .zip(["a", "b", "bad", "a"])
        .map(|(n, kind)| offer(n, NewEvent::json(kind, &n)))
        .collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok(), "{outcomes:?}");
    check_failure(&outcomes[1], true, "constraint", "no partition");
    let partitions = "CREATE TABLE inbox_event_b PARTITION OF inbox_event FOR VALUES IN ('b');
        CREATE TABLE inbox_event_bad PARTITION OF inbox_event FOR VALUES IN ('bad')";
    direct.batch_execute(partitions).await.unwrap();
    let outcomes = sink.deliver(&batch[1..3]).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    check_failure(
        &outcomes[1],
        false,
        "constraint",
        "violates check constraint",
    );
    assert_eq!(names(&direct).await.len(), 3);
}

#[tokio::test]
async fn a_schema_that_is_not_there_says_what_to_do_and_is_found_when_it_is() {
    let database = Database::empty().await;
    let sink = with(&database, |it| {
        it.columns = [(Field::Payload, "body".to_owned())].into();
        it.without = vec![Field::Tenant];
    });
    let event = offer(1, NewEvent::json("a", &1));
    check_failure(
        &deliver(&sink, event.clone()).await,
        true,
        "schema",
        "run `hapax migrate`",
    );
    let direct = database.client().await;
    migrate(&direct).await;
    check_failure(
        &deliver(&sink, event.clone()).await,
        true,
        "schema",
        "no table inbox_event",
    );
    make_table(&direct, "text").await;
    check_failure(
        &deliver(&sink, event.clone()).await,
        true,
        "schema",
        "no column body",
    );
    let rename = "ALTER TABLE inbox_event RENAME payload TO body;
        ALTER TABLE inbox_event DROP tenant";
    direct.batch_execute(rename).await.unwrap();
    deliver(&sink, event).await.unwrap();
    // The table may change while an open connection knows its old columns.
    direct
        .batch_execute("ALTER TABLE inbox_event RENAME body TO payload")
        .await
        .unwrap();
    let event = offer(2, NewEvent::json("a", &1));
    check_failure(&deliver(&sink, event.clone()).await, true, "schema", "body");
    direct
        .batch_execute("ALTER TABLE inbox_event RENAME payload TO body")
        .await
        .unwrap();
    deliver(&sink, event).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_stopped_in_mid_batch_loses_nothing_and_inserts_each_once() {
    let mut cluster = Cluster::start().await;
    let direct = cluster.client().await;
    migrate(&direct).await;
    make_table(&direct, "jsonb").await;
    let proxy = Proxy::to_postgres(cluster.address());
    let sink = sinks::postgres(
        proxy.url(&cluster.url()),
        sinks::within(Duration::from_secs(5)),
        |_| {},
    );
    let offers = offers(1_000, 1_000);
    // The response is cut off, so only the server knows whether the batch was written.
    let trap = proxy.once(Moment::containing("written AS"), Deed::CutAfter);
    let outcomes = sink.deliver(&offers).await;
    trap.sprung().await;
    let left = unavailable(&offers, outcomes);
    assert_eq!(left.len(), offers.len());
    cluster.stop_immediate().await;
    assert!(sink.deliver(&left).await.iter().all(Result::is_err));
    cluster.start_again().await;
    deliver_all(&sink, &left).await;
    assert_eq!(names(&cluster.client().await).await, ids(&offers));
}

#[tokio::test]
async fn a_connection_that_is_ended_is_replaced() {
    let database = Database::empty().await;
    let direct = prepare(&database, "text").await;
    let url = format!("{}?application_name=far", database.url());
    let sink = sinks::postgres(url, sinks::destination(), |_| {});
    deliver(&sink, offer(1, NewEvent::json("a", &1)))
        .await
        .unwrap();
    eventually(PATIENCE, async || {
        database.terminate_backends("far").await == 1
    })
    .await;
    deliver_all(&sink, &[offer(2, NewEvent::json("a", &1))]).await;
    assert_eq!(names(&direct).await.len(), 2);
}

#[tokio::test]
async fn a_row_that_is_locked_costs_the_timeout_and_is_written_later() {
    let database = Database::empty().await;
    let mut direct = prepare(&database, "text").await;
    let sink = sinks::postgres(
        database.url(),
        sinks::within(Duration::from_millis(500)),
        |_| {},
    );
    let event = offer(1, NewEvent::json("a", &1));
    let tx = direct.transaction().await.unwrap();
    tx.batch_execute("LOCK TABLE inbox_event").await.unwrap();
    check_failure(
        &deliver(&sink, event.clone()).await,
        true,
        "timeout",
        "in time",
    );
    tx.rollback().await.unwrap();
    deliver_all(&sink, std::slice::from_ref(&event)).await;
    assert_eq!(names(&direct).await, ids(&[event]));
}

#[tokio::test]
async fn a_server_that_is_not_there_and_a_database_that_is_not_are_unavailable() {
    let event = || offer(1, NewEvent::json("a", &1));
    let absent = sinks::postgres(
        "postgres://postgres:secret@127.0.0.1:1/none",
        sinks::destination(),
        |_| {},
    );
    let outcome = deliver(&absent, event()).await;
    check_failure(&outcome, true, "connect", "");
    assert!(!outcome.unwrap_err().error_chain().contains("secret"));
    let database = Database::empty().await;
    let url = database.url().replace(database.name(), "none_at_all");
    let unknown = sinks::postgres(url, sinks::destination(), |_| {});
    check_failure(
        &deliver(&unknown, event()).await,
        true,
        "schema",
        "none_at_all",
    );
    let url = database.url().replace("postgres@", "nobody_at_all:secret@");
    let nobody = sinks::postgres(url, sinks::destination(), |_| {});
    let outcome = deliver(&nobody, event()).await;
    check_failure(&outcome, true, "login", "nobody_at_all");
    assert!(!outcome.unwrap_err().error_chain().contains("secret"));
}

#[tokio::test]
async fn an_event_of_a_mebibyte_is_taken() {
    let database = Database::empty().await;
    let direct = prepare(&database, "json").await;
    let batch = offers(3, 1024 * 1024 - 200);
    assert!(
        to(&database)
            .deliver(&batch)
            .await
            .iter()
            .all(Result::is_ok)
    );
    assert_eq!(names(&direct).await.len(), 3);
}

/// A receiver's database with an inbox and the table of the guide, with a payload of this type.
pub(crate) async fn prepare(database: &Database, payload: &str) -> Client {
    let direct = database.client().await;
    migrate(&direct).await;
    make_table(&direct, payload).await;
    direct
}

async fn migrate(direct: &Client) {
    direct
        .batch_execute("CREATE SCHEMA IF NOT EXISTS hapax")
        .await
        .unwrap();
    direct.batch_execute(MIGRATION).await.unwrap();
}

async fn make_table(direct: &Client, payload: &str) {
    let guide = include_str!("../../../../docs/guides/postgres-inbox.md");
    let (_, sql) = guide.split_once("```sql\n").unwrap();
    let (sql, _) = sql.split_once("```").unwrap();
    direct
        .batch_execute(&sql.replace("jsonb NOT NULL, -- or", &format!("{payload} NOT NULL, --")))
        .await
        .unwrap();
}

fn to(database: &Database) -> Postgres {
    with(database, |_| {})
}

fn with(database: &Database, change: impl FnOnce(&mut PostgresSettings)) -> Postgres {
    sinks::postgres(
        database.url(),
        sinks::within(Duration::from_secs(10)),
        change,
    )
}

async fn names(direct: &Client) -> Vec<String> {
    let read = "SELECT event_id::text FROM inbox_event ORDER BY position";
    let rows = direct.query(read, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
