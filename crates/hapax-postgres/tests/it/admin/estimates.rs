//! Estimates of the overview.

use hapax::admin::{Count, CountKind, OverviewAdmin as _};

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
