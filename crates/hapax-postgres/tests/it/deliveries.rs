//! Deliveries with several relays: owners that are fenced while they write, and concurrent changes
//! to the same rows by operators and purges.

mod starts;
mod leases;
mod checkpoints;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    Timestamp,
    delivery::{Attempt, AttemptOutcome, Checkpoint, Frontier, Park, ParkedState, Settlement},
    store::{DeadLetters, Outbox, Partitions, Settlements, StoreError},
};
use hapax_postgres::Postgres;
use hapax_testkit::{assert_matches, wait::eventually};

use crate::fixture::{Fixture, PATIENCE};

const EMIT: &str = "
    INSERT INTO hapax.outbox_event
        (event_id, type, aggregate_type, aggregate_id, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', 'key', number % 7, '{}', '{}', now() - interval '9 days'
    FROM generate_series(1, $1::int) AS number";
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test]
async fn an_owner_that_is_replaced_while_it_writes_changes_nothing() {
    let fixture = emitted(3).await;
    let epoch = fixture.store.open("hook").await.unwrap().epoch;
    let mut other = fixture.database.client().await;
    let taking = other.transaction().await.unwrap();
    let take = "UPDATE hapax.lease SET epoch = epoch + 1";
    taking.execute(take, &[]).await.unwrap();
    let store = fixture.store.clone();
    let settling = tokio::spawn(async move {
        let mut settlement = settlement("hook", epoch, 2);
        settlement.disable = Some("no".to_owned());
        store.settle(settlement).await
    });
    eventually(PATIENCE, async || fixture.count(WAITING).await == 1).await;
    taking.commit().await.unwrap();
    let fenced = settling.await.unwrap();
    assert_matches!(fenced, Err(StoreError::Fenced));
    let untouched = "SELECT (SELECT count(*) FROM hapax.delivery)
        + (SELECT count(*) FROM hapax.attempt)
        + (SELECT count(*) FROM hapax.destination WHERE disabled_at IS NOT NULL)
        + (SELECT count(*) FROM hapax.checkpoint_log) + (SELECT count(*) FROM hapax.arrival)";
    assert_eq!(fixture.count(untouched).await, 0);
    fixture.idle().await;
}

#[tokio::test]
async fn of_many_that_open_a_new_destination_each_gets_an_epoch_of_its_own() {
    let fixture = emitted(3).await;
    let beside = fixture.beside().await;
    let opens = (0..12).map(|number| {
        let store = [&fixture, &beside][number % 2].store.clone();
        tokio::spawn(async move { store.open("hook").await.unwrap().epoch })
    });
    let mut epochs: Vec<i64> = join_all(opens)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=12).collect::<Vec<i64>>());
    for epoch in epochs {
        let settled = beside.store.settle(settlement("hook", epoch, 1)).await;
        assert_eq!(settled.is_ok(), epoch == 12);
    }
}

#[tokio::test]
async fn a_settlement_that_is_written_again_is_written_once() {
    let fixture = emitted(3).await;
    let epoch = fixture.store.open("hook").await.unwrap().epoch;
    let mut settlement = settlement("hook", epoch, 3);
    settlement.release = vec!["key".to_owned()];
    for _ in 0..2 {
        fixture.store.settle(settlement.clone()).await.unwrap();
    }
    assert_eq!(fixture.count("SELECT count(*) FROM hapax.attempt").await, 3);
    let backlog = fixture.store.backlog("hook").await.unwrap();
    assert_eq!((backlog.parked, backlog.dead), (3, 0));
}

#[tokio::test]
async fn of_two_words_about_one_delivery_the_last_holds() {
    let fixture = emitted(1).await;
    let epoch = fixture.store.open("hook").await.unwrap().epoch;
    let park = |state, attempt| Park {
        state,
        attempt,
        ..park(1)
    };
    let twice = Settlement {
        destination: "hook".to_owned(),
        epoch,
        begin: vec![(1, 1), (1, 2)],
        park: vec![park(ParkedState::Retrying, 1), park(ParkedState::Dead, 2)],
        ..Settlement::default()
    };
    fixture.store.settle(twice).await.unwrap();
    let dead = fixture.store.dead_letters("hook", 0, 10).await.unwrap();
    assert_eq!(dead[0].attempts, 2);
}

#[tokio::test]
async fn an_error_with_a_zero_byte_is_written_down_without_it() {
    let fixture = emitted(1).await;
    let epoch = fixture.store.open("hook").await.unwrap().epoch;
    let mut settlement = settlement("hook", epoch, 1);
    settlement.park[0].state = ParkedState::Dead;
    settlement.park[0].last_error = Some("a\0b".to_owned());
    settlement.attempts[0].error = Some("a\0b".to_owned());
    settlement.disable = Some("a\0b".to_owned());
    fixture.store.settle(settlement).await.unwrap();
    let dead = fixture.store.dead_letters("hook", 0, 10).await.unwrap();
    assert_eq!(dead[0].last_error, "a\u{fffd}b");
    assert_eq!(dead[0].log[0].error.as_deref(), Some("a\u{fffd}b"));
    let reason = fixture.store.open("hook").await.unwrap().was_disabled;
    assert_eq!(reason.as_deref(), Some("a\u{fffd}b"));
    assert!(fixture.store.discard("hook", 1, "\0").await.unwrap());
}

