//! Requests that are retried across the cut-over of the key table run once, and every retry gets the
//! first response.

use std::collections::BTreeMap;

use hapax_testkit::wait::eventually;
use tokio_postgres::Client;

use super::{
    begun,
    release::{REQUEST, Release, Taken, run, send, take},
    sql,
};
use crate::fixture::{Fixture, PATIENCE};

const STEP_1: &str = "Step 1: old and new instances run together";
const STEP_2: &str = "Step 2: only read the old table";
const STEP_3: &str = "Step 3: let the old keys expire";
const MOVE: &str = "Move the keys instead of waiting";

/// The responses of the keys that were sent so far. A retry that gets another response fails.
struct Responses {
    client: Client,
    by_key: BTreeMap<String, Vec<u8>>,
}

impl Responses {
    async fn of(fixture: &Fixture) -> Self {
        Self {
            client: fixture.database.client().await,
            by_key: BTreeMap::new(),
        }
    }

    async fn send(&mut self, release: Release, key: &str) {
        let body = send(&mut self.client, release, key).await.unwrap();
        let first = self
            .by_key
            .entry(key.to_owned())
            .or_insert_with(|| body.clone());
        assert_eq!(*first, body, "{key} got another response from {release:?}");
    }

    /// Requires that each key has one order.
    async fn have_one_effect_each(&self, fixture: &Fixture) {
        let orders = fixture.count("SELECT count(*) FROM orders").await;
        assert_eq!(usize::try_from(orders).unwrap(), self.by_key.len());
    }
}

#[tokio::test]
async fn a_request_that_is_retried_in_every_step_runs_once() {
    let fixture = begun().await;
    let mut all = Responses::of(&fixture).await;
    for key in ["before", "forgotten"] {
        all.send(Release::Old, key).await;
    }
    fixture.run(sql(STEP_1, 0)).await;
    all.send(Release::CutOver, "before").await;
    for first in [Release::CutOver, Release::Old] {
        let key = format!("first {first:?}");
        for release in [first, Release::Old, Release::CutOver, Release::Old] {
            all.send(release, &key).await;
        }
    }
    fixture.run(sql(STEP_2, 0)).await;
    let rows = "SELECT count(*) FROM idempotency_keys";
    let before = fixture.count(rows).await;
    for key in [
        "after",
        "after",
        "before",
        "forgotten",
        "first Old",
        "first CutOver",
    ] {
        all.send(Release::CutOver, key).await;
    }
    assert_eq!(fixture.count(rows).await, before);
    all.have_one_effect_each(&fixture).await;
}

#[tokio::test]
async fn the_old_table_is_dropped_when_its_newest_row_is_older_than_any_retry() {
    let fixture = begun().await;
    let mut client = fixture.database.client().await;
    send(&mut client, Release::Old, "before").await.unwrap();
    fixture.run(sql(STEP_1, 0)).await;
    fixture.run(sql(STEP_2, 0)).await;
    let is_over = async || -> bool {
        let row = fixture.plain.query_one(sql(STEP_3, 0), &[]).await.unwrap();
        row.get("is_over")
    };
    assert!(!is_over().await);
    fixture
        .run("UPDATE idempotency_keys SET created_at = now() - interval '25 hours'")
        .await;
    assert!(is_over().await);
    fixture.run(sql(STEP_3, 1)).await;
}

