//! The log of checkpoints: it stays short, and it keeps the last checkpoint of every partition even
//! if a sweep crashes.
//!
//! `HAPAX_TEST_ROUNDS` is the number of checkpoints that the longest test writes. If it is set, the
//! tests also print how long a settlement takes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hapax::{
    Timestamp,
    delivery::{Arrived, Checkpoint, Frontier, Park, ParkedState, Settlement},
    store::{DeadLetters, Partitions, Settlements},
};
use hapax_testkit::wait::eventually;

use super::{emitted, leases::pin, park, settlement};
use crate::fixture::{Fixture, PATIENCE};

const LEASE: Duration = Duration::from_secs(20);
const SIZE: &str = "SELECT pg_total_relation_size('hapax.checkpoint_log_0')
    + pg_total_relation_size('hapax.checkpoint_log_1')";

#[tokio::test]
async fn checkpoints_stay_few_while_a_snapshot_is_pinned() {
    let asked = rounds();
    let fixture = quick().await;
    let pinned = pin(&fixture).await;
    let epoch = taken(&fixture, "hook").await;
    let count = asked.unwrap_or(2_400);
    let mut took = Vec::new();
    for high in 1..=count {
        let settlement = moved("hook", epoch, high);
        let start = Instant::now();
        fixture.store.settle(settlement).await.unwrap();
        took.push(start.elapsed());
    }
    let rows = fixture
        .count("SELECT count(*) FROM hapax.checkpoint_log")
        .await;
    assert!(rows <= 2_048 + 129, "the log has {rows} checkpoints");
    let pinned_size = fixture.count(SIZE).await;
    assert!(pinned_size < 8 << 20, "the log has {pinned_size} bytes");
    check(&fixture, "hook", count).await;
    drop(pinned);
    for high in count + 1..=count + 600 {
        fixture
            .store
            .settle(moved("hook", epoch, high))
            .await
            .unwrap();
    }
    assert!(fixture.count(SIZE).await < 8 << 20);
    check(&fixture, "hook", count + 600).await;
    if asked.is_some() {
        figures(&format!("with {rows} rows of {pinned_size} bytes"), &took);
    }
}

#[tokio::test]
async fn a_half_that_somebody_reads_is_swept_later() {
    let fixture = quick().await;
    let epoch = taken(&fixture, "hook").await;
    let reader = fixture.database.client().await;
    reader
        .batch_execute("BEGIN; SELECT FROM hapax.checkpoint_log_0 LIMIT 1")
        .await
        .unwrap();
    let lay = "SELECT setval('hapax.checkpoint_number', $1::int8)";
    fixture.store.settle(moved("hook", epoch, 1)).await.unwrap();
    // The next checkpoint number is one at which half 0 is swept.
    fixture
        .plain
        .execute(lay, &[&(2_048_i64 + 127)])
        .await
        .unwrap();
    fixture.store.settle(moved("hook", epoch, 2)).await.unwrap();
    let first = "SELECT count(*) FROM hapax.checkpoint_log_0";
    assert_eq!(fixture.count(first).await, 1);
    check(&fixture, "hook", 2).await;
    reader.batch_execute("COMMIT").await.unwrap();
    fixture
        .plain
        .execute(lay, &[&(2_048_i64 + 512 + 127)])
        .await
        .unwrap();
    fixture.store.settle(moved("hook", epoch, 3)).await.unwrap();
    assert_eq!(fixture.count(first).await, 0);
    check(&fixture, "hook", 3).await;
}

