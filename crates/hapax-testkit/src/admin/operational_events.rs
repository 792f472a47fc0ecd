//! Conformance tests of operational events: each is in the transaction of what it reports, once.

use std::{sync::Arc, time::Duration};

use hapax::{
    delivery::{Checkpoint, Exhausted, ParkedState, Settlement},
    endpoint::{
        DeliveryClaim, EndpointRecord, EndpointRecovery as _, EndpointStore as _, NextStep,
        QueuedDelivery, SettledDelivery,
    },
    event::NewEvent,
    key::Tenant,
    operational::{Lag, OperationalEvents, OperationalKind, OperationalStore as _, PREFIX},
    outbox::OutboxEvent,
    store::Settlements as _,
};
use serde_json::{Value, json};

use super::{
    AdminUnderTest, Table,
    checks::Must,
    endpoints::{create, read},
    scene::{HOUR, Scene, park},
};
use crate::store::steps::settlement;

/// An endpoint that is disabled is reported to its tenant, and one that was not changed is not.
pub async fn an_endpoint_that_is_disabled_is_reported_once<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    let version = create(&scene, "acme", "ep_1").await.version;
    let store = scene.store();
    for expected in [true, false] {
        let disabled = store.disable_endpoint("ep_1", version, "it failed", None);
        assert_eq!(disabled.await.must(), expected);
    }
    let reported = reports(&scene).await;
    assert_eq!(reported.len(), 1, "{reported:?}");
    let event = &reported[0].event;
    assert_eq!(event.kind, "hapax.endpoint.disabled");
    assert_eq!(event.tenant.as_ref().map(Tenant::as_str), Some("acme"));
    let expected = json!({"endpoint": "ep_1", "tenant": "acme", "reason": "it failed"});
    assert_eq!(payload(&reported[0]), expected);
}

/// An endpoint that a relay enables again is reported to its tenant, once.
pub async fn an_endpoint_that_recovers_is_reported_once<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    let version = create(&scene, "acme", "ep_1").await.version;
    let store = scene.store();
    let disabled = store.disable_endpoint("ep_1", version, "it failed", Some(HOUR));
    assert!(disabled.await.must());
    let version = read(&scene, "acme", "ep_1").await.endpoint.version;
    for expected in [true, false] {
        let recovered = store.recover_endpoint("ep_1", version, false);
        assert_eq!(recovered.await.must(), expected);
    }
    let reported = reports(&scene).await;
    assert_eq!(reported.len(), 2, "{reported:?}");
    let event = &reported[1].event;
    assert_eq!(event.kind, "hapax.endpoint.recovered");
    assert_eq!(event.tenant.as_ref().map(Tenant::as_str), Some("acme"));
    let expected = json!({"endpoint": "ep_1", "tenant": "acme"});
    assert_eq!(payload(&reported[1]), expected);
}

/// If the transaction fails, neither the endpoint is disabled nor is that reported.
pub async fn a_change_that_fails_is_not_reported<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    let version = create(&scene, "acme", "ep_1").await.version;
    scene.break_table(Table::AuditLog).await;
    let disabled = scene
        .store()
        .disable_endpoint("ep_1", version, "it failed", None);
    assert!(disabled.await.is_err());
    scene.mend(Table::AuditLog).await;
    assert!(reports(&scene).await.is_empty());
    let disabled = scene
        .store()
        .disable_endpoint("ep_1", version, "it failed", None);
    assert!(disabled.await.must());
    assert_eq!(reports(&scene).await.len(), 1);
}

