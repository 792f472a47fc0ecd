//! Conformance tests of leases: the owner of a partition, its lease, and the live nodes.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    delivery::{Frontier, Membership, Opened, OwnedPartition, ParkedState, Settlement},
    store::{Partitions, Settlements, StoreError},
};

use super::{
    DeliveriesUnderTest,
    fixture::{Fixture, check_error},
    steps::{HOOK, MAIL, arrived, attempt, checkpoint, park, settlement},
};

const LEASE: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(1);
const ONE: &str = "one";
const TWO: &str = "two";

/// While its owner lives, a partition cannot be taken, and the caller receives this result at once.
pub async fn a_living_nodes_partition_is_not_taken<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    let owned = taken(&fixture, HOOK, ONE).await;
    for _ in 0..5 {
        fixture.clock.advance(LEASE.saturating_sub(MOMENT));
        heartbeat(&fixture, ONE).await;
        assert!(take(&fixture, HOOK, TWO).await.is_none());
    }
    fixture.settle(settlement(HOOK, owned.epoch)).await;
    assert!(take(&fixture, MAIL, TWO).await.is_some());
}

/// A partition whose owner sent no heartbeat for the length of its lease is free, and not earlier.
pub async fn a_silent_nodes_partition_is_taken_after_its_lease<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    let first = taken(&fixture, HOOK, ONE).await;
    fixture.clock.advance(LEASE.saturating_sub(MOMENT));
    assert!(take(&fixture, HOOK, TWO).await.is_none());
    heartbeat(&fixture, ONE).await;
    fixture.clock.advance(LEASE.saturating_sub(MOMENT));
    assert!(take(&fixture, HOOK, TWO).await.is_none());
    // The heartbeats of another node do not count.
    heartbeat(&fixture, TWO).await;
    fixture.clock.advance(MOMENT);
    let second = taken(&fixture, HOOK, TWO).await;
    assert!(second.epoch > first.epoch);
    heartbeat(&fixture, ONE).await;
    assert!(take(&fixture, HOOK, ONE).await.is_none());
}

/// A live node reports which destinations it knows. The last report counts.
pub async fn a_node_says_what_it_knows<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    let destinations = [HOOK, MAIL].map(str::to_owned);
    let store = fixture.store();
    let said = store.heartbeat(ONE, &destinations, LEASE).await;
    said.expect("a heartbeat is sent");
    let seen = heartbeat(&fixture, TWO).await;
    assert_eq!(seen.knows.get(ONE), Some(&destinations.clone().into()));
    let said = store.heartbeat(ONE, &destinations[..1], LEASE).await;
    said.expect("a heartbeat is sent");
    let seen = heartbeat(&fixture, TWO).await;
    assert_eq!(
        seen.knows.get(ONE),
        Some(&destinations[..1].iter().cloned().collect())
    );
    // A node of an older version holds a partition and has never reported.
    fixture.clock.advance(LEASE);
    taken(&fixture, HOOK, "three").await;
    let seen = heartbeat(&fixture, TWO).await;
    assert!(seen.nodes.iter().any(|it| it == "three"), "{seen:?}");
    assert_eq!(seen.knows.get("three"), None);
}

/// A partition that its owner releases can be taken at once.
pub async fn a_partition_that_is_given_up_is_free_at_once<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(3).await;
    let first = taken(&fixture, HOOK, ONE).await;
    let stands = checkpoint(fixture.frontier(2).await, &[], &[]);
    fixture
        .settle(Settlement {
            checkpoint: Some(stands.clone()),
            ..settlement(HOOK, first.epoch)
        })
        .await;
    give_up(&fixture, first.epoch)
        .await
        .expect("the partition is released");
    assert_eq!(held(&heartbeat(&fixture, ONE).await), []);
    let second = taken(&fixture, HOOK, TWO).await;
    assert!(second.epoch > first.epoch);
    assert_eq!(second.checkpoint, stands);
    assert_eq!(second.interrupted, 0);
}

