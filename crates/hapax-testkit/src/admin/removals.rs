//! Conformance tests of the removal of destinations.

use hapax::{
    admin::{EventFilter, JobOptions, JobStep},
    store::{Partitions, Settlements, StoreError},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_missing},
    destinations::listed,
    scene::{HOUR, LEASE, Scene},
};
use crate::store::steps::settlement;

const SPEC: &str = "{}";

/// A removed destination is deleted by a job: its partitions, deliveries and dead letters. Then its
/// name is free.
pub async fn a_removed_destination_is_deleted_and_its_name_is_free_again<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let at = scene.emit("order.created", None, 3).await;
    let spec = r#"{"partitions":2}"#;
    admin
        .create_destination(ops, "a", spec, Some(b"x"))
        .await
        .must();
    for partition in ["a/0", "a/1", "ab", "other"] {
        scene.pass(partition, &at[..1]).await;
    }
    let job = admin.remove_destination(ops, "a").await.must();
    assert_eq!(
        (job.state.as_str(), job.destination.as_str()),
        ("waiting", "a")
    );
    assert_eq!(admin.remove_destination(ops, "a").await.must().id, job.id);
    let known = admin.declaration(ops, "a").await.must();
    assert!(known.removed_at.is_some() && known.sealed.is_none());
    check_missing(&admin.pause_destination(ops, "a").await);
    check_missing(&admin.resume_destination(ops, "a").await);
    let changed = admin
        .change_destination(ops, "a", known.version, spec, None)
        .await;
    check_missing(&changed);
    check_conflict(&admin.create_destination(ops, "a", SPEC, None).await);
    check_conflict(&admin.cancel_job(ops, job.id).await);
    let opened = scene.store().take("a/2", "n1", LEASE).await;
    assert!(opened.is_err(), "a relay opens a removed destination");
    scene.advance(HOUR).await;
    scene.work().await;
    assert!(admin.partitions(Some("a")).await.must().is_empty());
    for partition in ["a/0", "a/1"] {
        assert!(scene.states(partition).await.is_empty());
        assert_eq!(scene.fixture.backlog(partition).await.newest, None);
    }
    for partition in ["ab", "other"] {
        assert_eq!(scene.states(partition).await.len(), 1);
    }
    let job = admin.job(ops, job.id).await.must();
    assert_eq!((job.state.as_str(), job.done), ("done", 2));
    assert!(listed(&scene, ops, 10).await.is_empty());
    check_missing(&admin.declaration(ops, "a").await);
    check_missing(&admin.remove_destination(ops, "a").await);
    let anew = admin.create_destination(ops, "a", SPEC, None).await.must();
    assert!(anew.removed_at.is_none() && anew.version > known.version);
    let again = admin.remove_destination(ops, "a").await.must();
    assert_ne!(again.id, job.id);
}

/// Relays have some time to notice a removal before rows are deleted.
pub async fn a_removal_waits_until_relays_know_of_it<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let removed = scene.admin.remove_destination(&scene.ops, "a").await;
    removed.must();
    assert_eq!(scene.admin.run_job().await.must(), JobStep::Nothing);
    scene.advance(HOUR).await;
    assert_ne!(scene.admin.run_job().await.must(), JobStep::Nothing);
}

/// An owner from before a removal is fenced by those of the destination that is created again.
pub async fn an_owner_from_before_a_removal_is_fenced<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops, store) = (&scene.admin, &scene.ops, scene.store());
    let mut before = Vec::new();
    for owners in [["one", "one"], ["two", "two"], ["two", "two"]] {
        admin.create_destination(ops, "a", SPEC, None).await.must();
        for node in owners {
            let taken = store.take("a", node, LEASE).await.must();
            let epoch = taken.expect("it is free").epoch;
            for old in &before {
                let late = store.settle(settlement("a", *old)).await;
                assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
                let late = store.give_up("a", *old).await;
                assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
            }
            before.push(epoch);
        }
        admin.remove_destination(ops, "a").await.must();
        scene.advance(HOUR).await;
        scene.work().await;
    }
    assert!(before.is_sorted_by(|one, next| one < next), "{before:?}");
}

/// A destination of a configuration file, which a relay has opened, is paused and removed like one
/// that is declared in the database.
pub async fn a_destination_of_a_configuration_file_is_paused_and_removed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    scene.pass("filed", &[]).await;
    check_missing(&admin.declaration(ops, "filed").await);
    assert!(admin.pause_destination(ops, "filed").await.must());
    let known = admin.declaration(ops, "filed").await.must();
    assert!(known.spec.is_none() && known.paused_at.is_some());
    let changed = admin.change_destination(ops, "filed", known.version, SPEC, None);
    check_conflict(&changed.await);
    // If it is declared here, too, it stays paused.
    let declared = admin.create_destination(ops, "filed", SPEC, None).await;
    assert!(declared.must().paused_at.is_some());
    admin.remove_destination(ops, "filed").await.must();
    scene.advance(HOUR).await;
    scene.work().await;
    assert!(admin.partitions(None).await.must().is_empty());
}

/// No job starts at a destination whose rows were deleted.
pub async fn no_job_starts_at_a_removed_destination<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let removed = scene.admin.remove_destination(&scene.ops, "a").await;
    removed.must();
    scene.advance(HOUR).await;
    scene.work().await;
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let job = scene
        .admin
        .start_dead_letter_job(&scene.ops, "a", &all, None, &options);
    check_missing(&job.await);
    let job = scene
        .admin
        .start_event_job(&scene.ops, "a", &all, None, &options);
    check_missing(&job.await);
}
