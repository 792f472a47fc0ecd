//! An earlier state of the database is restored under the same name between a read and its
//! settlement, and the ids that were read are drawn again: only the events themselves reveal it.
//!
//! Without [`Settlement::seen`] such a settlement would succeed, and the events that now have the
//! ids would be lost.

use hapax::{
    delivery::{CheckpointId, Frontier, Park, ParkedState, Settlement, Shards},
    event::EventId,
    store::{Batch, Partitions, Settlements, Source, StoreError},
};
use hapax_postgres::Postgres;
use hapax_testkit::{assert_matches, postgres::Cluster};

use super::{EMIT, PARTITION, at, positions, read, settlement};
use crate::{
    fixture::{Fixture, settings},
    retention::{emit, pass, purge},
};

/// The database that is restored.
const DATABASE: &str = "postgres";

#[tokio::test]
async fn what_has_the_ids_of_events_that_were_read_and_not_settled_is_not_passed_over() {
    // The ids that were read are drawn again, exactly those or more.
    for later in [3, 5] {
        let cluster = Cluster::start().await;
        let store = opened(&cluster).await;
        let (newest, from) = begun(&store, &cluster).await;
        let image = cluster.dump(DATABASE).await;
        commit(&cluster, 3).await;
        let lost = read(&store, &from).await;
        assert_eq!(positions(&lost), [2, 3, 4]);
        let history = history(&cluster).await;
        cluster.restore(&image, DATABASE).await;
        assert_eq!(self::history(&cluster).await, history);
        commit(&cluster, later).await;

        let store = opened(&cluster).await;
        // The relay may read on before the restore is noticed, and what it reads then exists.
        let beyond = read(&store, &lost.frontier).await;
        for read in [&lost, &beyond] {
            let seen = last(&lost).into_iter().chain(last(&beyond));
            let settled = Settlement {
                seen: seen.collect(),
                ..of(read, newest)
            };
            let outcome = store.settle(settled).await;
            assert_matches!(outcome, Err(StoreError::SetBack { .. }));
        }
        let outcome = store.settle(of(&lost, newest)).await;
        assert_matches!(outcome, Err(StoreError::SetBack { .. }));
        let opened = store.open(PARTITION).await.unwrap();
        assert_eq!(opened.checkpoint.frontier, from);
        let kept = read(&store, &from).await;
        assert_eq!(positions(&kept), (2..2 + later).collect::<Vec<_>>());
        let settled = Settlement {
            epoch: opened.epoch,
            ..of(&kept, opened.newest)
        };
        store.settle(settled).await.unwrap();
        let passed = store.open(PARTITION).await.unwrap().checkpoint.frontier;
        assert_eq!(passed, kept.frontier);
    }
}

/// An id without an event counts like an id with another event: its transaction may not be
/// committed yet.
#[tokio::test]
async fn an_event_that_is_not_there_is_no_event_that_stands() {
    let fixture = Fixture::new().await;
    emit(&fixture.plain, 3).await;
    let opened = fixture.store.open(PARTITION).await.unwrap();
    let batch = read(&fixture.store, &opened.checkpoint.frontier).await;
    fixture
        .run("DELETE FROM hapax.outbox_event WHERE id = 3")
        .await;
    let settled = Settlement {
        epoch: opened.epoch,
        ..of(&batch, opened.newest)
    };
    let outcome = fixture.store.settle(settled).await;
    assert_matches!(outcome, Err(StoreError::SetBack { .. }));
    let written = "SELECT count(*) FROM hapax.position WHERE checkpoint_settlement > 0";
    assert_eq!(fixture.count(written).await, 0);
}

/// The result of a settlement may be lost, and the events that it has passed be purged before it is
/// sent again.
#[tokio::test]
async fn a_settlement_that_is_written_comes_again_though_its_events_are_gone() {
    for parks in [vec![], vec![park(3)]] {
        let fixture = Fixture::new().await;
        emit(&fixture.plain, 4).await;
        let opened = fixture.store.open(PARTITION).await.unwrap();
        let batch = read(&fixture.store, &opened.checkpoint.frontier).await;
        let settled = Settlement {
            epoch: opened.epoch,
            park: parks,
            ..of(&batch, opened.newest)
        };
        for _ in ["unheard", "while they are there"] {
            fixture.store.settle(settled.clone()).await.unwrap();
        }
        while purge(&fixture).await > 0 {}
        let left = "SELECT count(*) FROM hapax.outbox_event WHERE segment <> -1";
        assert_eq!(fixture.count(left).await, 0);
        fixture.store.settle(settled.clone()).await.unwrap();
        // The parked event is kept apart from its segment, and is delivered.
        let after = Settlement {
            number: 2,
            delivered: settled.park.iter().map(|park| park.position).collect(),
            seen: Vec::new(),
            follows: Some(written(&settled)),
            park: Vec::new(),
            ..settled
        };
        fixture.store.settle(after).await.unwrap();
    }
}

