//! Destinations that are declared at run time.

use std::time::Duration;

use hapax::{
    admin::{
        Actor, AdminError, DestinationAdmin as _, DestinationChanges as _, JobAdmin as _, Ran,
    },
    delivery::Settlement,
    key::Tenant,
    store::{Partitions as _, Settlements as _, StoreError},
};

use super::scene::Scene;

const SPEC: &str = r#"{"sink":{"webhook":{"url":"https://example.com/"}}}"#;

#[tokio::test]
async fn a_destination_is_created_changed_paused_resumed_and_listed() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    let created = store
        .create_destination(ops, "orders", SPEC, Some(b"sealed"))
        .await
        .unwrap();
    assert_eq!(created.spec.as_deref(), Some(SPEC));
    assert_eq!(created.sealed.as_deref(), Some(&b"sealed"[..]));
    let changed = store
        .change_destination(ops, "orders", created.version, "{}", None)
        .await;
    let changed = changed.unwrap();
    assert!(changed.version > created.version);
    assert_eq!(changed.sealed, None);

    assert!(store.pause_destination(ops, "orders").await.unwrap());
    assert!(!store.pause_destination(ops, "orders").await.unwrap());
    let paused = store.declaration(ops, "orders").await.unwrap();
    assert_eq!(paused.paused_by.as_deref(), Some("ops"));
    assert!(paused.version > changed.version);
    assert!(store.resume_destination(ops, "orders").await.unwrap());
    assert!(!store.resume_destination(ops, "orders").await.unwrap());

    store
        .create_destination(ops, "billing", SPEC, None)
        .await
        .unwrap();
    let page = store.declarations(ops, None, 1).await.unwrap();
    assert_eq!(
        (page.items[0].name.as_str(), page.next.as_deref()),
        ("billing", Some("billing"))
    );
    let page = store
        .declarations(ops, page.next.as_deref(), 0)
        .await
        .unwrap();
    assert_eq!(page.items[0].name, "orders");
    scene.pass("listed/1", &[]).await;
    assert!(!store.resume_destination(ops, "listed").await.unwrap());
    let gone = "UPDATE hapax.destination SET disabled_at = now() WHERE name = 'listed/1'";
    scene.fixture.plain.batch_execute(gone).await.unwrap();
    assert!(store.resume_destination(ops, "listed").await.unwrap());
    let resumed = store.declaration(ops, "listed").await.unwrap();
    assert!(resumed.version > paused.version && resumed.paused_at.is_none());

    let done = |action: &str| (action.to_owned(), "done".to_owned());
    let nothing = |action: &str| (action.to_owned(), "nothing".to_owned());
    let acts = [
        done("create"),
        done("change"),
        done("pause"),
        nothing("pause"),
        done("resume"),
        nothing("resume"),
        done("create"),
        nothing("resume"),
        done("resume"),
    ];
    assert_eq!(scene.acts().await, acts);
}

