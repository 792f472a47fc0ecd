//! Destinations that are declared at run time.

use std::time::Duration;

use hapax::{
    delivery::Settlement,
    key::Tenant,
    store::{Partitions as _, Settlements as _, StoreError},
};
use hapax_postgres::admin::{Actor, AdminError, destinations, jobs};

use super::scene::Scene;

const SPEC: &str = r#"{"sink":{"webhook":{"url":"https://example.com/"}}}"#;

#[tokio::test]
async fn a_destination_is_created_changed_paused_resumed_and_listed() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    let created = destinations::create(store, ops, "orders", SPEC, Some(b"sealed"))
        .await
        .unwrap();
    assert_eq!(created.spec.as_deref(), Some(SPEC));
    assert_eq!(created.sealed.as_deref(), Some(&b"sealed"[..]));
    let changed = destinations::change(store, ops, "orders", created.version, "{}", None).await;
    let changed = changed.unwrap();
    assert!(changed.version > created.version);
    assert_eq!(changed.sealed, None);

    assert!(destinations::pause(store, ops, "orders").await.unwrap());
    assert!(!destinations::pause(store, ops, "orders").await.unwrap());
    let paused = destinations::get(store, ops, "orders").await.unwrap();
    assert_eq!(paused.paused_by.as_deref(), Some("ops"));
    assert!(paused.version > changed.version);
    assert!(destinations::resume(store, ops, "orders").await.unwrap());
    assert!(!destinations::resume(store, ops, "orders").await.unwrap());

    destinations::create(store, ops, "billing", SPEC, None)
        .await
        .unwrap();
    let page = destinations::list(store, ops, None, 1).await.unwrap();
    assert_eq!(
        (page.items[0].name.as_str(), page.next.as_deref()),
        ("billing", Some("billing"))
    );
    let page = destinations::list(store, ops, page.next.as_deref(), 0)
        .await
        .unwrap();
    assert_eq!(page.items[0].name, "orders");
    scene.pass("listed/1", &[]).await;
    assert!(!destinations::resume(store, ops, "listed").await.unwrap());
    let gone = "UPDATE hapax.destination SET disabled_at = now() WHERE name = 'listed/1'";
    scene.fixture.plain.batch_execute(gone).await.unwrap();
    assert!(destinations::resume(store, ops, "listed").await.unwrap());
    let resumed = destinations::get(store, ops, "listed").await.unwrap();
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
        let refused = destinations::create(store, ops, name, SPEC, None).await;
        check_invalid(&refused, "name");
    }
    for spec in ["", "7", "[]", "{"] {
        check_invalid(
            &destinations::create(store, ops, "a", spec, None).await,
            "spec",
        );
    }
    let created = destinations::create(store, ops, "a", r#"{"partitions":4}"#, None)
        .await
        .unwrap();
    let split = destinations::change(
        store,
        ops,
        "a",
        created.version,
        r#"{"partitions":2}"#,
        None,
    );
    check_invalid(&split.await, "partitions");
    let twice = destinations::create(store, ops, "a", SPEC, None).await;
    assert!(
        matches!(twice, Err(AdminError::Conflict { .. })),
        "{twice:?}"
    );
    for unknown in [
        destinations::pause(store, ops, "nobody").await.map(drop),
        destinations::remove(store, ops, "nobody").await.map(drop),
        destinations::get(store, ops, "nobody").await.map(drop),
        destinations::change(store, ops, "nobody", 1, SPEC, None)
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
    let created = destinations::create(store, ops, "a", SPEC, None)
        .await
        .unwrap();
    let other = Actor::new("other");
    let (one, two) = tokio::join!(
        destinations::change(store, ops, "a", created.version, r#"{"by":"ops"}"#, None),
        destinations::change(
            store,
            &other,
            "a",
            created.version,
            r#"{"by":"other"}"#,
            None
        ),
    );
    let (won, lost) = if one.is_ok() { (one, two) } else { (two, one) };
    assert!(matches!(lost, Err(AdminError::Conflict { .. })), "{lost:?}");
    let known = destinations::get(store, ops, "a").await.unwrap();
    assert_eq!(known, won.unwrap());
    let creations = tokio::join!(
        destinations::create(store, ops, "b", SPEC, None),
        destinations::create(store, &other, "b", SPEC, None),
    );
    assert!(creations.0.is_ok() != creations.1.is_ok(), "{creations:?}");
}

#[tokio::test]
async fn who_asks_for_changes_misses_none_that_commits_late() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    destinations::create(store, ops, "a", SPEC, None)
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
        tokio::spawn(async move { destinations::create(&store, &ops, "b", SPEC, None).await })
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
    destinations::create(store, ops, "a", r#"{"partitions":2}"#, None)
        .await
        .unwrap();
    let events = scene.events().await;
    for partition in ["a/0", "a/1", "other"] {
        scene.pass(partition, &[events[0].position]).await;
    }
    let job = destinations::remove(store, ops, "a").await.unwrap();
    assert_eq!(
        destinations::remove(store, ops, "a").await.unwrap().id,
        job.id
    );
    let known = destinations::get(store, ops, "a").await.unwrap();
    assert!(known.removed_at.is_some());
    let refused = destinations::pause(store, ops, "a").await;
    assert!(
        matches!(refused, Err(AdminError::NotFound { .. })),
        "{refused:?}"
    );
    let early = destinations::create(store, ops, "a", SPEC, None).await;
    assert!(
        matches!(early, Err(AdminError::Conflict { .. })),
        "{early:?}"
    );
    // Relays have some time to notice the removal; no relay can open the destination again.
    assert_eq!(jobs::run_one(store).await.unwrap(), jobs::Ran::Nothing);
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
    let job = jobs::get(store, ops, job.id).await.unwrap();
    assert_eq!((job.state.as_str(), job.done), ("done", 2));
    assert!(
        destinations::list(store, ops, None, 10)
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(store.changes(0).await.unwrap()[0].purged_at.is_some());

    let anew = destinations::create(store, ops, "a", SPEC, None)
        .await
        .unwrap();
    assert!(anew.removed_at.is_none());
    assert_eq!(store.open("a").await.unwrap().epoch, 1);
    let again = destinations::remove(store, ops, "a").await.unwrap();
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
        destinations::create(store, ops, "a", SPEC, None)
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
        destinations::remove(store, ops, "a").await.unwrap();
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
    destinations::create(store, ops, "a", SPEC, None)
        .await
        .unwrap();
    scene.pass("a", &[scene.events().await[0].position]).await;
    let job = destinations::remove(store, ops, "a").await.unwrap();
    let refuse = "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'nothing is deleted here'; END $$;
        CREATE TRIGGER stays BEFORE DELETE ON hapax.delivery EXECUTE FUNCTION stay()";
    scene.fixture.plain.batch_execute(refuse).await.unwrap();
    for _ in 0..10 {
        scene.hurry().await;
        let ran = jobs::run_one(store).await.unwrap();
        assert_eq!(ran, jobs::Ran::Failed { job: job.id });
    }
    let failed = jobs::get(store, ops, job.id).await.unwrap();
    assert_eq!((failed.state.as_str(), failed.failures), ("failed", 10));

    let mend = "DROP TRIGGER stays ON hapax.delivery";
    scene.fixture.plain.batch_execute(mend).await.unwrap();
    let hers = Actor::new("alice").of(Tenant::new("a").unwrap());
    assert!(destinations::remove(store, &hers, "a").await.is_err());
    let (one, two) = tokio::join!(
        destinations::remove(store, ops, "a"),
        destinations::remove(store, ops, "a"),
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
    let ended = jobs::get(store, ops, job.id).await.unwrap();
    assert_eq!((ended.state.as_str(), ended.done), ("done", 1));
    assert!(scene.states("a").await.is_empty());
    destinations::create(store, ops, "a", SPEC, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_destination_of_a_configuration_file_is_paused_and_removed_like_any() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    scene.pass("filed", &[]).await;
    assert!(destinations::pause(store, ops, "filed").await.unwrap());
    let known = destinations::get(store, ops, "filed").await.unwrap();
    assert!(known.spec.is_none() && known.paused_at.is_some());
    let refused = destinations::change(store, ops, "filed", known.version, SPEC, None).await;
    assert!(
        matches!(refused, Err(AdminError::Conflict { .. })),
        "{refused:?}"
    );
    // If the destination is also declared here, it stays paused.
    let declared = destinations::create(store, ops, "filed", SPEC, None)
        .await
        .unwrap();
    assert!(declared.paused_at.is_some());
    destinations::remove(store, ops, "filed").await.unwrap();
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
    destinations::create(store, ops, "all", SPEC, None)
        .await
        .unwrap();
    let created = destinations::create(store, ops, "of-b", r#"{"tenant":"b"}"#, None)
        .await
        .unwrap();
    for spec in [SPEC, r#"{"tenant":"b"}"#] {
        check_invalid(
            &destinations::create(store, &hers, "mine", spec, None).await,
            "tenant",
        );
    }
    destinations::create(store, &hers, "mine", r#"{"tenant":"a"}"#, None)
        .await
        .unwrap();
    let page = destinations::list(store, &hers, None, 10).await.unwrap();
    assert_eq!(
        page.items
            .iter()
            .map(|it| it.name.as_str())
            .collect::<Vec<_>>(),
        ["mine"]
    );
    let stolen = r#"{"tenant":"a"}"#;
    for refused in [
        destinations::get(store, &hers, "of-b").await.map(drop),
        destinations::pause(store, &hers, "all").await.map(drop),
        destinations::remove(store, &hers, "of-b").await.map(drop),
        destinations::change(store, &hers, "of-b", created.version, stolen, None)
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
