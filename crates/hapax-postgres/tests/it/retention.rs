//! Retention: emptying segments while writers are active, snapshots are held, destinations are
//! opened late, and destinations never read.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hapax::{
    Timestamp,
    delivery::{
        Attempt, AttemptOutcome, Checkpoint, Frontier, Park, ParkedState, Settlement, Shards,
    },
    store::{DeadLetters, Outbox, Partitions, Settlements, Source},
};
use hapax_testkit::wait::eventually;
use tokio_postgres::Client;

use crate::{
    fixture::{Fixture, PATIENCE},
    reading::TURN,
};

pub(crate) const DAY: Duration = Duration::from_hours(24);
const EMIT: &str = "
    INSERT INTO hapax.outbox_event
        (event_id, type, aggregate_type, aggregate_id, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', 'key', (number % 2)::text, '{}', '{}', now()
    FROM generate_series(1, $1::int) AS number";
pub(crate) const LEFT: &str = "SELECT count(*) FROM hapax.outbox_event";
/// Makes everything that the outbox has recorded about rotations and absences nine days older.
pub(crate) const AGE: &str = "
    WITH rotations AS (
        UPDATE hapax.rotation SET opened_at = opened_at - interval '9 days',
                              closed_at = closed_at - interval '9 days'
    )
    UPDATE hapax.absence SET since = since - interval '9 days'";
/// Keeps autovacuum out of the first segment. A purge skips a segment that another process is using
/// and returns to it later, which would distort tests of a single purge.
pub(crate) const UNVISITED: &str =
    "ALTER TABLE hapax.outbox_event_0 SET (autovacuum_enabled = false)";
const FIRST: i64 = 1 << 36;

#[tokio::test]
async fn an_old_event_that_commits_late_is_delivered_before_its_segment_is_emptied() {
    let fixture = Fixture::new().await;
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    emit(&late, 1).await;
    emit(&fixture.plain, 2).await;
    assert_eq!(pass(&fixture, 10).await, [2, 3]);
    let began = Instant::now();
    assert_eq!(purge(&fixture).await, 0);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "the purge waited for the open transaction"
    );
    late.batch_execute("COMMIT").await.unwrap();
    assert_eq!(purge(&fixture).await, 0);
    assert_eq!(pass(&fixture, 10).await, [1]);
    assert!(purge(&fixture).await >= 3);
    assert_eq!(fixture.count(LEFT).await, 0);
}

#[tokio::test]
async fn of_a_late_transaction_that_is_read_in_pieces_nothing_goes_that_is_left() {
    let fixture = Fixture::new().await;
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    emit(&late, 6).await;
    emit(&fixture.plain, 1).await;
    assert_eq!(pass(&fixture, 10).await, [7]);
    late.batch_execute("COMMIT").await.unwrap();
    for expected in [[1, 2], [3, 4], [5, 6]] {
        assert_eq!(purge(&fixture).await, 0);
        assert_eq!(pass(&fixture, 2).await, expected);
    }
    assert_eq!(pass(&fixture, 2).await, [0; 0]);
    assert!(purge(&fixture).await >= 7);
    assert_eq!(fixture.count(LEFT).await, 0);
}

#[tokio::test]
async fn a_segment_is_emptied_beside_an_open_writer_and_a_snapshot_that_is_kept() {
    let fixture = Fixture::new().await;
    let mut kept = fixture.database.client().await;
    let snapshot = kept.build_transaction();
    let snapshot = snapshot.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let snapshot = snapshot.start().await.unwrap();
    snapshot
        .query("SELECT pg_current_snapshot()", &[])
        .await
        .unwrap();
    fixture.run(UNVISITED).await;
    emit(&fixture.plain, 1_000).await;
    fixture.run(TURN).await;
    let writer = fixture.database.client().await;
    writer.batch_execute("BEGIN").await.unwrap();
    emit(&writer, 3).await;
    assert_eq!(pass(&fixture, 2_000).await.len(), 1_000);
    let began = Instant::now();
    assert!(purge(&fixture).await >= 1_000);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(fixture.count(LEFT).await, 0);
    assert_eq!(
        fixture
            .count("SELECT pg_relation_size('hapax.outbox_event_0')")
            .await,
        0
    );
    writer.batch_execute("COMMIT").await.unwrap();
    let late: Vec<i64> = (1..=3).map(|number| FIRST + number).collect();
    assert_eq!(pass(&fixture, 10).await, late);
    snapshot.commit().await.unwrap();
}

#[tokio::test]
async fn no_event_goes_while_a_destination_is_being_opened() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    assert_eq!(pass(&fixture, 10).await, [1, 2, 3]);
    let mut other = fixture.database.client().await;
    let opening = other.transaction().await.unwrap();
    let hold = include_str!("../../queries/delivery/hold_open.sql");
    opening.execute(hold, &[&"new"]).await.unwrap();
    assert_eq!(purge(&fixture).await, 0);
    opening.rollback().await.unwrap();
    fixture.store.open("new").await.unwrap();
    let outcome = purge(&fixture).await;
    assert_eq!(
        outcome, 0,
        "events were purged that the new destination has not read"
    );
    assert_eq!(fixture.count(LEFT).await, 3);
}

