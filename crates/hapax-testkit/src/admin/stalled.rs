//! Conformance tests of the list of what is stalled.

use std::time::Duration;

use hapax::{
    Timestamp,
    admin::{Cause, Stalled, StalledItem},
    delivery::{Attempt, AttemptOutcome, Park, ParkedState, Settlement},
    limits::NODE_LEASE,
    saga::{Kind, NewSaga, State},
    store::Partitions,
};

use super::{
    AdminUnderTest,
    checks::Must,
    destinations::disable,
    scene::{Scene, new_saga, of, park},
};
use crate::store::steps::{attempt, settlement};

/// Nothing is stalled where everything is delivered.
pub async fn nothing_is_stalled_where_everything_is_delivered<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 3).await;
    scene.pass("orders", &[]).await;
    own(&scene, "n1", &["orders"]).await;
    assert_eq!(scene.stalled().await, []);
    scene.advance(Duration::from_hours(24)).await;
    assert_eq!(scene.stalled().await, [], "without a relay, nothing waits");
}

/// A partition that no live relay owns is distinguished from one whose relay is silent.
pub async fn a_partition_without_an_owner_is_distinguished_from_a_silent_owner<
    S: AdminUnderTest,
>() {
    let scene = Scene::<S>::new().await;
    scene.pass("orders", &[]).await;
    scene.emit("order.created", None, 3).await;
    let [unowned] = scene.stalled().await.try_into().must();
    assert_eq!(
        (unowned.cause, unowned.waiting),
        (Cause::Unowned { last: None }, 3)
    );
    assert_eq!(unowned.what, partition("orders"));
    own(&scene, "n1", &["orders"]).await;
    assert_eq!(scene.stalled().await, []);
    let seen_at = scene.now();
    scene.advance(2 * NODE_LEASE).await;
    let [unowned] = scene.stalled().await.try_into().must();
    let last = Some("n1".to_owned());
    assert_eq!(unowned.cause, Cause::Unowned { last });
    assert_eq!(unowned.since, Some(seen_at));
    beat(&scene, "n2").await;
    let [silent] = scene.stalled().await.try_into().must();
    let node = "n1".to_owned();
    let seen_at = Some(seen_at);
    assert_eq!(silent.cause, Cause::OwnerSilent { node, seen_at });
    assert_eq!((silent.since, silent.waiting), (seen_at, 3));
    own(&scene, "n2", &["orders"]).await;
    assert_eq!(scene.stalled().await, []);
}

/// A live relay that owns a partition and settles nothing is reported after a while.
pub async fn an_owner_that_settles_nothing_is_reported<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.pass("orders", &[]).await;
    scene.emit("order.created", None, 3).await;
    own(&scene, "n1", &["orders"]).await;
    scene.advance(Duration::from_mins(10)).await;
    beat(&scene, "n1").await;
    let [stalled] = scene.stalled().await.try_into().must();
    assert_eq!((stalled.cause, stalled.waiting), (Cause::NotSettling, 3));
}

/// Paused and disabled destinations are reported with who did it and why, although nothing waits.
pub async fn paused_and_disabled_destinations_are_reported<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    for name in ["gone", "orders", "set"] {
        scene.pass(name, &[]).await;
    }
    let spec = r#"{"paused":true}"#;
    admin
        .create_destination(ops, "set", spec, None)
        .await
        .must();
    admin.pause_destination(ops, "orders").await.must();
    disable(&scene, "gone", "410 Gone").await;
    own(&scene, "n1", &["orders", "set"]).await;
    let all = scene.stalled().await;
    let causes: Vec<_> = all.iter().map(|it| it.cause.clone()).collect();
    let reason = "410 Gone".to_owned();
    let by = Some("ops".to_owned());
    // The most severe first.
    assert_eq!(causes[0], Cause::Disabled { reason });
    assert_eq!(all[0].what, partition("gone"));
    assert!(causes[1..].contains(&Cause::Paused { by }), "{causes:?}");
    assert!(
        causes[1..].contains(&Cause::Paused { by: None }),
        "{causes:?}"
    );
    assert_eq!(causes.len(), 3);
    admin.resume_destination(ops, "orders").await.must();
    assert_eq!(scene.stalled().await.len(), 2);
}

/// What blocks an order key is reported with the number of events that wait for it.
pub async fn what_blocks_an_order_key_is_reported<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 6).await;
    let key = |id: &str| format!("order\n{id}");
    let (one, two, three) = (key("1"), key("2"), key("3"));
    let parks: Vec<Park> = vec![
        park(at[0], ParkedState::Dead, Some(&one)),
        park(at[1], ParkedState::Blocked, Some(&one)),
        park(at[2], ParkedState::Blocked, Some(&one)),
        later(park(at[3], ParkedState::Retrying, Some(&two))),
        park(at[4], ParkedState::Blocked, Some(&two)),
        // A dead letter that blocks no other event.
        park(at[5], ParkedState::Dead, Some(&three)),
    ];
    scene.settle("orders", parks).await;
    own(&scene, "n1", &["orders"]).await;
    let all = scene.stalled().await;
    let of_key = |id: &str| {
        let is = |it: &&Stalled| matches!(&it.what, StalledItem::OrderKey { aggregate_id, .. } if aggregate_id == id);
        all.iter().find(is)
    };
    let dead = of_key("1").expect("key 1 is blocked");
    assert_eq!(dead.waiting, 2);
    assert!(matches!(dead.cause, Cause::BehindDeadLetter { position, .. } if position == at[0]));
    let retrying = of_key("2").expect("key 2 is blocked");
    assert_eq!(retrying.waiting, 1);
    let waits = |cause: &Cause| matches!(cause, Cause::WaitsForRetry { position, attempts: 3, .. } if *position == at[3]);
    assert!(waits(&retrying.cause), "{retrying:?}");
    assert!(of_key("3").is_none(), "{all:?}");
    let whole = all.iter().find(|it| it.what == partition("orders"));
    let whole = whole.expect("the partition waits for a retry");
    assert!(waits(&whole.cause), "{whole:?}");
    assert_eq!((all.len(), whole.waiting), (3, 4));
    assert!(all.is_sorted_by_key(|it| it.cause.rank()));
}

