//! The list of deliveries, and replaying, editing or discarding single dead letters.

use hapax::{
    admin::{
        Actor, AdminError, Delivery, DeliveryAdmin as _, DeliveryFilter, DeliveryStatus,
        EventAdmin as _, EventFilter,
    },
    delivery::ParkedState,
    event::{Headers, NewEvent, Payload},
    key::Tenant,
    store::{DeadLetters as _, Keys as _, Settlements as _, Transaction as _},
};
use hapax_testkit::events::keyring;

use super::scene::{Scene, park};
use crate::fixture::Fixture;

#[tokio::test]
async fn deliveries_are_listed_by_a_filter_in_pages() {
    let scene = parked_in_three_partitions().await;
    let count =
        async |filter: &EventFilter, destination: Option<&str>, states: &[DeliveryStatus]| {
            let found = pages(&scene, &scene.ops, filter, destination, states).await;
            found.len()
        };
    let all = EventFilter::default();
    assert_eq!(count(&all, None, &[]).await, 9);
    assert_eq!(count(&all, Some("a"), &[]).await, 6);
    assert_eq!(count(&all, Some("b"), &[DeliveryStatus::Dead]).await, 1);
    let parked = [DeliveryStatus::Retrying, DeliveryStatus::Scheduled];
    assert_eq!(count(&all, None, &parked).await, 6);
    let mail = EventFilter {
        kind: Some("mail.*".to_owned()),
        ..EventFilter::default()
    };
    assert_eq!(count(&mail, None, &[]).await, 3);
    let tried = EventFilter {
        attempts_min: 4,
        ..EventFilter::default()
    };
    assert_eq!(count(&tried, None, &[]).await, 0);
    for (words, expected) in [
        ("refused", 9),
        ("100%", 9),
        ("100_", 0),
        ("'; --", 0),
        ("\0", 0),
    ] {
        let filter = EventFilter {
            error: Some(words.to_owned()),
            ..EventFilter::default()
        };
        assert_eq!(count(&filter, None, &[]).await, expected, "{words}");
    }
    let hers = Actor::new("bob").of(Tenant::new("b").unwrap());
    let mine = pages(&scene, &hers, &all, None, &[]).await;
    assert!(mine.len() == 3 && mine.iter().all(|it| it.tenant.as_deref() == Some("b")));
    let wrong = DeliveryFilter {
        states: vec![DeliveryStatus::Unread],
        ..DeliveryFilter::default()
    };
    let outcome = scene.store().deliveries(&scene.ops, &wrong, None, 1).await;
    assert!(
        matches!(outcome, Err(AdminError::Invalid { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_page_that_fits_nothing_still_leads_on() {
    let scene = Scene::new().await;
    scene.emit("rare", None, 1).await;
    scene.emit("order.created", None, 2_500).await;
    let at = positions(&scene).await;
    let parks = at
        .iter()
        .map(|position| park(*position, ParkedState::Retrying, None));
    scene.settle("a", parks.collect()).await;
    let filter = EventFilter {
        kind: Some("rare".to_owned()),
        ..EventFilter::default()
    };
    let rare = DeliveryFilter {
        events: filter.clone(),
        ..DeliveryFilter::default()
    };
    let first = scene.store().deliveries(&scene.ops, &rare, None, 5).await;
    let first = first.unwrap();
    assert!(first.items.is_empty() && first.next.is_some());
    assert_eq!(
        pages(&scene, &scene.ops, &filter, None, &[]).await[0].position,
        at[0]
    );
}

#[tokio::test]
async fn a_dead_letter_is_replayed_once_and_its_key_keeps_its_place() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 2).await;
    let at = positions(&scene).await;
    scene.pass("a", &[at[0]]).await;
    let (one, two) = tokio::join!(
        scene.store().replay_dead_letter(&scene.ops, "a", at[0]),
        scene.store().replay_dead_letter(&scene.ops, "a", at[0]),
    );
    let lost = if one.is_ok() { two } else { one };
    assert!(matches!(lost, Err(AdminError::Conflict { .. })), "{lost:?}");
    let found = pages(&scene, &scene.ops, &EventFilter::default(), None, &[]).await;
    assert_eq!(
        (found[0].state.as_str(), found[0].attempts),
        ("retrying", 0)
    );
    assert_eq!(
        found[0].order_key.as_deref(),
        Some(&*format!("order\n{}", at[0]))
    );
    let refused = ("replay".to_owned(), "refused".to_owned());
    let done = ("replay".to_owned(), "done".to_owned());
    assert_eq!(scene.acts().await, [done, refused]);
    let unknown = scene
        .store()
        .replay_dead_letter(&scene.ops, "a", at[1])
        .await;
    assert!(
        matches!(unknown, Err(AdminError::NotFound { .. })),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_discarded_dead_letter_lets_its_key_go_and_says_why() {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 2).await;
    let at = positions(&scene).await;
    let key = Some("order\n0".to_owned());
    scene
        .settle(
            "a",
            vec![
                park(at[0], ParkedState::Dead, key.clone()),
                park(at[1], ParkedState::Blocked, key),
            ],
        )
        .await;
    for reason in ["", "  ", &"x".repeat(1025)] {
        let outcome = scene
            .store()
            .discard_dead_letter(&scene.ops, "a", at[0], reason)
            .await;
        assert!(
            matches!(outcome, Err(AdminError::Invalid { .. })),
            "{outcome:?}"
        );
    }
    let his = Actor::new("bob").of(Tenant::new("b").unwrap());
    let outcome = scene
        .store()
        .discard_dead_letter(&his, "a", at[0], "mine")
        .await;
    assert!(
        matches!(outcome, Err(AdminError::NotFound { .. })),
        "{outcome:?}"
    );
    scene
        .store()
        .discard_dead_letter(&scene.ops, "a", at[0], "no such shop")
        .await
        .unwrap();
    let discarded = (at[0], "discarded".to_owned());
    assert_eq!(
        scene.states("a").await,
        [discarded, (at[1], "retrying".to_owned())]
    );
    let found = pages(&scene, &scene.ops, &EventFilter::default(), None, &[]).await;
    assert_eq!(found[1].reason.as_deref(), Some("no such shop"));
}

#[tokio::test]
async fn an_edited_dead_letter_says_what_was_written_at_its_destination_alone() {
    let scene = Scene::new().await;
    let at = addressed(&scene, "wrong").await;
    for partition in ["a", "b"] {
        scene.pass(partition, &[at]).await;
    }
    let (store, ops) = (scene.store(), &scene.ops);
    let patch = r#"{"to":"right","card":null}"#;
    store.edit_dead_letter(ops, "a", at, patch).await.unwrap();
    store.replay_dead_letter(ops, "b", at).await.unwrap();
    assert_eq!(due(&scene, "a").await, [r#"{"amount":12.50,"to":"right"}"#]);
    assert_eq!(due(&scene, "b").await, [ADDRESSED]);
    let event = store.event_at(ops, at).await.unwrap().unwrap();
    assert_eq!(event.event.payload.bytes(), ADDRESSED.as_bytes());
    let traces = store.trace(at).await.unwrap();
    let edited: Vec<bool> = traces.iter().map(|it| it.edited.is_some()).collect();
    assert_eq!(edited, [true, false]);
    // The next edit applies to the payload that was last offered.
    scene.pass("a", &[at]).await;
    let letters = store.dead_letters("a", 0, 10).await.unwrap();
    let offered = letters[0].event.event.payload.bytes();
    assert_eq!(offered, br#"{"amount":12.50,"to":"right"}"#);
    store
        .edit_dead_letter(ops, "a", at, r#"{"cc":["x"]}"#)
        .await
        .unwrap();
    let both = r#"{"amount":12.50,"cc":["x"],"to":"right"}"#;
    assert_eq!(due(&scene, "a").await, [both]);
    let said = "hapax.audit_log WHERE action = 'edit' AND object LIKE 'delivery a %'
        AND detail::json #>> '{members,0}' IN ('card', 'cc') AND strpos(detail, 'right') = 0";
    assert_eq!(
        scene
            .fixture
            .count(&format!("SELECT count(*) FROM {said}"))
            .await,
        2
    );
}

#[tokio::test]
async fn an_edit_that_cannot_be_made_changes_nothing() {
    let scene = Scene::new().await;
    let at = addressed(&scene, "wrong").await;
    let mut tx = scene.store().begin(None, Headers::new()).await.unwrap();
    let image = Payload::Binary {
        content_type: "image/png".to_owned(),
        bytes: vec![1, 2, 3].into(),
    };
    tx.emit(NewEvent::new("file.scanned", image)).unwrap();
    tx.commit().await.unwrap();
    let image = positions(&scene).await[1];
    scene.pass("a", &[at, image]).await;
    let (store, ops) = (scene.store(), &scene.ops);
    let long = format!(r#"{{"to":"{}"}}"#, "x".repeat(1024 * 1024));
    for patch in ["", "[]", "null", r#""right""#, "{", &long] {
        let outcome = store.edit_dead_letter(ops, "a", at, patch).await;
        assert!(
            matches!(outcome, Err(AdminError::Invalid { ref field, .. }) if field == "patch"),
            "{outcome:?}"
        );
    }
    let right = r#"{"to":"right"}"#;
    let outcome = store.edit_dead_letter(ops, "a", image, right).await;
    assert!(
        matches!(outcome, Err(AdminError::Conflict { .. })),
        "{outcome:?}"
    );
    let his = Actor::new("bob").of(Tenant::new("b").unwrap());
    let outcome = store.edit_dead_letter(&his, "a", at, right).await;
    assert!(
        matches!(outcome, Err(AdminError::NotFound { .. })),
        "{outcome:?}"
    );
    let dead = |it: i64| (it, "dead".to_owned());
    assert_eq!(scene.states("a").await, [dead(at), dead(image)]);
    store.replay_dead_letter(ops, "a", at).await.unwrap();
    let outcome = store.edit_dead_letter(ops, "a", at, right).await;
    assert!(
        matches!(outcome, Err(AdminError::Conflict { .. })),
        "{outcome:?}"
    );
    assert_eq!(due(&scene, "a").await, [ADDRESSED]);
}

#[tokio::test]
async fn what_was_encrypted_stays_so_when_it_is_edited_by_whoever_only_reads() {
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

#[tokio::test]
async fn a_delivery_that_waits_is_due_now_and_keeps_its_attempts() {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 4).await;
    let at = positions(&scene).await;
    let key = Some("order\n1".to_owned());
    let parks = vec![
        park(at[0], ParkedState::Retrying, None),
        park(at[1], ParkedState::Dead, key.clone()),
        park(at[2], ParkedState::Blocked, key),
    ];
    scene.settle("a", parks).await;
    let later = "UPDATE hapax.delivery SET next_at = now() + interval '1 hour'";
    scene.fixture.run(later).await;
    let (store, ops) = (scene.store(), &scene.ops);
    let his = Actor::new("bob").of(Tenant::new("b").unwrap());
    for (actor, position) in [(&his, at[0]), (ops, at[3])] {
        let unknown = store.retry_delivery_now(actor, "a", position).await;
        assert!(
            matches!(unknown, Err(AdminError::NotFound { .. })),
            "{unknown:?}"
        );
    }
    for (position, state) in [(at[1], "is dead"), (at[2], "is blocked")] {
        let refused = store.retry_delivery_now(ops, "a", position).await;
        assert!(
            matches!(&refused, Err(AdminError::Conflict { what }) if what.contains(state)),
            "{refused:?}"
        );
    }
    assert!(store.due("a", &[], 10, 0).await.unwrap().is_empty());
    store.retry_delivery_now(ops, "a", at[0]).await.unwrap();
    let first = store.due("a", &[], 10, 0).await.unwrap();
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].event.position, first[0].attempt), (at[0], 3));
    assert!(first[0].manual);
    // It is due already, and is not delayed.
    store.retry_delivery_now(ops, "a", at[0]).await.unwrap();
    let second = store.due("a", &[], 10, 0).await.unwrap();
    assert_eq!(second[0].next_at, first[0].next_at);
    let line = |outcome: &str| ("retry".to_owned(), outcome.to_owned());
    let expected = ["refused", "refused", "done", "done"].map(line);
    assert_eq!(scene.acts().await, expected);
}

const ADDRESSED: &str = r#"{"to":"wrong","card":"4242","amount":12.50}"#;

/// A scene with events of two tenants. Three partitions have parked three of them each: one dead,
/// one retrying, one scheduled.
async fn parked_in_three_partitions() -> Scene {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 4).await;
    scene.emit("mail.sent", Some("b"), 4).await;
    let at = positions(&scene).await;
    for partition in ["a/0", "a/1", "b"] {
        scene
            .settle(
                partition,
                vec![
                    park(at[0], ParkedState::Dead, None),
                    park(at[1], ParkedState::Retrying, None),
                    park(at[4], ParkedState::Scheduled, None),
                ],
            )
            .await;
    }
    scene
}

/// Emits an event of a tenant with an address in its payload; returns its position.
async fn addressed(scene: &Scene, to: &str) -> i64 {
    let tenant = Tenant::new("a").ok();
    let mut tx = scene.store().begin(tenant, Headers::new()).await.unwrap();
    let payload = ADDRESSED.replace("wrong", to);
    let event = NewEvent::new("mail.asked", Payload::Json(payload));
    tx.emit(event).unwrap();
    tx.commit().await.unwrap();
    *positions(scene).await.last().unwrap()
}

/// The payloads that are due at a partition.
async fn due(scene: &Scene, partition: &str) -> Vec<String> {
    let due = scene.store().due(partition, &[], 10, 0).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    due.iter()
        .map(|it| text(it.event.event.payload.bytes()))
        .collect()
}

async fn positions(scene: &Scene) -> Vec<i64> {
    scene.events().await.iter().map(|it| it.position).collect()
}

async fn pages(
    scene: &Scene,
    actor: &Actor,
    filter: &EventFilter,
    destination: Option<&str>,
    states: &[DeliveryStatus],
) -> Vec<Delivery> {
    let filter = DeliveryFilter {
        events: filter.clone(),
        destination: destination.map(str::to_owned),
        states: states.to_vec(),
    };
    let (mut all, mut before) = (Vec::new(), None::<String>);
    loop {
        let page = scene
            .store()
            .deliveries(actor, &filter, before.as_deref(), 2);
        let page = page.await.unwrap();
        all.extend(page.items);
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}
