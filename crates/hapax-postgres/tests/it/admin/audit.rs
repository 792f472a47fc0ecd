//! The audit log of operators' actions.

use hapax::admin::DestinationAdmin as _;

use super::scene::Scene;

#[tokio::test]
async fn the_audit_log_cannot_be_rewritten() {
    let scene = Scene::new().await;
    let created = scene
        .store()
        .create_destination(&scene.ops, "one", "{}", None)
        .await;
    created.unwrap();
    for rewriting in [
        "UPDATE hapax.audit_log SET actor = 'nobody'",
        "DELETE FROM hapax.audit_log",
        "TRUNCATE hapax.audit_log",
    ] {
        let outcome = scene.fixture.plain.batch_execute(rewriting).await;
        assert!(outcome.is_err(), "{rewriting}");
    }
}
