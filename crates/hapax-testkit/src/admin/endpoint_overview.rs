//! Conformance tests of endpoints as operators see them: lists, what waits, and what needs attention.

use hapax::{
    Timestamp,
    admin::{Actor, EndpointAction, EndpointEdit, EndpointFilter, EndpointStatus, ListedEndpoint},
    delivery::AttemptOutcome,
    endpoint::{EndpointRecord, EndpointStore as _, NextStep},
    limits::{ENDPOINT_ATTENTION, ENDPOINT_SLOW_FAILURES},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_missing, hostile, pages},
    endpoint_deliveries::{attempt, emit, queue},
    endpoints::{change, create, list_filtered, read},
    scene::{HOUR, Scene, of},
};

/// The endpoints of all tenants are listed by id, each once, with its health since a time.
pub async fn endpoints_of_all_tenants_are_listed_with_their_health<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for (id, tenant) in [("ep_b", "acme"), ("ep_a", "acme"), ("ep_c", "other")] {
        create(&scene, tenant, id).await;
    }
    let event = &emit(&scene, "acme", 1).await[0];
    let before = scene.now();
    tried(&scene, "ep_a", AttemptOutcome::Unavailable).await;
    scene.advance(HOUR).await;
    let since = scene.now();
    for outcome in [AttemptOutcome::Delivered, AttemptOutcome::Unavailable] {
        tried(&scene, "ep_a", outcome).await;
    }
    queue(&scene, "ep_a", event, 1, NextStep::Retry(HOUR)).await;
    let all = list(&scene, &scene.ops, &EndpointFilter::default(), since).await;
    let ids: Vec<_> = all.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["ep_a", "ep_b", "ep_c"]);
    let first = &all[0];
    assert_eq!((first.tenant.as_str(), first.failures), ("acme", 1));
    assert_eq!(first.state(), EndpointStatus::Enabled);
    let health = first.health;
    assert_eq!(
        (health.attempts, health.success_rate, health.p95_ms),
        (2, Some(0.5), Some(5))
    );
    assert_eq!((health.waiting, health.failed), (1, 0));
    assert_eq!(health.waiting_since, Some(since));
    assert_eq!((all[1].health.attempts, all[1].health.waiting), (0, 0));
    let all = list(&scene, &scene.ops, &EndpointFilter::default(), before).await;
    assert_eq!(all[0].health.attempts, 3);
    let deleted = scene.admin.delete_endpoint(&scene.ops, "acme", "ep_b");
    deleted.await.must();
    let version = read(&scene, "other", "ep_c").await.endpoint.version;
    let store = scene.store();
    let disabled = store.disable_endpoint("ep_c", version, "it failed", Some(HOUR));
    assert!(disabled.await.must());
    let all = list(&scene, &scene.ops, &EndpointFilter::default(), since).await;
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].next_probe_at, &all[0].slowed_reason), (None, &None));
    let probed_at = Some(scene.now().after(HOUR));
    assert_eq!(
        (all[1].state(), all[1].next_probe_at),
        (EndpointStatus::Disabled, probed_at)
    );
}

/// Each field of the filter selects endpoints, also together with the others.
pub async fn every_field_of_the_filter_selects_endpoints<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for (id, tenant) in [("ep_1", "acme"), ("ep_2", "acme"), ("ep_3", "other")] {
        create(&scene, tenant, id).await;
    }
    disable(&scene, "ep_2").await;
    emit(&scene, "other", 1).await;
    for _ in 0..ENDPOINT_SLOW_FAILURES {
        tried(&scene, "ep_3", AttemptOutcome::Unavailable).await;
    }
    let edit = EndpointEdit {
        description: "100% of the orders".to_owned(),
        ..read(&scene, "acme", "ep_1").await.edit()
    };
    let endpoint = read(&scene, "acme", "ep_1").await.endpoint;
    change(&scene, &endpoint, EndpointAction::Change, &edit).await;
    let ids = async |tenant: Option<&str>, state, text: Option<&str>| {
        let filter = EndpointFilter {
            tenant: tenant.map(str::to_owned),
            state,
            text: text.map(str::to_owned),
        };
        let found = list(&scene, &scene.ops, &filter, scene.now()).await;
        let found: Vec<_> = found.into_iter().map(|it| it.id).collect();
        let stored = list_filtered(&scene, &scene.ops, &filter).await;
        let stored: Vec<_> = stored.into_iter().map(|it| it.id).collect();
        assert_eq!(stored, found, "{filter:?}");
        found
    };
    assert_eq!(ids(Some("acme"), None, None).await, ["ep_1", "ep_2"]);
    for (state, id) in [
        (EndpointStatus::Enabled, "ep_1"),
        (EndpointStatus::Disabled, "ep_2"),
        (EndpointStatus::Slowed, "ep_3"),
    ] {
        assert_eq!(ids(None, Some(state), None).await, [id]);
    }
    assert_eq!(ids(None, None, Some("_3")).await, ["ep_3"]);
    assert_eq!(ids(None, None, Some("% of")).await, ["ep_1"]);
    let all = list(&scene, &scene.ops, &EndpointFilter::default(), scene.now()).await;
    let reason = "5 attempts in a row have failed: no";
    assert_eq!(all[2].slowed_reason.as_deref(), Some(reason));
    let disabled = Some(EndpointStatus::Disabled);
    assert!(ids(Some("other"), disabled, None).await.is_empty());
    for text in hostile() {
        let found = ids(None, None, Some(&text)).await;
        assert!(found.len() <= 3, "{text:?}");
    }
}