/// Meanwhile the outbox rotates, and another destination parks what it has read: no event leaves
/// its segment before every partition has settled it.
#[tokio::test]
async fn what_was_read_stands_until_it_is_settled_however_often_is_purged() {
    let fixture = Fixture::new().await;
    let opened = fixture.store.open("slow").await.unwrap();
    emit(&fixture.plain, 4).await;
    let first = slowly(&fixture, &opened.checkpoint.frontier).await;
    for last in [&first.events[3].position, &0] {
        crate::retention::settle(&fixture, 10, |settlement| {
            settlement.park = (*last > 0).then(|| park(*last)).into_iter().collect();
        })
        .await;
        for _ in 0..2 {
            while purge(&fixture).await > 0 {}
            emit(&fixture.plain, 4).await;
            while !pass(&fixture, 10).await.is_empty() {}
        }
    }
    let drawn = "SELECT last_value >> 36 FROM hapax.outbox_event_id";
    assert!(fixture.count(drawn).await > 2, "the outbox does not rotate");
    let settled = Settlement {
        destination: "slow".to_owned(),
        epoch: opened.epoch,
        ..of(&first, opened.newest)
    };
    fixture.store.settle(settled.clone()).await.unwrap();
    // These events are in another segment than the ones before.
    let next = slowly(&fixture, &first.frontier).await;
    assert!(next.events[0].position >> 36 > 0);
    let next = Settlement {
        destination: "slow".to_owned(),
        epoch: opened.epoch,
        number: 2,
        ..of(&next, written(&settled))
    };
    fixture.store.settle(next).await.unwrap();
}

/// If a partition lags all segments, the purge parks the events that it has read and fences its
/// owner. The owner opens the partition again and continues.
#[tokio::test]
async fn what_was_read_and_spilled_is_fenced_and_no_sign_of_another_history() {
    let fixture = Fixture::new().await;
    let opened = fixture.store.open("slow").await.unwrap();
    emit(&fixture.plain, 4).await;
    let first = slowly(&fixture, &opened.checkpoint.frontier).await;
    for _ in 0..9 {
        while !pass(&fixture, 10).await.is_empty() {}
        while purge(&fixture).await > 0 {}
        emit(&fixture.plain, 4).await;
    }
    let spilled = "SELECT count(*) FROM hapax.outbox_event_kept";
    assert!(fixture.count(spilled).await >= 4);
    let settled = Settlement {
        destination: "slow".to_owned(),
        epoch: opened.epoch,
        ..of(&first, opened.newest)
    };
    let outcome = fixture.store.settle(settled.clone()).await;
    assert_matches!(outcome, Err(StoreError::Fenced));
    let opened = fixture.store.open("slow").await.unwrap();
    let next = slowly(&fixture, &opened.checkpoint.frontier).await;
    let settled = Settlement {
        destination: "slow".to_owned(),
        epoch: opened.epoch,
        delivered: vec![1, 2, 3, 4],
        ..of(&next, opened.newest)
    };
    fixture.store.settle(settled).await.unwrap();
}

async fn slowly(fixture: &Fixture, from: &Frontier) -> Batch {
    let batch = Source::read(&fixture.store, from, Shards::ALL, 4).await;
    let batch = batch.unwrap();
    assert_eq!(batch.events.len(), 4);
    batch
}

/// Settles the first event; returns its checkpoint, and the frontier after it.
async fn begun(store: &Postgres, cluster: &Cluster) -> (CheckpointId, Frontier) {
    commit(cluster, 1).await;
    let opened = store.open(PARTITION).await.unwrap();
    let batch = read(store, &opened.checkpoint.frontier).await;
    let first = Settlement {
        epoch: opened.epoch,
        ..of(&batch, opened.newest)
    };
    store.settle(first.clone()).await.unwrap();
    (written(&first), batch.frontier)
}

/// The settlement of a whole batch, as a relay makes it for the first batch that it settles after
/// `newest`.
fn of(batch: &Batch, newest: CheckpointId) -> Settlement {
    Settlement {
        number: newest.settlement + 1,
        read: vec![batch.frontier.clone()],
        follows: Some(newest),
        seen: last(batch),
        ..settlement(newest.epoch, Some(at(&batch.frontier)))
    }
}

/// The last event of a batch.
fn last(batch: &Batch) -> Vec<(i64, EventId)> {
    let last = batch.events.last();
    last.map(|event| (event.position, event.event.id))
        .into_iter()
        .collect()
}

/// The checkpoint that a settlement writes.
fn written(settled: &Settlement) -> CheckpointId {
    CheckpointId {
        epoch: settled.epoch,
        settlement: settled.number,
        high: settled.checkpoint.as_ref().unwrap().frontier.high,
    }
}

fn park(position: i64) -> Park {
    Park {
        position,
        state: ParkedState::Retrying,
        attempt: 1,
        next_at: hapax::Timestamp::from_millis(1),
        order_key: None,
        last_error: None,
    }
}

async fn opened(cluster: &Cluster) -> Postgres {
    Postgres::open(settings(&cluster.url())).await.unwrap()
}

async fn commit(cluster: &Cluster, count: i64) {
    let client = cluster.client().await;
    for _ in 0..count {
        client.batch_execute(EMIT).await.unwrap();
    }
}

/// The name of the database's history and the number of its newest checkpoint: the other values
/// with which a settlement is compared.
async fn history(cluster: &Cluster) -> (String, i64) {
    let history = "SELECT hapax.history(), max(checkpoint_number) FROM hapax.position";
    let row = cluster
        .client()
        .await
        .query_one(history, &[])
        .await
        .unwrap();
    (row.get(0), row.get(1))
}
