//! Stalled partitions and keys with their causes, and the figures of the overview.

use bytes::Bytes;
use hapax::{
    admin::{
        Actor, Cause, Count, CountKind, DestinationAdmin as _, OverviewAdmin as _, Stalled,
        StalledItem, StateCount,
    },
    delivery::{Park, ParkedState},
    event::Headers,
    key::Tenant,
    saga::{Definition, State},
    store::{Effect, Keys as _, SagaRows as _, Transaction as _},
};
use hapax_postgres::Tx;
use hapax_testkit::events::{claim, response};

use super::scene::{Scene, park};

/// The rows that a relay writes when it owns every partition.
const LIVES: &str = "
    INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at) VALUES (0, 1, 'n1', true, now());
    UPDATE hapax.lease SET node = 'n1'";

#[tokio::test]
async fn nothing_stands_still_where_all_was_carried() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 3).await;
    scene.pass("orders", &[]).await;
    scene.fixture.plain.batch_execute(LIVES).await.unwrap();
    assert_eq!(told(&scene).await, []);
}

#[tokio::test]
async fn a_partition_without_an_owner_is_distinguished_from_one_whose_owner_is_silent() {
    let scene = Scene::new().await;
    scene.pass("orders", &[]).await;
    scene.emit("order.created", None, 3).await;
    let plain = &scene.fixture.plain;
    plain
        .batch_execute("UPDATE hapax.lease SET node = NULL")
        .await
        .unwrap();
    let [it] = told(&scene).await.try_into().unwrap();
    assert_eq!((it.cause, it.waiting), (Cause::Unowned { last: None }, 3));
    assert_eq!(
        it.what,
        StalledItem::Partition {
            partition: "orders".to_owned()
        }
    );
    // The last heartbeat is an hour old, and no other relay lives.
    let silent = "
        INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at)
        VALUES (0, 1, 'n1', true, now() - interval '1 hour');
        UPDATE hapax.lease SET node = 'n1', taken_at = now() - interval '2 hours'";
    plain.batch_execute(silent).await.unwrap();
    let [it] = told(&scene).await.try_into().unwrap();
    let last = Some("n1".to_owned());
    assert_eq!(
        (it.cause, it.since.is_some()),
        (Cause::Unowned { last }, true)
    );
    let other = "INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at)
        VALUES (0, 2, 'n2', true, now())";
    plain.batch_execute(other).await.unwrap();
    let [it] = told(&scene).await.try_into().unwrap();
    assert!(
        matches!(&it.cause, Cause::OwnerSilent { node, .. } if node == "n1"),
        "{it:?}"
    );
    plain
        .batch_execute("UPDATE hapax.lease SET node = 'n2'")
        .await
        .unwrap();
    assert_eq!(told(&scene).await, []);
}

#[tokio::test]
async fn what_an_operator_paused_and_what_is_gone_are_reported_by_name() {
    let scene = Scene::new().await;
    for partition in ["gone", "orders"] {
        scene.pass(partition, &[]).await;
    }
    scene.fixture.plain.batch_execute(LIVES).await.unwrap();
    scene
        .store()
        .pause_destination(&scene.ops, "orders")
        .await
        .unwrap();
    let gone = "UPDATE hapax.destination SET disabled_at = now(), disabled_reason = '410 Gone'
        WHERE name = 'gone'";
    scene.fixture.plain.batch_execute(gone).await.unwrap();
    let [disabled, paused] = told(&scene).await.try_into().unwrap();
    let reason = "410 Gone".to_owned();
    assert_eq!(disabled.cause, Cause::Disabled { reason });
    let by = Some("ops".to_owned());
    assert_eq!(paused.cause, Cause::Paused { by });
    assert!(paused.since.is_some());
    scene
        .store()
        .resume_destination(&scene.ops, "orders")
        .await
        .unwrap();
    assert_eq!(told(&scene).await.len(), 1);
}

