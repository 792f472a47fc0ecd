//! Invalid input: rejected with the SQLSTATEs of the contract, before anything is written.

use super::{COUNT_KEYS, claim, complete, open, refused, state};
use crate::fixture::Fixture;

#[tokio::test]
async fn a_claim_that_the_store_could_not_read_is_refused() {
    let fixture = Fixture::new().await;
    let print = "sha256('x')";
    let long = "x".repeat(256);
    for arguments in [
        format!("'', 'o', 'k', {print}"),
        format!("NULL, 'o', 'k', {print}"),
        format!("'{long}', 'o', 'k', {print}"),
        format!("'t', '', 'k', {print}"),
        format!("'t', '{long}', 'k', {print}"),
        format!("'t', 'o', '', {print}"),
        format!("'t', 'o', NULL, {print}"),
        format!("'t', 'o', '{long}', {print}"),
        format!("'t', 'o', E'k\\n', {print}"),
        format!("'t', 'o', 'caf\u{e9}', {print}"),
        format!("'t', 'o', E'\\x7f', {print}"),
        "'t', 'o', 'k', NULL".to_owned(),
        "'t', 'o', 'k', ''".to_owned(),
        "'t', 'o', 'k', 'thirty-three bytes are one too many'".to_owned(),
        format!("'t', 'o', 'k', {print}, retention => '-1 second'"),
        format!("'t', 'o', 'k', {print}, retention => NULL"),
        format!("'t', 'o', 'k', {print}, on_expired => 'old'"),
        format!("'t', 'o', 'k', {print}, on_expired => NULL"),
        format!("'t', 'o', 'k', {print}, wait => '-1 second'"),
        format!("'t', 'o', 'k', {print}, wait => '1 hour'"),
        format!("'t', 'o', 'k', {print}, wait => NULL"),
    ] {
        let sql = format!("SELECT hapax.claim({arguments})");
        let outcome = fixture.plain.query(&sql, &[]).await;
        assert_eq!(state(outcome), "HX001", "{arguments}");
    }
    let longest = format!("SELECT hapax.claim('t', 'o', repeat('~', 255), {print})");
    fixture.plain.query(&longest, &[]).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_http_could_not_carry_is_refused() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    for response in [
        "NULL",
        "199",
        "600",
        "200, '{}'",
        "200, '\"x\"'",
        "200, '[[\"a\"]]'",
        "200, '[[\"a\", \"b\", \"c\"]]'",
        "200, '[[\"a\", 1]]'",
        "200, '[[null, \"b\"]]'",
        "200, '[{\"a\": \"b\"}]'",
        "200, '[[\"\", \"b\"]]'",
        "200, '[[\"a b\", \"c\"]]'",
        "200, '[[\"a:\", \"c\"]]'",
        "200, '[[\"a\", \"b\\r\\nc: d\"]]'",
        "200, '[[\"a\\n\", \"b\"]]'",
        "200, '[[\"a\", \"\\u0007\"]]'",
        "200, '[[\"a\", \"\u{20ac}\"]]'",
        "200, '[]', decode(repeat('00', 4194305), 'hex')",
    ] {
        let tx = open(&mut client, "k").await;
        let sql = format!("SELECT hapax.complete('alice', 'POST /orders', 'k', {response})");
        assert_eq!(state(tx.query(&sql, &[]).await), "HX001", "{response}");
    }
    assert_eq!(fixture.count(COUNT_KEYS).await, 0);
}

#[tokio::test]
async fn headers_that_belong_to_one_exchange_are_not_stored() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    let sql = r#"SELECT hapax.complete('alice', 'POST /orders', 'k', 200, '[
        ["Set-Cookie", "session=1"], ["Date", "now"], ["Server", "x"], ["Keep-Alive", "1"],
        ["Connection", "close, X-Hop"], ["x-hop", "1"], ["Transfer-Encoding", "chunked"],
        ["Content-Length", "2"], ["X-Request-Id", "1"], ["Idempotency-Key", "k"],
        ["Idempotency-Status", "stored"], ["ETag", "\"1\""], ["Link", "b"], ["link", "a"]]')"#;
    tx.execute(sql, &[]).await.unwrap();
    let outcome = claim(&tx, "k").await.unwrap();
    let kept = r#"[["etag", "\"1\""], ["link", "b"], ["link", "a"]]"#;
    assert_eq!(outcome.headers.as_deref(), Some(kept));
}