#[tokio::test]
async fn what_cannot_be_declared_is_refused() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    for name in ["", "a/b", "a\0b", &"a".repeat(256)] {
        let refused = store.create_destination(ops, name, SPEC, None).await;
        check_invalid(&refused, "name");
    }
    for spec in ["", "7", "[]", "{"] {
        check_invalid(
            &store.create_destination(ops, "a", spec, None).await,
            "spec",
        );
    }
    let created = store
        .create_destination(ops, "a", r#"{"partitions":4}"#, None)
        .await
        .unwrap();
    let split = store.change_destination(ops, "a", created.version, r#"{"partitions":2}"#, None);
    check_invalid(&split.await, "partitions");
    let twice = store.create_destination(ops, "a", SPEC, None).await;
    assert!(
        matches!(twice, Err(AdminError::Conflict { .. })),
        "{twice:?}"
    );
    for unknown in [
        store.pause_destination(ops, "nobody").await.map(drop),
        store.remove_destination(ops, "nobody").await.map(drop),
        store.declaration(ops, "nobody").await.map(drop),
        store
            .change_destination(ops, "nobody", 1, SPEC, None)
            .await
            .map(drop),
    ] {
        assert!(
            matches!(unknown, Err(AdminError::NotFound { .. })),
            "{unknown:?}"
        );
    }
    // Actions rejected because of the destination's state are in the log; invalid input is not.
    assert_eq!(
        scene.acts().await[1],
        ("create".to_owned(), "refused".to_owned())
    );
}

#[tokio::test]
async fn of_two_operators_who_change_one_version_one_gets_a_conflict() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    let created = store
        .create_destination(ops, "a", SPEC, None)
        .await
        .unwrap();
    let other = Actor::new("other");
    let (one, two) = tokio::join!(
        store.change_destination(ops, "a", created.version, r#"{"by":"ops"}"#, None),
        store.change_destination(&other, "a", created.version, r#"{"by":"other"}"#, None),
    );
    let (won, lost) = if one.is_ok() { (one, two) } else { (two, one) };
    assert!(matches!(lost, Err(AdminError::Conflict { .. })), "{lost:?}");
    let known = store.declaration(ops, "a").await.unwrap();
    assert_eq!(known, won.unwrap());
    let creations = tokio::join!(
        store.create_destination(ops, "b", SPEC, None),
        store.create_destination(&other, "b", SPEC, None),
    );
    assert!(creations.0.is_ok() != creations.1.is_ok(), "{creations:?}");
}

#[tokio::test]
async fn who_asks_for_changes_misses_none_that_commits_late() {
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
    for file in [include_str!("../../../queries/admin/hold_declarations.sql")] {
        late.query(file, &[]).await.unwrap();
    }
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
async fn a_removed_destination_is_taken_apart_and_its_name_is_free_again() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    scene.emit("order.created", None, 3).await;
    store
        .create_destination(ops, "a", r#"{"partitions":2}"#, None)
        .await
        .unwrap();
    let events = scene.events().await;
    for partition in ["a/0", "a/1", "other"] {
        scene.pass(partition, &[events[0].position]).await;
    }
    let job = store.remove_destination(ops, "a").await.unwrap();
    assert_eq!(store.remove_destination(ops, "a").await.unwrap().id, job.id);
    let known = store.declaration(ops, "a").await.unwrap();
    assert!(known.removed_at.is_some());
    let refused = store.pause_destination(ops, "a").await;
    assert!(
        matches!(refused, Err(AdminError::NotFound { .. })),
        "{refused:?}"
    );
    let early = store.create_destination(ops, "a", SPEC, None).await;
    assert!(
        matches!(early, Err(AdminError::Conflict { .. })),
        "{early:?}"
    );
    // Relays have some time to notice the removal; no relay can open the destination again.
    assert_eq!(store.run_job().await.unwrap(), Ran::Nothing);
    assert!(matches!(
        store.open("a/0").await,
        Err(StoreError::Statement { .. })
    ));

    scene.hurry().await;
    scene.work().await;
    for table in [
        "lease WHERE partition",
        "delivery WHERE destination",
        "destination WHERE name",
    ] {
        let sql = format!("SELECT count(*) FROM hapax.{table} LIKE 'a/%'");
        assert_eq!(scene.fixture.count(&sql).await, 0, "{table}");
    }
    assert_eq!(scene.states("other").await.len(), 1);
    let job = store.job(ops, job.id).await.unwrap();
    assert_eq!((job.state.as_str(), job.done), ("done", 2));
    assert!(
        store
            .declarations(ops, None, 10)
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(store.changes(0).await.unwrap()[0].purged_at.is_some());

    let anew = store
        .create_destination(ops, "a", SPEC, None)
        .await
        .unwrap();
    assert!(anew.removed_at.is_none());
    assert_eq!(store.open("a").await.unwrap().epoch, 1);
    let again = store.remove_destination(ops, "a").await.unwrap();
    assert_ne!(again.id, job.id);
}

#[tokio::test]
async fn an_owner_from_before_a_removal_owns_nothing_of_what_is_created_again() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    let lease = Duration::from_secs(20);
    let take = async |node| store.take("a", node, lease).await.unwrap().unwrap().epoch;
    let mut before = Vec::new();
    for owners in [["one", "one"], ["two", "two"], ["two", "two"]] {
        store
            .create_destination(ops, "a", SPEC, None)
            .await
            .unwrap();
        for node in owners {
            let epoch = take(node).await;
            for old in &before {
                let late = Settlement {
                    destination: "a".to_owned(),
                    epoch: *old,
                    ..Settlement::default()
                };
                let settled = store.settle(late).await;
                assert!(matches!(settled, Err(StoreError::Fenced)), "{settled:?}");
                let given_up = store.give_up("a", *old).await;
                assert!(matches!(given_up, Err(StoreError::Fenced)), "{given_up:?}");
            }
            before.push(epoch);
        }
        store.remove_destination(ops, "a").await.unwrap();
        scene.hurry().await;
        scene.work().await;
    }
    assert_eq!(before, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_removal_that_was_given_up_goes_on_when_it_is_asked_for_again() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    scene.emit("order.created", None, 1).await;
    store
        .create_destination(ops, "a", SPEC, None)
        .await
        .unwrap();
    scene.pass("a", &[scene.events().await[0].position]).await;
    let job = store.remove_destination(ops, "a").await.unwrap();
    let refuse = "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'nothing is deleted here'; END $$;
        CREATE TRIGGER stays BEFORE DELETE ON hapax.delivery EXECUTE FUNCTION stay()";
    scene.fixture.plain.batch_execute(refuse).await.unwrap();
    for _ in 0..10 {
        scene.hurry().await;
        let ran = store.run_job().await.unwrap();
        assert_eq!(ran, Ran::Failed { job: job.id });
    }
    let failed = store.job(ops, job.id).await.unwrap();
    assert_eq!((failed.state.as_str(), failed.failures), ("failed", 10));

    let mend = "DROP TRIGGER stays ON hapax.delivery";
    scene.fixture.plain.batch_execute(mend).await.unwrap();
    let hers = Actor::new("alice").of(Tenant::new("a").unwrap());
    assert!(store.remove_destination(&hers, "a").await.is_err());
    let (one, two) = tokio::join!(
        store.remove_destination(ops, "a"),
        store.remove_destination(ops, "a"),
    );
    for again in [one.unwrap(), two.unwrap()] {
        assert_eq!((again.id, again.state.as_str()), (job.id, "waiting"));
        assert_eq!(
            (again.failures, again.error, again.ended_at),
            (0, None, None)
        );
    }
    let done = |action: &str| (action.to_owned(), "done".to_owned());
    let acts = [done("create"), done("remove"), done("remove")];
    assert_eq!(scene.acts().await, acts);
    scene.work().await;
    let ended = store.job(ops, job.id).await.unwrap();
    assert_eq!((ended.state.as_str(), ended.done), ("done", 1));
    assert!(scene.states("a").await.is_empty());
    store
        .create_destination(ops, "a", SPEC, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_destination_of_a_configuration_file_is_paused_and_removed_like_any() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    scene.pass("filed", &[]).await;
    assert!(store.pause_destination(ops, "filed").await.unwrap());
    let known = store.declaration(ops, "filed").await.unwrap();
    assert!(known.spec.is_none() && known.paused_at.is_some());
    let refused = store
        .change_destination(ops, "filed", known.version, SPEC, None)
        .await;
    assert!(
        matches!(refused, Err(AdminError::Conflict { .. })),
        "{refused:?}"
    );
    // If the destination is also declared here, it stays paused.
    let declared = store
        .create_destination(ops, "filed", SPEC, None)
        .await
        .unwrap();
    assert!(declared.paused_at.is_some());
    store.remove_destination(ops, "filed").await.unwrap();
    scene.hurry().await;
    scene.work().await;
    assert_eq!(
        scene
            .fixture
            .count("SELECT count(*) FROM hapax.destination")
            .await,
        0
    );
}

#[tokio::test]
async fn an_operator_of_a_tenant_sees_and_touches_that_tenants_destinations_alone() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    let hers = Actor::new("alice").of(Tenant::new("a").unwrap());
    store
        .create_destination(ops, "all", SPEC, None)
        .await
        .unwrap();
    let created = store
        .create_destination(ops, "of-b", r#"{"tenant":"b"}"#, None)
        .await
        .unwrap();
    for spec in [SPEC, r#"{"tenant":"b"}"#] {
        check_invalid(
            &store.create_destination(&hers, "mine", spec, None).await,
            "tenant",
        );
    }
    store
        .create_destination(&hers, "mine", r#"{"tenant":"a"}"#, None)
        .await
        .unwrap();
    let page = store.declarations(&hers, None, 10).await.unwrap();
    assert_eq!(
        page.items
            .iter()
            .map(|it| it.name.as_str())
            .collect::<Vec<_>>(),
        ["mine"]
    );
    let stolen = r#"{"tenant":"a"}"#;
    for refused in [
        store.declaration(&hers, "of-b").await.map(drop),
        store.pause_destination(&hers, "all").await.map(drop),
        store.remove_destination(&hers, "of-b").await.map(drop),
        store
            .change_destination(&hers, "of-b", created.version, stolen, None)
            .await
            .map(drop),
    ] {
        assert!(
            matches!(refused, Err(AdminError::NotFound { .. })),
            "{refused:?}"
        );
    }
}

#[track_caller]
fn check_invalid<R: std::fmt::Debug>(outcome: &Result<R, AdminError>, expected: &str) {
    assert!(
        matches!(outcome, Err(AdminError::Invalid { field, .. }) if *field == expected),
        "{outcome:?}"
    );
}
