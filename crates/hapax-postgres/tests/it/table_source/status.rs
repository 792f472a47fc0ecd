//! Tables whose rows have a status: pending, then processed or failed.

use hapax_postgres::{Imported, Moved, TableSource};

use super::{events, imported, kinds, move_batch, refusals::problems, topic};
use crate::fixture::Fixture;

/// A table with a status.
pub(super) const STATUS: &str = "CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, payload text,
    status text DEFAULT 'pending', processed_at timestamptz)";

/// The description of [`STATUS`].
pub(super) fn table() -> TableSource {
    let mut table = topic();
    table.published = Some("status".to_owned());
    table.published_at = Some("processed_at".to_owned());
    table.failed = Some("failed".to_owned());
    table
}

#[tokio::test]
async fn rows_that_are_pending_are_moved_and_no_others() {
    let (fixture, imported) = imported(STATUS, table()).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload, status) VALUES ('a', '{}', 'pending'),
            ('b', '{}', 'processed'), ('c', '{}', 'failed'), ('d', '{}', NULL),
            ('e', '{}', 'Pending'), ('f', '{}', 'pending')",
        )
        .await;
    assert_eq!(move_batch(&imported).await.rows, 2);
    assert_eq!(move_batch(&imported).await, Moved::default());
    assert_eq!(kinds(&fixture).await, ["a", "f"]);
    let moved = "SELECT count(*) FROM outbox WHERE status = 'processed' AND processed_at <= now()";
    assert_eq!(fixture.count(moved).await, 2);
}

#[tokio::test]
async fn an_enum_and_a_uuid_are_a_status_and_a_key() {
    let ddl = "CREATE TYPE state AS ENUM ('new', 'it''s \\ sent', 'bad');
        CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text,
            payload text, stage state NOT NULL DEFAULT 'new', sent timestamp, nth bigint NOT NULL)";
    let mut table = table();
    table.order = vec!["nth".to_owned()];
    table.event_id = Some("id".to_owned());
    table.published = Some("stage".to_owned());
    table.published_at = Some("sent".to_owned());
    table.pending = Some("new".to_owned());
    table.processed = Some("it's \\ sent".to_owned());
    table.failed = Some("bad".to_owned());
    let (fixture, imported) = imported(ddl, table).await;
    fixture.run(imported.index()).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload, nth)
            SELECT CASE WHEN n = 3 THEN '' ELSE 'n' || n END, '{}', n FROM generate_series(1, 5) AS n",
        )
        .await;
    let moved = move_batch(&imported).await;
    assert_eq!((moved.rows, moved.set_aside), (4, 1));
    assert_eq!(kinds(&fixture).await, ["n1", "n2", "n4", "n5"]);
    let sent = "SELECT count(*) FROM outbox WHERE stage = 'it''s \\ sent'
        AND now() AT TIME ZONE 'UTC' - sent BETWEEN interval '0' AND interval '1 hour'";
    assert_eq!(fixture.count(sent).await, 4);
    let bad = "SELECT count(*) FROM outbox WHERE stage = 'bad' AND sent IS NULL";
    assert_eq!(fixture.count(bad).await, 1);
}

/// A row that was repaired is moved when its status is set back; its record goes with the move.
#[tokio::test]
async fn a_row_that_cannot_be_an_event_is_failed_until_its_status_is_set_back() {
    let (fixture, imported) = imported(STATUS, table()).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('a', 'torn'), ('b', '{}')")
        .await;
    let moved = move_batch(&imported).await;
    assert_eq!((moved.rows, moved.set_aside), (1, 1));
    let failed = "SELECT count(*) FROM outbox WHERE status = 'failed' AND processed_at IS NULL";
    assert_eq!(fixture.count(failed).await, 1);
    let refused = |problem: &str| vec![("1".to_owned(), problem.to_owned())];
    assert_eq!(problems(&fixture).await, refused("the payload is not JSON"));
    assert_eq!(move_batch(&imported).await, Moved::default());
    let again = "UPDATE outbox SET status = 'pending', payload = NULL WHERE id = 1";
    fixture.run(again).await;
    assert_eq!(move_batch(&imported).await.set_aside, 1);
    assert_eq!(problems(&fixture).await, refused("the payload is missing"));
    let repaired = "UPDATE outbox SET status = 'pending', payload = '{}' WHERE id = 1";
    fixture.run(repaired).await;
    assert_eq!(move_batch(&imported).await.rows, 1);
    assert!(problems(&fixture).await.is_empty());
    assert_eq!(kinds(&fixture).await, ["b", "a"]);
}

