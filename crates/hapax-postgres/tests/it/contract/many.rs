//! Arrays of events: in `hapax.complete`, in `hapax.emit_many`, and what is rejected.

use hapax::key::IdempotencyKey;
use tokio_postgres::GenericClient;

use super::{COUNT_EVENTS, COUNT_KEYS, ClaimRow, SCOPE, claim, open, refused, state};
use crate::fixture::Fixture;

/// Three events with everything that an event may have. The payload of the first one is kept byte
/// for byte.
const EVENTS: &str = r#"[
    {"type": "order.created", "payload": "{ \"n\": 1.0,\n \"n\":9007199254740993 }",
     "aggregate_type": "order", "aggregate_id": "o1", "sequence": 7, "ordered": true,
     "headers": {"x-mine": "1"}, "tenant": "bob", "available_at": "2100-01-01T00:00:00Z"},
    {"type": "blob", "payload_base64": "AAH/", "content_type": "image/png"},
    {"type": "bare", "payload": "null", "payload_base64": null, "headers": null, "sequence": null,
     "ordered": null, "tenant": null, "available_at": null, "aggregate_id": null}
]"#;

/// One text for each stored event, in order.
async fn stored(session: &impl GenericClient) -> Vec<String> {
    let sql = "SELECT concat_ws(' | ', type, payload, headers::jsonb, tenant, aggregate_type,
            aggregate_id, sequence, extract(epoch FROM available_at)::bigint)
        FROM hapax.outbox_event ORDER BY id";
    let rows = session.query(sql, &[]).await;
    let rows = rows.expect("the events were not read");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_response_and_its_events_are_stored_in_one_call() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    let sql = format!("SELECT hapax.complete({SCOPE}, 201, '[]', '{{}}', $2::text::jsonb)");
    tx.execute(&sql, &[&"k", &EVENTS]).await.unwrap();
    assert_eq!(fixture.count(COUNT_EVENTS).await, 0);
    tx.commit().await.unwrap();
    let hash = IdempotencyKey::new("k").unwrap().short_hash();
    let hash = format!("\"idempotency_key_hash\": \"{hash}\"");
    let payload = "{ \"n\": 1.0,\n \"n\":9007199254740993 }";
    assert_eq!(
        stored(&fixture.plain).await,
        [
            format!(
                "order.created | {payload} | {{\"x-mine\": \"1\", {hash}}} | bob | order | o1 | 7 \
                 | 4102444800"
            ),
            format!("blob | AAH/ | {{\"content-type\": \"image/png\", {hash}}} | alice"),
            format!("bare | null | {{{hash}}} | alice"),
        ]
    );
    assert_eq!(claim(&fixture.plain, "k").await.unwrap().outcome, "replay");
}

#[tokio::test]
async fn events_without_a_claim_have_their_ids_in_order() {
    let fixture = Fixture::new().await;
    let sql = "SELECT hapax.emit_many($1::text::jsonb)::text[]";
    let row = fixture.plain.query_one(sql, &[&EVENTS]).await.unwrap();
    let ids: Vec<String> = row.get(0);
    let sql = "SELECT array_agg(event_id::text ORDER BY id) FROM hapax.outbox_event";
    let row = fixture.plain.query_one(sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<String>>(0), ids);
    assert_eq!(ids.len(), 3);
    assert_eq!(stored(&fixture.plain).await[2], "bare | null | {}");
    let none = "SELECT cardinality(hapax.emit_many('[]'))::bigint";
    assert_eq!(fixture.count(none).await, 0);
}

#[tokio::test]
async fn events_that_are_rejected_store_no_response() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    for events in [
        "{}",
        "[1]",
        "[{}]",
        r#"[{"type": "a"}]"#,
        r#"[{"payload": "1"}]"#,
        r#"[{"type": "a", "payload": {"id": 1}}]"#,
        r#"[{"type": "a", "payload": "{"}]"#,
        r#"[{"type": "a", "payload": "1", "payload_base64": "AA=="}]"#,
        r#"[{"type": "a", "payload": "1", "content_type": "image/png"}]"#,
        r#"[{"type": "a", "payload_base64": "AA=="}]"#,
        r#"[{"type": "a", "payload_base64": "A", "content_type": "image/png"}]"#,
        r#"[{"type": "a", "payload": "1", "aggregateType": "order"}]"#,
        r#"[{"type": "a", "payload": "1", "aggregate_id": "o1"}]"#,
        r#"[{"type": "a", "payload": "1", "sequence": 1.5}]"#,
        r#"[{"type": "a", "payload": "1", "sequence": 9223372036854775808}]"#,
        r#"[{"type": "a", "payload": "1", "available_at": "soon"}]"#,
        r#"[{"type": "a", "payload": "1", "available_at": "tomorrow"}]"#,
        r#"[{"type": "a", "payload": "1", "available_at": "2100-01-01T00:00:00"}]"#,
        r#"[{"type": "a", "payload": "1", "available_at": "01/02/2100 00:00:00Z"}]"#,
        r#"[{"type": "a", "payload": "1", "ordered": "yes"}]"#,
        r#"[{"type": "a", "payload": "1", "ordered": true}]"#,
        r#"[{"type": "a", "payload": "1", "headers": []}]"#,
        r#"[{"type": "a", "payload": "1", "headers": {"n": 1}}]"#,
        r#"[{"type": "a", "payload": "1"}, {"type": "a b", "payload": "1"}]"#,
    ] {
        let tx = open(&mut client, "k").await;
        let sql = format!("SELECT hapax.complete({SCOPE}, 201, events => $2::text::jsonb)");
        let outcome = tx.query(&sql, &[&"k", &events]).await;
        assert_eq!(state(outcome), "HX004", "{events}");
        drop(tx);
        let sql = "SELECT hapax.emit_many($1::text::jsonb)";
        let outcome = fixture.plain.query(sql, &[&events]).await;
        assert_eq!(state(outcome), "HX004", "{events}");
    }
    assert_eq!(fixture.count(COUNT_KEYS).await, 0);
    assert_eq!(fixture.count(COUNT_EVENTS).await, 0);
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("open")
    );
}

#[tokio::test]
async fn arrays_count_against_the_bound_of_a_transaction() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = client.transaction().await.unwrap();
    let many = "SELECT hapax.emit_many((SELECT jsonb_agg(
            jsonb_build_object('type', 'a', 'payload', number::text))
        FROM generate_series(1, 10000) AS number))";
    tx.execute(many, &[]).await.unwrap();
    let one = r#"SELECT hapax.emit_many('[{"type": "a", "payload": "1"}]')"#;
    let (state, words) = refused(tx.execute(one, &[]).await);
    assert_eq!(
        (&*state, &*words),
        ("HX004", "a transaction emits at most 10000 events")
    );
}
