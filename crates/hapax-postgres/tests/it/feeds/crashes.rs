//! Crashes of feeders, connections and the server: committed rows are events, each of them once.

use std::time::Duration;

use hapax::failpoint::Failpoints;
use hapax_postgres::Postgres;
use hapax_testkit::{
    proxy::{Deed, Moment, Proxy},
    wait::{eventually, pace},
};

use super::{Fed, OUTBOX, Running, feed, insert, numbers, texts};
use crate::fixture::{PATIENCE, settings};

const ROWS: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn feeders_and_connections_that_die_at_any_moment_lose_and_repeat_nothing() {
    let fed = Fed::new(OUTBOX).await;
    let mut running = fed.run(feed()).await;
    for first in (1..=ROWS).step_by(10) {
        fed.sql(&insert(first, first + 8)).await;
        fed.sql(&format!("BEGIN; {}; ROLLBACK", insert(10_000, 10_010)))
            .await;
        fed.sql(&insert(first + 9, first + 9)).await;
        running = hit(&fed, running, first / 10).await;
    }
    holds(&fed, ROWS).await;
    running.stop().await;
}

/// Causes the next fault.
async fn hit(fed: &Fed, running: Running, round: usize) -> Running {
    match round % 4 {
        // The feeder, wherever it is.
        0 => {
            running.abort().await;
            fed.run(feed()).await
        }
        // The connections of the store, and the one for the replication.
        1 => {
            let _ended = fed.cluster.terminate_backends("hapax").await;
            running
        }
        _ => {
            pace(Duration::from_millis(5)).await;
            running
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feeder_that_dies_while_it_takes_the_feed_over_loses_and_repeats_nothing() {
    let mut fed = Fed::new(OUTBOX).await;
    fed.run(feed()).await.stop().await;
    let mut written = 0;
    for place in ["feed.claim.before", "feed.claim.after"] {
        let mut fatal = settings(&fed.cluster.url());
        fatal.failpoints = Failpoints::calling(move |name| {
            assert!(name != place, "the feeder dies at {name}");
        });
        fed.store = Postgres::open(fatal).await.unwrap();
        let dying = fed.run_from(&fed.cluster.url(), feed());
        fed.sql(&insert(written + 1, written + 3)).await;
        written += 3;
        dying.died().await;
        fed.store = Postgres::open(settings(&fed.cluster.url())).await.unwrap();
        let running = fed.run_from(&fed.cluster.url(), feed());
        holds(&fed, written).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_under_writers_loses_and_repeats_nothing() {
    let mut fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    let mut written = 0;
    for _ in 0..3 {
        fed.sql(&insert(written + 1, written + 100)).await;
        written += 100;
        // Some of these events are appended, and the position may not be confirmed.
        fed.events(1, "payload").await;
        fed.cluster.stop_immediate().await;
        fed.cluster.start_again().await;
        fed.plain = fed.cluster.client().await;
    }
    holds(&fed, written).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_dies_in_a_large_transaction_has_all_of_it_in_the_end() {
    let fed = Fed::new(OUTBOX).await;
    let running = fed.run(feed()).await;
    // The append of the first batch waits for this lock.
    let other = fed.cluster.client().await;
    let lock = "BEGIN; LOCK TABLE hapax.outbox_event IN SHARE MODE";
    other.batch_execute(lock).await.unwrap();
    fed.sql(&insert(1, 3_000)).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'hapax' AND wait_event_type = 'Lock'";
    eventually(PATIENCE, async || fed.count(waiting).await > 0).await;
    fed.cluster.terminate_backends("hapax").await;
    other.batch_execute("ROLLBACK").await.unwrap();
    holds(&fed, 3_000).await;
    running.stop().await;
}

/// The statement that opens its transaction is refused while the append is on its way. Without a
/// transaction the append would be committed on its own, and done once more.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_transaction_is_not_opened_appends_nothing() {
    let mut fed = Fed::new(OUTBOX).await;
    let proxy = Proxy::to_postgres(fed.cluster.address());
    let through = proxy.url(&fed.cluster.url());
    fed.store = Postgres::open(settings(&through)).await.unwrap();
    let running = fed.run(feed()).await;
    // The append is prepared from now on.
    fed.sql(&insert(1, 3)).await;
    fed.events(3, "payload").await;
    let trap = proxy.once(Moment::containing("transaction_timeout"), Deed::Garble);
    fed.sql(&insert(4, 6)).await;
    trap.sprung().await;
    fed.sql(&insert(7, 9)).await;
    holds(&fed, 9).await;
    running.stop().await;
}

/// Requires each number once, in the order of its aggregate.
async fn holds(fed: &Fed, last: usize) {
    let rows = i64::try_from(last).unwrap();
    let mut payloads = fed.events(rows, "payload").await;
    payloads.sort_by_key(|number| number.parse::<usize>().unwrap());
    assert_eq!(payloads, numbers(last));
    let inverted = "
        SELECT count(*) FROM (
            SELECT payload::int < lag(payload::int) OVER (PARTITION BY aggregate_id ORDER BY id)
                AS is_inverted
            FROM hapax.outbox_event
        ) AS event
        WHERE is_inverted";
    assert_eq!(fed.count(inverted).await, 0);
    let aside = texts(&fed.plain, "SELECT problem FROM hapax.set_aside").await;
    assert!(aside.is_empty(), "{aside:?}");
}