/// An exhausted delivery to an endpoint is reported by what changes its row, once.
pub async fn an_exhausted_delivery_to_an_endpoint_is_reported_once<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    create(&scene, "acme", "ep_1").await;
    let events = emit(&scene, "order.created", 2).await;
    for _ in 0..2 {
        queue(&scene, &events[0], 1, NextStep::Failed).await;
    }
    let reported = reports(&scene).await;
    assert_eq!(reported.len(), 1, "{reported:?}");
    let expected = json!({
        "endpoint": "ep_1",
        "event_id": events[0].event.id.to_string(),
        "event_type": "order.created",
        "tenant": "acme",
        "attempts": 1,
        "error": "status 503",
        "omitted": 0,
    });
    assert_eq!(payload(&reported[0]), expected);
    queue(&scene, &events[1], 0, NextStep::Retry(Duration::ZERO)).await;
    let claim = DeliveryClaim {
        after: String::new(),
        limit: 10,
        each: 10,
        single: Vec::new(),
        busy: Vec::new(),
        lease: Duration::from_secs(30),
    };
    let claimed = scene.store().claim_deliveries(&claim).await.must();
    assert_eq!(claimed.deliveries.len(), 1);
    // The first settlement is that of an earlier attempt.
    for attempt in [0, 1, 1] {
        let record = EndpointRecord {
            settle: vec![SettledDelivery {
                endpoint: "ep_1".to_owned(),
                event_id: events[1].event.id,
                attempt,
                next: NextStep::Failed,
                error: Some("status 503".to_owned()),
            }],
            ..EndpointRecord::default()
        };
        scene.store().record_deliveries(&record).await.must();
        let expected = if attempt == 0 { 1 } else { 2 };
        assert_eq!(reports(&scene).await.len(), expected);
    }
}

/// A report that cannot be delivered is not reported.
pub async fn a_report_that_fails_is_not_reported<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    create(&scene, "acme", "ep_1").await;
    for kind in OperationalKind::ALL {
        let own = format!("{PREFIX}{}", kind.name());
        emit(&scene, &own, 1).await;
    }
    let own = reports(&scene).await;
    for event in &own {
        queue(&scene, event, 1, NextStep::Failed).await;
    }
    let epoch = scene.fixture.open("hook").await.epoch;
    let failed = Settlement {
        exhausted: vec![exhausted(&own[0])],
        ..settlement("hook", epoch)
    };
    scene.fixture.settle(failed).await;
    assert_eq!(reports(&scene).await.len(), own.len());
}

/// Deliveries that end because too many wait are reported by a few events, which count the others.
pub async fn dropped_deliveries_are_reported_with_their_number<S: AdminUnderTest>() {
    const EVENTS: u64 = 40;
    let scene = emitting::<S>().await;
    create(&scene, "acme", "ep_1").await;
    for event in emit(&scene, "order.created", 40).await {
        queue(&scene, &event, 0, NextStep::Retry(Duration::ZERO)).await;
    }
    let dropped = scene.store().drop_deliveries(1).await.must();
    assert_eq!(dropped, EVENTS - 1);
    let reported = reports(&scene).await;
    assert!(reported.len() < 20, "{}", reported.len());
    let omitted = reported.iter().map(|it| payload(it)["omitted"].clone());
    let omitted: u64 = omitted.filter_map(|it| it.as_u64()).sum();
    assert_eq!(omitted + reported.len() as u64, dropped);
    assert_eq!(payload(&reported[0])["attempts"], json!(0));
}

/// A dead letter and a disabled destination are reported by the settlement that writes them, also if it
/// is sent twice, and without a tenant.
pub async fn a_dead_letter_is_reported_by_its_settlement<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    let events = emit(&scene, "order.created", 1).await;
    let opened = scene.fixture.open("hook/1").await;
    let (_, frontier) = scene
        .fixture
        .events_beyond(opened.checkpoint.frontier)
        .await;
    let dead = Settlement {
        number: 1,
        follows: Some(opened.newest),
        checkpoint: Some(Checkpoint {
            frontier,
            ..Checkpoint::default()
        }),
        park: vec![park(events[0].position, ParkedState::Dead, None)],
        disable: Some("410 Gone".to_owned()),
        exhausted: vec![exhausted(&events[0])],
        ..settlement("hook/1", opened.epoch)
    };
    for _ in 0..2 {
        scene.fixture.settle(dead.clone()).await;
    }
    let reported = reports(&scene).await;
    let kinds: Vec<_> = reported.iter().map(|it| it.event.kind.as_str()).collect();
    assert_eq!(
        kinds
            .iter()
            .filter(|it| **it == "hapax.message.exhausted")
            .count(),
        1,
        "{kinds:?}"
    );
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    for event in &reported {
        assert_eq!(event.event.tenant, None);
        assert_eq!(payload(event)["destination"], json!("hook"));
    }
}

