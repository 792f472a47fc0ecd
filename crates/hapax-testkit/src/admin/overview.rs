//! Conformance tests of the figures of the overview.

use std::time::Duration;

use hapax::{
    admin::{Count, CountKind, StateCount},
    delivery::{Attempt, AttemptOutcome, Park, ParkedState, Settlement},
    event::NewEvent,
    saga::State,
};

use super::{
    AdminUnderTest,
    checks::{Must, hostile},
    scene::{Scene, new_saga, of, park},
};
use crate::store::steps::{arrived, attempt, settlement};

/// The overview counts recent events, deliveries, failures and keys, and what waits.
pub async fn the_overview_counts_what_there_is<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 5).await;
    let parks = vec![
        park(at[0], ParkedState::Dead, None),
        park(at[1], ParkedState::Retrying, None),
        park(at[2], ParkedState::Scheduled, None),
    ];
    scene.settle("orders", parks).await;
    record(&scene, &[at[0]], vec![attempt(at[2], 1, scene.now())]).await;
    // What happened until now is not recent any more.
    scene.advance(Duration::from_mins(2)).await;
    let now = scene.now();
    let tried = |outcome, number| Attempt {
        outcome,
        ..attempt(at[1], number, now)
    };
    let attempts = vec![
        tried(AttemptOutcome::Unavailable, 1),
        tried(AttemptOutcome::Interrupted, 2),
        tried(AttemptOutcome::Delivered, 3),
    ];
    record(&scene, &at[3..], attempts).await;
    scene.emit("order.created", None, 4).await;
    scene.complete("alice", "k").await;
    scene.enter("phased").await;
    scene.start_sagas([new_saga("s1", None)]).await;
    let all = scene.admin.overview(&scene.ops).await.must();
    assert_eq!((all.at, all.window), (now, Duration::from_mins(1)));
    assert_eq!(all.committed, exact(4));
    let [orders] = all.destinations.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(orders.name, "orders");
    assert_eq!((orders.backlog, orders.parked), (exact(4), exact(2)));
    assert_eq!(orders.dead, exact(1));
    // Two arrived at the first attempt, and one later.
    assert_eq!((orders.delivered, orders.failed), (exact(3), exact(1)));
    assert_eq!((all.delivered, all.failed), (exact(3), exact(1)));
    assert_eq!(orders.lag, Some(Duration::from_mins(2)));
    let count = exact(1);
    let keys = ["in_progress", "completed"].map(|state| StateCount { state, count });
    assert_eq!(all.keys, keys);
    for state in State::ALL {
        let found = all.sagas.iter().find(|it| it.state == state.as_str());
        let expected = exact(u64::from(state == State::Running));
        assert_eq!(found.map(|it| it.count), Some(expected), "{state:?}");
    }
    let keys_stored = all.keys_stored.map(|count| count.number);
    assert!(keys_stored.is_none_or(|number| number <= 1_000));
}

/// The lag counts from the time when an event is due, whether its delivery is scheduled or it is
/// unread.
pub async fn an_event_that_waits_for_its_time_is_not_late<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let due = scene.now().after(Duration::from_hours(1));
    let delayed = || vec![NewEvent::json("order.created", &1).available_at(due)];
    let at = scene.write(None, delayed()).await;
    let scheduled = Park {
        next_at: due,
        ..park(at[0], ParkedState::Scheduled, None)
    };
    scene.settle("orders", vec![scheduled]).await;
    scene.write(None, delayed()).await;
    let lag = async || {
        let all = scene.admin.overview(&scene.ops).await.must();
        assert_eq!(all.destinations[0].backlog, exact(1));
        all.destinations[0].lag.unwrap_or_default()
    };
    scene.advance(Duration::from_mins(10)).await;
    assert_eq!(lag().await, Duration::ZERO);
    scene.advance(Duration::from_hours(1)).await;
    assert_eq!(lag().await, Duration::from_mins(10));
}

/// Events that have to wait for their time do not hide one after them that is due, however many they
/// are.
pub async fn delayed_events_do_not_hide_the_lag<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.pass("orders", &[]).await;
    let due = scene.now().after(Duration::from_hours(1));
    let delayed = (0..1_500).map(|_| NewEvent::json("order.created", &1).available_at(due));
    scene.write(None, delayed.collect()).await;
    scene.emit("order.created", None, 1).await;
    scene.advance(Duration::from_mins(10)).await;
    let all = scene.admin.overview(&scene.ops).await.must();
    assert_eq!(all.destinations[0].lag, Some(Duration::from_mins(10)));
}