/// A node can take its own partition again, for example after a restart.
pub async fn a_node_takes_its_own_partition_again<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let first = taken(&fixture, HOOK, ONE).await;
    let place = events[0].position;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(Frontier::default(), &[], &[place])),
            ..settlement(HOOK, first.epoch)
        })
        .await;
    let second = taken(&fixture, HOOK, ONE).await;
    assert!(second.epoch > first.epoch);
    assert_eq!(second.interrupted, 1);
    assert!(second.checkpoint.offered.is_empty());
    assert_eq!(fixture.due_positions(HOOK).await, [place]);
    check_fenced(fixture.store().settle(settlement(HOOK, first.epoch)).await);
}

/// A node that took a partition from a silent node later learns whether that node stayed alive,
/// which means that it was not ended by the deliveries that it had in flight. If the node never
/// sends a heartbeat again, or takes its own partition again, this is not known.
pub async fn an_attempt_that_its_node_outlived_is_reported<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let place = events[0].position;
    let first = taken(&fixture, HOOK, ONE).await;
    heartbeat(&fixture, ONE).await;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(Frontier::default(), &[], &[place])),
            ..settlement(HOOK, first.epoch)
        })
        .await;
    // It may have panicked because of an event that it delivered.
    let again = taken(&fixture, HOOK, ONE).await;
    fixture.clock.advance(MOMENT);
    heartbeat(&fixture, ONE).await;
    assert_eq!(outlived(&fixture, place).await, []);
    begin(&fixture, again.epoch, place, 2).await;
    fixture.clock.advance(LEASE);
    let second = taken(&fixture, HOOK, TWO).await;
    assert_eq!(second.interrupted, 1);
    assert_eq!(outlived(&fixture, place).await, []);
    fixture.clock.advance(MOMENT);
    heartbeat(&fixture, TWO).await;
    assert_eq!(
        outlived(&fixture, place).await,
        [],
        "the heartbeat of another node"
    );
    heartbeat(&fixture, ONE).await;
    assert_eq!(outlived(&fixture, place).await, [(place, 1)]);
    begin(&fixture, second.epoch, place, 3).await;
    fixture.clock.advance(LEASE);
    heartbeat(&fixture, ONE).await;
    let third = taken(&fixture, HOOK, ONE).await;
    assert_eq!(third.interrupted, 1);
    assert_eq!(outlived(&fixture, place).await, [(place, 1)]);
    fixture.clock.advance(MOMENT);
    heartbeat(&fixture, TWO).await;
    assert_eq!(outlived(&fixture, place).await, [(place, 2)]);
    let store = fixture.store();
    let others = store.outlived(MAIL, &[place]).await;
    assert_eq!(others.expect("attempts are counted"), []);
    // A first attempt has no row before it is cut off.
    let (parked, place) = (place, events[1].position);
    let offers = checkpoint(Frontier::default(), &[parked], &[place]);
    fixture
        .settle(Settlement {
            checkpoint: Some(offers),
            ..settlement(HOOK, third.epoch)
        })
        .await;
    fixture.clock.advance(LEASE);
    let fourth = taken(&fixture, HOOK, TWO).await;
    assert_eq!(fourth.interrupted, 1);
    assert_eq!(outlived(&fixture, place).await, []);
    fixture.clock.advance(MOMENT);
    heartbeat(&fixture, ONE).await;
    assert_eq!(outlived(&fixture, place).await, [(place, 1)]);
}

/// A later owner fences the earlier one, which cannot change anything.
pub async fn a_fenced_owner_changes_nothing<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let old = taken(&fixture, HOOK, ONE).await;
    fixture.clock.advance(LEASE);
    let new = taken(&fixture, HOOK, TWO).await;
    let now = fixture.clock.now();
    let everything = Settlement {
        checkpoint: Some(checkpoint(fixture.frontier(2).await, &[], &[])),
        park: vec![park(events[0].position, ParkedState::Dead, now)],
        attempts: vec![attempt(events[0].position, 1, now)],
        arrived: vec![arrived(&[events[1].position], now)],
        disable: Some("fenced".to_owned()),
        ..settlement(HOOK, old.epoch)
    };
    check_fenced(fixture.store().settle(everything).await);
    check_fenced(give_up(&fixture, old.epoch).await);
    check_fenced(give_up(&fixture, new.epoch + 1).await);
    check_fenced(fixture.store().give_up(MAIL, new.epoch).await);
    let [of_two] = &held(&heartbeat(&fixture, TWO).await)[..] else {
        panic!("the partition should be held by the second node");
    };
    assert_eq!(of_two, &(HOOK.to_owned(), TWO.to_owned(), new.epoch));
    assert_eq!(fixture.backlog(HOOK).await.events, 3);
    for event in &events {
        assert_eq!(fixture.attempts(HOOK, event.position).await, []);
    }
    fixture.settle(settlement(HOOK, new.epoch)).await;
    assert_eq!(fixture.open(HOOK).await.was_disabled, None);
}

