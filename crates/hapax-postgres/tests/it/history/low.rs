//! Sequences that are too low, as after a logical replication: events that are committed under ids
//! that a partition has already passed are delivered nevertheless.

use hapax::{
    delivery::{Frontier, Settlement, Shards, Start},
    event::{Headers, NewEvent},
    store::{
        DeadLetters, Keys as _, Partitions, Settlements, Source, Starts, StoreError,
        Transaction as _,
    },
};
use hapax_postgres::Postgres;
use hapax_testkit::assert_matches;
use tokio_postgres::Client;

use super::{EMIT, at, positions, read, settlement};
use crate::fixture::{Fixture, settings};

const PARTITION: &str = "hook";

/// A partition that has read thirty events, of which ten still exist.
async fn passed() -> (Fixture, Frontier) {
    let fixture = Fixture::new().await;
    for _ in 0..30 {
        emit(&fixture.plain).await;
    }
    let opened = fixture.store.open(PARTITION).await.unwrap();
    let from = &opened.checkpoint.frontier;
    let batch = Source::read(&fixture.store, from, Shards::ALL, 100).await;
    let head = batch.unwrap().frontier;
    let settled = settlement(opened.epoch, Some(at(&head)));
    fixture.store.settle(settled).await.unwrap();
    fixture
        .run("DELETE FROM hapax.outbox_event WHERE id <= 20")
        .await;
    (fixture, head)
}

async fn emit(client: &Client) {
    client.batch_execute(EMIT).await.unwrap();
}

async fn set(client: &Client, sequence: &str, to: i64) {
    let set = format!("SELECT setval('hapax.{sequence}', {to}, false)");
    client.batch_execute(&set).await.unwrap();
}

#[tokio::test]
async fn what_was_committed_under_passed_ids_is_read_and_what_was_read_is_not_read_again() {
    let (fixture, head) = passed().await;
    set(&fixture.plain, "outbox_event_id", 1).await;
    for _ in 0..5 {
        emit(&fixture.plain).await;
    }
    let batch = read(&fixture.store, &head).await;
    assert_eq!(positions(&batch), [31, 32, 33, 34, 35]);
    emit(&fixture.plain).await;
    assert_eq!(
        positions(&read(&fixture.store, &batch.frontier).await),
        [36]
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM hapax.misplaced").await,
        0
    );
}

