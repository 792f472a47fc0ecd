//! The inbox with two concurrent transactions that accept one message, and before and after the
//! migration that makes message ids unique per source.

use std::sync::Arc;

use hapax::{
    event::Headers,
    inbox::{Acceptance, Message},
    store::{Keys, Transaction},
};
use hapax_postgres::MIGRATIONS;
use hapax_testkit::{events::message, postgres::Database, wait::eventually};
use tokio_postgres::{Client, error::SqlState};

use crate::fixture::{Fixture, PATIENCE};

#[tokio::test]
async fn the_second_to_take_a_message_waits_for_the_first() {
    for first_commits in [true, false] {
        let fixture = Fixture::new().await;
        let beside = fixture.beside().await;
        let hello = message("mailer", "m1", "hello");
        let mut first = fixture.store.begin(None, Headers::new()).await.unwrap();
        assert_eq!(first.accept(&hello).await.unwrap(), Acceptance::First);
        let taking = tokio::spawn(async move {
            let mut second = beside.store.begin(None, Headers::new()).await.unwrap();
            let accepted = second.accept(&hello).await.unwrap();
            second.commit().await.unwrap();
            accepted
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually(PATIENCE, async || fixture.count(waiting).await == 1).await;
        let told = if first_commits {
            first.commit().await.unwrap();
            Acceptance::Duplicate
        } else {
            first.rollback().await;
            Acceptance::First
        };
        assert_eq!(taking.await.unwrap(), told);
        let taken = fixture.count("SELECT count(*) FROM hapax.inbox_message");
        assert_eq!(taken.await, 1);
    }
}

/// The migration that adds the source to the identity of a message.
const MIGRATION: &str = "message_source";
/// The index that an operator may create before the migration, without downtime.
const INDEX: &str = "CREATE UNIQUE INDEX CONCURRENTLY inbox_message_identity
    ON hapax.inbox_message (message_id, consumer, source)";
const KEY: &str = "
    SELECT pg_get_constraintdef(oid), pg_relation_filenode(conindid)
    FROM pg_constraint WHERE conname = 'inbox_message_pkey'";

#[tokio::test]
async fn what_was_accepted_before_the_upgrade_is_known_by_its_stored_source() {
    for is_prepared in [false, true] {
        let (database, plain) = before_the_upgrade().await;
        let accept = "SELECT hapax.accept('ledger', 'evt_1', sha256('x'), 'bank')";
        let row = plain.query_one(accept, &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "first");
        let mut file = None;
        if is_prepared {
            plain.batch_execute(INDEX).await.unwrap();
            let node = "SELECT pg_relation_filenode('hapax.inbox_message_identity')";
            file = plain
                .query_one(node, &[])
                .await
                .unwrap()
                .get::<_, Option<u32>>(0);
        }
        let fixture = Fixture::on(Arc::new(database), |_| {}).await;
        for (source, payload, told) in [
            ("bank", "x", Acceptance::Duplicate),
            ("bank", "y", Acceptance::Mismatch),
            ("marketplace", "y", Acceptance::First),
            ("marketplace", "y", Acceptance::Duplicate),
        ] {
            let sent = Message::new("ledger", source, "evt_1", payload.as_bytes()).unwrap();
            let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
            assert_eq!(tx.accept(&sent).await.unwrap(), told, "{source} {payload}");
            tx.commit().await.unwrap();
        }
        let again = plain.query_one(accept, &[]).await.unwrap();
        assert_eq!(again.get::<_, &str>(0), "duplicate");
        let key = plain.query_one(KEY, &[]).await.unwrap();
        assert_eq!(
            key.get::<_, &str>(0),
            "PRIMARY KEY (message_id, consumer, source)"
        );
        if is_prepared {
            assert_eq!(
                key.get::<_, Option<u32>>(1),
                file,
                "the index was built again"
            );
        }
    }
}

#[tokio::test]
async fn an_index_that_does_not_fit_is_made_anew() {
    for index in [
        "CREATE UNIQUE INDEX inbox_message_identity ON hapax.inbox_message (message_id, consumer)",
        "CREATE INDEX inbox_message_identity ON hapax.inbox_message (message_id, consumer, source)",
        "CREATE UNIQUE INDEX inbox_message_identity
             ON hapax.inbox_message (message_id, consumer, source) WHERE source = 'bank'",
        "CREATE UNIQUE INDEX inbox_message_identity
             ON hapax.inbox_message (message_id, consumer, source);
         UPDATE pg_index SET indisvalid = false
             WHERE indexrelid = 'hapax.inbox_message_identity'::regclass",
    ] {
        let (database, plain) = before_the_upgrade().await;
        plain.batch_execute(index).await.unwrap();
        let _upgraded = Fixture::on(Arc::new(database), |_| {}).await;
        let key = plain.query_one(KEY, &[]).await.unwrap();
        assert_eq!(
            key.get::<_, &str>(0),
            "PRIMARY KEY (message_id, consumer, source)"
        );
    }
}

/// Nodes of the previous version that still run after the migration cannot distinguish sources, so
/// they accept nothing.
#[tokio::test]
async fn a_process_of_the_version_before_takes_no_message_any_more() {
    let fixture = Fixture::new().await;
    let accept = "
        INSERT INTO hapax.inbox_message
            (consumer, message_id, source, payload_hash, received_at, processed_at)
        VALUES ('ledger', 'evt_1', 'bank', sha256('x'), now(), now())
        ON CONFLICT (message_id, consumer) DO NOTHING
        RETURNING 1";
    let refused = fixture.plain.query(accept, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::INVALID_COLUMN_REFERENCE));
    let taken = fixture.count("SELECT count(*) FROM hapax.inbox_message");
    assert_eq!(taken.await, 0);
}

/// A database migrated by the previous version.
async fn before_the_upgrade() -> (Database, Client) {
    let (newest, database) = (Fixture::new().await, Database::empty().await);
    let plain = database.client().await;
    let record = "CREATE SCHEMA hapax;
        CREATE TABLE hapax.migration (
            namespace text NOT NULL, version integer NOT NULL, name text NOT NULL,
            checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (namespace, version)
        )";
    plain.batch_execute(record).await.unwrap();
    for (version, name, sql) in MIGRATIONS
        .iter()
        .take_while(|(_, name, _)| *name != MIGRATION)
    {
        plain.batch_execute(sql).await.unwrap();
        let version = i32::try_from(*version).unwrap();
        let sum = "SELECT checksum FROM hapax.migration WHERE namespace = 'hapax' AND version = $1";
        let sum: String = newest
            .plain
            .query_one(sum, &[&version])
            .await
            .unwrap()
            .get(0);
        let note = "INSERT INTO hapax.migration (namespace, version, name, checksum)
            VALUES ('hapax', $1, $2, $3)";
        plain.execute(note, &[&version, name, &sum]).await.unwrap();
    }
    (database, plain)
}