#[tokio::test]
async fn opening_a_destination_waits_for_the_purge_that_is_under_way() {
    let fixture = Fixture::new().await;
    let mut other = fixture.database.client().await;
    let purging = other.transaction().await.unwrap();
    let hold = include_str!("../../queries/outbox/hold_purge.sql");
    purging.execute(hold, &[]).await.unwrap();
    let store = fixture.store.clone();
    let opening = tokio::spawn(async move { store.open("new").await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(PATIENCE, async || fixture.count(waiting).await == 1).await;
    purging.commit().await.unwrap();
    assert_eq!(opening.await.unwrap().unwrap().epoch, 1);
}

#[tokio::test]
async fn a_segment_that_somebody_is_at_work_in_is_left_for_the_next_purge() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    assert_eq!(pass(&fixture, 10).await, [1, 2, 3]);
    let mut other = fixture.database.client().await;
    for hold in [
        "SELECT id FROM hapax.outbox_event",
        "SELECT id FROM hapax.outbox_event FOR UPDATE",
    ] {
        let holding = other.transaction().await.unwrap();
        holding.query(hold, &[]).await.unwrap();
        assert_eq!(purge(&fixture).await, 0);
        holding.rollback().await.unwrap();
        assert_eq!(fixture.count(LEFT).await, 3);
    }
    assert!(purge(&fixture).await >= 3);
}

#[tokio::test]
async fn a_purge_that_dies_in_the_middle_leaves_all_or_nothing_to_the_next() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 5).await;
    assert_eq!(pass(&fixture, 10).await.len(), 5);
    let steps = [
        "SELECT hapax.rotate(0, now())",
        "SELECT hapax.rotate(0, now()); SELECT hapax.empty_segment(0, 0, now())",
    ];
    for step in steps {
        let victim = fixture.database.client().await;
        victim
            .batch_execute(&format!("BEGIN; {step}"))
            .await
            .unwrap();
        let kill = "SELECT pg_terminate_backend($1)";
        let pid = "SELECT pg_backend_pid()";
        let pid: i32 = victim.query_one(pid, &[]).await.unwrap().get(0);
        fixture.plain.execute(kill, &[&pid]).await.unwrap();
        // The locks of a terminated backend are gone only now, and the next step takes one of them.
        let dies = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        eventually(PATIENCE, async || fixture.count(&dies).await == 0).await;
        assert_eq!(fixture.count(LEFT).await, 5, "{step}");
    }
    // The sequence was advanced and the rotation was not recorded; the next purge records it.
    assert!(purge(&fixture).await >= 5);
    emit(&fixture.plain, 1).await;
    assert_eq!(pass(&fixture, 10).await, [FIRST + 1]);
}

#[tokio::test]
async fn many_that_purge_at_once_empty_each_segment_once() {
    let fixture = Fixture::new().await;
    let beside = fixture.beside().await;
    for _ in 0..4 {
        emit(&fixture.plain, 10).await;
        fixture.run(TURN).await;
        assert_eq!(pass(&fixture, 100).await.len(), 10);
    }
    let mut gone = 0;
    while fixture.count(LEFT).await > 0 {
        fixture.run(AGE).await;
        let stores = [&fixture.store, &beside.store, &fixture.store, &beside.store];
        let purges = stores.map(|store| store.purge_events(DAY, Duration::MAX));
        let counts = join_all(purges).await.into_iter().map(Result::unwrap);
        gone += counts.sum::<u64>();
    }
    assert!((40..50).contains(&gone), "{gone} rows were purged");
}

#[tokio::test]
async fn what_is_parked_is_kept_apart_and_goes_when_nobody_needs_it() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 5).await;
    let park = |position, state| Park {
        position,
        state,
        attempt: 1,
        next_at: Timestamp::from_millis(0),
        order_key: None,
        last_error: None,
    };
    let tried = |position| Attempt {
        position,
        number: 1,
        started_at: Timestamp::from_millis(0),
        duration: Duration::ZERO,
        outcome: AttemptOutcome::Unavailable,
        status: None,
        error: None,
        response_head: bytes::Bytes::new(),
    };
    let (read, epoch) = settle(&fixture, 10, |settlement| {
        settlement.park = vec![park(2, ParkedState::Retrying), park(3, ParkedState::Dead)];
        settlement.attempts = vec![tried(2), tried(3)];
    })
    .await;
    assert_eq!(read.len(), 5);
    while purge(&fixture).await > 0 {}
    assert_eq!(fixture.count(LEFT).await, 2);
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM hapax.outbox_event_kept")
            .await,
        2
    );
    let due = fixture.store.due("hook", &[], 10, 0).await.unwrap();
    assert_eq!(
        due.iter().map(|it| it.event.position).collect::<Vec<_>>(),
        [2]
    );
    let dead = fixture.store.dead_letters("hook", 0, 10).await.unwrap();
    assert_eq!((dead[0].event.position, dead[0].log.len()), (3, 1));
    assert!(fixture.store.discard("hook", 3, "unwanted").await.unwrap());
    let arrived = Settlement {
        destination: "hook".to_owned(),
        epoch,
        delivered: vec![2],
        ..Settlement::default()
    };
    fixture.store.settle(arrived).await.unwrap();
    while purge(&fixture).await > 0 {}
    let left = "SELECT (SELECT count(*) FROM hapax.outbox_event)
        + (SELECT count(*) FROM hapax.delivery) + (SELECT count(*) FROM hapax.attempt)";
    assert_eq!(fixture.count(left).await, 0);
}