/// A repeated id is not an error of the service's statement: the error is transient, and opening a
/// partition raises the sequence.
#[tokio::test]
async fn an_id_that_is_given_again_is_no_fault_of_the_statement() {
    let (fixture, _) = passed().await;
    set(&fixture.plain, "outbox_event_id", 25).await;
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    tx.emit(NewEvent::json("order.created", &1)).unwrap();
    let error = tx.commit().await.unwrap_err();
    assert_matches!(error, StoreError::Unavailable { .. });
    fixture.store.open(PARTITION).await.unwrap();
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    tx.emit(NewEvent::json("order.created", &1)).unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn opening_a_partition_raises_the_sequences_first() {
    let (fixture, _) = passed().await;
    for sequence in ["outbox_event_id", "checkpoint_number", "heartbeat_number"] {
        set(&fixture.plain, sequence, 1).await;
    }
    emit(&fixture.plain).await;
    let opened = fixture.store.open(PARTITION).await.unwrap();
    assert_eq!(opened.checkpoint.frontier.high, 30);
    let batch = read(&fixture.store, &opened.checkpoint.frontier).await;
    assert_eq!(positions(&batch), [31]);
    // The partition's checkpoint is the newest again.
    let settled = settlement(opened.epoch, Some(at(&batch.frontier)));
    fixture.store.settle(settled).await.unwrap();
    let opened = fixture.store.open(PARTITION).await.unwrap();
    assert_eq!(opened.checkpoint.frontier, batch.frontier);
    assert_eq!(fixture.count(LOW).await, 0);
}

/// Opening one partition raises the sequences, without a read or a settlement: another partition
/// may be the one that has read the passed ids.
#[tokio::test]
async fn one_low_sequence_or_one_misplaced_event_is_enough_when_a_partition_is_opened() {
    let (fixture, head) = passed().await;
    for sequence in ["outbox_event_id", "checkpoint_number"] {
        set(&fixture.plain, sequence, 1).await;
        assert_eq!(fixture.count(LOW).await, 1);
        let opened = fixture.store.open(PARTITION).await.unwrap();
        assert_eq!(opened.checkpoint.frontier, head);
        assert_eq!(fixture.count(LOW).await, 0, "{sequence}");
    }
    let left = "INSERT INTO hapax.misplaced (until, beyond, noted_at) VALUES (30, 25, now())";
    fixture.run(left).await;
    fixture.store.open(PARTITION).await.unwrap();
    let misplaced = "SELECT count(*) FROM hapax.misplaced";
    assert_eq!(fixture.count(misplaced).await, 0);
}

/// The newest checkpoint may look like the owner's own. A settlement is rejected if a sequence is
/// below what the owner has read or written.
#[tokio::test]
async fn an_owner_settles_nothing_while_a_sequence_stands_too_low() {
    let (fixture, head) = passed().await;
    for sequence in ["outbox_event_id", "checkpoint_number"] {
        let opened = fixture.store.open(PARTITION).await.unwrap();
        let next = Settlement {
            number: 1,
            follows: Some(opened.newest),
            read: vec![head.clone()],
            ..settlement(opened.epoch, Some(at(&head)))
        };
        set(&fixture.plain, sequence, 1).await;
        let outcome = fixture.store.settle(next).await;
        assert_matches!(outcome, Err(StoreError::SetBack { .. }), "{sequence}");
        let written = "SELECT max(checkpoint_settlement) FROM hapax.position";
        assert_eq!(fixture.count(written).await, 0, "{sequence}");
    }
}

const LOW: &str = "SELECT count(*) FROM hapax.low_sequences()";

/// The ids may have passed the highest known id again before a check runs. The
/// sequence of checkpoint numbers reveals that the database was set back.
#[tokio::test]
async fn ids_that_have_caught_up_unseen_are_not_trusted() {
    let (fixture, head) = passed().await;
    let seen = "UPDATE hapax.checkpoint_log SET snapshot = replace(snapshot, '/0000', '/F000')";
    fixture.run(seen).await;
    for sequence in ["outbox_event_id", "checkpoint_number"] {
        set(&fixture.plain, sequence, 1).await;
    }
    for _ in 0..3 {
        emit(&fixture.plain).await;
    }
    set(&fixture.plain, "outbox_event_id", 31).await;
    emit(&fixture.plain).await;
    let opened = fixture.store.open(PARTITION).await.unwrap();
    assert_eq!(opened.checkpoint.frontier.high, head.high);
    // No partition is known to have read the old events, so they are delivered again.
    let batch = Source::read(
        &fixture.store,
        &opened.checkpoint.frontier,
        Shards::ALL,
        100,
    )
    .await;
    assert_eq!(batch.unwrap().events.len(), 1 + 3 + 10);
}

/// Events that every partition has read in this history keep their positions.
#[tokio::test]
async fn of_ids_that_have_caught_up_only_what_was_not_read_comes_again() {
    let (fixture, _) = passed().await;
    for sequence in ["outbox_event_id", "checkpoint_number"] {
        set(&fixture.plain, sequence, 1).await;
    }
    for _ in 0..3 {
        emit(&fixture.plain).await;
    }
    set(&fixture.plain, "outbox_event_id", 31).await;
    emit(&fixture.plain).await;
    let opened = fixture.store.open(PARTITION).await.unwrap();
    let batch = read(&fixture.store, &opened.checkpoint.frontier).await;
    assert_eq!(positions(&batch), [31, 32, 33, 34]);
}

/// Histories are compared by cluster, timeline and database. A part that is missing on one side is
/// ignored.
#[tokio::test]
async fn a_frontier_is_of_the_history_of_its_cluster_its_timeline_and_its_database() {
    let fixture = Fixture::new().await;
    for (history, is_same) in [
        ("7/0A/3", true),
        ("7/0A/4", false),
        ("7/0B/3", false),
        ("8/0A/3", false),
        ("-/0A/3", true),
        ("7/0A", true),
    ] {
        let snapshot = format!("1:1: 0 {history} = - - 0@0");
        let asked = "SELECT hapax.is_read_in('7/0A/3', $1)";
        let found = fixture.plain.query_one(asked, &[&snapshot]).await;
        assert_eq!(found.unwrap().get::<_, bool>(0), is_same, "{history}");
    }
}

/// If a row's xid is later than the current one, the row was copied from another server.
#[tokio::test]
async fn what_was_copied_and_not_written_here_stays_where_it_is() {
    let (fixture, _) = passed().await;
    fixture
        .run("UPDATE hapax.outbox_event SET xid = '9000000000'")
        .await;
    set(&fixture.plain, "checkpoint_number", 1).await;
    fixture.store.open(PARTITION).await.unwrap();
    let stays = "SELECT count(*) FROM hapax.outbox_event WHERE id BETWEEN 21 AND 30";
    assert_eq!(fixture.count(stays).await, 10);
}

/// A partition that has already read in the new history need not be opened again.
#[tokio::test]
async fn whoever_reads_on_in_another_history_raises_the_sequences_first() {
    let (fixture, head) = passed().await;
    let other = "UPDATE hapax.checkpoint_log SET snapshot = replace(snapshot, '/0000', '/F000')";
    fixture.run(other).await;
    for sequence in ["outbox_event_id", "checkpoint_number"] {
        set(&fixture.plain, sequence, 1).await;
    }
    emit(&fixture.plain).await;
    set(&fixture.plain, "outbox_event_id", 31).await;
    emit(&fixture.plain).await;
    let snapshot = head.snapshot.unwrap().replace("/0000", "/F000");
    let head = Frontier {
        snapshot: Some(snapshot.into()),
        ..head
    };
    let batch = Source::read(&fixture.store, &head, Shards::ALL, 100).await;
    assert_eq!(batch.unwrap().events.len(), 1 + 1 + 10);
    assert_eq!(fixture.count(LOW).await, 0);
}

/// The frontier was read under ids that this database has not drawn, and no stored checkpoint knows
/// of it.
#[tokio::test]
async fn beyond_a_frontier_that_nobody_wrote_down_no_sequence_is_raised() {
    let (fixture, head) = passed().await;
    emit(&fixture.plain).await;
    let ahead = read(&fixture.store, &head).await.frontier;
    set(&fixture.plain, "outbox_event_id", 31).await;
    let outcome = Source::read(&fixture.store, &ahead, Shards::ALL, 10).await;
    assert_matches!(outcome, Err(StoreError::SetBack { .. }));
}

/// A read waits for such a writer instead of passing its event.
#[tokio::test]
async fn a_writer_that_has_drawn_a_passed_id_is_waited_for() {
    let (mut fixture, head) = passed().await;
    set(&fixture.plain, "outbox_event_id", 1).await;
    let beside = fixture.database.client().await;
    let late = fixture.plain.transaction().await.unwrap();
    late.batch_execute(EMIT).await.unwrap();
    let outcome = Source::read(&fixture.store, &head, Shards::ALL, 10).await;
    assert!(outcome.is_err(), "{outcome:?}");
    late.commit().await.unwrap();
    emit(&beside).await;
    let batch = read(&fixture.store, &head).await;
    assert_eq!(positions(&batch), [31, 32]);
}

/// The start of a destination that no relay has opened is above every row. The ids up to it are
/// drawn again, on this server or on another one.
#[tokio::test]
async fn what_was_committed_under_ids_that_a_start_has_passed_is_read() {
    let mark = "UPDATE hapax.start SET snapshot = replace(snapshot, '/0000', '/F000')";
    for history in ["SELECT 1", mark] {
        let fixture = Fixture::new().await;
        for _ in 0..5 {
            emit(&fixture.plain).await;
        }
        let recorded = fixture.store.record_start(PARTITION, Start::Now).await;
        assert!(recorded.unwrap());
        fixture.run(history).await;
        fixture.run("DELETE FROM hapax.outbox_event").await;
        set(&fixture.plain, "outbox_event_id", 1).await;
        emit(&fixture.plain).await;
        emit(&fixture.plain).await;
        assert_eq!(fixture.count(LOW).await, 1, "{history}");
        let opened = fixture.store.open(PARTITION).await.unwrap();
        let start = opened.checkpoint.frontier;
        assert_eq!(start.high, 5);
        assert_eq!(fixture.count(LOW).await, 0, "{history}");
        let batch = read(&fixture.store, &start).await;
        assert_eq!(positions(&batch), [6, 7], "{history}");
    }
}

/// The event of a parked delivery keeps its position.
#[tokio::test]
async fn parked_deliveries_keep_their_events() {
    const PARK: &str = "
        INSERT INTO hapax.delivery (destination, position, state, attempt, next_at, changed_at)
        VALUES ('hook', 25, 'dead', 3, now(), now())";
    let (fixture, head) = passed().await;
    fixture.run(PARK).await;
    let unknown = "UPDATE hapax.checkpoint_log SET snapshot = replace(snapshot, '/0000', '/F000')";
    fixture.run(unknown).await;
    set(&fixture.plain, "outbox_event_id", 29).await;
    let opened = fixture.store.open(PARTITION).await.unwrap();
    assert_eq!(opened.checkpoint.frontier.high, head.high);
    let dead = fixture.store.dead_letters(PARTITION, 0, 10).await.unwrap();
    let dead: Vec<i64> = dead.iter().map(|dead| dead.event.position).collect();
    assert_eq!(dead, [25]);
}

/// Frontiers written before the upgrade do not contain a database; that alone does not cause a
/// second read.
#[tokio::test]
async fn a_frontier_that_names_no_database_goes_on() {
    let (fixture, _) = passed().await;
    let strip = r"UPDATE hapax.checkpoint_log
        SET snapshot = regexp_replace(snapshot, '(\d+/[0-9A-F]{8})/\d+', '\1')";
    fixture.run(strip).await;
    let store = Postgres::open(settings(&fixture.database.url()))
        .await
        .unwrap();
    let opened = store.open(PARTITION).await.unwrap();
    let old = opened.checkpoint.frontier;
    assert_eq!(
        old.snapshot
            .as_ref()
            .unwrap()
            .split(' ')
            .nth(2)
            .unwrap()
            .matches('/')
            .count(),
        1
    );
    emit(&fixture.plain).await;
    let batch = read(&store, &old).await;
    assert_eq!(positions(&batch), [31]);
    let settled = settlement(opened.epoch, Some(at(&batch.frontier)));
    store.settle(settled).await.unwrap();
    let name = batch.frontier.snapshot.unwrap();
    assert_eq!(name.split(' ').nth(2).unwrap().matches('/').count(), 2);
}
