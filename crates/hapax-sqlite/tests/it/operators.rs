//! Reads of operators: the bounds of a page, estimates, and what only this store has.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{
    admin::{
        Actor, Cause, Count, CountKind, DeliveryStatus, EventAdmin as _, EventFilter,
        KeyAdmin as _, KeyFilter, OverviewAdmin as _, PAGE_MAX, TimelineAdmin as _,
    },
    delivery::KnownDestinations,
    event::{EventId, Headers, NewEvent, Payload},
    store::{Effect, Keys as _, Partitions as _, Transaction as _},
};
use hapax_sqlite::{Sqlite, SqliteAdmin, rusqlite::Connection};
use hapax_testkit::events::{event, keyring, response};

use crate::fixture::{Fixture, plan, settings};

#[tokio::test]
async fn an_id_that_was_made_elsewhere_is_found_by_a_search_of_all_events() {
    let (fixture, admin, ops) = beside().await;
    // The time in this id is long before all events, and 20,500 events lie between.
    let foreign: EventId = "01890000-0000-7000-8000-000000000000".parse().unwrap();
    run(
        &fixture,
        &format!(
            "{NUMBERS}
             INSERT INTO hapax_outbox_event (id, event_id, type, payload, headers, created_at)
             SELECT n, CASE n WHEN 20500 THEN '{foreign}' ELSE 'other ' || n END, 'order.created',
                    '1', '{{}}', {}
             FROM numbers WHERE n <= 42000",
            fixture.clock.now().as_millis()
        ),
    );
    let near = admin.find_event_near(&ops, foreign).await.unwrap();
    assert!(near.is_none(), "{near:?}");
    let found = admin.find_event(&ops, foreign).await.unwrap().unwrap();
    assert_eq!(found.position, 20_500);
    let filter = EventFilter {
        event_id: Some(foreign),
        ..EventFilter::default()
    };
    let first = admin.events(&ops, &filter, None, 10).await.unwrap();
    assert!(first.items.is_empty() && first.next.is_some(), "{first:?}");
    let second = admin.events(&ops, &filter, first.next.as_deref(), 10).await;
    assert_eq!(second.unwrap().items[0].position, found.position);
}

#[tokio::test]
async fn a_page_of_long_events_ends_after_many_bytes() {
    let (fixture, admin, ops) = beside().await;
    for _ in 0..7 {
        let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
        for _ in 0..10 {
            let long = Payload::Json(format!("\"{}\"", "x".repeat(1_000_000)));
            tx.emit(NewEvent::new("order.created", long)).unwrap();
        }
        tx.commit().await.unwrap();
    }
    let filter = EventFilter {
        kind: Some("rare".to_owned()),
        ..EventFilter::default()
    };
    let first = admin.events(&ops, &filter, None, 10).await.unwrap();
    assert!(first.items.is_empty() && first.next.is_some(), "{first:?}");
    let second = admin.events(&ops, &filter, first.next.as_deref(), 10).await;
    let second = second.unwrap();
    assert_eq!((second.items.len(), second.next), (0, None));
}

