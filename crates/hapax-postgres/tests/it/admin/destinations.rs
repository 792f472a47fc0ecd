//! Changes of destinations, as relays read them.

use hapax::admin::{DestinationAdmin as _, DestinationChanges as _};

use super::scene::Scene;

const SPEC: &str = r#"{"sink":{"webhook":{"url":"https://example.com/"}}}"#;

#[tokio::test]
async fn a_reader_of_changes_misses_none_that_commits_late() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    store
        .create_destination(ops, "a", SPEC, None)
        .await
        .unwrap();
    let seen = store.changes(0).await.unwrap();
    assert_eq!(seen.len(), 1);
    let seen = seen[0].version;
    assert!(store.changes(seen).await.unwrap().is_empty());

    // One change has drawn its version and has not committed; the next change waits for it.
    let mut slow = scene.fixture.database.client().await;
    let late = slow.transaction().await.unwrap();
    let hold = include_str!("../../../queries/admin/hold_declarations.sql");
    late.query(hold, &[]).await.unwrap();
    late.query(
        include_str!("../../../queries/admin/pause.sql"),
        &[&"a", &"slow"],
    )
    .await
    .unwrap();
    let next = {
        let (store, ops) = (store.clone(), ops.clone());
        tokio::spawn(async move { store.create_destination(&ops, "b", SPEC, None).await })
    };
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    hapax_testkit::wait::eventually(crate::fixture::PATIENCE, async || {
        scene.fixture.count(waits).await == 1
    })
    .await;
    assert!(store.changes(seen).await.unwrap().is_empty());
    late.commit().await.unwrap();
    next.await.unwrap().unwrap();
    let names: Vec<_> = store
        .changes(seen)
        .await
        .unwrap()
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn a_reader_of_changes_learns_that_a_name_is_free_again() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    let created = store.create_destination(ops, "a", SPEC, None).await;
    created.unwrap();
    store.remove_destination(ops, "a").await.unwrap();
    scene.hurry().await;
    scene.work().await;
    let changes = store.changes(0).await.unwrap();
    assert!(changes[0].purged_at.is_some());
}
