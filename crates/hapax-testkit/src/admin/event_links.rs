//! Conformance tests of events that are fetched by their id, for receivers of thin webhooks.

use std::time::Duration;

use hapax::{
    delivery::Start,
    endpoint::{EndpointState, EndpointStore as _},
    event::EventId,
    mapping::Mapping,
    poll::{PollError, Token},
    sink::PayloadMode,
    store::Outbox as _,
};

use super::{
    AdminUnderTest,
    checks::Must,
    endpoints,
    polling::{create, polling},
    scene::{HOUR, Scene},
};

/// An event is found by the token of its tenant, with and without its position. One of another tenant is
/// answered like one that does not exist.
pub async fn an_event_is_fetched_by_its_id_within_its_tenant<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let own = create(&scene, "acme", Some("acme"), Start::Now).await;
    let all = create(&scene, "ops", None, Start::Now).await;
    let first = scene.emit("order.created", Some("acme"), 3).await[0];
    let foreign = scene.emit("order.created", Some("other"), 1).await[0];
    let events = scene.fixture.events().await;
    let id_at = |position: i64| {
        let event = events.iter().find(|it| it.position == position);
        event.expect("the event is there").event.id
    };
    let (id, other) = (id_at(first), id_at(foreign));
    // No position, its own, that of another event, and one that does not exist.
    for position in [None, Some(first), Some(foreign), Some(i64::MAX), Some(-1)] {
        assert_eq!(
            fetched(&scene, &own, id, position).await,
            Some(id),
            "{position:?}"
        );
        assert_eq!(
            fetched(&scene, &own, other, position).await,
            None,
            "{position:?}"
        );
        assert_eq!(
            fetched(&scene, &all, other, position).await,
            Some(other),
            "{position:?}"
        );
        let absent = "019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21"
            .parse::<EventId>()
            .must();
        assert_eq!(
            fetched(&scene, &own, absent, position).await,
            None,
            "{position:?}"
        );
    }
}

/// A token that is not one of an endpoint opens nothing, and neither does one whose overlap is over.
pub async fn an_event_is_fetched_with_a_valid_token_only<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let first = create(&scene, "acme", Some("acme"), Start::Now).await;
    let position = scene.emit("order.created", Some("acme"), 1).await[0];
    let id = scene.fixture.events().await[0].event.id;
    let polling = polling(&scene);
    let is_refused = async |token: &str| {
        let fetched = polling.fetch(token.as_bytes(), Some(id), Some(position));
        matches!(fetched.await, Err(PollError::Unauthorized))
    };
    for token in ["", "hxp_", Token::mint([9; 32]).reveal()] {
        assert!(is_refused(token).await, "{token}");
    }
    assert!(!is_refused(first.reveal()).await);
    let second = Token::mint([20; 32]);
    let (admin, ops) = (&scene.admin, &scene.ops);
    let hash = second.hash();
    let rotated = admin.rotate_polling_token(ops, "acme", &hash, HOUR);
    rotated.await.must();
    assert!(!is_refused(first.reveal()).await && !is_refused(second.reveal()).await);
    scene.advance(HOUR).await;
    assert!(is_refused(first.reveal()).await && !is_refused(second.reveal()).await);
    admin.remove_polling_endpoint(ops, "acme").await.must();
    assert!(is_refused(second.reveal()).await);
}

/// An event that retention has deleted is answered like one that does not exist.
pub async fn an_event_that_was_purged_is_not_found<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let own = create(&scene, "acme", Some("acme"), Start::Now).await;
    let position = scene.emit("order.created", Some("acme"), 1).await[0];
    let id = scene.fixture.events().await[0].event.id;
    // The newest event is kept.
    scene.emit("order.created", Some("acme"), 1).await;
    assert_eq!(fetched(&scene, &own, id, Some(position)).await, Some(id));
    let day = HOUR * 24;
    for _ in 0..3 {
        while scene.store().purge_events(day, Duration::MAX).await.must() > 0 {}
        scene.advance(day * 2).await;
    }
    for position in [None, Some(position)] {
        assert_eq!(fetched(&scene, &own, id, position).await, None);
    }
}

/// The payload mode of an endpoint is read back, and reaches the relays.
pub async fn an_endpoint_is_thin_if_it_says_so<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let endpoint = endpoints::create(&scene, "acme", "ep_1").await;
    assert_eq!(endpoint.payload, PayloadMode::Full);
    let mut edit = endpoints::read(&scene, "acme", "ep_1").await.edit();
    edit.payload = PayloadMode::Thin;
    let action = hapax::admin::EndpointAction::Change;
    let changed = endpoints::change(&scene, &endpoint, action, &edit).await;
    assert_eq!(changed.payload, PayloadMode::Thin);
    let read = endpoints::read(&scene, "acme", "ep_1").await;
    assert_eq!(read.edit(), edit);
    let listed = scene.store().endpoint_changes(0, 10).await.must();
    let last = listed.last().expect("the endpoint has changed");
    let EndpointState::Present(relayed) = &last.state else {
        panic!("the endpoint can be read: {last:?}");
    };
    assert_eq!(relayed.payload, PayloadMode::Thin);
    assert_eq!(relayed.mapping, None);
}

/// The mapping of an endpoint is read back, reaches the relays, and is removed.
pub async fn an_endpoint_has_a_mapping<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut endpoint = endpoints::create(&scene, "acme", "ep_1").await;
    for mapping in [Some(r#"{"n": "$.data.n"}"#), None] {
        let mut edit = endpoints::read(&scene, "acme", "ep_1").await.edit();
        edit.mapping = mapping.map(str::to_owned);
        let action = hapax::admin::EndpointAction::Change;
        endpoint = endpoints::change(&scene, &endpoint, action, &edit).await;
        assert_eq!(endpoint.mapping.as_deref(), mapping);
        let read = endpoints::read(&scene, "acme", "ep_1").await;
        assert_eq!(read.edit(), edit);
        let listed = scene.store().endpoint_changes(0, 10).await.must();
        let last = listed.last().expect("the endpoint has changed");
        let EndpointState::Present(relayed) = &last.state else {
            panic!("the endpoint can be read: {last:?}");
        };
        assert_eq!(relayed.mapping.as_ref().map(Mapping::as_str), mapping);
    }
}

/// The id of the event that is fetched.
async fn fetched<S: AdminUnderTest>(
    scene: &Scene<S>,
    token: &Token,
    id: EventId,
    position: Option<i64>,
) -> Option<EventId> {
    let polling = polling(scene);
    let token = token.reveal().as_bytes();
    match polling.fetch(token, Some(id), position).await {
        Ok(found) => Some(found.event.id),
        Err(PollError::NoEvent) => None,
        Err(error) => panic!("{error}"),
    }
}
