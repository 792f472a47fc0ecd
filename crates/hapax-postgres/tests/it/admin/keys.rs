//! Keys that are locked, restored, or failed.

use hapax::{
    admin::{Actor, AdminError, KeyAdmin as _, KeyFilter, KeyState},
    mask::Mask,
    store::{Effect, KeyMaintenance as _, Transaction as _},
};
use hapax_postgres::Postgres;
use hapax_testkit::events::{claim, claim_of, response, scope};

use super::scene::Scene;

#[tokio::test]
async fn a_key_is_not_purged_while_a_transaction_runs_under_it() {
    let scene = Scene::new().await;
    let store = scene.store();
    complete(&scene, "alice", "k").await;
    // A transaction claims an expired key, and holds no lock on its row.
    let expire = "UPDATE hapax.idempotency_key SET expires_at = now() WHERE key = 'k'";
    scene.fixture.plain.batch_execute(expire).await.unwrap();
    let tx = scene.fixture.claim(claim("k")).await;
    let outcome = purge(store, &scene.ops, None, "k", "why").await;
    assert!(
        matches!(&outcome, Err(AdminError::Conflict { what }) if what.ends_with("is in progress")),
        "{outcome:?}"
    );
    tx.rollback().await;
    purge(store, &scene.ops, None, "k", "why").await.unwrap();
    // Neither operation leaves a transaction or a lock behind.
    scene.fixture.idle().await;
}

/// A restored database has another history of purges, or a smaller count, so cached responses are
/// all invalid.
#[tokio::test]
async fn purges_of_another_history_are_not_mistaken_for_those_of_this_one() {
    let scene = Scene::new().await;
    let store = scene.store();
    for key in ["k", "l"] {
        complete(&scene, "alice", key).await;
        purge(store, &scene.ops, None, key, "why").await.unwrap();
    }
    let now = store.purged(None).await.unwrap().until;
    assert_eq!(now.number, 2);
    let restored = "UPDATE hapax.purge_count SET number = 1;
        DELETE FROM hapax.key_purge WHERE number = 2";
    scene.fixture.plain.batch_execute(restored).await.unwrap();
    assert_eq!(store.purged(Some(&now)).await.unwrap().keys, None);
    // The other history has the same count, of purges that this node does not know.
    let mut elsewhere = store.purged(None).await.unwrap().until;
    elsewhere.history.push('x');
    assert_eq!(store.purged(Some(&elsewhere)).await.unwrap().keys, None);
}

#[tokio::test]
async fn keys_of_failed_requests_are_listed_by_their_state() {
    let scene = Scene::new().await;
    for key in ["k", "l"] {
        complete(&scene, "alice", key).await;
    }
    let fail = "UPDATE hapax.idempotency_key SET state = 'failed' WHERE key = 'k'";
    scene.fixture.plain.batch_execute(fail).await.unwrap();
    let failed = KeyFilter {
        state: Some(KeyState::Failed),
        ..KeyFilter::default()
    };
    let found = scene.store().keys(&scene.ops, &failed, None, 10).await;
    let found = found.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key, "k");
}

#[tokio::test]
async fn a_phased_key_of_a_sql_caller_shows_its_owner_and_the_masked_data_of_its_phase() {
    const ENTER: &str = "SELECT hapax.enter('alice', 'POST /orders', 'k', sha256('x'::bytea),
        owner => 'worker-7')";
    const PHASE: &str = r#"SELECT hapax.phase('alice', 'POST /orders', 'k', 1, 'charged',
        '{"charge": "ch_1", "card_number": "4242"}')"#;
    let scene = Scene::new().await;
    scene.fixture.run(ENTER).await;
    let look = async || {
        let found = scene.store().key(&scene.ops, None, "POST /orders", "k");
        let mut found = found.await.unwrap();
        found.mask(&Mask::default());
        found
    };
    let entered = look().await;
    assert_eq!(entered.owner.as_deref(), Some("worker-7"));
    assert_eq!(entered.recovery_data, None);
    scene.fixture.run(PHASE).await;
    let data = look().await.recovery_data.unwrap();
    assert_eq!(data.content_type.as_deref(), Some("application/json"));
    let text = data.text.unwrap();
    assert!(text.contains("ch_1") && !text.contains("4242"), "{text}");
    let finish = "SELECT hapax.finish('alice', 'POST /orders', 'k', 1, 201)";
    scene.fixture.run(finish).await;
    let finished = look().await;
    assert_eq!((finished.owner, finished.recovery_data), (None, None));
}

/// Reads a key, and purges the version that it read.
async fn purge(
    store: &Postgres,
    actor: &Actor,
    tenant: Option<&str>,
    key: &str,
    reason: &str,
) -> Result<(), AdminError> {
    let operation = "POST /orders";
    let found = store.key(actor, tenant, operation, key).await?;
    let version = &found.version;
    store
        .purge_key(actor, tenant, operation, key, version, reason)
        .await
}

async fn complete(scene: &Scene, tenant: &str, key: &str) {
    let claim = claim_of(scope(tenant, "POST /orders", key));
    let tx = scene.fixture.claim(claim).await;
    tx.complete(&response("{\"id\":1}"), Effect::Keep)
        .await
        .unwrap();
}
