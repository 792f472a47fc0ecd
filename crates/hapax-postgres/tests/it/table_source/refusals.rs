//! Rows that are not valid events: set aside with the reason, without blocking other rows.

use hapax::limits::PAYLOAD_BYTES_MAX;
use hapax_postgres::{Imported, Moved, TableSource};

use super::{TOPIC, events, imported, kinds, move_batch, topic};
use crate::fixture::Fixture;

#[tokio::test]
async fn a_row_that_cannot_be_an_event_blocks_no_other_and_says_why() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload) VALUES
            ('first', '{}'), ('', '{}'), ('with space', '{}'), ('empty', ''), ('none', NULL),
            ('torn', '{'), ('deep', repeat('[', 100000)), ('last', '{}')",
        )
        .await;
    let large = "INSERT INTO outbox (topic, payload) VALUES ('large', to_json(repeat('x', $1)))";
    let size = i32::try_from(PAYLOAD_BYTES_MAX).unwrap();
    for more in [-2, -1] {
        fixture
            .plain
            .execute(large, &[&(size + more)])
            .await
            .unwrap();
    }
    let moved = move_batch(&imported).await;
    assert_eq!((moved.rows, moved.set_aside), (3, 7));
    assert_eq!(kinds(&fixture).await, ["first", "last", "large"]);
    assert_eq!(
        problems(&fixture).await,
        [
            (
                "2",
                "the event type is not 1 to 255 letters, digits and . _ - / :"
            ),
            (
                "3",
                "the event type is not 1 to 255 letters, digits and . _ - / :"
            ),
            ("4", "the payload is not JSON"),
            ("5", "the payload is missing"),
            ("6", "the payload is not JSON"),
            ("7", "the payload is not JSON"),
            (
                "10",
                "the payload is 1048577 bytes long, at most 1048576 are carried"
            ),
        ]
        .map(|(key, problem)| (key.to_owned(), problem.to_owned()))
    );
    let unpublished = "SELECT count(*) FROM outbox WHERE published_at IS NULL";
    assert_eq!(fixture.count(unpublished).await, 7);
    assert_eq!(move_batch(&imported).await, Moved::default());
}

#[tokio::test]
async fn a_row_that_was_mended_goes_when_its_line_is_deleted() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('a', 'torn')")
        .await;
    assert_eq!(move_batch(&imported).await.set_aside, 1);
    fixture.run("UPDATE outbox SET payload = '{}'").await;
    assert_eq!(move_batch(&imported).await, Moved::default());
    fixture.run("DELETE FROM hapax.set_aside").await;
    assert_eq!(move_batch(&imported).await.rows, 1);
}

#[tokio::test]
async fn a_head_full_of_bad_rows_is_passed() {
    let mut table = topic();
    table.batch = 10;
    let (fixture, imported) = imported(TOPIC, table).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload)
         SELECT 'a', CASE WHEN number < 100 THEN 'torn' ELSE '{}' END
         FROM generate_series(1, 100) AS number",
        )
        .await;
    let mut batches = 0;
    while kinds(&fixture).await.is_empty() {
        let moved = move_batch(&imported).await;
        assert!(
            moved.rows + moved.set_aside > 0,
            "the source stopped moving rows"
        );
        batches += 1;
    }
    assert_eq!(batches, 10);
}

#[tokio::test]
async fn deleted_rows_go_and_bad_ones_stay() {
    let mut table = topic();
    (table.published, table.delete) = (None, true);
    let (fixture, imported) = imported(TOPIC, table).await;
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('a', '{}'), ('b', 'torn')")
        .await;
    let moved = move_batch(&imported).await;
    assert_eq!((moved.rows, moved.set_aside), (1, 1));
    assert_eq!(fixture.count("SELECT count(*) FROM outbox").await, 1);
    assert_eq!(move_batch(&imported).await, Moved::default());
}

