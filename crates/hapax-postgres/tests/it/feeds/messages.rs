//! Messages of `pg_logical_emit_message` as events, without a table.

use hapax_postgres::Feed;

use super::{Fed, feed, texts};

const PUBLICATION: &str = "CREATE PUBLICATION hapax_orders";

fn messages() -> Feed {
    Feed {
        tables: Vec::new(),
        message_prefix: Some("hapax".to_owned()),
        ..feed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_committed_transactions_become_events() {
    let fed = Fed::new(PUBLICATION).await;
    let running = fed.run(messages()).await;
    let emit = |number: usize| {
        format!(
            "SELECT pg_logical_emit_message(true, 'hapax', json_build_object(
                 'type', 'order.paid', 'aggregate_type', 'order', 'aggregate_id', 'o1',
                 'sequence', {number}, 'tenant', 'acme', 'headers', '{{\"a\": 1}}'::json,
                 'payload', json_build_object('n', {number}))::text)"
        )
    };
    fed.sql(&emit(1)).await;
    fed.sql(&format!("BEGIN; {}; ROLLBACK", emit(100))).await;
    fed.sql("SELECT pg_logical_emit_message(true, 'other', 'x')")
        .await;
    fed.sql(&format!("BEGIN; {}; {}; COMMIT", emit(2), emit(3)))
        .await;
    let columns =
        "concat_ws(' ', type, aggregate_type, aggregate_id, sequence, tenant, headers, payload)";
    let event =
        |number| format!("order.paid order o1 {number} acme {{\"a\": \"1\"}} {{\"n\" : {number}}}");
    assert_eq!(fed.events(3, columns).await, [event(1), event(2), event(3)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_message_is_set_aside_and_stops_no_other() {
    let fed = Fed::new(PUBLICATION).await;
    let running = fed.run(messages()).await;
    let emit = |content: &str| format!("SELECT pg_logical_emit_message(true, 'hapax', {content})");
    for content in [
        "'not json'",
        "'\\xff00'::bytea",
        "'{\"type\": \"a\", \"payload\": 1, \"event_id\": \"x\"}'",
        "'{\"type\": \"a\", \"payload\": 1, \"kind\": \"x\"}'",
        "'{\"type\": \"a\", \"payload\": 1, \"headers\": {\"hapax-encrypted-under\": \"x\"}}'",
        "'{\"type\": \"a\", \"payload\": \"' || repeat('x', 3000000) || '\"}'",
    ] {
        fed.sql(&emit(content)).await;
    }
    // This one is not transactional: it would be an event even if its transaction rolled back.
    fed.sql("SELECT pg_logical_emit_message(false, 'hapax', '{\"type\": \"b\", \"payload\": 1}')")
        .await;
    fed.sql(&emit("'{\"type\": \"c\", \"payload\": 1}'")).await;
    assert_eq!(fed.events(1, "type").await, ["c"]);
    let problems = "SELECT problem FROM hapax.set_aside ORDER BY set_aside_at, row_key";
    let mut problems = texts(&fed.plain, problems).await;
    problems.sort();
    assert_eq!(
        problems,
        [
            "header hapax-encrypted-under is the keyring's own",
            "the event id is no UUID",
            "the message has an unknown member \"kind\"",
            "the message is not a JSON object",
            "the message is not a JSON object",
            "the payload is 3000002 bytes long, at most 1048576 are carried",
        ]
    );
    running.stop().await;
}

/// Any role may send such messages, and one that the feed cannot skip would stop it permanently.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_cut_stops_no_other() {
    let fed = Fed::new(PUBLICATION).await;
    let running = fed.run(messages()).await;
    for start in [
        "false, 'other'",
        "false, 'hapax'",
        "true, repeat('p', 2000)",
        "true, 'hapax'",
    ] {
        fed.sql(&format!(
            "SELECT pg_logical_emit_message({start}, repeat('x', 68000000))"
        ))
        .await;
    }
    fed.sql("SELECT pg_logical_emit_message(true, 'hapax', '{\"type\": \"c\", \"payload\": 1}')")
        .await;
    assert_eq!(fed.events(1, "type").await, ["c"]);
    let problems = texts(&fed.plain, "SELECT problem FROM hapax.set_aside").await;
    assert_eq!(problems, ["the change is larger than 67108864 bytes"]);
    running.stop().await;
}
