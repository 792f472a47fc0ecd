//! The list of events and the details of one event.

use std::time::Duration;

use hapax::{
    admin::{Actor, Count, CountKind, DeliveryStatus, EventAdmin as _, EventFilter},
    delivery::ParkedState,
    event::EventId,
    key::Tenant,
};

use super::scene::{Scene, park};
use crate::fixture::clock;

#[tokio::test]
async fn events_are_listed_by_a_filter_in_pages_the_newest_first() {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 5).await;
    scene.emit("order_created", Some("b"), 2).await;
    scene.emit("mail.sent", None, 1).await;
    assert_eq!(pages(&scene, &EventFilter::default(), 3).await.len(), 8);
    check(&scene, 5, |it| it.kind = Some("order.*".to_owned())).await;
    check(&scene, 2, |it| it.kind = Some("order_*".to_owned())).await;
    check(&scene, 8, |it| it.kind = Some("*".to_owned())).await;
    check(&scene, 0, |it| it.kind = Some("%".to_owned())).await;
    check(&scene, 5, |it| it.tenant = Some(Tenant::new("a").unwrap())).await;
    check(&scene, 3, |it| it.aggregate_id = Some("0".to_owned())).await;
    check(&scene, 0, |it| it.aggregate_type = Some("cart".to_owned())).await;
    let now = clock().now();
    let hour = Duration::from_hours(1);
    check(&scene, 8, |it| {
        (it.since, it.until) = (Some(before(now, hour)), Some(now.after(hour)));
    })
    .await;
    check(&scene, 0, |it| it.since = Some(now.after(hour))).await;
    check(&scene, 0, |it| it.until = Some(before(now, hour))).await;
}

/// As many events as are not all read, half of them after a rotation, which skips ids.
const MANY: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    SELECT gen_random_uuid(), CASE WHEN n % 4 = 0 THEN 'mail.sent' ELSE 'order.created' END,
           '{}', '{}', now() - interval '3 days'
    FROM generate_series(1, 15000) AS n;
    SELECT setval('hapax.outbox_event_id', 1::int8 << 36);
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    SELECT gen_random_uuid(), CASE WHEN n % 4 = 0 THEN 'mail.sent' ELSE 'order.created' END,
           '{}', '{}', now()
    FROM generate_series(1, 15000) AS n";

#[tokio::test]
async fn many_events_are_estimated_and_few_are_counted() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 5).await;
    let estimate = async |filter: EventFilter| {
        let estimated = scene.store().estimate_events(&scene.ops, &filter).await;
        let estimated = estimated.unwrap();
        (estimated.number, estimated.kind)
    };
    let of = |kind: &str| EventFilter {
        kind: Some(kind.to_owned()),
        ..EventFilter::default()
    };
    assert_eq!(estimate(of("order.*")).await, (5, CountKind::Exact));
    assert_eq!(estimate(of("mail.*")).await, (0, CountKind::Exact));
    scene.fixture.run(MANY).await;
    let (number, kind) = estimate(of("mail.*")).await;
    assert_eq!(kind, CountKind::About);
    assert!((7_400..7_600).contains(&number), "{number}");
    assert_eq!(estimate(of("rare")).await, (0, CountKind::AtLeast));
    let lately = EventFilter {
        since: Some(before(clock().now(), Duration::from_hours(1))),
        ..EventFilter::default()
    };
    let (number, kind) = estimate(lately).await;
    assert_eq!(kind, CountKind::About);
    assert!((14_900..15_100).contains(&number), "{number}");
    let hers = Actor::new("ann").of(Tenant::new("a").unwrap());
    let foreign = EventFilter {
        tenant: Some(Tenant::new("b").unwrap()),
        ..EventFilter::default()
    };
    let none = scene.store().estimate_events(&hers, &foreign).await;
    assert_eq!(none.unwrap(), Count::default());
}

#[tokio::test]
async fn a_hostile_filter_finds_nothing_and_breaks_nothing() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 2).await;
    for word in [
        "'; DROP TABLE hapax.outbox_event; --",
        "\\",
        "\0",
        "%' OR '1'='1",
        "$1",
        "é\u{202e}",
    ] {
        let word = Some(word.to_owned());
        check(&scene, 0, |it| it.kind.clone_from(&word)).await;
        check(&scene, 0, |it| it.aggregate_id.clone_from(&word)).await;
        check(&scene, 0, |it| it.aggregate_type.clone_from(&word)).await;
    }
    let extremes = [i64::MIN, i64::MAX].map(hapax::Timestamp::from_millis);
    for extreme in extremes {
        let filter = EventFilter {
            since: Some(extreme),
            ..EventFilter::default()
        };
        let _told = scene.store().events(&scene.ops, &filter, None, 10).await;
    }
    assert_eq!(
        pages(&scene, &EventFilter::default(), usize::MAX)
            .await
            .len(),
        2
    );
}

