//! `hapax.accept`: each consumer accepts a message once.

use hapax_testkit::wait::eventually;

use super::state;
use crate::fixture::{Fixture, PATIENCE};

const ACCEPT: &str = "SELECT hapax.accept($1, $2, sha256($3), 'bank')";

#[tokio::test]
async fn a_message_is_taken_once_by_each_consumer() {
    let fixture = Fixture::new().await;
    for (consumer, id, payload, outcome) in [
        ("ledger", "m", "x", "first"),
        ("ledger", "m", "x", "duplicate"),
        ("ledger", "m", "y", "mismatch"),
        ("mail", "m", "y", "first"),
        ("ledger", "n", "x", "first"),
    ] {
        let bytes = payload.as_bytes();
        let row = fixture
            .plain
            .query_one(ACCEPT, &[&consumer, &id, &bytes])
            .await;
        assert_eq!(
            row.unwrap().get::<_, &str>(0),
            outcome,
            "{consumer} {id} {payload}"
        );
    }
}

#[tokio::test]
async fn each_source_has_ids_of_its_own() {
    let fixture = Fixture::new().await;
    let accept = "SELECT hapax.accept('ledger', $1, sha256($2), $3)";
    for (id, payload, source, outcome) in [
        ("evt_1", "x", "marketplace", "first"),
        ("evt_1", "y", "bank", "first"),
        ("evt_1", "x", "marketplace", "duplicate"),
        ("evt_1", "y", "bank", "duplicate"),
        ("evt_1", "x", "bank", "mismatch"),
        ("evt_2", "x", "marketplace", "first"),
        ("evt_2", "x", "bank", "first"),
    ] {
        let row = fixture
            .plain
            .query_one(accept, &[&id, &payload.as_bytes(), &source])
            .await;
        let accepted: String = row.unwrap().get(0);
        assert_eq!(accepted, outcome, "{id} {payload} of {source}");
    }
}

#[tokio::test]
async fn a_message_that_another_session_is_taking_is_waited_for() {
    let fixture = Fixture::new().await;
    for (commits, outcome) in [(false, "first"), (true, "duplicate")] {
        let id = format!("m-{commits}");
        let mut client = fixture.database.client().await;
        let tx = client.transaction().await.unwrap();
        tx.execute(ACCEPT, &[&"ledger", &id, &&b"x"[..]])
            .await
            .unwrap();
        let other = fixture.database.client().await;
        let second = tokio::spawn(async move {
            let row = other.query_one(ACCEPT, &[&"ledger", &id, &&b"x"[..]]).await;
            row.unwrap().get::<_, String>(0)
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually(PATIENCE, async || fixture.count(waiting).await == 1).await;
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(second.await.unwrap(), outcome);
    }
}

#[tokio::test]
async fn a_message_is_recorded_as_processed_once_with_its_result() {
    let fixture = Fixture::new().await;
    let process = "SELECT hapax.processed('ledger', $1, 'bank', $2)";
    let mut client = fixture.database.client().await;
    for (id, result) in [("m", Some("applied")), ("n", None)] {
        let tx = client.transaction().await.unwrap();
        tx.execute(ACCEPT, &[&"ledger", &id, &&b"x"[..]])
            .await
            .unwrap();
        tx.execute(process, &[&id, &result]).await.unwrap();
        tx.commit().await.unwrap();
        // Once more, and for a message that was not accepted.
        for id in [id, "unknown"] {
            let again = client.execute(process, &[&id, &Some("other")]).await;
            assert_eq!(state(again), "HX011", "{id}");
        }
    }
    let complete = "SELECT count(*) FROM hapax.inbox_message
        WHERE processed_at > received_at
          AND result IS NOT DISTINCT FROM CASE message_id WHEN 'm' THEN 'applied' END";
    assert_eq!(fixture.count(complete).await, 2);
    let open = client.execute(ACCEPT, &[&"ledger", &"o", &&b"x"[..]]).await;
    open.unwrap();
    let is_open = "SELECT count(*) FROM hapax.inbox_message WHERE processed_at IS NULL";
    assert_eq!(fixture.count(is_open).await, 1);
    let long = Some("x".repeat(1025));
    let refused = client.execute(process, &[&"o", &long]).await;
    assert_eq!(state(refused), "HX001");
}

#[tokio::test]
async fn a_message_without_a_name_or_a_hash_is_refused() {
    let fixture = Fixture::new().await;
    let long = "x".repeat(256);
    for arguments in [
        "'', 'm', sha256('x'), 'bank'",
        "'c', '', sha256('x'), 'bank'",
        "'c', NULL, sha256('x'), 'bank'",
        "'c', 'm', sha256('x'), ''",
        "'c', 'm', NULL, 'bank'",
        "'c', 'm', 'x', 'bank'",
        &format!("'c', '{long}', sha256('x'), 'bank'"),
    ] {
        let sql = format!("SELECT hapax.accept({arguments})");
        let outcome = fixture.plain.query(&sql, &[]).await;
        assert_eq!(state(outcome), "HX001", "{arguments}");
    }
}
