//! When the outbox rotates to its next segment: by the database's clock, with writers that roll
//! back and with very long transactions.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::store::{Outbox, Partitions};
use hapax_testkit::wait::eventually;
use tokio_postgres::Client;

use crate::{
    fixture::{Fixture, PATIENCE},
    retention::{AGE, LEFT, emit, pass, purge, purge_once},
};

const DRAWN: &str = "SELECT last_value >> 36 FROM hapax.outbox_event_id";
const EMIT_STAMPED: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', '{}', '{}', now() + $1::text::interval
    FROM generate_series(1, 3)";
/// Blocks purges, as opening a destination does.
const HOLD: &str = "SELECT pg_advisory_lock_shared('hapax.outbox_event'::regclass::oid::int4, 0)";
const LET_GO: &str =
    "SELECT pg_advisory_unlock_shared('hapax.outbox_event'::regclass::oid::int4, 0)";
/// More events than one transaction of a service may emit, spread over several rotations.
const HUGE: i32 = 100_000;

#[tokio::test]
async fn an_event_that_is_stamped_in_the_future_holds_nothing_up() {
    let fixture = Fixture::new().await;
    for turn in 1..=9 {
        stamped(&fixture, "10 years").await;
        assert_eq!(pass(&fixture, 10).await.len(), 3);
        assert!(purge(&fixture).await >= 3);
        assert_eq!(
            fixture.count(DRAWN).await,
            turn,
            "the outbox does not rotate"
        );
    }
    assert_eq!(fixture.count(LEFT).await, 0);
}

#[tokio::test]
async fn old_rows_that_are_moved_in_stay_for_the_retention_and_spill_nobody() {
    let fixture = Fixture::new().await;
    fixture.store.open("slow").await.unwrap();
    for _ in 0..9 {
        stamped(&fixture, "-9 days").await;
        assert_eq!(pass(&fixture, 10).await.len(), 3);
        assert_eq!(purge_once(&fixture).await, 0);
    }
    assert_eq!(
        fixture.count(DRAWN).await,
        0,
        "the outbox rotates too early"
    );
    assert_eq!(fixture.count(LEFT).await, 27);
    let parked = "SELECT count(*) FROM hapax.delivery";
    assert_eq!(fixture.count(parked).await, 0);
}

/// A rotation is as old as its recorded times say. If the times were not recorded when they
/// occurred, its events are kept longer.
#[tokio::test]
async fn what_was_not_noted_when_it_happened_counts_from_when_it_is_seen() {
    let fixture = Fixture::new().await;
    let forget = "DELETE FROM hapax.rotation";
    let set_back = "UPDATE hapax.rotation SET opened_at = opened_at + interval '1 year',
                                          closed_at = closed_at + interval '1 year'";
    for (turn, mishap) in [forget, set_back].into_iter().enumerate() {
        fixture
            .run("UPDATE hapax.rotation SET opened_at = now() WHERE closed_at IS NULL")
            .await;
        emit(&fixture.plain, 3).await;
        assert_eq!(pass(&fixture, 10).await.len(), 3);
        let is_turned = async || fixture.count(DRAWN).await > i64::try_from(turn).unwrap();
        // While the segment is open, and after it was closed.
        for is_closed in [false, true] {
            purge_once(&fixture).await;
            fixture.run(mishap).await;
            assert_eq!(purge_once(&fixture).await, 0);
            assert_eq!(is_turned().await, is_closed, "{mishap}");
            assert_eq!(fixture.count(LEFT).await, 3, "{mishap}");
            fixture.run(AGE).await;
        }
        while purge(&fixture).await > 0 {}
        assert_eq!(fixture.count(LEFT).await, 0, "{mishap}");
    }
}

/// A row can reach a segment while the segment is emptied. Such a row belongs to a new retention
/// period.
#[tokio::test]
async fn what_comes_into_a_segment_behind_its_emptying_is_delivered_and_kept_for_the_retention() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    assert_eq!(pass(&fixture, 10).await, [1, 2, 3]);
    assert!(purge(&fixture).await >= 3);
    let straggler = "
        INSERT INTO hapax.outbox_event
            (id, segment, event_id, type, payload, headers, created_at)
        VALUES (2, 0, gen_random_uuid(), 'a', '{}', '{}', now())";
    fixture.run(straggler).await;
    // The record of the emptied rotation may still exist.
    let emptied = "
        INSERT INTO hapax.rotation (rotation, opened_at, closed_at, last, emptied_at)
        SELECT 0, at, at, 3, at FROM (SELECT now() - interval '9 days' AS at) AS earlier
        ON CONFLICT (rotation) DO UPDATE SET closed_at = excluded.closed_at, emptied_at = now()";
    fixture.run(emptied).await;
    assert_eq!(purge_once(&fixture).await, 0);
    assert_eq!(pass(&fixture, 10).await, [2]);
    assert_eq!(purge_once(&fixture).await, 0);
    assert_eq!(fixture.count(LEFT).await, 1);
    fixture.run(AGE).await;
    assert!(purge_once(&fixture).await > 0);
    assert_eq!(fixture.count(LEFT).await, 0);
}

