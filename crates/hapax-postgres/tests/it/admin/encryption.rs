//! Encrypted payloads of dead letters that are edited.

use hapax::{
    admin::{Actor, AdminError, DeliveryAdmin as _},
    event::{Headers, NewEvent, Payload},
    key::Tenant,
    store::{Keys as _, Settlements as _, Transaction as _},
};
use hapax_testkit::events::keyring;

use super::scene::Scene;
use crate::fixture::Fixture;

#[tokio::test]
async fn an_encrypted_payload_stays_encrypted_when_it_is_edited() {
    let written = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    let ops = Actor::new("ops");
    let mut scene = Scene {
        fixture: written,
        ops,
    };
    let at = addressed(&scene, "wrong").await;
    scene.pass("a", &[at]).await;
    let database = scene.fixture.database.clone();
    scene.fixture = Fixture::on(database, |it| it.keyring = keyring(&[1]).reading()).await;
    let (store, ops) = (scene.store(), &scene.ops);
    let patch = r#"{"to":"nobody else"}"#;
    store.edit_dead_letter(ops, "a", at, patch).await.unwrap();
    let offered = r#"{"amount":12.50,"card":"4242","to":"nobody else"}"#;
    assert_eq!(due(&scene, "a").await, [offered]);
    let plain = "SELECT count(*) FROM hapax.delivery WHERE payload IS NOT NULL
        AND strpos(payload, 'nobody') = 0 AND strpos(headers, 'hapax-encrypted-under') > 0";
    assert_eq!(scene.fixture.count(plain).await, 1);
    // An operator on a node without the encryption key cannot edit the payload.
    scene.pass("a", &[at]).await;
    let database = scene.fixture.database.clone();
    scene.fixture = Fixture::on(database, |it| it.keyring = keyring(&[2])).await;
    let outcome = scene
        .store()
        .edit_dead_letter(&scene.ops, "a", at, patch)
        .await;
    assert!(
        matches!(outcome, Err(AdminError::Conflict { .. })),
        "{outcome:?}"
    );
}

const ADDRESSED: &str = r#"{"to":"wrong","card":"4242","amount":12.50}"#;

/// Emits an event of a tenant with an address in its payload; returns its position.
async fn addressed(scene: &Scene, to: &str) -> i64 {
    let tenant = Tenant::new("a").ok();
    let mut tx = scene.store().begin(tenant, Headers::new()).await.unwrap();
    let payload = ADDRESSED.replace("wrong", to);
    let event = NewEvent::new("mail.asked", Payload::Json(payload));
    tx.emit(event).unwrap();
    tx.commit().await.unwrap();
    *scene.positions().await.last().unwrap()
}

/// The payloads that are due at a partition.
async fn due(scene: &Scene, partition: &str) -> Vec<String> {
    let due = scene.store().due(partition, &[], 10, 0).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    due.iter()
        .map(|it| text(it.event.event.payload.bytes()))
        .collect()
}
