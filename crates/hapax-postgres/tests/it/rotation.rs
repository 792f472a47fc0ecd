//! Segments and their rotation: what partitions read of them, what is found when one tenant fills
//! the outbox, and how they are reused.

use std::{collections::BTreeSet, num::NonZeroU8};

use hapax::{
    delivery::{Frontier, Shards},
    key::Tenant,
    store::Source,
};
use hapax_testkit::wait::eventually;

use crate::{
    fixture::{Fixture, PATIENCE},
    reading::TURN,
};

const EMIT: &str = "
    INSERT INTO hapax.outbox_event
        (shard, event_id, type, tenant, payload, headers, created_at)
    SELECT $1::int2, gen_random_uuid(), 'a', $2::text, '{}', '{}', now()
    FROM generate_series(1, $3::int)";
const FIRST: i64 = 1 << 36;

async fn emit(fixture: &Fixture, shard: i16, tenant: Option<&str>, count: i32) {
    let emitted = fixture
        .plain
        .execute(EMIT, &[&shard, &tenant, &count])
        .await;
    emitted.unwrap();
}

#[tokio::test]
async fn a_transaction_has_its_xid_before_it_draws_an_id() {
    let fixture = Fixture::new().await;
    let mut other = fixture.database.client().await;
    let holding = other.transaction().await.unwrap();
    let hold = "ALTER SEQUENCE hapax.outbox_event_id NO CYCLE";
    holding.batch_execute(hold).await.unwrap();
    let emits = [
        EMIT.replace("$1::int2", "0")
            .replace("$2::text", "NULL")
            .replace("$3::int", "1"),
        "SELECT hapax.emit('a', '{}')".to_owned(),
    ];
    let mut writers = Vec::new();
    for sql in emits {
        let writer = fixture.database.client().await;
        writers.push(tokio::spawn(
            async move { writer.batch_execute(&sql).await },
        ));
    }
    // Both writers wait for the sequence, and both already have an xid.
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND backend_xid IS NOT NULL";
    eventually(PATIENCE, async || fixture.count(waiting).await == 2).await;
    holding.rollback().await.unwrap();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn every_partition_reads_its_own_shards_and_passes_the_others() {
    let fixture = Fixture::new().await;
    for turn in 0..3 {
        for shard in 0..16 {
            emit(&fixture, shard, None, 1 + turn).await;
        }
        fixture.run(TURN).await;
    }
    let mut all = BTreeSet::new();
    for partition in 0..4 {
        let shards = Shards::of_partition(partition, NonZeroU8::new(4).unwrap()).unwrap();
        let (mut frontier, mut read) = (Frontier::default(), Vec::new());
        loop {
            let batch = Source::read(&fixture.store, &frontier, shards, 5).await;
            let batch = batch.unwrap();
            frontier = batch.frontier;
            if batch.events.is_empty() {
                break;
            }
            read.extend(batch.events.iter().map(|event| event.position));
        }
        assert!(read.is_sorted(), "{read:?}");
        assert_eq!(read.len(), 4 * 6);
        // The frontier has reached the segment that is being written, although it contains no event
        // of this partition.
        assert_eq!(frontier.high, 3 * FIRST);
        all.extend(read);
        emit(&fixture, i16::from(partition) + 1, None, 3).await;
        let batch = Source::read(&fixture.store, &frontier, shards, 5)
            .await
            .unwrap();
        assert_eq!(batch.events.len(), 0);
        assert!(
            batch.frontier.high > frontier.high,
            "the frontier did not pass the events of other shards"
        );
        frontier = batch.frontier;
        emit(&fixture, i16::from(partition), None, 1).await;
        let batch = Source::read(&fixture.store, &frontier, shards, 5)
            .await
            .unwrap();
        assert_eq!(batch.events.len(), 1);
        fixture
            .run("DELETE FROM hapax.outbox_event WHERE segment = 3")
            .await;
    }
    assert_eq!(all.len(), 16 * 6);
}

#[tokio::test]
async fn what_commits_late_in_an_earlier_turn_is_read_before_what_is_new() {
    let fixture = Fixture::new().await;
    let late = fixture.database.client().await;
    late.batch_execute("BEGIN").await.unwrap();
    let one = EMIT
        .replace("$1::int2", "0")
        .replace("$2::text", "NULL")
        .replace("$3::int", "1");
    late.batch_execute(&one).await.unwrap();
    for _ in 0..2 {
        fixture.run(TURN).await;
        emit(&fixture, 0, None, 1).await;
    }
    let (mut frontier, mut read) = (Frontier::default(), Vec::new());
    for end in ["", "", "", "COMMIT", "", ""] {
        if !end.is_empty() {
            late.batch_execute(end).await.unwrap();
            emit(&fixture, 0, None, 1).await;
        }
        let batch = Source::read(&fixture.store, &frontier, Shards::ALL, 10).await;
        let batch = batch.unwrap();
        read.extend(batch.events.iter().map(|event| event.position));
        frontier = batch.frontier;
    }
    assert_eq!(read, [FIRST + 1, 2 * FIRST + 1, 1, 2 * FIRST + 2]);
}

#[tokio::test]
async fn a_look_past_a_busy_tenant_finds_the_others_and_says_how_far_it_looked() {
    let fixture = Fixture::new().await;
    emit(&fixture, 0, Some("crowd"), 120_000).await;
    for tenant in [Some("a"), None, Some("crowd"), Some("b")] {
        emit(&fixture, 3, tenant, 2).await;
    }
    fixture.run(TURN).await;
    emit(&fixture, 3, Some("a"), 1).await;
    let tenant = |name: &str| Some(Tenant::new(name).unwrap());
    let crowd = [tenant("crowd")];
    let shards = Shards::of_partition(1, NonZeroU8::new(2).unwrap()).unwrap();
    let others = [
        120_001,
        120_002,
        120_003,
        120_004,
        120_007,
        120_008,
        FIRST + 1,
    ];
    assert_eq!(past(&fixture, 7, Shards::ALL, &crowd, 3).await, others);
    assert_eq!(past(&fixture, 7, shards, &crowd, 100).await, others);
    let rest = [120_001, 120_002, FIRST + 1];
    let crowds = [tenant("crowd"), None, tenant("b")];
    assert_eq!(past(&fixture, 0, Shards::ALL, &crowds, 100).await, rest);
    let even = Shards::of_partition(0, NonZeroU8::new(2).unwrap()).unwrap();
    assert_eq!(past(&fixture, 0, even, &crowd, 100).await, [0; 0]);
}

/// Calls `read_past` until it scans nothing more; returns the positions found.
async fn past(
    fixture: &Fixture,
    mut beyond: i64,
    shards: Shards,
    except: &[Option<Tenant>],
    limit: usize,
) -> Vec<i64> {
    let mut found = Vec::new();
    loop {
        let (store, head) = (&fixture.store, Frontier::default());
        let past = store.read_past(&head, beyond, shards, except, limit);
        let past = past.await.unwrap();
        assert!(past.events.len() <= limit);
        found.extend(past.events.iter().map(|event| event.position));
        if past.until == beyond {
            return found;
        }
        assert!(past.until > beyond);
        beyond = past.until;
    }
}

#[tokio::test]
async fn a_backlog_is_counted_over_turns_and_not_over_what_lies_between() {
    let fixture = Fixture::new().await;
    for _ in 0..3 {
        emit(&fixture, 0, None, 5).await;
        fixture.run("SELECT hapax.rotate(0, now())").await;
    }
    emit(&fixture, 0, None, 2).await;
    for (frontier, backlog) in [
        (0, 17),
        (3, 14),
        (FIRST, 12),
        (FIRST + 5, 7),
        (3 * FIRST + 1, 1),
    ] {
        let asked = format!("SELECT hapax.backlog({frontier})");
        assert_eq!(fixture.count(&asked).await, backlog, "beyond {frontier}");
    }
}