#[tokio::test]
async fn headers_ids_and_moments_that_make_no_sense_are_refused_one_by_one() {
    let (ddl, table) = described_in_full();
    let (fixture, imported) = imported(ddl, table).await;
    insert_rows(&fixture).await;
    let moved = move_batch(&imported).await;
    let problems = problems(&fixture).await;
    let refused: Vec<_> = problems.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(
        refused,
        ["2", "3", "4", "5", "6", "8", "10", "12", "13", "14", "15"],
        "{problems:?}"
    );
    assert_eq!(moved.rows, 4);
    let events = events(&fixture).await;
    assert_eq!(events[0].event.payload.bytes(), br#"{"a": 1}"#);
    let headers: Vec<_> = events[1].event.headers.iter().collect();
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(headers, ["n=1", "o={\"a\": null}", "t=true"]);
    let id = events[2].event.id.to_string();
    assert_eq!(id, "f47ac10b-58cc-4372-a567-0e02b2c3d479");
    assert!(events[3].event.created_at.as_millis() > 0);
    assert_eq!(
        fixture
            .count("SELECT count(*) FROM outbox WHERE published")
            .await,
        4
    );
}

#[tokio::test]
async fn bytes_go_with_their_media_type() {
    let ddl = "CREATE TABLE outbox (
        id bigint PRIMARY KEY, payload bytea, headers jsonb, published_at timestamp)";
    let mut table = TableSource::new("orders", "outbox");
    table.kind_constant = Some("a".to_owned());
    table.headers = Some("headers".to_owned());
    let (fixture, imported) = imported(ddl, table).await;
    fixture.run(r#"INSERT INTO outbox VALUES (1, '\x00ff0a', NULL), (2, '\x', '{"content-type": "x/y"}')"#)
    .await;
    assert_eq!(move_batch(&imported).await.rows, 2);
    let events = events(&fixture).await;
    let payloads = events.iter().map(|it| &it.event.payload);
    let payloads: Vec<_> = payloads.map(|it| (it.content_type(), it.bytes())).collect();
    let expected: [(&str, &[u8]); 2] = [("application/octet-stream", &[0, 255, 10]), ("x/y", &[])];
    assert_eq!(payloads, expected);
}

#[tokio::test]
async fn a_media_type_that_is_none_goes_with_no_bytes() {
    let ddl = "CREATE TABLE outbox (
        id bigint PRIMARY KEY, payload bytea, headers jsonb, published_at timestamp)";
    let mut table = TableSource::new("orders", "outbox");
    table.kind_constant = Some("a".to_owned());
    table.headers = Some("headers".to_owned());
    let (fixture, imported) = imported(ddl, table).await;
    fixture
        .run(
            r#"INSERT INTO outbox SELECT row_number() OVER (), '\x00', of_type
           FROM (VALUES (jsonb_build_object('content-type', '')), ('{"content-type": null}'),
                        (jsonb_build_object('content-type', repeat('x', 255))),
                        (jsonb_build_object('content-type', repeat('x', 256)))) AS told (of_type)"#,
        )
        .await;
    assert_eq!(move_batch(&imported).await.rows, 1);
    let problems = problems(&fixture).await;
    let problem = "the content type is not 1 to 255 bytes without control characters";
    let refused = ["1", "2", "4"].map(|key| (key.to_owned(), problem.to_owned()));
    assert_eq!(problems, refused);
}

#[tokio::test]
async fn a_trigger_that_keeps_a_row_unmarked_keeps_it_unmoved() {
    let (fixture, imported) = imported(TOPIC, topic()).await;
    fixture
        .run(
            "INSERT INTO outbox (topic, payload) VALUES ('a', '{}');
         CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION no()",
        )
        .await;
    assert!(Imported::move_batch(&imported).await.is_err());
    assert_eq!(kinds(&fixture).await, [""; 0]);
}

/// A table with a column for each part of an event, and its description.
fn described_in_full() -> (&'static str, TableSource) {
    let ddl = "CREATE TABLE outbox (
        id bigint PRIMARY KEY, topic text, payload bytea, headers json, uid text, at timestamptz,
        published boolean NOT NULL DEFAULT false, written timestamp, kind text, who text, tenant text)";
    let mut table = topic();
    table.published = Some("published".to_owned());
    table.content_type = Some("application/json".to_owned());
    table.headers = Some("headers".to_owned());
    table.event_id = Some("uid".to_owned());
    table.available_at = Some("at".to_owned());
    table.created_at = Some("written".to_owned());
    table.aggregate_type = Some("kind".to_owned());
    table.aggregate_id = Some("who".to_owned());
    table.tenant = Some("tenant".to_owned());
    (ddl, table)
}

/// Inserts rows of the table [`described_in_full`]. Some of them are not valid events.
async fn insert_rows(fixture: &Fixture) {
    for (id, columns, values) in [
        (1, "payload", "'{\"a\": 1}'"),
        (2, "payload", r"'\xff'"),
        (3, "headers", r#"'["a"]'"#),
        (4, "headers", r#"'{"a": "\u0000"}'"#),
        (5, "headers", r#"'{"a": 1e999999}'"#),
        (6, "headers", r#"'{"a": "\n"}'"#),
        (
            7,
            "headers",
            r#"'{"n": 1, "t": true, "content-type": "x/y", "o": {"a": null}}'"#,
        ),
        (8, "uid", "'not-a-uuid'"),
        (9, "uid", "'F47AC10B-58CC-4372-A567-0E02B2C3D479'"),
        (10, "at", "'infinity'"),
        (11, "written", "'-infinity'"),
        (12, "kind", "'order'"),
        (13, "kind, who", "'order', E'a\\nb'"),
        (14, "tenant", "''"),
        (15, "headers", r#"'{"hapax-encrypted-under": "k1"}'"#),
    ] {
        let payload = if columns == "payload" {
            ""
        } else {
            ", payload"
        };
        let value = if columns == "payload" { "" } else { ", '{}'" };
        fixture.run(&format!(
                "INSERT INTO outbox (id, topic, {columns}{payload}) VALUES ({id}, 'a', {values}{value})"
            ))
        .await;
    }
}

/// The rows that were set aside with their problems, in the numeric order of their keys.
pub(super) async fn problems(fixture: &Fixture) -> Vec<(String, String)> {
    let lines = "SELECT row_key, problem FROM hapax.set_aside ORDER BY row_key::int8";
    let lines = fixture.plain.query(lines, &[]).await.unwrap();
    lines
        .iter()
        .map(|line| (line.get(0), line.get(1)))
        .collect()
}