/// Begins a transaction and writes the setting of a claim of `k` without a claim, with these members
/// instead of those of a claim.
async fn forge(fixture: &Fixture, forged: &str) {
    let begin = format!(
        "BEGIN; SELECT set_config('hapax.claim', (jsonb_build_object('tenant', 'alice',
            'operation', 'POST /orders', 'key', 'k', 'fingerprint', repeat('01', 32),
            'retention', 1, 'on_expired', 'new') || '{{{forged}}}')::text, true)"
    );
    fixture.run(&begin).await;
}

#[tokio::test]
async fn a_setting_that_somebody_made_up_overwrites_nothing() {
    let fixture = Fixture::new().await;
    super::store_answer(&fixture, "k", "first").await;
    forge(&fixture, "").await;
    let (state, words) = refused(complete(&fixture.plain, "k", "second").await);
    assert_eq!(state, "23505", "{words}");
}

#[tokio::test]
async fn a_setting_that_somebody_made_up_writes_no_row_that_a_claim_could_not() {
    let fixture = Fixture::new().await;
    for forged in [
        r#""fingerprint": "00""#,
        r#""fingerprint": null"#,
        r#""on_expired": "never""#,
        r#""on_expired": null"#,
        r#""retention": 2592001"#,
        r#""retention": -1"#,
        r#""retention": null"#,
    ] {
        forge(&fixture, forged).await;
        let (state, words) = refused(complete(&fixture.plain, "k", "{}").await);
        assert_eq!(state, "HX002", "{forged}: {words}");
        fixture.run("ROLLBACK").await;
    }
    assert_eq!(fixture.count(COUNT_KEYS).await, 0);
}

#[tokio::test]
async fn a_setting_that_somebody_made_up_does_not_replace_the_lock() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    forge(&fixture, "").await;
    let (state, words) = refused(complete(&fixture.plain, "k", "forged").await);
    assert_eq!(state, "HX002", "{words}");
    fixture.run("ROLLBACK").await;
    complete(&tx, "k", "first").await.unwrap();
    tx.commit().await.unwrap();
    let replay = claim(&fixture.plain, "k").await.unwrap();
    assert_eq!(replay.body.as_deref(), Some(&b"first"[..]));
}

#[tokio::test]
async fn whoever_may_not_delete_events_cannot_have_them_emptied() {
    let fixture = Fixture::new().await;
    let other = "GRANT USAGE ON SCHEMA hapax TO pg_monitor; SET SESSION AUTHORIZATION pg_monitor";
    fixture.run(other).await;
    for call in [
        "rotate(1, now())",
        "empty_segment(0, 1, now())",
        "lagging(1, 1, now())",
        "spill(0, 'd', 1, 1, now())",
    ] {
        let called = format!("SELECT hapax.{call}");
        let outcome = fixture.plain.batch_execute(&called).await.unwrap_err();
        let outcome = outcome.as_db_error().unwrap();
        let expected = ("42501", "the role may not purge the outbox");
        assert_eq!(
            (outcome.code().code(), outcome.message()),
            expected,
            "{call}"
        );
    }
}

#[tokio::test]
async fn no_function_looks_where_its_caller_does() {
    let fixture = Fixture::new().await;
    let open_to_its_caller = "SELECT count(*) FROM pg_proc
        WHERE pronamespace IN ('hapax'::regnamespace, 'hapax_api'::regnamespace)
          AND prosqlbody IS NULL
          AND NOT coalesce(proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']";
    assert_eq!(fixture.count(open_to_its_caller).await, 0);
    // These functions run with the rights of their owner. Those that empty a table check the
    // caller's rights themselves. The two triggers that keep an epoch do nothing else, for a caller
    // who may delete or insert a lease. `effective_expiry` lets a caller who may read keys see for how
    // long a key must be kept for its saga, and nothing else of the saga.
    let privileged = "SELECT count(*) FROM pg_proc
        WHERE pronamespace = 'hapax'::regnamespace AND prosecdef AND proname <> ALL ('{
            empty_segment, continue_epoch, has_misplaced, keep_epoch, lagging, check_again, raise_sequences,
            refuse_removed, spill, effective_expiry, sweep_checkpoints, sweep_heartbeats, rotate}')";
    assert_eq!(fixture.count(privileged).await, 0);
    // A caller with another `search_path` gets the same outcome.
    let evil = "CREATE SCHEMA evil;
        CREATE FUNCTION evil.octet_length(text) RETURNS integer LANGUAGE sql RETURN 0;
        CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql RETURN 'infinity'::timestamptz;
        SET search_path = evil, pg_catalog";
    fixture.run(evil).await;
    let mut client = fixture.database.client().await;
    client
        .batch_execute("SET search_path = evil, pg_catalog")
        .await
        .unwrap();
    let tx = open(&mut client, "k").await;
    complete(&tx, "k", "{}").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(claim(&fixture.plain, "k").await.unwrap().outcome, "replay");
}