/// A settlement of a relay that has lost its partition reports nothing.
pub async fn a_fenced_settlement_is_not_reported<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    let events = emit(&scene, "order.created", 1).await;
    let lost = scene.fixture.open("hook").await.epoch;
    scene.fixture.open("hook").await;
    let dead = Settlement {
        park: vec![park(events[0].position, ParkedState::Dead, None)],
        exhausted: vec![exhausted(&events[0])],
        ..settlement("hook", lost)
    };
    assert!(scene.store().settle(dead).await.is_err());
    assert!(reports(&scene).await.is_empty());
}

/// A lag is reported when it begins and when it ends, by one of the relays that measure it.
pub async fn a_lag_is_reported_when_it_begins_and_when_it_ends<S: AdminUnderTest>() {
    let scene = emitting::<S>().await;
    let store = scene.store();
    let lag = |is_lagging| Lag {
        destination: "hook".to_owned(),
        is_lagging,
        lag: Duration::from_secs(301),
        backlog: 7,
    };
    let (begin, end) = (lag(true), lag(false));
    assert!(!store.record_lag(&end).await.must());
    for change in [&begin, &end, &begin] {
        let (one, other) = tokio::join!(store.record_lag(change), store.record_lag(change));
        assert!(one.must() ^ other.must(), "{change:?}");
    }
    let reported = reports(&scene).await;
    let kinds: Vec<_> = reported.iter().map(|it| it.event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "hapax.relay.lag",
            "hapax.relay.caught_up",
            "hapax.relay.lag"
        ]
    );
    let expected = json!({"destination": "hook", "lag_seconds": 301, "backlog": 7});
    assert_eq!(payload(&reported[0]), expected);
}

/// A store without operational events in its settings emits none.
pub async fn nothing_is_reported_by_default<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let version = create(&scene, "acme", "ep_1").await.version;
    let events = emit(&scene, "order.created", 1).await;
    queue(&scene, &events[0], 1, NextStep::Failed).await;
    let disabled = scene
        .store()
        .disable_endpoint("ep_1", version, "it failed", None);
    assert!(disabled.await.must());
    assert!(reports(&scene).await.is_empty());
}

/// A store that emits every kind.
async fn emitting<S: AdminUnderTest>() -> Scene<S> {
    let events = OperationalEvents::new(PREFIX, OperationalKind::ALL);
    Scene::emitting(events.expect("the prefix is valid")).await
}

/// Emits events of the tenant `acme` and returns them.
async fn emit<S: AdminUnderTest>(
    scene: &Scene<S>,
    kind: &str,
    count: usize,
) -> Vec<Arc<OutboxEvent>> {
    let events = (0..count).map(|number| NewEvent::json(kind, &number));
    let positions = scene.write(Some("acme"), events.collect()).await;
    let mut all = scene.fixture.events().await;
    all.retain(|it| positions.contains(&it.position));
    all
}

/// The operational events in the outbox.
async fn reports<S: AdminUnderTest>(scene: &Scene<S>) -> Vec<Arc<OutboxEvent>> {
    let mut all = scene.fixture.events().await;
    all.retain(|it| it.event.kind.starts_with(PREFIX));
    all
}

fn payload(event: &OutboxEvent) -> Value {
    serde_json::from_slice(event.event.payload.bytes()).expect("a payload is JSON")
}

fn exhausted(event: &OutboxEvent) -> Exhausted {
    Exhausted {
        event_id: event.event.id,
        event_type: event.event.kind.clone(),
        event_tenant: Some("acme".to_owned()),
        attempts: 3,
        error: Some("status 400".to_owned()),
    }
}

/// Puts a delivery to the endpoint `ep_1` into the queue.
async fn queue<S: AdminUnderTest>(
    scene: &Scene<S>,
    event: &OutboxEvent,
    attempt: u32,
    next: NextStep,
) {
    let record = EndpointRecord {
        queue: vec![QueuedDelivery {
            endpoint: "ep_1".to_owned(),
            position: event.position,
            event_id: event.event.id,
            attempt,
            next,
            error: Some("status 503".to_owned()),
        }],
        ..EndpointRecord::default()
    };
    let recorded = scene.store().record_deliveries(&record).await.must();
    assert!(recorded.missing.is_empty());
}