/// If many nodes take a partition at the same time, one of them gets it.
pub async fn of_many_that_take_at_once_one_gets_it<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    for round in 0..5 {
        let asking = (0..8).map(|number| {
            let store = fixture.store().clone();
            let node = format!("node {round} {number}");
            async move { store.take(HOOK, &node, LEASE).await }
        });
        let asked: Vec<_> = join_all(asking.map(tokio::spawn)).await;
        let taken = asked.into_iter().filter_map(|took| {
            let took = took.expect("no panic");
            took.expect("a partition is requested")
        });
        let taken: Vec<Opened> = taken.collect();
        assert!(taken.len() <= 1, "{} nodes have the partition", taken.len());
        // If each of them blocked the others, the next caller gets it.
        let epoch = match taken.first() {
            Some(opened) => opened.epoch,
            None => taken_by_patience(&fixture, HOOK, ONE).await.epoch,
        };
        fixture.settle(settlement(HOOK, epoch)).await;
        give_up(&fixture, epoch)
            .await
            .expect("the partition is released");
    }
}

/// A heartbeat returns the node itself and all other live nodes, with the partitions of each.
pub async fn attendance_lists_the_living_and_what_they_hold<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    let alone = heartbeat(&fixture, TWO).await;
    assert_eq!((alone.nodes, alone.held), (vec![TWO.to_owned()], vec![]));
    let hook = taken(&fixture, HOOK, ONE).await.epoch;
    let mail = taken(&fixture, MAIL, TWO).await.epoch;
    let both = [
        (HOOK.to_owned(), ONE.to_owned(), hook),
        (MAIL.to_owned(), TWO.to_owned(), mail),
    ];
    for node in [ONE, TWO, ONE] {
        let membership = heartbeat(&fixture, node).await;
        assert_eq!(membership.nodes, [ONE, TWO]);
        assert_eq!(held(&membership), both);
    }
    fixture.clock.advance(LEASE.saturating_sub(MOMENT));
    assert_eq!(heartbeat(&fixture, ONE).await.nodes, [ONE, TWO]);
    fixture.clock.advance(MOMENT);
    let membership = heartbeat(&fixture, ONE).await;
    assert_eq!(
        membership.nodes,
        [ONE],
        "the other node sent no heartbeat for its lease"
    );
    assert_eq!(held(&membership), both[..1]);
    let fixture = fixture.reopen().await;
    let membership = heartbeat(&fixture, TWO).await;
    assert_eq!(membership.nodes, [ONE, TWO]);
    assert_eq!(held(&membership), both, "no node has taken it meanwhile");
}

/// A node that leaves is gone at once, and its partitions are free. Those of other nodes are not.
pub async fn a_node_that_leaves_lets_everything_go<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    taken(&fixture, HOOK, ONE).await;
    taken(&fixture, "other", ONE).await;
    let mail = taken(&fixture, MAIL, TWO).await.epoch;
    heartbeat(&fixture, ONE).await;
    fixture.store().leave(ONE).await.expect("it leaves");
    let membership = heartbeat(&fixture, TWO).await;
    assert_eq!(membership.nodes, [TWO]);
    assert_eq!(held(&membership), [(MAIL.to_owned(), TWO.to_owned(), mail)]);
    taken(&fixture, HOOK, TWO).await;
    taken(&fixture, "other", "three").await;
    assert!(take(&fixture, MAIL, ONE).await.is_none());
    fixture
        .store()
        .leave(ONE)
        .await
        .expect("it has left before");
    assert_eq!(heartbeat(&fixture, ONE).await.nodes, [ONE, "three", TWO]);
}