#[tokio::test]
async fn the_blocker_of_a_key_is_shown_with_the_number_of_waiting_events() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 6).await;
    let at: Vec<i64> = scene.events().await.iter().map(|it| it.position).collect();
    let key = |id: &str| Some(format!("order\n{id}"));
    let mut retrying = park(at[3], ParkedState::Retrying, key("2"));
    retrying.next_at = hapax::Timestamp::from_millis(4_000_000_000_000);
    let parks: Vec<Park> = vec![
        park(at[0], ParkedState::Dead, key("1")),
        park(at[1], ParkedState::Blocked, key("1")),
        park(at[2], ParkedState::Blocked, key("1")),
        retrying,
        park(at[4], ParkedState::Blocked, key("2")),
        // A dead letter that blocks no other event.
        park(at[5], ParkedState::Dead, key("3")),
    ];
    scene.settle("orders", parks).await;
    scene.fixture.plain.batch_execute(LIVES).await.unwrap();
    let all = told(&scene).await;
    let of = |id: &str| {
        let is = |it: &&Stalled| matches!(&it.what, StalledItem::OrderKey { aggregate_id, .. } if aggregate_id == id);
        all.iter().find(is)
    };
    let dead = of("1").unwrap();
    assert_eq!(dead.waiting, 2);
    assert!(matches!(dead.cause, Cause::BehindDeadLetter { position, .. } if position == at[0]));
    let retrying = of("2").unwrap();
    assert_eq!(retrying.waiting, 1);
    let is = matches!(retrying.cause, Cause::WaitsForRetry { position, attempts: 3, .. } if position == at[3]);
    assert!(is, "{retrying:?}");
    assert!(of("3").is_none(), "{all:?}");
    let partition = all
        .iter()
        .find(|it| {
            it.what
                == StalledItem::Partition {
                    partition: "orders".to_owned(),
                }
        })
        .unwrap();
    assert!(
        matches!(partition.cause, Cause::WaitsForRetry { .. }),
        "{partition:?}"
    );
    assert_eq!((all.len(), partition.waiting), (3, 4));
}

#[tokio::test]
async fn events_that_the_receiver_declines_are_reported_by_type() {
    let scene = Scene::new().await;
    scene.emit("seq.next", None, 3).await;
    scene.emit("order.created", None, 1).await;
    let at: Vec<i64> = scene.events().await.iter().map(|it| it.position).collect();
    let later = |position| {
        let mut parked = park(position, ParkedState::Retrying, None);
        parked.next_at = hapax::Timestamp::from_millis(4_000_000_000_000);
        parked
    };
    let dead = park(at[2], ParkedState::Dead, None);
    scene
        .settle(
            "orders",
            vec![later(at[0]), later(at[1]), dead, later(at[3])],
        )
        .await;
    scene.fixture.plain.batch_execute(LIVES).await.unwrap();
    let tried = format!(
        "INSERT INTO hapax.attempt
             (destination, position, number, started_at, duration_ms, outcome, error, response_head)
         SELECT 'orders', position, 1, now(), 5, 'declined', 'no queue', ''
         FROM unnest('{{{},{},{}}}'::int8[]) AS tried (position);
         INSERT INTO hapax.attempt
             (destination, position, number, started_at, duration_ms, outcome, error, response_head)
         VALUES ('orders', {3}, 1, now(), 5, 'declined', '', ''),
                ('orders', {3}, 2, now(), 5, 'unavailable', 'away', '')",
        at[0], at[1], at[2], at[3]
    );
    scene.fixture.plain.batch_execute(&tried).await.unwrap();
    let all = told(&scene).await;
    let declined = all.iter().find(|it| it.cause.as_str() == "declined");
    let declined = declined.unwrap_or_else(|| panic!("{all:?}"));
    let kind = |kind: &str| StalledItem::EventType {
        partition: "orders".to_owned(),
        kind: kind.to_owned(),
    };
    assert_eq!((&declined.what, declined.waiting), (&kind("seq.next"), 3));
    let error = Some("no queue".to_owned());
    let position = at[0];
    assert_eq!(declined.cause, Cause::Declined { position, error });
    assert!(!all.iter().any(|it| it.what == kind("order.created")));
}

#[tokio::test]
async fn sagas_that_need_a_person_or_a_worker_are_reported_by_kind() {
    let scene = Scene::new().await;
    for (id, tenant) in [("s1", "alice"), ("s2", "bob"), ("s3", "bob")] {
        saga(&scene, id, tenant).await;
    }
    assert_eq!(told(&scene).await, []);
    let stop = "
        UPDATE hapax.saga SET state = 'needs_attention', wake_at = NULL WHERE id = 's1';
        UPDATE hapax.saga SET version = 2, wake_at = now() - interval '2 minutes' WHERE id <> 's1'";
    scene.fixture.plain.batch_execute(stop).await.unwrap();
    let name = || "checkout".to_owned();
    let [asking, overdue] = told(&scene).await.try_into().unwrap();
    assert_eq!((asking.cause, asking.waiting), (Cause::NeedsAttention, 1));
    assert_eq!(
        asking.what,
        StalledItem::Sagas {
            name: name(),
            version: 1
        }
    );
    assert_eq!((overdue.cause, overdue.waiting), (Cause::NobodyKnows, 2));
    assert_eq!(
        overdue.what,
        StalledItem::Sagas {
            name: name(),
            version: 2
        }
    );
    let alice = Actor::new("alice").of(Tenant::new("alice").unwrap());
    let [own] = scene
        .store()
        .stalled(&alice)
        .await
        .unwrap()
        .try_into()
        .unwrap();
    assert_eq!(own.cause, Cause::NeedsAttention);
}