/// The partitions of a destination are added up, and destinations are listed by name.
pub async fn the_partitions_of_a_destination_are_added_up<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 2).await;
    for partition in ["b", "a/1", "a/0"] {
        scene.pass(partition, &at).await;
    }
    scene.emit("order.created", None, 30).await;
    let all = scene.admin.overview(&scene.ops).await.must();
    let [one, two] = all.destinations.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!((one.name.as_str(), two.name.as_str()), ("a", "b"));
    assert_eq!((one.dead, two.dead), (exact(4), exact(2)));
    // Each event waits at one partition.
    assert_eq!((one.backlog, two.backlog), (exact(30), exact(30)));
}

/// A number that is too high to be counted is not said to be exact.
pub async fn a_large_backlog_is_estimated_or_exact_and_says_which<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.pass("orders", &[]).await;
    scene.emit("order.created", None, 2_500).await;
    let all = scene.admin.overview(&scene.ops).await.must();
    for count in [all.destinations[0].backlog, all.committed] {
        let fits = match count.kind {
            CountKind::Exact => count.number == 2_500,
            CountKind::AtLeast => (1_000..=2_500).contains(&count.number),
            // All events were committed at one moment, so their rate is not known.
            CountKind::About => count.number >= 2_400,
        };
        assert!(fits, "{count:?}");
    }
    let backlog = scene.admin.partition_backlog("orders").await.must();
    assert!(backlog.events >= 2_400, "{backlog:?}");
}

/// An operator of a tenant sees its own events and keys, and the destinations that take only its
/// events.
pub async fn an_operator_of_a_tenant_sees_its_own_figures<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    for (name, spec) in [
        ("all", "{}"),
        ("hers", r#"{"tenant":"alice"}"#),
        ("his", r#"{"tenant":"bob"}"#),
    ] {
        admin.create_destination(ops, name, spec, None).await.must();
        scene.pass(name, &[]).await;
    }
    scene.pass("filed", &[]).await;
    scene.emit("order.created", Some("alice"), 2).await;
    scene.emit("order.created", Some("bob"), 3).await;
    scene.complete("alice", "k").await;
    scene.complete("bob", "k").await;
    scene
        .start_sagas([new_saga("s1", Some("alice")), new_saga("s2", Some("bob"))])
        .await;
    let alice = of("alice");
    let hers = admin.overview(&alice).await.must();
    assert_eq!((hers.committed, hers.keys_stored), (exact(2), None));
    let names: Vec<_> = hers
        .destinations
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["hers"]);
    let completed = hers.keys.iter().find(|it| it.state == "completed");
    assert_eq!(completed.map(|it| it.count), Some(exact(1)));
    let running = hers.sagas.iter().find(|it| it.state == "running");
    assert_eq!(running.map(|it| it.count), Some(exact(1)));
    assert_eq!(
        admin.overview(&of("carol")).await.must().committed,
        exact(0)
    );
    assert_eq!(admin.overview(ops).await.must().committed, exact(5));
    assert_eq!(admin.overview(ops).await.must().destinations.len(), 4);
    let (both, stalled) = admin.overview_and_stalled(&alice).await.must();
    assert_eq!((both.committed, both.destinations.len()), (exact(2), 1));
    assert_eq!(stalled, admin.stalled(&alice).await.must());
}

/// A removed destination has no figures, even before its rows are deleted.
pub async fn a_removed_destination_has_no_figures<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let removed = scene.admin.remove_destination(&scene.ops, "a").await;
    removed.must();
    let all = scene.admin.overview(&scene.ops).await.must();
    assert_eq!(all.destinations, []);
    assert_eq!(scene.stalled().await, []);
}

/// The backlog of a partition is that of the store, and a name is a value.
pub async fn the_backlog_of_a_partition_is_read_by_its_name<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 3).await;
    scene.pass("a", &at[..1]).await;
    scene.emit("order.created", None, 2).await;
    let backlog = scene.admin.partition_backlog("a").await.must();
    assert_eq!(backlog, scene.fixture.backlog("a").await);
    assert_eq!((backlog.events, backlog.dead), (2, 1));
    for name in hostile() {
        let backlog = scene.admin.partition_backlog(&name).await.must();
        assert_eq!((backlog.newest, backlog.dead), (None, 0));
    }
}

/// Records first attempts that succeeded, and other attempts, at `orders`.
async fn record<S: AdminUnderTest>(scene: &Scene<S>, first: &[i64], attempts: Vec<Attempt>) {
    let epoch = scene.fixture.open("orders").await.epoch;
    let recorded = Settlement {
        arrived: vec![arrived(first, scene.now())],
        attempts,
        ..settlement("orders", epoch)
    };
    scene.fixture.settle(recorded).await;
}

fn exact(number: u64) -> Count {
    Count {
        number,
        kind: CountKind::Exact,
    }
}