/// Settlements, openings, operators' decisions and purges run concurrently. Every caller that is
/// not fenced succeeds, and the database never reports a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_of_deliveries_do_not_wait_forever_for_each_other() {
    const EVENTS: i32 = 60;
    let fixture = emitted(EVENTS).await;
    let beside = fixture.beside().await;
    let mut all = Vec::new();
    for number in 0..6 {
        let store = [&fixture, &beside][number % 2].store.clone();
        let destination = ["hook", "mail", "file"][number / 2];
        all.push(tokio::spawn(carry(store, destination, number)));
    }
    for store in [fixture.store.clone(), beside.store.clone()] {
        all.push(tokio::spawn(async move {
            for _ in 0..40 {
                store
                    .purge_events(Duration::from_secs(1), Duration::MAX)
                    .await
                    .unwrap();
            }
        }));
    }
    let store = beside.store.clone();
    all.push(tokio::spawn(async move {
        for turn in 0..200 {
            let position = i64::from(turn % EVENTS) + 1;
            let destination = ["hook", "mail", "file"][usize::try_from(turn % 3).unwrap()];
            if turn % 2 == 0 {
                store
                    .discard(destination, position, "enough")
                    .await
                    .unwrap();
            } else {
                store.replay(destination, position).await.unwrap();
            }
            store.backlog(destination).await.unwrap();
        }
    }));
    for one in join_all(all).await {
        one.unwrap();
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(fixture.count(deadlocks).await, 0);
}

/// Takes ownership of a destination repeatedly, and settles each time until it is fenced.
async fn carry(store: Postgres, destination: &'static str, number: usize) {
    for turn in 0..12 {
        let epoch = store.open(destination).await.unwrap().epoch;
        for round in 0..6 {
            let mut settlement = settlement(destination, epoch, 20);
            for (place, park) in settlement.park.iter_mut().enumerate() {
                park.position = i64::try_from((place * 7 + turn + number) % 60).unwrap() + 1;
                park.state = [
                    ParkedState::Dead,
                    ParkedState::Blocked,
                    ParkedState::Retrying,
                ][(place + round) % 3];
            }
            settlement.delivered = vec![i64::try_from(turn).unwrap() + 1];
            settlement.release = vec!["key".to_owned()];
            settlement.disable = (round == 3).then(|| "no".to_owned());
            match store.settle(settlement).await {
                Ok(_) => {}
                Err(StoreError::Fenced) => break,
                Err(error) => panic!("{}", error.error_chain()),
            }
        }
    }
}

#[tokio::test]
async fn a_standing_is_bounded_where_very_much_waits() {
    let fixture = emitted(30_000).await;
    fixture.store.open("hook").await.unwrap();
    let park = "INSERT INTO hapax.delivery
            (destination, position, state, attempt, next_at, changed_at)
        SELECT 'hook', id, CASE WHEN id % 2 = 0 THEN 'retrying' ELSE 'dead' END, 1, now(), now()
        FROM hapax.outbox_event WHERE id <= 2000";
    fixture.run(park).await;
    let backlog = fixture.store.backlog("hook").await.unwrap();
    assert_eq!((backlog.parked, backlog.dead), (1_000, 1_000));
    assert_eq!(backlog.events, 31_000);
    assert!(backlog.oldest_at.is_some());
}

/// An event that the purge has parked keeps its order key, also in the state `scheduled`, in which
/// it does not block the other events of the key.
#[tokio::test]
async fn what_waited_for_its_moment_holds_no_key_up_when_its_attempt_is_cut_off() {
    let fixture = emitted(1).await;
    fixture.store.open("hook").await.unwrap();
    let begun = "INSERT INTO hapax.delivery
            (destination, position, state, attempt, next_at, order_key, begun_at, changed_at)
        SELECT 'hook', id, 'scheduled', 1, now(), 'key', now(), now() FROM hapax.outbox_event";
    fixture.run(begun).await;
    let opened = fixture.store.open("hook").await.unwrap();
    assert_eq!(opened.interrupted, 1);
    assert!(opened.blocked_keys.is_empty(), "{:?}", opened.blocked_keys);
}

/// A store whose outbox contains `count` old events.
async fn emitted(count: i32) -> Fixture {
    let fixture = Fixture::new().await;
    fixture.plain.execute(EMIT, &[&count]).await.unwrap();
    fixture
}

fn park(position: i64) -> Park {
    Park {
        position,
        state: ParkedState::Retrying,
        attempt: 1,
        next_at: Timestamp::from_millis(1),
        order_key: Some("key".to_owned()),
        last_error: Some("refused".to_owned()),
    }
}

/// A settlement that passes and parks the first `count` events, each after one attempt.
fn settlement(destination: &str, epoch: i64, count: i64) -> Settlement {
    let tried = |position| Attempt {
        position,
        number: 1,
        started_at: Timestamp::from_millis(7),
        duration: Duration::from_millis(3),
        outcome: AttemptOutcome::Unavailable,
        status: Some(503),
        error: None,
        response_head: Bytes::new(),
    };
    Settlement {
        destination: destination.to_owned(),
        epoch,
        checkpoint: Some(Checkpoint {
            frontier: Frontier {
                high: count,
                snapshot: None,
            },
            ..Checkpoint::default()
        }),
        park: (1..=count).map(park).collect(),
        attempts: (1..=count).map(tried).collect(),
        ..Settlement::default()
    }
}