#[tokio::test]
async fn a_page_of_keys_reads_a_bounded_number_and_leads_on() {
    let (fixture, admin, ops) = beside().await;
    run(
        &fixture,
        &format!(
            "{NUMBERS}
             INSERT INTO hapax_idempotency_key
                 (tenant, operation, key, fingerprint, state, epoch, on_expired, created_at,
                  expires_at)
             SELECT 'a', CASE n WHEN 1 THEN 'rare' ELSE 'often' END, 'k' || n, x'', 'completed', 1,
                    'new', n * 1000, 0
             FROM numbers WHERE n <= 19500"
        ),
    );
    let rare = KeyFilter {
        operation: Some("rare".to_owned()),
        ..KeyFilter::default()
    };
    let first = admin.keys(&ops, &rare, None, 10).await.unwrap();
    assert!(first.items.is_empty(), "{:?}", first.items);
    let next = first.next.expect("the first page is not the last one");
    let second = admin.keys(&ops, &rare, Some(&next), 10).await.unwrap();
    assert_eq!((second.items.len(), second.next), (1, None));
    // Most keys have this prefix, so the list reads them by time instead.
    for (prefix, expected) in [("k", 19_500), ("k1", 10_612), ("k777", 11)] {
        let filter = KeyFilter {
            key: Some(prefix.to_owned()),
            ..KeyFilter::default()
        };
        let (mut found, mut before) = (0, None::<String>);
        loop {
            let page = admin.keys(&ops, &filter, before.as_deref(), PAGE_MAX).await;
            let page = page.unwrap();
            assert!(
                page.items
                    .is_sorted_by_key(|it| std::cmp::Reverse(it.created_at))
            );
            found += page.items.len();
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{prefix}");
    }
}

#[tokio::test]
async fn activity_that_is_too_frequent_to_count_is_estimated_from_its_rate() {
    let (fixture, admin, ops) = beside().await;
    fixture.store.open("orders").await.unwrap();
    let now = fixture.clock.now().as_millis();
    // For two minutes, each second has 100 events, 50 first offers of four events each, 100
    // failures and 200 keys. One minute has 6,000, 12,000, 6,000 and 12,000 of them, of which the
    // overview samples some thousands of rows.
    for insert in [
        format!(
            "INSERT INTO hapax_outbox_event (id, event_id, type, payload, headers, created_at)
             SELECT n, 'id ' || n, 'order.created', '1', '{{}}', {now} - (12000 - n) * 10
             FROM numbers WHERE n <= 12000"
        ),
        format!(
            "INSERT INTO hapax_arrival (partition, positions, first, last, started_at, duration_ms)
             SELECT 'orders', printf('%d-%d', n * 4, n * 4 + 3), n * 4, n * 4 + 3,
                    {now} - (6000 - n) * 20, 5
             FROM numbers WHERE n <= 6000"
        ),
        format!(
            "INSERT INTO hapax_attempt
                 (destination, position, number, started_at, duration_ms, outcome, response_head)
             SELECT 'orders', n, 1, {now} - (12000 - n) * 10, 5, 'unavailable', x''
             FROM numbers WHERE n <= 12000"
        ),
        format!(
            "INSERT INTO hapax_idempotency_key
                 (tenant, operation, key, state, epoch, on_expired, fingerprint, created_at,
                  expires_at)
             SELECT '', 'POST /orders', 'k' || n, 'failed', 1, 'new', x'00',
                    {now} - (24000 - n) * 5, {now} + 1000000
             FROM numbers WHERE n <= 24000"
        ),
    ] {
        run(&fixture, &format!("{NUMBERS} {insert}"));
    }
    let all = admin.overview(&ops).await.unwrap();
    let is_about = |count: Count, number: u64| {
        assert_eq!(count.kind, CountKind::About, "{count:?}");
        let bounds = number * 95 / 100..=number * 105 / 100;
        assert!(bounds.contains(&count.number), "{count:?}, not {number}");
    };
    is_about(all.committed, 6_000);
    is_about(all.delivered, 12_000);
    is_about(all.failed, 6_000);
    is_about(all.keys[0].count, 12_000);
    is_about(all.keys_stored.unwrap(), 24_000);
    is_about(all.destinations[0].backlog, 12_000);
}

#[tokio::test]
async fn what_this_handle_cannot_decrypt_is_shown_as_it_is_stored() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    let mut tx = fixture.claim("k").await;
    tx.emit(event("4242")).unwrap();
    tx.complete(&response("4242"), Effect::Keep).await.unwrap();
    let ops = Actor::new("ops");
    for (keys, is_readable) in [(&[1_u8][..], true), (&[2][..], false)] {
        let mut settings = settings(fixture.path(), &fixture.clock);
        settings.keyring = keyring(keys);
        let admin = SqliteAdmin::open(settings).unwrap();
        let found = admin.event_at(&ops, 1).await.unwrap().unwrap();
        let payload = String::from_utf8(found.event.payload.bytes().to_vec()).unwrap();
        assert_eq!(payload.contains("4242"), is_readable, "{payload}");
        let key = admin.key(&ops, None, "POST /notes", "k").await.unwrap();
        let body = key.body.unwrap().raw;
        assert_eq!(body == Bytes::from_static(b"4242"), is_readable, "{body:?}");
        let timeline = admin.timeline_of_key(&ops, None, None, "k").await.unwrap();
        assert_eq!(timeline.events.len(), 1);
    }
}