/// A destination that never reads does not stop the rotation: its unread events are parked, in
/// order per key, and its owner is fenced.
#[tokio::test]
async fn a_destination_that_lags_a_whole_rotation_has_its_events_parked_and_loses_none() {
    let fixture = Fixture::new().await;
    let slow = fixture.store.open("slow").await.unwrap();
    for turn in 0..9 {
        emit(&fixture.plain, 4).await;
        while !pass(&fixture, 10).await.is_empty() {}
        while purge(&fixture).await > 0 {}
        let drawn = "SELECT last_value >> 36 FROM hapax.outbox_event_id";
        assert_eq!(
            fixture.count(drawn).await,
            turn + 1,
            "the outbox does not rotate"
        );
    }
    let settlement = Settlement {
        destination: "slow".to_owned(),
        epoch: slow.epoch,
        ..Settlement::default()
    };
    assert!(
        fixture.store.settle(settlement).await.is_err(),
        "the slow owner is not fenced"
    );
    let slow = fixture.store.open("slow").await.unwrap();
    assert!(slow.checkpoint.frontier.high >= 4);
    let (mut frontier, mut all) = (slow.checkpoint.frontier, Vec::new());
    let parked = "SELECT position FROM hapax.delivery WHERE destination = 'slow' ORDER BY position";
    for row in fixture.plain.query(parked, &[]).await.unwrap() {
        all.push(row.get::<_, i64>(0));
    }
    let spilled = all.len();
    assert!(
        spilled >= 4 && spilled % 4 == 0,
        "{spilled} events are parked"
    );
    loop {
        let batch = Source::read(&fixture.store, &frontier, Shards::ALL, 100)
            .await
            .unwrap();
        frontier = batch.frontier;
        if batch.events.is_empty() {
            break;
        }
        all.extend(batch.events.iter().map(|event| event.position));
    }
    let every: Vec<i64> = (0..9)
        .flat_map(|turn| (1..=4).map(move |n| turn * FIRST + n))
        .collect();
    assert_eq!(all, every);
    // The first event of each key is due, and blocks the others of its key.
    let due = fixture.store.due("slow", &[], 100, 0).await.unwrap();
    assert_eq!(
        due.iter().map(|it| it.event.position).collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(slow.blocked_keys, ["key\n0", "key\n1"]);
}

#[tokio::test]
async fn the_longest_retention_keeps_everything() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    assert_eq!(pass(&fixture, 10).await, [1, 2, 3]);
    for retention in [
        Duration::MAX,
        Duration::from_secs(u64::from(u32::MAX) * 10_000),
    ] {
        let purged = fixture.store.purge_events(retention, retention).await;
        assert_eq!(purged.unwrap(), 0);
    }
    assert_eq!(fixture.count(LEFT).await, 3);
}

pub(crate) async fn emit(client: &Client, count: i32) {
    client.execute(EMIT, &[&count]).await.unwrap();
}

/// Purges three times, days apart: often enough to delete what every destination has read.
pub(crate) async fn purge(fixture: &Fixture) -> u64 {
    let mut gone = 0;
    for _ in 0..3 {
        gone += purge_once(fixture).await;
        fixture.run(AGE).await;
    }
    gone
}

/// Purges once, at the current time.
pub(crate) async fn purge_once(fixture: &Fixture) -> u64 {
    let purged = fixture.store.purge_events(DAY, Duration::MAX).await;
    purged.unwrap()
}

/// Reads and passes up to `limit` events for the destination "hook"; returns their positions.
pub(crate) async fn pass(fixture: &Fixture, limit: usize) -> Vec<i64> {
    settle(fixture, limit, |_| {}).await.0
}

/// Like `pass`, with a change to the settlement; also returns the epoch.
pub(crate) async fn settle(
    fixture: &Fixture,
    limit: usize,
    change: impl FnOnce(&mut Settlement),
) -> (Vec<i64>, i64) {
    let opened = fixture.store.open("hook").await.unwrap();
    let from: Frontier = opened.checkpoint.frontier;
    let batch = Source::read(&fixture.store, &from, Shards::ALL, limit)
        .await
        .unwrap();
    let mut settlement = Settlement {
        destination: "hook".to_owned(),
        epoch: opened.epoch,
        checkpoint: Some(Checkpoint {
            frontier: batch.frontier,
            ..Checkpoint::default()
        }),
        ..Settlement::default()
    };
    change(&mut settlement);
    fixture.store.settle(settlement).await.unwrap();
    let positions = batch.events.iter().map(|event| event.position);
    (positions.collect(), opened.epoch)
}
