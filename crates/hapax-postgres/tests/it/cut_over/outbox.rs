//! The cut-over of the outbox table: every row becomes one event, and the events of an order stay in
//! order, while old and new instances write.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use hapax_postgres::{Imported, TableSource};
use hapax_testkit::wait::eventually;
use tokio::sync::oneshot;
use tokio_postgres::Client;

use super::{begun, sql};
use crate::{
    fixture::{Fixture, PATIENCE},
    table_source::{events, kinds},
};

const STEP_2: &str = "Outbox, step 2: emit into Hapax";
const STEP_3: &str = "Outbox, step 3: remove the table";
const ORDERS: [&str; 3] = ["a", "b", "c"];

/// The transaction that creates the trigger. It waits as long as a slow machine needs.
fn switch() -> String {
    let transaction = sql(STEP_2, 1);
    assert!(transaction.contains("lock_timeout = '2s'"));
    transaction.replace("'2s'", "'30s'")
}

/// The table source of the guide.
async fn imported(fixture: &Fixture) -> Imported {
    let mut table = TableSource::new("outbox", "outbox");
    table.kind = Some("topic".to_owned());
    table.aggregate_type_constant = Some("order".to_owned());
    table.aggregate_id = Some("order_id".to_owned());
    let imported = Imported::open(&fixture.store, table).await;
    imported.expect("the description does not fit the table")
}

/// What the writers of all orders have been asked to do, and how much they have written.
#[derive(Debug, Default)]
struct Writers {
    is_released: AtomicBool,
    is_stopped: AtomicBool,
    written: AtomicUsize,
}

/// Writes the events of one order, numbered by their topics, one transaction each. The old release
/// inserts into the table, the new one emits.
async fn write(client: Client, order: &str, writers: &Writers) -> usize {
    let insert = "INSERT INTO outbox (topic, order_id, payload) VALUES ($1, $2, '{}')";
    let emit = "SELECT hapax.emit($1, '{}', 'order', $2)";
    let mut number = 0;
    while !writers.is_stopped.load(Ordering::Relaxed) {
        number += 1;
        let statement = if writers.is_released.load(Ordering::Relaxed) {
            emit
        } else {
            insert
        };
        let topic = format!("{order}.{number}");
        client.execute(statement, &[&topic, &order]).await.unwrap();
        writers.written.fetch_add(1, Ordering::Relaxed);
    }
    number
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn events_that_are_written_during_the_cut_over_arrive_once_and_in_order() {
    let fixture = begun().await;
    let imported = imported(&fixture).await;
    fixture.run(sql(STEP_2, 0)).await;
    let writers = Arc::new(Writers::default());
    let mut tasks = tokio::task::JoinSet::new();
    for order in ORDERS {
        let (client, writers) = (fixture.database.client().await, Arc::clone(&writers));
        tasks.spawn(async move { (order, write(client, order, &writers).await) });
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let moving = tokio::spawn(imported.run(async {
        let _stopped = stopped.await;
    }));
    let written = async |count: usize| {
        let goal = writers.written.load(Ordering::Relaxed) + count;
        eventually(PATIENCE, async || {
            writers.written.load(Ordering::Relaxed) >= goal
        })
        .await;
    };
    written(500).await;
    fixture.run(&switch()).await;
    let unmoved = "SELECT count(*) FROM outbox WHERE published_at IS NULL";
    assert_eq!(fixture.count(unmoved).await, 0);
    written(500).await;
    assert_eq!(fixture.count(unmoved).await, 0);
    writers.is_released.store(true, Ordering::Relaxed);
    written(500).await;
    writers.is_stopped.store(true, Ordering::Relaxed);
    let counts: BTreeMap<_, _> = tasks.join_all().await.into_iter().collect();
    stop.send(()).unwrap();
    moving.await.unwrap();
    fixture.run(sql(STEP_3, 0)).await;
    for (order, count) in counts {
        let all = kinds(&fixture).await;
        let mine = all.into_iter().filter(|kind| kind.starts_with(order));
        let expected = (1..=count).map(|number| format!("{order}.{number}"));
        assert!(
            mine.eq(expected),
            "the events of {order} are not 1 to {count}"
        );
    }
    let about = events(&fixture).await;
    assert!(about.iter().all(|it| it.event.aggregate.is_some()));
}

#[tokio::test]
async fn the_cut_over_waits_for_a_transaction_that_has_written_and_moves_its_row() {
    let fixture = begun().await;
    fixture.run(sql(STEP_2, 0)).await;
    let early = fixture.database.client().await;
    let insert = |topic: &str| {
        format!("INSERT INTO outbox (topic, order_id, payload) VALUES ('{topic}', 'a', '{{}}')")
    };
    early.batch_execute("BEGIN").await.unwrap();
    early.batch_execute(&insert("early")).await.unwrap();
    let client = fixture.database.client().await;
    let switching = tokio::spawn(async move { client.batch_execute(&switch()).await });
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(PATIENCE, async || fixture.count(waits).await == 1).await;
    // A later writer waits for the cut-over, so its row is emitted by the trigger.
    let late = fixture.database.client().await;
    let late_insert = insert("late");
    let writing = tokio::spawn(async move { late.batch_execute(&late_insert).await });
    eventually(PATIENCE, async || fixture.count(waits).await == 2).await;
    early.batch_execute("COMMIT").await.unwrap();
    switching.await.unwrap().unwrap();
    writing.await.unwrap().unwrap();
    assert_eq!(kinds(&fixture).await, ["early", "late"]);
    // The relay has nothing left to move.
    let imported = imported(&fixture).await;
    assert_eq!(imported.move_batch().await.unwrap().rows, 0);
}