/// Events whose last attempt was declined are reported by type, with the first one and an error.
pub async fn declined_events_are_reported_by_type<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut at = scene.emit("seq.next", None, 3).await;
    at.extend(scene.emit("order.created", None, 1).await);
    let parks = vec![
        later(park(at[0], ParkedState::Retrying, None)),
        later(park(at[1], ParkedState::Retrying, None)),
        park(at[2], ParkedState::Dead, None),
        later(park(at[3], ParkedState::Retrying, None)),
    ];
    scene.settle("orders", parks).await;
    let declined = |position, number| Attempt {
        outcome: AttemptOutcome::Declined,
        error: Some("no queue".to_owned()),
        ..attempt(position, number, scene.now())
    };
    let attempts = vec![
        declined(at[0], 1),
        declined(at[1], 1),
        declined(at[2], 1),
        declined(at[3], 1),
        attempt(at[3], 2, scene.now()),
    ];
    let epoch = scene.fixture.open("orders").await.epoch;
    let tried = Settlement {
        attempts,
        ..settlement("orders", epoch)
    };
    scene.fixture.settle(tried).await;
    own(&scene, "n1", &["orders"]).await;
    let all = scene.stalled().await;
    let declined: Vec<_> = all
        .iter()
        .filter(|it| it.cause.as_str() == "declined")
        .collect();
    let [declined] = declined.as_slice() else {
        panic!("{all:?}");
    };
    let what = StalledItem::EventType {
        partition: "orders".to_owned(),
        kind: "seq.next".to_owned(),
    };
    assert_eq!((&declined.what, declined.waiting), (&what, 3));
    let error = Some("no queue".to_owned());
    let position = at[0];
    assert_eq!(declined.cause, Cause::Declined { position, error });
}

/// Sagas that need an operator's decision, and sagas that no worker takes, are reported by kind.
pub async fn sagas_that_need_an_operator_or_a_worker_are_reported_by_kind<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let two = Kind {
        name: "checkout".to_owned(),
        version: 2,
    };
    let newer = |id: &str| NewSaga {
        kind: two.clone(),
        ..new_saga(id, Some("bob"))
    };
    scene
        .start_sagas([new_saga("s1", Some("alice")), newer("s2"), newer("s3")])
        .await;
    scene.start_sagas([new_saga("ended", Some("bob"))]).await;
    scene.put_saga("ended", &[], State::Failed).await;
    assert_eq!(scene.stalled().await, []);
    scene.put_saga("s1", &[], State::NeedsAttention).await;
    scene.advance(Duration::from_mins(2)).await;
    let [asking, overdue] = scene.stalled().await.try_into().must();
    assert_eq!((asking.cause, asking.waiting), (Cause::NeedsAttention, 1));
    let kind = |version| StalledItem::Sagas {
        name: "checkout".to_owned(),
        version,
    };
    assert_eq!(asking.what, kind(1));
    assert_eq!((overdue.cause, overdue.waiting), (Cause::NobodyKnows, 2));
    assert_eq!(overdue.what, kind(2));
    let [own] = scene
        .admin
        .stalled(&of("alice"))
        .await
        .must()
        .try_into()
        .must();
    assert_eq!((own.cause, own.waiting), (Cause::NeedsAttention, 1));
    let [own] = scene
        .admin
        .stalled(&of("bob"))
        .await
        .must()
        .try_into()
        .must();
    assert_eq!((own.cause, own.waiting), (Cause::NobodyKnows, 2));
    assert_eq!(scene.admin.stalled(&of("carol")).await.must(), []);
}

/// An operator of a tenant sees the destinations of that tenant.
pub async fn an_operator_of_a_tenant_sees_its_own_stalled_destinations<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    for (name, spec) in [
        ("hers", r#"{"tenant":"alice"}"#),
        ("his", r#"{"tenant":"bob"}"#),
    ] {
        admin.create_destination(ops, name, spec, None).await.must();
        scene.pass(name, &[]).await;
    }
    scene.pass("filed", &[]).await;
    scene.emit("order.created", Some("alice"), 2).await;
    assert_eq!(scene.stalled().await.len(), 3);
    let [own] = admin.stalled(&of("alice")).await.must().try_into().must();
    assert_eq!(own.what, partition("hers"));
    let (_, both) = admin.overview_and_stalled(ops).await.must();
    assert_eq!(both, scene.stalled().await);
}

/// A partition.
fn partition(name: &str) -> StalledItem {
    StalledItem::Partition {
        partition: name.to_owned(),
    }
}

/// A delivery that is due in the far future.
fn later(mut parked: Park) -> Park {
    parked.next_at = Timestamp::from_millis(4_000_000_000_000);
    parked
}

/// A node takes partitions and sends a heartbeat.
async fn own<S: AdminUnderTest>(scene: &Scene<S>, node: &str, partitions: &[&str]) {
    for partition in partitions {
        let taken = scene.store().take(partition, node, NODE_LEASE).await.must();
        taken.expect("the partition is free");
    }
    beat(scene, node).await;
}

/// A node sends a heartbeat.
async fn beat<S: AdminUnderTest>(scene: &Scene<S>, node: &str) {
    let beat = scene.store().heartbeat(node, &[], NODE_LEASE).await;
    beat.must();
}