#[tokio::test]
async fn an_event_is_found_by_its_id_however_wrong_its_clock_was() {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 20).await;
    let all = scene.events().await;
    for event in &all {
        let found = scene
            .store()
            .find_event(&scene.ops, event.event.id)
            .await
            .unwrap();
        assert_eq!(found.unwrap().position, event.position);
    }
    let skewed = "UPDATE hapax.outbox_event SET created_at = created_at - interval '3 days'
        WHERE id % 3 = 0";
    scene.fixture.plain.execute(skewed, &[]).await.unwrap();
    for event in &all {
        let found = scene
            .store()
            .find_event(&scene.ops, event.event.id)
            .await
            .unwrap();
        assert!(found.is_some(), "{event:?}");
    }
    let hers = Actor::new("bob").of(Tenant::new("b").unwrap());
    assert!(
        scene
            .store()
            .find_event(&hers, all[0].event.id)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        scene
            .store()
            .event_at(&hers, all[0].position)
            .await
            .unwrap()
            .is_none()
    );
    let nobody: EventId = "01890000-0000-7000-8000-000000000000".parse().unwrap();
    assert!(
        scene
            .store()
            .find_event(&scene.ops, nobody)
            .await
            .unwrap()
            .is_none()
    );
    let filter = EventFilter {
        event_id: Some(all[7].event.id),
        ..EventFilter::default()
    };
    let page = scene
        .store()
        .events(&scene.ops, &filter, None, 10)
        .await
        .unwrap();
    assert_eq!(page.items[0].position, all[7].position);
    assert!(
        scene
            .store()
            .events(&hers, &filter, None, 10)
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn an_id_that_was_made_elsewhere_is_found_by_whoever_looks_at_every_event() {
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
async fn a_trace_tells_where_an_event_stands_everywhere() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 4).await;
    let at: Vec<i64> = scene.events().await.iter().map(|it| it.position).collect();
    let key = Some("order\n0".to_owned());
    scene
        .settle(
            "a",
            vec![
                park(at[0], ParkedState::Dead, key.clone()),
                park(at[1], ParkedState::Blocked, key),
                park(at[2], ParkedState::Scheduled, None),
            ],
        )
        .await;
    hapax::store::Partitions::open(scene.store(), "unread")
        .await
        .unwrap();
    let of = async |position| scene.store().trace(position).await.unwrap();
    let traces = of(at[1]).await;
    assert_eq!(traces.len(), 2);
    assert_eq!(
        (traces[0].status, traces[0].behind),
        (DeliveryStatus::Blocked, Some(at[0]))
    );
    assert_eq!(traces[1].status, DeliveryStatus::Unread);
    assert_eq!(of(at[0]).await[0].status, DeliveryStatus::Dead);
    assert_eq!(of(at[2]).await[0].status, DeliveryStatus::Scheduled);
    assert_eq!(of(at[3]).await[0].status, DeliveryStatus::Passed);
    assert!(of(i64::MAX).await.is_empty());
}

async fn pages(scene: &Scene, filter: &EventFilter, limit: usize) -> Vec<i64> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = scene
            .store()
            .events(&scene.ops, filter, before.as_deref(), limit)
            .await
            .unwrap();
        all.extend(page.items.iter().map(|it| it.position));
        before = page.next;
        if before.is_none() {
            assert!(all.is_sorted_by(|one, two| one > two), "{all:?}");
            return all;
        }
    }
}

async fn check(scene: &Scene, count: usize, set: impl FnOnce(&mut EventFilter)) {
    let mut filter = EventFilter::default();
    set(&mut filter);
    assert_eq!(pages(scene, &filter, 2).await.len(), count, "{filter:?}");
    let counted = scene
        .store()
        .count_events(&scene.ops, &filter)
        .await
        .unwrap();
    assert_eq!(counted, count as u64, "{filter:?}");
}

fn before(now: hapax::Timestamp, by: Duration) -> hapax::Timestamp {
    hapax::Timestamp::from_millis(now.as_millis() - i64::try_from(by.as_millis()).unwrap())
}