#[tokio::test]
async fn an_actor_of_a_tenant_sees_its_own_destinations() {
    let scene = Scene::new().await;
    for name in ["hers", "his"] {
        scene.pass(name, &[]).await;
    }
    scene.emit("order.created", Some("alice"), 2).await;
    let declare = "
        INSERT INTO hapax.declaration
            (name, spec, version, created_at, changed_at, changed_by)
        VALUES ('hers', '{\"tenant\":\"alice\"}', 1, now(), now(), 'ops'),
               ('his', '{\"tenant\":\"bob\"}', 2, now(), now(), 'ops');
        UPDATE hapax.lease SET node = NULL";
    scene.fixture.plain.batch_execute(declare).await.unwrap();
    assert_eq!(told(&scene).await.len(), 2);
    let alice = Actor::new("alice").of(Tenant::new("alice").unwrap());
    let [own] = scene
        .store()
        .stalled(&alice)
        .await
        .unwrap()
        .try_into()
        .unwrap();
    assert_eq!(
        own.what,
        StalledItem::Partition {
            partition: "hers".to_owned()
        }
    );
    let figures = scene.store().overview(&alice).await.unwrap();
    assert_eq!(figures.destinations.len(), 1);
    assert_eq!((figures.committed.number, figures.keys_stored), (2, None));
    let bob = Actor::new("bob").of(Tenant::new("bob").unwrap());
    assert_eq!(
        scene.store().overview(&bob).await.unwrap().committed.number,
        0
    );
}

#[tokio::test]
async fn the_overview_counts_what_there_is() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 5).await;
    let at: Vec<i64> = scene.events().await.iter().map(|it| it.position).collect();
    let parks = vec![
        park(at[0], ParkedState::Dead, None),
        park(at[1], ParkedState::Retrying, None),
        park(at[2], ParkedState::Retrying, None),
    ];
    scene.settle("orders", parks).await;
    let lately = format!(
        "INSERT INTO hapax.arrival (partition, positions, first, last, started_at, duration_ms)
         VALUES ('orders', '{0}-{1}', {0}, {1}, now(), 5), ('orders', '1', 1, 1, now() - interval '2 minutes', 5);
         INSERT INTO hapax.attempt
             (destination, position, number, started_at, duration_ms, outcome, response_head)
         VALUES ('orders', 1, 1, now(), 5, 'unavailable', ''), ('orders', 1, 2, now(), 5, 'delivered', ''),
                ('orders', 2, 1, now() - interval '2 minutes', 5, 'unavailable', '')",
        at[3], at[4]
    );
    // The attempts are inserted in the order in which they were made.
    scene.fixture.plain.batch_execute(&lately).await.unwrap();
    scene.emit("order.created", None, 4).await;
    let tx = scene.fixture.claim(claim("k")).await;
    tx.complete(&response("{}"), Effect::Keep).await.unwrap();
    saga(&scene, "s1", "alice").await;
    let exact = |number| Count {
        number,
        kind: CountKind::Exact,
    };
    let all = scene.store().overview(&scene.ops).await.unwrap();
    assert_eq!(all.committed, exact(9));
    let [orders] = all.destinations.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(
        (orders.backlog, orders.parked, orders.dead),
        (exact(4), exact(2), exact(1))
    );
    assert_eq!((orders.delivered, orders.failed), (exact(3), exact(1)));
    assert_eq!((all.delivered, all.failed), (exact(3), exact(1)));
    assert!(orders.lag.is_some());
    let count = exact(1);
    let state = "completed";
    assert_eq!(all.keys, [StateCount { state, count }]);
    let running = all.sagas.iter().find(|it| it.state == "running");
    assert_eq!(running.unwrap().count, count);
    assert_eq!(all.sagas.len(), State::ALL.len());
}

#[tokio::test]
async fn what_is_too_much_to_count_is_estimated_and_said_so() {
    let scene = Scene::new().await;
    scene.pass("orders", &[]).await;
    scene.emit("order.created", None, 2_500).await;
    let all = scene.store().overview(&scene.ops).await.unwrap();
    let backlog = all.destinations[0].backlog;
    assert_eq!(backlog.kind, CountKind::About);
    assert!((2_400..=2_600).contains(&backlog.number), "{backlog:?}");
}

#[tokio::test]
async fn what_happens_too_often_to_be_counted_is_shown_as_a_rate() {
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

async fn told(scene: &Scene) -> Vec<Stalled> {
    scene.store().stalled(&scene.ops).await.unwrap()
}

async fn saga(scene: &Scene, id: &str, tenant: &str) {
    let mut tx = scene.store().begin(None, Headers::new()).await.unwrap();
    let kind = Definition::<Tx>::new("checkout", 1);
    let new = kind.begin(id, Tenant::new(tenant).ok(), Bytes::new());
    tx.start_saga(&new).await.unwrap();
    tx.commit().await.unwrap();
}