/// Deliveries that wait are listed, those that are due first, and no others.
pub async fn what_waits_for_an_endpoint_is_listed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    create(&scene, "acme", "ep_1").await;
    create(&scene, "acme", "ep_2").await;
    let events = emit(&scene, "acme", 3).await;
    queue(&scene, "ep_1", &events[0], 2, NextStep::Retry(HOUR * 2)).await;
    queue(&scene, "ep_1", &events[1], 1, NextStep::Retry(HOUR)).await;
    queue(&scene, "ep_1", &events[2], 1, NextStep::Failed).await;
    queue(&scene, "ep_2", &events[2], 1, NextStep::Retry(HOUR)).await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let waiting = admin.endpoint_waiting(ops, "acme", "ep_1", 10).await.must();
    let found: Vec<_> = waiting
        .iter()
        .map(|it| (it.event_id.clone(), it.attempts, it.next_at))
        .collect();
    let now = scene.now();
    let id = |place: usize| events[place].event.id.to_string();
    assert_eq!(
        found,
        [(id(1), 1, now.after(HOUR)), (id(0), 2, now.after(HOUR * 2))]
    );
    assert_eq!(waiting[0].kind, "order.created");
    let first = admin.endpoint_waiting(ops, "acme", "ep_1", 1).await.must();
    assert_eq!(first[..], waiting[..1]);
    let other = admin.endpoint_waiting(ops, "other", "ep_1", 10).await;
    assert!(other.must().is_empty());
}

/// An event is traced at each endpoint that has it, has tried it, or for which it waits.
pub async fn an_event_is_traced_at_the_endpoints_of_its_tenant<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for id in ["ep_1", "ep_2", "ep_3", "ep_4"] {
        create(&scene, "acme", id).await;
    }
    create(&scene, "other", "ep_5").await;
    let event = &emit(&scene, "acme", 1).await[0];
    let at = scene.now();
    let (bad, good) = (AttemptOutcome::Unavailable, AttemptOutcome::Delivered);
    queue(&scene, "ep_1", event, 2, NextStep::Retry(HOUR)).await;
    queue(&scene, "ep_4", event, 0, NextStep::Retry(HOUR)).await;
    let record = EndpointRecord {
        attempts: vec![
            attempt("ep_1", event, 1, at, bad),
            attempt("ep_1", event, 2, at, bad),
            attempt("ep_2", event, 1, at, good),
        ],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
    disable(&scene, "ep_4").await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let traces = admin.endpoint_traces(ops, "acme", event.event.id);
    let traces = traces.await.must();
    let found: Vec<_> = traces
        .iter()
        .map(|it| {
            let state = (it.endpoint.as_str(), it.state.as_str());
            (state, it.attempts, it.status, it.is_disabled)
        })
        .collect();
    assert_eq!(
        found,
        [
            (("ep_1", "waiting"), 2, Some(422), false),
            (("ep_2", "delivered"), 1, Some(204), false),
            (("ep_4", "waiting"), 0, None, true),
        ]
    );
    assert_eq!(traces[0].error.as_deref(), Some("no"));
    assert_eq!(traces[0].next_at, Some(at.after(HOUR)));
    assert_eq!((traces[1].tried_at, traces[1].next_at), (Some(at), None));
    let other = admin.endpoint_traces(ops, "other", event.event.id);
    assert!(other.await.must().is_empty());
}

