//! Conformance tests of where declared destinations start.

use hapax::{
    admin::AdminError,
    delivery::{Frontier, Start},
    store::Starts,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_invalid, check_missing},
    scene::{HOUR, Scene, of},
};

/// A declared destination starts when it is created, unless it says otherwise, whenever a relay
/// opens its partitions.
pub async fn a_declared_destination_starts_now_unless_it_says_otherwise<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 2).await;
    scene.advance(HOUR).await;
    let time = scene.now();
    scene.emit("order.created", None, 1).await;
    let since = format!(r#"{{"start":"{time}"}}"#);
    let cases = [
        ("silent", "{}", 3),
        ("now", r#"{"start":"now"}"#, 3),
        ("all", r#"{"start":"beginning"}"#, 0),
        ("since", &*since, 2),
    ];
    for (name, spec, _) in cases {
        let created = scene.admin.create_destination(&scene.ops, name, spec, None);
        created.await.must();
    }
    scene.emit("order.created", None, 2).await;
    for (name, _, skipped) in cases {
        check_starts(&scene, name, skipped).await;
    }
    // A relay whose file also defines the destination changes nothing.
    let recorded = scene.store().record_start("all", Start::Now).await;
    assert!(!recorded.must());
}

/// A destination that is created again under the name of a removed one starts by its own setting, even if a relay
/// that still knows the removed one asks for its start.
pub async fn a_destination_that_is_created_again_starts_anew<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    admin.create_destination(ops, "a", "{}", None).await.must();
    scene.emit("order.created", None, 2).await;
    check_starts(&scene, "a", 0).await;
    admin.remove_destination(ops, "a").await.must();
    let asked = async || scene.store().record_start("a", Start::Beginning).await;
    assert!(!asked().await.must());
    scene.advance(HOUR).await;
    scene.work().await;
    assert!(!asked().await.must());
    admin.create_destination(ops, "a", "{}", None).await.must();
    assert!(!asked().await.must());
    scene.emit("order.created", None, 1).await;
    check_starts(&scene, "a", 2).await;
}

/// A record that a relay has left for a name that it never opened does not decide where a destination
/// starts that is declared under that name.
pub async fn a_start_that_was_never_used_is_replaced<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let recorded = scene.store().record_start("a", Start::Beginning).await;
    assert!(recorded.must());
    scene.emit("order.created", None, 2).await;
    admin.create_destination(ops, "a", "{}", None).await.must();
    scene.emit("order.created", None, 1).await;
    check_starts(&scene, "a", 2).await;
    // All partitions of an opened destination start at one position.
    check_starts(&scene, "b/0", 0).await;
    admin.create_destination(ops, "b", "{}", None).await.must();
    check_starts(&scene, "b/1", 0).await;
}

/// A name of which only a start is recorded can be removed, which deletes the record.
pub async fn a_destination_that_was_never_opened_is_removed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let recorded = scene.store().record_start("a", Start::Now).await;
    assert!(recorded.must());
    check_missing(&admin.remove_destination(&of("a"), "a").await);
    check_missing(&admin.remove_destination(ops, "b").await);
    admin.remove_destination(ops, "a").await.must();
    scene.advance(HOUR).await;
    scene.work().await;
    check_missing(&admin.remove_destination(ops, "a").await);
}

/// A start that makes no sense is rejected, and so is a change of the start.
pub async fn a_start_is_checked_and_cannot_be_changed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    for spec in [r#"{"start":"soon"}"#, r#"{"start":7}"#, r#"{"start":""}"#] {
        let created = admin.create_destination(ops, "a", spec, None).await;
        check_invalid(&created, "start");
    }
    let beginning = r#"{"start":"beginning"}"#;
    let created = admin.create_destination(ops, "a", beginning, None).await;
    let created = created.must();
    let change = async |spec: &str| -> Result<(), AdminError> {
        let changed = admin.change_destination(ops, "a", created.version, spec, None);
        changed.await.map(drop)
    };
    for spec in ["{}", r#"{"start":"now"}"#, r#"{"start":"soon"}"#] {
        check_invalid(&change(spec).await, "start");
    }
    let same = r#"{"start":"beginning","note":"other"}"#;
    change(same).await.must();
}

/// Opens a partition and requires that it receives all events but the first `skipped`.
async fn check_starts<S: AdminUnderTest>(scene: &Scene<S>, partition: &str, skipped: usize) {
    let opened = scene.fixture.open(partition).await;
    let frontier = opened.checkpoint.frontier;
    let (received, _) = scene.fixture.events_beyond(frontier).await;
    let (all, _) = scene.fixture.events_beyond(Frontier::default()).await;
    assert_eq!(received, all[skipped..], "{partition}");
}
