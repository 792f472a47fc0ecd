//! Locks of endpoints and their deliveries on PostgreSQL: which changes wait for a settlement, and in which
//! order deliveries are locked. A settlement locks deliveries first and their endpoints after them.

use std::time::Duration;

use hapax::{
    admin::{Actor, EndpointAdmin as _},
    endpoint::{
        EndpointRecord, EndpointRecovery as _, EndpointStore as _, NextStep, QueuedDelivery,
        SettledDelivery,
    },
    store::StoreError,
};
use hapax_testkit::wait::eventually;
use tokio::time::timeout;

use crate::fixture::{Fixture, PATIENCE};

const AT_ONCE: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_hours(24);
const LEASE: Duration = Duration::from_secs(20);
/// A disabled endpoint whose probe is due, and two deliveries that wait. The one with the lower id has the
/// later event.
const ROWS: &str = "
    INSERT INTO hapax.endpoint
        (id, tenant, url, description, types, headers, disabled_reason, disabled_at, probe_at,
         created_at, created_by, changed_at, changed_by, version)
    VALUES ('ep_1', 'acme', 'https://a.example/', '', '[]', '[]', 'it failed', now(), now(), now(),
            'ops', now(), 'ops', 0);
    INSERT INTO hapax.endpoint_delivery
        (endpoint, tenant, position, event_id, type, payload, headers, event_created_at, state,
         attempt, next_at, created_at)
    SELECT 'ep_1', 'acme', 3 - number, ('019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e2' || number)::uuid, 'a',
           '{}', '{}', now(), 'waiting', 1, now() + interval '1 day', now()
    FROM generate_series(1, 2) AS number
    ORDER BY number";
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test]
async fn a_change_of_an_endpoint_waits_for_no_delivery_that_is_being_settled() {
    let fixture = Fixture::new().await;
    fixture.run(ROWS).await;
    let mut other = fixture.database.client().await;
    let settling = other.transaction().await.unwrap();
    let hold = "SELECT 1 FROM hapax.endpoint_delivery WHERE position = 1 FOR UPDATE";
    settling.execute(hold, &[]).await.unwrap();
    // The oldest event is the next one to send, so no other one is sent before it.
    let probes = timeout(AT_ONCE, fixture.store.claim_probes(1, LEASE)).await;
    assert!(probes.unwrap().unwrap().is_empty());
    let recover = fixture.store.recover_endpoint("ep_1", 0, false);
    assert!(timeout(AT_ONCE, recover).await.unwrap().unwrap());
    let actor = Actor::new("ops");
    let delete = fixture.store.delete_endpoint(&actor, "acme", "ep_1");
    timeout(AT_ONCE, delete).await.unwrap().unwrap();
    settling.commit().await.unwrap();
    // A relay deletes the rest.
    let left = "SELECT count(*) FROM hapax.endpoint_delivery";
    assert_eq!(fixture.count(left).await, 1);
    fixture.store.purge_endpoints(DAY).await.unwrap();
    assert_eq!(fixture.count(left).await, 0);
}

#[tokio::test]
async fn a_settlement_locks_deliveries_in_the_order_of_their_ids() {
    let fixture = Fixture::new().await;
    let settled = |event: &str| SettledDelivery {
        endpoint: "ep_1".to_owned(),
        event_id: event.parse().unwrap(),
        attempt: 1,
        next: NextStep::Failed,
        error: None,
    };
    let record = EndpointRecord {
        settle: vec![
            settled("019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e22"),
            settled("019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21"),
        ],
        ..EndpointRecord::default()
    };
    locks_in_order(&fixture, fixture.store.record_deliveries(&record)).await;
}

#[tokio::test]
async fn deliveries_of_which_too_many_wait_are_locked_in_the_order_of_their_ids() {
    let fixture = Fixture::new().await;
    locks_in_order(&fixture, fixture.store.drop_deliveries(0)).await;
}

/// Two transactions that queue the same deliveries wait for each other's insertions.
#[tokio::test]
async fn deliveries_are_queued_in_the_order_of_their_events() {
    const EVENTS: &str = "
        DELETE FROM hapax.endpoint_delivery;
        INSERT INTO hapax.outbox_event (event_id, type, tenant, payload, headers, created_at)
        SELECT ('019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e2' || number)::uuid, 'a', 'acme', '{}', '{}', now()
        FROM generate_series(1, 2) AS number
        ORDER BY number";
    let fixture = Fixture::new().await;
    fixture.run(ROWS).await;
    fixture.run(EVENTS).await;
    let queued = |position: i64, event: &str| QueuedDelivery {
        endpoint: "ep_1".to_owned(),
        position,
        event_id: event.parse().unwrap(),
        attempt: 0,
        next: NextStep::Retry(Duration::ZERO),
        error: None,
    };
    let record = EndpointRecord {
        queue: vec![
            queued(2, "019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e22"),
            queued(1, "019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21"),
        ],
        ..EndpointRecord::default()
    };
    let recorded = fixture.store.record_deliveries(&record).await.unwrap();
    assert!(recorded.missing.is_empty(), "{recorded:?}");
    let in_order = "SELECT count(*)
        FROM hapax.endpoint_delivery AS one
        JOIN hapax.endpoint_delivery AS other ON other.id > one.id AND other.position > one.position";
    assert_eq!(fixture.count(in_order).await, 1);
}

/// Checks that a change of both deliveries, which waits for the one with the lower id, has not locked the
/// other one.
async fn locks_in_order<T>(fixture: &Fixture, change: impl Future<Output = Result<T, StoreError>>) {
    fixture.run(ROWS).await;
    // A scan of the table finds this one after the other one.
    fixture
        .run("UPDATE hapax.endpoint_delivery SET attempt = attempt WHERE position = 2")
        .await;
    let mut other = fixture.database.client().await;
    let holding = other.transaction().await.unwrap();
    let hold = "SELECT 1 FROM hapax.endpoint_delivery WHERE position = 2 FOR UPDATE";
    holding.execute(hold, &[]).await.unwrap();
    let is_free = async {
        eventually(PATIENCE, async || fixture.count(WAITING).await == 1).await;
        let free = "SELECT count(*) FROM (
            SELECT 1 FROM hapax.endpoint_delivery WHERE position = 1 FOR UPDATE NOWAIT) AS free";
        assert_eq!(fixture.count(free).await, 1);
        holding.rollback().await.unwrap();
    };
    let (changed, ()) = tokio::join!(change, is_free);
    changed.unwrap();
    let failed = "SELECT count(*) FROM hapax.endpoint_delivery WHERE state = 'failed'";
    assert_eq!(fixture.count(failed).await, 2);
}