/// Disabled endpoints need attention, and the backlogs of those that are enabled.
pub async fn disabled_endpoints_and_backlogs_need_attention<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let none = scene.admin.endpoint_attention(&scene.ops).await.must();
    assert_eq!((none.disabled, none.backlogs.len()), (0, 0));
    for number in 0..ENDPOINT_ATTENTION + 2 {
        let id = format!("ep_{number:02}");
        create(&scene, "acme", &id).await;
        disable(&scene, &id).await;
        scene.advance(HOUR).await;
    }
    create(&scene, "acme", "ep_few").await;
    create(&scene, "acme", "ep_many").await;
    let events = emit(&scene, "acme", 3).await;
    queue(&scene, "ep_00", &events[0], 1, NextStep::Retry(HOUR)).await;
    queue(&scene, "ep_few", &events[0], 1, NextStep::Retry(HOUR)).await;
    for event in &events {
        queue(&scene, "ep_many", event, 1, NextStep::Retry(HOUR)).await;
    }
    let found = scene.admin.endpoint_attention(&scene.ops).await.must();
    assert_eq!(found.disabled, ENDPOINT_ATTENTION as u64 + 2);
    assert_eq!(found.newest_disabled.len(), ENDPOINT_ATTENTION);
    let newest = &found.newest_disabled[0];
    let last = format!("ep_{:02}", ENDPOINT_ATTENTION + 1);
    assert_eq!((&newest.id, newest.reason.as_str()), (&last, "it failed"));
    assert_eq!(newest.at.after(HOUR), scene.now());
    let backlogs = found.backlogs.iter();
    let backlogs: Vec<_> = backlogs.map(|it| (it.id.as_str(), it.waiting)).collect();
    assert_eq!(backlogs, [("ep_many", 3), ("ep_few", 1)]);
}

/// An operator of a tenant sees that tenant's endpoints only.
pub async fn an_operator_of_a_tenant_sees_its_own_endpoints<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for (id, tenant) in [("ep_1", "acme"), ("ep_2", "other")] {
        create(&scene, tenant, id).await;
        disable_of(&scene, tenant, id).await;
    }
    let event = &emit(&scene, "other", 1).await[0];
    queue(&scene, "ep_2", event, 1, NextStep::Retry(HOUR)).await;
    let (admin, acme) = (&scene.admin, of("acme"));
    let own = list(&scene, &acme, &EndpointFilter::default(), scene.now()).await;
    let own: Vec<_> = own.into_iter().map(|it| it.id).collect();
    assert_eq!(own, ["ep_1"]);
    let filter = EndpointFilter {
        tenant: Some("other".to_owned()),
        ..EndpointFilter::default()
    };
    let now = scene.now();
    check_missing(&admin.endpoint_statuses(&acme, &filter, now, None, 10).await);
    let tenant = admin.endpoint_tenant(&acme, "ep_1").await.must();
    assert_eq!(tenant, "acme");
    check_missing(&admin.endpoint_tenant(&acme, "ep_2").await);
    let tenant = admin.endpoint_tenant(&scene.ops, "ep_2").await.must();
    assert_eq!(tenant, "other");
    for id in hostile() {
        check_missing(&admin.endpoint_tenant(&scene.ops, &id).await);
    }
    let waiting = admin.endpoint_waiting(&acme, "other", "ep_2", 10).await;
    check_missing(&waiting);
    let traces = admin.endpoint_traces(&acme, "other", event.event.id).await;
    check_missing(&traces);
    let found = admin.endpoint_attention(&acme).await.must();
    assert_eq!(found.disabled, 1);
    assert_eq!(found.newest_disabled[0].id, "ep_1");
    assert!(found.backlogs.is_empty());
}

/// All endpoints that match, read in pages.
async fn list<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    filter: &EndpointFilter,
    since: Timestamp,
) -> Vec<ListedEndpoint> {
    pages(1, async |after: Option<String>| {
        let after = after.as_deref();
        let page = scene
            .admin
            .endpoint_statuses(actor, filter, since, after, 1);
        page.await
    })
    .await
}

/// Logs an attempt at the first event.
async fn tried<S: AdminUnderTest>(scene: &Scene<S>, endpoint: &str, outcome: AttemptOutcome) {
    let events = scene.fixture.events().await;
    // Attempts at one time differ by their numbers.
    let number = if outcome == AttemptOutcome::Delivered {
        1
    } else {
        2
    };
    let record = EndpointRecord {
        attempts: vec![attempt(endpoint, &events[0], number, scene.now(), outcome)],
        ..EndpointRecord::default()
    };
    scene.store().record_deliveries(&record).await.must();
}

async fn disable<S: AdminUnderTest>(scene: &Scene<S>, id: &str) {
    disable_of(scene, "acme", id).await;
}

async fn disable_of<S: AdminUnderTest>(scene: &Scene<S>, tenant: &str, id: &str) {
    let found = read(scene, tenant, id).await;
    let edit = EndpointEdit {
        disabled_reason: Some("it failed".to_owned()),
        ..found.edit()
    };
    change(scene, &found.endpoint, EndpointAction::Disable, &edit).await;
}
