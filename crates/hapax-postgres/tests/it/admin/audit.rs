//! The audit log of operators' actions.

use hapax::{
    admin::{Actor, AuditAdmin as _, AuditFilter, DestinationAdmin as _},
    key::Tenant,
};

use super::scene::Scene;

#[tokio::test]
async fn the_log_is_listed_by_who_and_what_and_nobody_rewrites_it() {
    let scene = Scene::new().await;
    let store = scene.store();
    let alice = Actor::new("alice").of(Tenant::new("a").unwrap());
    let spec = r#"{"tenant":"a"}"#;
    store
        .create_destination(&scene.ops, "one", "{}", None)
        .await
        .unwrap();
    store
        .create_destination(&alice, "two", spec, None)
        .await
        .unwrap();
    store.pause_destination(&scene.ops, "two").await.unwrap();
    let all = AuditFilter::default();
    let page = store.audit_log(&scene.ops, &all, None, 2).await.unwrap();
    assert_eq!(page.items.len(), 2);
    let rest = store
        .audit_log(&scene.ops, &all, page.next.as_deref(), 2)
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    let hers = store.audit_log(&alice, &all, None, 10).await.unwrap();
    assert_eq!(hers.items.len(), 1);
    assert_eq!(hers.items[0].object, "destination two");
    let acts = AuditFilter {
        action: Some("pause".to_owned()),
        ..AuditFilter::default()
    };
    let pauses = store.audit_log(&scene.ops, &acts, None, 10).await.unwrap();
    assert_eq!(pauses.items[0].actor, "ops");
    for rewriting in [
        "UPDATE hapax.audit_log SET actor = 'nobody'",
        "DELETE FROM hapax.audit_log",
        "TRUNCATE hapax.audit_log",
    ] {
        let outcome = scene.fixture.plain.batch_execute(rewriting).await;
        assert!(outcome.is_err(), "{rewriting}");
    }
}

#[tokio::test]
async fn an_act_that_is_rolled_back_leaves_no_line() {
    let scene = Scene::new().await;
    let spoil = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'no'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON hapax.declaration
        FOR EACH ROW EXECUTE FUNCTION refuse()";
    scene.fixture.plain.batch_execute(spoil).await.unwrap();
    assert!(
        scene
            .store()
            .create_destination(&scene.ops, "a", "{}", None)
            .await
            .is_err()
    );
    assert!(scene.acts().await.is_empty());
    let full = "ALTER TABLE hapax.audit_log ADD CHECK (actor <> 'ops') NOT VALID;
        DROP TRIGGER refuse ON hapax.declaration";
    scene.fixture.plain.batch_execute(full).await.unwrap();
    // If the line of an action cannot be written to the log, the action is not performed.
    assert!(
        scene
            .store()
            .create_destination(&scene.ops, "a", "{}", None)
            .await
            .is_err()
    );
    assert_eq!(
        scene
            .fixture
            .count("SELECT count(*) FROM hapax.declaration")
            .await,
        0
    );
}