#[tokio::test]
async fn a_sweep_that_dies_in_the_middle_has_swept_nothing() {
    let fixture = quick().await;
    for partition in ["hook", "mail"] {
        let epoch = taken(&fixture, partition).await;
        fixture
            .store
            .settle(moved(partition, epoch, 7))
            .await
            .unwrap();
    }
    let epoch = taken(&fixture, "hook").await;
    let dying = fixture.database.client().await;
    let pid: i32 = dying
        .query_one("SELECT pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    dying
        .batch_execute("BEGIN; SELECT hapax.sweep_checkpoints(0::int2)")
        .await
        .unwrap();
    let store = fixture.store.clone();
    let settling = tokio::spawn(async move { store.settle(moved("hook", epoch, 8)).await });
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation IS NOT NULL
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually(PATIENCE, async || fixture.count(waiting).await > 0).await;
    let kill = "SELECT pg_terminate_backend($1)";
    fixture.plain.execute(kill, &[&pid]).await.unwrap();
    settling.await.unwrap().unwrap();
    check(&fixture, "hook", 8).await;
    check(&fixture, "mail", 7).await;
    // The checkpoint of a partition that does not settle is copied from one half to the other.
    for half in [0, 1, 0, 1] {
        let sweep = format!("SELECT hapax.sweep_checkpoints({half}::int2)");
        fixture.run(&sweep).await;
        check(&fixture, "hook", 8).await;
        check(&fixture, "mail", 7).await;
        assert_eq!(
            fixture
                .count("SELECT count(*) FROM hapax.checkpoint_log")
                .await,
            2
        );
    }
}

/// A sweep also copies which settlement has written the checkpoint.
#[tokio::test]
async fn a_settlement_that_comes_again_after_a_sweep_is_known() {
    let fixture = quick().await;
    let epoch = taken(&fixture, "hook").await;
    let dying = || Settlement {
        number: 1,
        park: vec![Park {
            state: ParkedState::Dead,
            ..park(1)
        }],
        ..moved("hook", epoch, 3)
    };
    fixture.store.settle(dying()).await.unwrap();
    let discarded = fixture.store.discard("hook", 1, "never mind").await;
    assert!(discarded.unwrap());
    for half in [0, 1, 0] {
        let sweep = format!("SELECT hapax.sweep_checkpoints({half}::int2)");
        fixture.run(&sweep).await;
    }
    fixture.store.settle(dying()).await.unwrap();
    let dead = fixture.store.dead_letters("hook", 0, 10).await.unwrap();
    assert!(dead.is_empty(), "the discarded dead letter is back");
}

/// After a failover two owners may have the same epoch before one of them is fenced.
#[tokio::test]
async fn the_numbers_of_another_owner_of_the_epoch_say_nothing() {
    let fixture = quick().await;
    let epoch = taken(&fixture, "hook").await;
    let parking = |number, position| Settlement {
        number,
        park: vec![park(position)],
        ..moved("hook", epoch, 3)
    };
    fixture.store.settle(parking(7 << 32 | 9, 1)).await.unwrap();
    fixture.store.settle(parking(5 << 32 | 1, 2)).await.unwrap();
    let status = fixture.store.backlog("hook").await.unwrap();
    assert_eq!(status.parked, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sweeps_among_settlements_lose_no_checkpoint() {
    let fixture = quick().await;
    let partitions = ["a", "b", "c", "d"];
    let carriers = partitions.map(|partition| {
        let store = fixture.store.clone();
        tokio::spawn(async move {
            for turn in 0..4_i64 {
                let opened = store
                    .take(partition, partition, LEASE)
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(opened.checkpoint.frontier.high, turn * 60, "{partition}");
                for high in turn * 60 + 1..=turn * 60 + 60 {
                    store
                        .settle(moved(partition, opened.epoch, high))
                        .await
                        .unwrap();
                }
            }
        })
    });
    let carried = tokio::spawn(join_all(carriers));
    let mut swept = 0_u32;
    while !carried.is_finished() {
        let sweep = format!("SELECT hapax.sweep_checkpoints({}::int2)", swept % 2);
        // A sweep that cannot lock the half at once is repeated later.
        swept += u32::from(fixture.plain.batch_execute(&sweep).await.is_ok());
    }
    for carrier in carried.await.unwrap() {
        carrier.unwrap();
    }
    assert!(swept > 2, "{swept} sweeps");
    for partition in partitions {
        check(&fixture, partition, 240).await;
    }
}

#[tokio::test]
async fn a_sweep_that_could_not_see_the_last_checkpoint_is_refused() {
    let fixture = quick().await;
    let epoch = taken(&fixture, "hook").await;
    fixture.store.settle(moved("hook", epoch, 1)).await.unwrap();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let sweep =
            format!("BEGIN ISOLATION LEVEL {level}; SELECT hapax.sweep_checkpoints(0::int2)");
        let refused = fixture.plain.batch_execute(&sweep).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "HX002");
        fixture.run("ROLLBACK").await;
    }
    check(&fixture, "hook", 1).await;
}

/// A settlement with 5,000 arrivals writes one row; if `HAPAX_TEST_ROUNDS` is set, its duration is
/// printed.
#[tokio::test]
async fn a_settlement_of_thousands_of_arrivals_is_a_few_rows() {
    let count = if rounds().is_some() { 200 } else { 3 };
    let fixture = quick().await;
    let epoch = taken(&fixture, "hook").await;
    let mut took = Vec::new();
    for turn in 0..count {
        let first = turn * 5_000 + 1;
        let settlement = Settlement {
            arrived: vec![Arrived {
                positions: (first..first + 5_000).collect(),
                started_at: Timestamp::from_millis(turn),
                duration: Duration::from_millis(1),
                status: Some(200),
            }],
            ..moved("hook", epoch, first + 4_999)
        };
        let start = Instant::now();
        fixture.store.settle(settlement).await.unwrap();
        took.push(start.elapsed());
    }
    assert_eq!(
        fixture.count("SELECT count(*) FROM hapax.arrival").await,
        count
    );
    let tried = fixture.store.attempts("hook", count * 5_000).await.unwrap();
    assert_eq!(tried.len(), 1);
    if count > 3 {
        figures("with 5,000 arrivals", &took);
    }
}

/// A store on a database with `synchronous_commit = off`.
async fn quick() -> Fixture {
    let fixture = emitted(3).await;
    let name = fixture.database.name();
    let off = format!("ALTER DATABASE {name} SET synchronous_commit = off");
    fixture.run(&off).await;
    fixture.beside().await
}

async fn taken(fixture: &Fixture, partition: &str) -> i64 {
    let opened = fixture.store.take(partition, "one", LEASE).await.unwrap();
    opened.unwrap().epoch
}

/// A settlement that only moves the checkpoint.
fn moved(partition: &str, epoch: i64, high: i64) -> Settlement {
    Settlement {
        checkpoint: Some(Checkpoint {
            frontier: Frontier {
                high,
                snapshot: None,
            },
            ..Checkpoint::default()
        }),
        ..settlement(partition, epoch, 0)
    }
}

/// Requires that a partition is at the position of its last checkpoint.
async fn check(fixture: &Fixture, partition: &str, high: i64) {
    let at = "SELECT frontier FROM hapax.position WHERE partition = $1";
    let row = fixture.plain.query_one(at, &[&partition]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), high, "{partition}");
}

fn rounds() -> Option<i64> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    let rounds = std::env::var("HAPAX_TEST_ROUNDS").ok()?;
    Some(rounds.parse().expect("HAPAX_TEST_ROUNDS is not a number"))
}

/// Prints the median and the 99th percentile of the first and of the last tenth.
#[expect(clippy::print_stderr, reason = "figures that were asked for")]
fn figures(what: &str, took: &[Duration]) {
    let tenth = took.len() / 10;
    let last = took.len() - tenth;
    for (name, partition) in [("first", &took[..tenth]), ("last", &took[last..])] {
        let mut partition = partition.to_vec();
        partition.sort();
        let (p50, p99) = (
            partition[partition.len() / 2],
            partition[partition.len() * 99 / 100],
        );
        eprintln!("a settlement {what}, {name} tenth: p50 {p50:?}, p99 {p99:?}");
    }
}