#[tokio::test]
async fn a_row_keeps_its_status_if_there_is_none_for_failures() {
    let mut table = table();
    table.failed = None;
    let (fixture, imported) = imported(STATUS, table).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('a', 'torn'), ('b', '{}')")
        .await;
    let moved = move_batch(&imported).await;
    assert_eq!((moved.rows, moved.set_aside), (1, 1));
    assert_eq!(move_batch(&imported).await, Moved::default());
    let pending = "SELECT count(*) FROM outbox WHERE status = 'pending'";
    assert_eq!(fixture.count(pending).await, 1);
}

/// Otherwise the row would be refused again at once, without end.
#[tokio::test]
async fn a_trigger_that_keeps_a_row_from_failing_stops_the_batch() {
    let (fixture, imported) = imported(STATUS, table()).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload) VALUES ('a', 'torn'), ('b', '{}');
         CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW
            WHEN (new.status = 'failed') EXECUTE FUNCTION no()",
        )
        .await;
    assert!(Imported::move_batch(&imported).await.is_err());
    assert!(events(&fixture).await.is_empty());
    assert!(problems(&fixture).await.is_empty());
}

/// Otherwise the row would be moved again at once, without end.
#[tokio::test]
async fn a_trigger_that_undoes_the_mark_stops_the_batch() {
    let (fixture, imported) = imported(STATUS, table()).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload) VALUES ('a', '{}');
         CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN new.status := old.status; RETURN new; END';
         CREATE TRIGGER undo BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION undo()",
        )
        .await;
    assert!(Imported::move_batch(&imported).await.is_err());
    assert!(events(&fixture).await.is_empty());
    fixture.run("DROP TRIGGER undo ON outbox").await;
    assert_eq!(move_batch(&imported).await.rows, 1);
}

#[tokio::test]
async fn an_index_that_begins_with_the_status_serves() {
    let (fixture, first) = imported(STATUS, table()).await;
    assert_eq!(
        first.index(),
        "CREATE INDEX CONCURRENTLY ON \"public\".\"outbox\" (\"id\") \
         WHERE \"status\" = 'pending'"
    );
    assert!(!first.is_served());
    fixture.run("CREATE INDEX ON outbox (status, id)").await;
    let again = Imported::open(&fixture.store, table()).await.unwrap();
    assert!(again.is_served());
}

#[tokio::test]
async fn statuses_that_do_not_fit_are_refused() {
    let fixture = Fixture::new().await;
    fixture.run(STATUS).await;
    let some = |text: &str| Some(text.to_owned());
    let mut equal = table();
    equal.processed = some("PENDING ");
    refused(&fixture, equal, "are the same status").await;
    let mut twice = table();
    twice.published_at = some("status");
    refused(&fixture, twice, "published_at is a column beside").await;
    let mut deleted = table();
    (deleted.published, deleted.published_at, deleted.delete) = (None, None, true);
    refused(&fixture, deleted, "for a column that marks a row").await;
    let mut moment = table();
    (moment.published, moment.published_at) = (some("processed_at"), None);
    refused(&fixture, moment, "are for a text or an enum").await;
    fixture
        .run(
            "CREATE TYPE state AS ENUM ('pending', 'processed');
            ALTER TABLE outbox ALTER status DROP DEFAULT, ALTER status TYPE state USING status::state",
        )
        .await;
    refused(&fixture, table(), "its type has no value \"failed\"").await;
    let mut without = table();
    without.failed = None;
    assert!(Imported::open(&fixture.store, without).await.is_ok());
}

async fn refused(fixture: &Fixture, table: TableSource, expected: &str) {
    let refused = Imported::open(&fixture.store, table).await.unwrap_err();
    let refusal = refused.to_string();
    assert!(refusal.contains(expected), "{refusal}");
}
