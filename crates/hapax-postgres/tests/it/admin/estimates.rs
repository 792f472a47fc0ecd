//! Estimates of the overview and of counted events.

use hapax::{
    Clock, Timestamp,
    admin::{Actor, Count, CountKind, EventAdmin as _, EventFilter, OverviewAdmin as _},
    key::Tenant,
};

use super::scene::Scene;

#[tokio::test]
async fn a_backlog_that_is_too_large_to_count_is_estimated() {
    let scene = Scene::new().await;
    scene.pass("orders", &[]).await;
    scene.emit("order.created", None, 2_500).await;
    let all = scene.store().overview(&scene.ops).await.unwrap();
    let backlog = all.destinations[0].backlog;
    assert_eq!(backlog.kind, CountKind::About);
    assert!((2_400..=2_600).contains(&backlog.number), "{backlog:?}");
}

#[tokio::test]
async fn activity_that_is_too_frequent_to_count_is_estimated_from_its_rate() {
    let scene = Scene::new().await;
    scene.pass("orders", &[]).await;
    // For two minutes, each second has 100 events, 50 first offers of four events each, 100
    // failures and 200 keys. One minute has 6,000, 12,000, 6,000 and 12,000 of them, of which the
    // overview samples some thousands of rows.
    let busy = "
        INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
        SELECT gen_random_uuid(), 'order.created', '1', '{}', now() - (12000 - n) * interval '10 milliseconds'
        FROM generate_series(1, 12000) AS n ORDER BY n;
        INSERT INTO hapax.arrival (partition, positions, first, last, started_at, duration_ms)
        SELECT 'orders', format('%s-%s', n * 4, n * 4 + 3), n * 4, n * 4 + 3,
               now() - (6000 - n) * interval '20 milliseconds', 5
        FROM generate_series(1, 6000) AS n ORDER BY n;
        INSERT INTO hapax.attempt
            (destination, position, number, started_at, duration_ms, outcome, response_head)
        SELECT 'orders', n, 1, now() - (12000 - n) * interval '10 milliseconds', 5, 'unavailable', ''
        FROM generate_series(1, 12000) AS n ORDER BY n;
        INSERT INTO hapax.idempotency_key
            (tenant, operation, key, state, fingerprint, created_at, expires_at)
        SELECT '', 'POST /orders', 'k' || n, 'failed', '\\x00',
               now() - (24000 - n) * interval '5 milliseconds', now() + interval '1 day'
        FROM generate_series(1, 24000) AS n ORDER BY n";
    scene.fixture.plain.batch_execute(busy).await.unwrap();
    let all = scene.store().overview(&scene.ops).await.unwrap();
    let is_about = |count: Count, number: u64| {
        // The time between inserting the rows and reading them is part of the measured minute.
        assert_eq!(count.kind, CountKind::About, "{count:?}");
        let bounds = number * 7 / 10..=number * 11 / 10;
        assert!(bounds.contains(&count.number), "{count:?}, not {number}");
    };
    is_about(all.committed, 6_000);
    is_about(all.delivered, 12_000);
    is_about(all.failed, 6_000);
    is_about(all.keys[0].count, 12_000);
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
    let an_hour_ago = Clock::system().now().as_millis() - 3_600_000;
    let lately = EventFilter {
        since: Some(Timestamp::from_millis(an_hour_ago)),
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