#[tokio::test]
async fn a_relay_without_a_node_name_is_alive_while_its_process_has_the_store_open() {
    let (fixture, admin, ops) = beside().await;
    fixture.store.open("orders").await.unwrap();
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    tx.emit(event("1")).unwrap();
    tx.commit().await.unwrap();
    let is_unowned = async |admin: &SqliteAdmin| {
        let stalled = admin.stalled(&ops).await.unwrap();
        stalled
            .iter()
            .any(|it| it.cause == Cause::Unowned { last: None })
    };
    assert!(is_unowned(&admin).await);
    let known = Arc::new(KnownDestinations::default());
    fixture.store.follow(Arc::downgrade(&known));
    assert!(!is_unowned(&admin).await);
    fixture.store.close().await.unwrap();
    assert!(is_unowned(&admin).await, "the store is closed");
    let again = Sqlite::open(fixture.settings()).unwrap();
    assert!(is_unowned(&admin).await, "another process runs no relay");
    again.follow(Arc::downgrade(&known));
    assert!(!is_unowned(&admin).await);
}

#[tokio::test]
async fn operators_who_look_keep_no_store_from_opening() {
    let (fixture, admin, ops) = beside().await;
    fixture.store.open("orders").await.unwrap();
    let known = Arc::new(KnownDestinations::default());
    fixture.store.follow(Arc::downgrade(&known));
    fixture.store.close().await.unwrap();
    let looks = (0..3).map(|_| {
        let (admin, ops) = (admin.clone(), ops.clone());
        tokio::spawn(async move {
            loop {
                admin.stalled(&ops).await.unwrap();
            }
        })
    });
    let looks: Vec<_> = looks.collect();
    for _ in 0..20 {
        let store = Sqlite::open(fixture.settings()).unwrap();
        store.follow(Arc::downgrade(&known));
        store.close().await.unwrap();
    }
    for look in looks {
        look.abort();
    }
}

#[tokio::test]
async fn events_and_keys_of_an_earlier_version_have_timelines() {
    let (fixture, admin, ops) = beside().await;
    let mut tx = fixture.claim("k").await;
    let with_key = tx.emit(event("1")).unwrap();
    tx.complete(&response("{}"), Effect::Keep).await.unwrap();
    for _ in 0..2 {
        let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
        tx.emit(event("2")).unwrap();
        tx.commit().await.unwrap();
    }
    run(
        &fixture,
        "UPDATE hapax_outbox_event SET xid = NULL;
         UPDATE hapax_idempotency_key SET xid = NULL",
    );
    let timeline = admin.timeline_of_key(&ops, None, None, "k").await.unwrap();
    assert_eq!(timeline.events.len(), 1);
    assert_eq!(timeline.events[0].event.event.id, with_key);
    assert!(!timeline.events[0].is_of_answer, "that is not known");
    for position in [2, 3] {
        let event = admin.event_at(&ops, position).await.unwrap().unwrap();
        let timeline = admin.timeline_of_event(&ops, event).await.unwrap();
        let found: Vec<i64> = timeline.events.iter().map(|it| it.event.position).collect();
        assert_eq!(found, [position]);
    }
}

#[tokio::test]
async fn a_key_without_events_has_no_events_of_the_next_transaction() {
    let (fixture, admin, ops) = beside().await;
    for key in ["one", "two"] {
        let tx = fixture.claim(key).await;
        tx.complete(&response("{}"), Effect::Keep).await.unwrap();
        let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
        tx.emit(event("1")).unwrap();
        tx.commit().await.unwrap();
        let timeline = admin.timeline_of_key(&ops, None, None, key).await.unwrap();
        assert!(timeline.events.is_empty(), "{timeline:?}");
    }
    // The same in a single-shot request.
    let plan = plan("three");
    fixture.store.execute_plan(plan).await.unwrap();
    let timeline = admin
        .timeline_of_key(&ops, None, None, "three")
        .await
        .unwrap();
    let [only] = timeline.events.as_slice() else {
        panic!("{timeline:?}");
    };
    assert!(only.is_of_answer && only.transaction == 3, "{only:?}");
    assert!(
        only.traces
            .iter()
            .all(|it| it.status == DeliveryStatus::Unread)
    );
}

/// Numbers from 1 to 50,000.
const NUMBERS: &str = "WITH RECURSIVE numbers (n) AS (
    SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 50000
)";

/// A store, the handle of another process, and an operator.
async fn beside() -> (Fixture, SqliteAdmin, Actor) {
    let fixture = Fixture::new().await;
    let admin = SqliteAdmin::open(fixture.settings()).unwrap();
    (fixture, admin, Actor::new("ops"))
}

/// Runs SQL in another program.
fn run(fixture: &Fixture, sql: &str) {
    let conn = Connection::open(fixture.path()).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn.execute_batch(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}