/// Hundreds of transactions draw ids and roll back, while the outbox rotates as fast as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_rollbacks_under_rotation_costs_no_event() {
    let fixture = Fixture::new().await;
    let went_round = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..6 {
        let client = fixture.database.client().await;
        writers.push(tokio::spawn(storm(client, writer, Arc::clone(&went_round))));
    }
    let (done, mut committed) = (AtomicBool::new(false), 0);
    let all = turn_until(&fixture, &done, async {
        eventually(PATIENCE, async || fixture.count(DRAWN).await > 8).await;
        went_round.store(true, Ordering::SeqCst);
        for writer in writers {
            committed += writer.await.unwrap();
        }
    });
    let all = all.await;
    assert_eq!(all.len(), usize::try_from(committed).unwrap());
}

/// Emits, and rolls back seven times out of eight; returns how many events were committed.
async fn storm(client: Client, writer: i32, is_enough: Arc<AtomicBool>) -> i32 {
    let mut committed = 0;
    for round in 0.. {
        if is_enough.load(Ordering::SeqCst) && round >= 40 {
            break;
        }
        let count = 1 + (round + writer) % 40;
        client.batch_execute("BEGIN").await.unwrap();
        emit(&client, count).await;
        // Each committed transaction has also drawn ids that it does not use.
        client.batch_execute("SAVEPOINT partition").await.unwrap();
        emit(&client, 5).await;
        if round % 8 == 0 {
            let end = "ROLLBACK TO partition; COMMIT";
            client.batch_execute(end).await.unwrap();
            committed += count;
        } else {
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
    committed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_transaction_of_100_000_events_across_many_turns_is_delivered_whole_or_not_at_all() {
    for (end, expected) in [("ROLLBACK", 0), ("COMMIT", HUGE)] {
        let fixture = Fixture::new().await;
        let huge = fixture.database.client().await;
        let done = AtomicBool::new(false);
        let all = turn_until(&fixture, &done, async {
            huge.batch_execute("BEGIN").await.unwrap();
            // The transaction writes in every second rotation; the segments between are emptied
            // meanwhile.
            for turn in 0..=6 {
                fixture.run(HOLD).await;
                assert_eq!(fixture.count(DRAWN).await, turn);
                if turn % 2 == 0 {
                    emit(&huge, HUGE / 4).await;
                }
                if turn < 6 {
                    emit(&fixture.plain, 1).await;
                }
                fixture.run(LET_GO).await;
                eventually(PATIENCE, async || {
                    turn == 6 || fixture.count(DRAWN).await > turn
                })
                .await;
            }
            let between = "SELECT count(*) FROM hapax.outbox_event WHERE segment IN (1, 3, 5)";
            eventually(PATIENCE, async || fixture.count(between).await == 0).await;
            huge.batch_execute(end).await.unwrap();
        });
        let all = all.await;
        assert_eq!(all.len(), usize::try_from(expected + 6).unwrap(), "{end}");
    }
}

/// Reads and purges with a retention of zero while `during` runs and until no event is left;
/// returns the events that were read or parked, each of them once.
async fn turn_until(
    fixture: &Fixture,
    done: &AtomicBool,
    during: impl Future<Output = ()>,
) -> BTreeSet<i64> {
    let reading = async {
        let mut all = BTreeSet::new();
        loop {
            let is_last = done.load(Ordering::SeqCst);
            let read = pass(fixture, 5_000).await;
            let is_vain = read.is_empty();
            for one in read {
                assert!(all.insert(one), "event {one} was read twice");
            }
            let purged = fixture.store.purge_events(Duration::ZERO, Duration::MAX);
            purged.await.unwrap();
            if is_last && is_vain {
                return all;
            }
        }
    };
    let during = async {
        during.await;
        done.store(true, Ordering::SeqCst);
    };
    let (mut all, ()) = tokio::join!(reading, during);
    // An event that is committed between a read and a purge lags, and is parked.
    let parked = "SELECT position FROM hapax.delivery";
    let parked = fixture.plain.query(parked, &[]).await.unwrap();
    for row in &parked {
        assert!(all.insert(row.get(0)), "an event was both read and parked");
    }
    let left = fixture.count(LEFT).await;
    assert_eq!(
        left,
        i64::try_from(parked.len()).unwrap(),
        "{left} events are left"
    );
    all
}

async fn stamped(fixture: &Fixture, after: &str) {
    let emitted = fixture.plain.execute(EMIT_STAMPED, &[&after]).await;
    emitted.unwrap();
}
