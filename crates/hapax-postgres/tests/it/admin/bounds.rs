//! Bounds of what one page and one batch read: the size of the database does not matter.

use hapax::{
    admin::{
        Actor, DeliveryAdmin as _, DeliveryFilter, EventAdmin as _, EventFilter, JobAdmin as _,
        JobOptions, KeyAdmin as _, KeyFilter, PAGE_MAX, SagaAdmin as _,
    },
    delivery::ParkedState,
    event::EventId,
    key::Tenant,
    saga::Filter,
    store::Settlements as _,
};

use super::scene::{Scene, park};

#[tokio::test]
async fn a_page_that_fits_nothing_still_leads_on() {
    let scene = Scene::new().await;
    scene.emit("rare", None, 1).await;
    scene.emit("order.created", None, 2_500).await;
    let at = scene.positions().await;
    let parks = at
        .iter()
        .map(|position| park(*position, ParkedState::Retrying, None));
    scene.settle("a", parks.collect()).await;
    let events = EventFilter {
        kind: Some("rare".to_owned()),
        ..EventFilter::default()
    };
    let rare = DeliveryFilter {
        events,
        ..DeliveryFilter::default()
    };
    let first = scene.store().deliveries(&scene.ops, &rare, None, 5).await;
    let first = first.unwrap();
    assert!(first.items.is_empty() && first.next.is_some());
    let next = first.next.as_deref();
    let second = scene.store().deliveries(&scene.ops, &rare, next, 5).await;
    assert_eq!(second.unwrap().items[0].position, at[0]);
}

#[tokio::test]
async fn an_id_that_was_made_elsewhere_is_found_by_a_search_of_all_events() {
    let scene = Scene::new().await;
    // The time in this id is long before all events, and 20,500 events lie between.
    let foreign: EventId = "01890000-0000-7000-8000-000000000000".parse().unwrap();
    let planted = format!(
        "INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
         SELECT CASE n WHEN 20500 THEN '{foreign}'::uuid ELSE gen_random_uuid() END,
                'order.created', '1', '{{}}', now()
         FROM generate_series(1, 42000) AS n ORDER BY n"
    );
    scene.fixture.plain.batch_execute(&planted).await.unwrap();
    let (store, ops) = (scene.store(), &scene.ops);
    let near = store.find_event_near(ops, foreign).await.unwrap();
    assert!(near.is_none(), "{near:?}");
    let found = store.find_event(ops, foreign).await.unwrap().unwrap();
    assert_eq!(found.event.id, foreign);
    // A page of the list scans a bounded number of events; the next page continues with older ones
    // until the event is found.
    let filter = EventFilter {
        event_id: Some(foreign),
        ..EventFilter::default()
    };
    let first = store.events(ops, &filter, None, 10).await.unwrap();
    assert!(first.items.is_empty() && first.next.is_some(), "{first:?}");
    let second = store.events(ops, &filter, first.next.as_deref(), 10).await;
    assert_eq!(second.unwrap().items[0].position, found.position);
}

#[tokio::test]
async fn a_page_of_keys_reads_a_bounded_number_and_leads_on() {
    let scene = Scene::new().await;
    let many = "
        INSERT INTO hapax.idempotency_key
            (tenant, operation, key, fingerprint, state, created_at, expires_at)
        SELECT 'a', CASE number WHEN 1 THEN 'rare' ELSE 'often' END, 'k' || number, '', 'completed',
               now() + number * interval '1 second', now()
        FROM generate_series(1, 19500) AS number";
    scene.fixture.plain.batch_execute(many).await.unwrap();
    let rare = KeyFilter {
        operation: Some("rare".to_owned()),
        ..KeyFilter::default()
    };
    let first = scene
        .store()
        .keys(&scene.ops, &rare, None, 10)
        .await
        .unwrap();
    assert!(first.items.is_empty(), "{:?}", first.items);
    let next = first.next.expect("the first page is not the last one");
    let second = scene
        .store()
        .keys(&scene.ops, &rare, Some(&next), 10)
        .await
        .unwrap();
    assert_eq!((second.items.len(), second.next), (1, None));
    // Most keys have this prefix, so the list scans them by time instead.
    check(&scene, 19_500, |it| it.key = Some("k".to_owned())).await;
    check(&scene, 10_612, |it| it.key = Some("k1".to_owned())).await;
}

#[tokio::test]
async fn one_event_is_offered_again_in_one_batch() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 30).await;
    scene.pass("a", &[]).await;
    let events = scene.events().await;
    for which in [0, 7, 29] {
        let filter = EventFilter {
            event_id: Some(events[which].event.id),
            ..EventFilter::default()
        };
        let (store, options) = (scene.store(), JobOptions::default());
        let job = store.start_event_job(&scene.ops, "a", &filter, None, &options);
        job.await.unwrap();
        assert_eq!(scene.work().await, 1);
    }
    assert_eq!(scene.store().due("a", &[], 100, 0).await.unwrap().len(), 3);
}

/// A saga's id is a name chosen by the service. The cursor of a tenant's page must not contain the
/// id of another tenant's saga.
#[tokio::test]
async fn the_pages_of_a_tenant_read_a_bounded_number_of_sagas_and_name_none_of_another() {
    let scene = Scene::new().await;
    let (own, others) = (12, 6_000);
    let plant = format!(
        "INSERT INTO hapax.saga
             (id, name, version, tenant, input, headers, state, deadline_at, created_at)
         SELECT tenant || '-' || to_char(number, 'FM0000'), name, 1, tenant, '', '{{}}', state, now(), now()
         FROM (VALUES ('a', {own}), ('b', {others})) AS of (tenant, count),
              LATERAL generate_series(1, count) AS number,
              LATERAL (SELECT (ARRAY['running', 'failed'])[number % 2 + 1] AS state,
                              (ARRAY['checkout', 'refund'])[number % 3 / 2 + 1] AS name) AS row;
         UPDATE hapax.saga SET id = 'c' || substr(id, 2) WHERE tenant = 'a' AND id > 'a-0006'"
    );
    scene.fixture.plain.batch_execute(&plant).await.unwrap();
    let alice = Actor::new("alice").of(Tenant::new("a").unwrap());
    for (limit, name, count) in [
        (5, None, own),
        (50, None, own),
        (3, Some("refund"), own / 3),
    ] {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let filter = Filter {
                name: name.map(str::to_owned),
                after,
                ..Filter::default()
            };
            let page = scene.store().list_sagas(&alice, &filter, limit).await;
            let page = page.unwrap();
            seen.extend(page.items.into_iter().map(|look| look.saga.id));
            after = page.next;
            let Some(after) = &after else { break };
            assert!(
                !after.starts_with('b'),
                "the cursor is another tenant's saga, {after}"
            );
        }
        assert_eq!(seen.len(), count, "{seen:?}");
    }
}

async fn check(scene: &Scene, expected: usize, set: impl FnOnce(&mut KeyFilter)) {
    let mut filter = KeyFilter::default();
    set(&mut filter);
    let (mut found, mut before) = (0, None);
    loop {
        let (store, cursor) = (scene.store(), before.as_deref());
        let page = store.keys(&scene.ops, &filter, cursor, PAGE_MAX).await;
        let page = page.unwrap();
        found += page.items.len();
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(found, expected, "{filter:?}");
}