/// The transaction of the guide, with its literal values.
#[tokio::test]
async fn the_transaction_of_the_page_is_complete() {
    let fixture = begun().await;
    fixture.run(sql(STEP_1, 0)).await;
    fixture.run(sql(STEP_1, 1)).await;
    let both = "SELECT count(*) FROM hapax.idempotency_key AS new
        JOIN idempotency_keys AS old USING (tenant, operation, key)
        WHERE new.response_body = old.body AND new.response_status = old.status";
    assert_eq!(fixture.count(both).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_that_instances_of_both_releases_get_at_once_runs_once() {
    const KEYS: usize = 25;
    let fixture = begun().await;
    fixture.run(sql(STEP_1, 0)).await;
    let mut instances = tokio::task::JoinSet::new();
    for number in 0..8 {
        let mut client = fixture.database.client().await;
        let release = [Release::Old, Release::CutOver][number % 2];
        instances.spawn(async move {
            let mut bodies = Vec::new();
            for key in 0..KEYS {
                bodies.push(
                    send(&mut client, release, &format!("k{key}"))
                        .await
                        .unwrap(),
                );
            }
            bodies
        });
    }
    let responses = instances.join_all().await;
    assert!(
        responses.iter().all(|it| *it == responses[0]),
        "{responses:?}"
    );
    let orders = fixture.count("SELECT count(*) FROM orders").await;
    assert_eq!(usize::try_from(orders).unwrap(), KEYS);
}

#[tokio::test]
async fn of_an_instance_that_is_killed_the_other_release_takes_the_request_over() {
    for (killed, next) in [
        (Release::Old, Release::CutOver),
        (Release::CutOver, Release::Old),
        (Release::CutOver, Release::CutOver),
    ] {
        let fixture = begun().await;
        fixture.run(sql(STEP_1, 0)).await;
        let mut client = fixture.database.client().await;
        let tx = client.transaction().await.unwrap();
        assert_eq!(take(&tx, killed, "k", REQUEST).await.unwrap(), Taken::Open);
        run(&tx, killed, "k").await.unwrap();
        let pid = "SELECT pg_backend_pid()";
        let pid: i32 = tx.query_one(pid, &[]).await.unwrap().get(0);
        let mut waiter = fixture.database.client().await;
        let waiting = tokio::spawn(async move { send(&mut waiter, next, "k").await });
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database()
              AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')";
        eventually(PATIENCE, async || fixture.count(waits).await == 1).await;
        let kill = "SELECT pg_terminate_backend($1, 5000)";
        fixture.plain.execute(kill, &[&pid]).await.unwrap();
        let body = waiting.await.unwrap().unwrap();
        let mut all = Responses::of(&fixture).await;
        all.by_key.insert("k".to_owned(), body);
        for release in [Release::Old, Release::CutOver] {
            all.send(release, "k").await;
        }
        all.have_one_effect_each(&fixture).await;
    }
}

#[tokio::test]
async fn another_request_under_an_old_key_is_refused_in_both_steps_and_changes_nothing() {
    let fixture = begun().await;
    let mut all = Responses::of(&fixture).await;
    all.send(Release::Old, "k").await;
    for step in [STEP_1, STEP_2] {
        fixture.run(sql(step, 0)).await;
        let mut client = fixture.database.client().await;
        let tx = client.transaction().await.unwrap();
        let taken = take(&tx, Release::CutOver, "k", b"other").await.unwrap();
        assert_eq!(taken, Taken::Refused("mismatch".to_owned()));
        tx.rollback().await.unwrap();
        let keys = "SELECT count(*) FROM hapax.idempotency_key";
        assert_eq!(fixture.count(keys).await, 0);
    }
    all.send(Release::CutOver, "k").await;
    all.have_one_effect_each(&fixture).await;
}

#[tokio::test]
async fn a_row_without_a_response_is_in_progress_in_both_steps() {
    let fixture = begun().await;
    fixture
        .run(
            "INSERT INTO idempotency_keys (tenant, operation, key, request_hash)
             VALUES ('alice', 'POST /orders', 'k', sha256('{\"amount\": 500}'))",
        )
        .await;
    for step in [STEP_1, STEP_2] {
        fixture.run(sql(step, 0)).await;
        let mut client = fixture.database.client().await;
        let tx = client.transaction().await.unwrap();
        let taken = take(&tx, Release::CutOver, "k", REQUEST).await.unwrap();
        assert_eq!(taken, Taken::Refused("in_progress".to_owned()), "{step}");
    }
}

#[tokio::test]
async fn moved_keys_are_replayed_for_the_rest_of_their_time() {
    let fixture = begun().await;
    let mut all = Responses::of(&fixture).await;
    for key in ["young", "known", "expired"] {
        all.send(Release::Old, key).await;
    }
    fixture
        .run(
            "UPDATE idempotency_keys SET created_at = now() - interval '25 hours'
             WHERE key = 'expired';
             UPDATE idempotency_keys SET created_at = now() - interval '23 hours'
             WHERE key = 'young'",
        )
        .await;
    fixture.run(sql(STEP_1, 0)).await;
    fixture.run(sql(STEP_2, 0)).await;
    all.send(Release::CutOver, "known").await;
    fixture.run(sql(MOVE, 0)).await;
    // A second run finds every key.
    fixture.run(sql(MOVE, 0)).await;
    let keys = "SELECT count(*) FROM hapax.idempotency_key
        WHERE key = 'young' AND expires_at BETWEEN now() + interval '59 minutes'
              AND now() + interval '61 minutes'
           OR key = 'known' AND expires_at > now() + interval '23 hours'";
    assert_eq!(fixture.count(keys).await, 2);
    let all_keys = "SELECT count(*) FROM hapax.idempotency_key";
    assert_eq!(fixture.count(all_keys).await, 2);
    all.send(Release::New, "young").await;
    all.have_one_effect_each(&fixture).await;
}