/// Opening takes a partition even from a live node, and assigns it to no node.
pub async fn opening_takes_a_partition_from_its_owner<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    let old = taken(&fixture, HOOK, ONE).await;
    let opened = fixture.open(HOOK).await;
    assert!(opened.epoch > old.epoch);
    check_fenced(fixture.store().settle(settlement(HOOK, old.epoch)).await);
    check_fenced(give_up(&fixture, old.epoch).await);
    assert_eq!(held(&heartbeat(&fixture, ONE).await), []);
    fixture.settle(settlement(HOOK, opened.epoch)).await;
    assert!(taken(&fixture, HOOK, TWO).await.epoch > opened.epoch);
}

/// A node that is restarted with its store still owns its partitions.
pub async fn a_lease_outlives_a_restart<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    let first = taken(&fixture, HOOK, ONE).await;
    let fixture = fixture.reopen().await;
    assert!(take(&fixture, HOOK, TWO).await.is_none());
    assert!(taken(&fixture, HOOK, ONE).await.epoch > first.epoch);
    fixture.clock.advance(LEASE);
    taken(&fixture, HOOK, TWO).await;
}

/// The partitions of one destination have separate owners.
pub async fn partitions_of_one_destination_are_separate<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(3).await;
    let first = taken(&fixture, "hook/0", ONE).await;
    let second = taken(&fixture, "hook/1", TWO).await;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(fixture.frontier(3).await, &[], &[])),
            ..settlement("hook/0", first.epoch)
        })
        .await;
    fixture.settle(settlement("hook/1", second.epoch)).await;
    assert_eq!(fixture.backlog("hook/0").await.events, 0);
    assert_eq!(fixture.backlog("hook/1").await.events, 3);
    assert!(take(&fixture, HOOK, ONE).await.is_some());
}

async fn take<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    partition: &str,
    node: &str,
) -> Option<Opened> {
    let took = fixture.store().take(partition, node, LEASE).await;
    took.expect("a partition is requested")
}

/// Takes a partition that must be free.
async fn taken<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    partition: &str,
    node: &str,
) -> Opened {
    let opened = take(fixture, partition, node).await;
    opened.unwrap_or_else(|| panic!("{partition} should be free for {node}"))
}

/// Takes a partition that becomes free when the concurrent callers have finished.
async fn taken_by_patience<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    partition: &str,
    node: &str,
) -> Opened {
    let patience = crate::wait::Patience::within(super::fixture::PATIENCE);
    loop {
        match take(fixture, partition, node).await {
            Some(opened) => return opened,
            None => patience.pause().await,
        }
    }
}

async fn heartbeat<S: DeliveriesUnderTest>(fixture: &Fixture<S>, node: &str) -> Membership {
    let membership = fixture.store().heartbeat(node, &[], LEASE).await;
    membership.expect("a heartbeat is sent")
}

async fn give_up<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    epoch: i64,
) -> Result<(), StoreError> {
    fixture.store().give_up(HOOK, epoch).await
}

/// Starts an attempt at a parked delivery.
async fn begin<S: DeliveriesUnderTest>(fixture: &Fixture<S>, epoch: i64, place: i64, number: u32) {
    fixture
        .settle(Settlement {
            begin: vec![(place, number)],
            ..settlement(HOOK, epoch)
        })
        .await;
}

async fn outlived<S: DeliveriesUnderTest>(fixture: &Fixture<S>, place: i64) -> Vec<(i64, u32)> {
    let counted = fixture.store().outlived(HOOK, &[place]).await;
    counted.expect("attempts are counted")
}

/// The owned partitions, by name.
fn held(membership: &Membership) -> Vec<(String, String, i64)> {
    let of = |held: &OwnedPartition| (held.partition.clone(), held.node.clone(), held.epoch);
    let mut held: Vec<_> = membership.held.iter().map(of).collect();
    held.sort();
    held
}

#[track_caller]
fn check_fenced<T>(outcome: Result<T, StoreError>) {
    check_error(outcome, "fenced", |error| {
        matches!(error, StoreError::Fenced)
    });
}
