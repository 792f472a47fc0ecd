//! `hapax.emit`: the row that it writes, the order of events, and the input that it rejects.

use hapax::limits::{EVENTS_PER_TRANSACTION_MAX, PAYLOAD_BYTES_MAX};
use hapax_testkit::wait::eventually;

use super::{COUNT_EVENTS, open, refused, state};
use crate::fixture::{Fixture, PATIENCE};

#[tokio::test]
async fn an_event_exists_exactly_when_its_transaction_commits() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    for commits in [false, true] {
        let tx = client.transaction().await.unwrap();
        tx.execute("SELECT hapax.emit('a', '1')", &[])
            .await
            .unwrap();
        assert_eq!(fixture.count(COUNT_EVENTS).await, 0);
        if commits {
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(fixture.count(COUNT_EVENTS).await, 1);
}

#[tokio::test]
async fn event_ids_are_uuids_of_version_7_that_sort_by_their_moment() {
    let fixture = Fixture::new().await;
    let well_formed = "
        SELECT count(DISTINCT id) FROM (
            SELECT moment, hapax.event_id(moment)::text AS id
            FROM generate_series(1, 500) AS number,
                 LATERAL (SELECT to_timestamp(1700000000 + number / 1000.0)) AS at (moment)
        ) AS made
        WHERE id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
          AND ('x' || replace(left(id, 13), '-', ''))::bit(48)::bigint
              = (extract(epoch FROM moment) * 1000)::bigint";
    assert_eq!(fixture.count(well_formed).await, 500);
    let own = "SELECT count(*) FROM hapax.outbox_event
        WHERE event_id::text LIKE '________-____-7%' AND xid IS NOT NULL
          AND shard = hapax.shard_of(NULL, NULL, event_id)
          AND ('x' || replace(left(event_id::text, 13), '-', ''))::bit(48)::bigint
              = extract(epoch FROM created_at) * 1000";
    fixture
        .plain
        .execute("SELECT hapax.emit('a', '1')", &[])
        .await
        .unwrap();
    assert_eq!(fixture.count(own).await, 1);
}

#[tokio::test]
async fn an_event_is_in_the_shard_of_its_aggregate() {
    let fixture = Fixture::new().await;
    let emit = "SELECT hapax.emit('a', '1', 'order', number::text)
        FROM generate_series(1, 100) AS number";
    fixture.plain.execute(emit, &[]).await.unwrap();
    let right = "SELECT count(*) FROM hapax.outbox_event
        WHERE shard = hapax.shard_of(aggregate_type, aggregate_id)";
    assert_eq!(fixture.count(right).await, 100);
    let shards = "SELECT count(DISTINCT shard) FROM hapax.outbox_event";
    assert_eq!(fixture.count(shards).await, 16);
}

#[tokio::test]
async fn under_a_claim_an_event_has_its_tenant_and_its_keys_hash_unless_it_says_otherwise() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    for more in [
        "",
        ", tenant => 'bob', headers => '{\"idempotency_key_hash\": \"mine\"}'",
    ] {
        tx.execute(&format!("SELECT hapax.emit('a', '1'{more})"), &[])
            .await
            .unwrap();
    }
    let sql = "SELECT tenant, headers FROM hapax.outbox_event ORDER BY id";
    let rows = tx.query(sql, &[]).await.unwrap();
    let said: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let hash = hapax::key::IdempotencyKey::new("k").unwrap().short_hash();
    let pair = |tenant: &str, hash: &str| {
        (
            tenant.to_owned(),
            format!("{{\"idempotency_key_hash\": \"{hash}\"}}"),
        )
    };
    assert_eq!(said, [pair("alice", &hash), pair("bob", "mine")]);
}

#[tokio::test]
async fn ordered_events_of_one_aggregate_wait_for_each_others_commit() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let emit = "SELECT hapax.emit('a', $1, 'order', '1', ordered => true)";
    let tx = client.transaction().await.unwrap();
    tx.execute(emit, &[&"1"]).await.unwrap();
    let other = fixture.database.client().await;
    // An event of another aggregate does not wait, nor does an event without an order.
    let free = "SELECT hapax.emit('a', '0', 'order', '2', ordered => true),
                       hapax.emit('a', '0', 'order', '1')";
    other.execute(free, &[]).await.unwrap();
    let second = tokio::spawn(async move { other.execute(emit, &[&"3"]).await });
    let waiting = "SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND NOT granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually(PATIENCE, async || fixture.count(waiting).await == 1).await;
    tx.execute(emit, &[&"2"]).await.unwrap();
    tx.commit().await.unwrap();
    second.await.unwrap().unwrap();
    let order = "SELECT string_agg(payload, ' ' ORDER BY id) FROM hapax.outbox_event
        WHERE payload <> '0'";
    let row = fixture.plain.query_one(order, &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "1 2 3");
}

#[tokio::test]
async fn what_no_destination_could_carry_is_refused() {
    let fixture = Fixture::new().await;
    let long = "x".repeat(256);
    for call in [
        "hapax.emit('', '1')",
        "hapax.emit(NULL, '1')",
        "hapax.emit('a b', '1')",
        "hapax.emit('caf\u{e9}', '1')",
        &format!("hapax.emit('{long}', '1')"),
        "hapax.emit('a', '')",
        "hapax.emit('a', NULL)",
        "hapax.emit('a', '{')",
        "hapax.emit('a', '{} {}')",
        "hapax.emit('a', '01')",
        "hapax.emit('a', repeat('[', 1000000))",
        "hapax.emit('a', '\"' || repeat('x', 1048575) || '\"')",
        "hapax.emit('a', '1', 'order')",
        "hapax.emit('a', '1', NULL, '1')",
        "hapax.emit('a', '1', '', '1')",
        "hapax.emit('a', '1', E'or\\nder', '1')",
        "hapax.emit('a', '1', 'order', U&'\\0085')",
        &format!("hapax.emit('a', '1', 'order', '{long}')"),
        "hapax.emit('a', '1', ordered => true)",
        "hapax.emit('a', '1', headers => '[]')",
        "hapax.emit('a', '1', headers => 'null')",
        "hapax.emit('a', '1', headers => '{\"n\": 1}')",
        "hapax.emit('a', '1', headers => '{\"\": \"x\"}')",
        "hapax.emit('a', '1', headers => '{\"x\": \"a\\r\\nb: c\"}')",
        "hapax.emit('a', '1', headers => '{\"content-type\": \"x\"}')",
        "hapax.emit('a', '1', headers => '{\"hapax-encrypted-under\": \"x\"}')",
        "hapax.emit('a', '1', headers => jsonb_build_object('x', repeat('y', 4096)))",
        "hapax.emit('a', '1', headers => (SELECT jsonb_object_agg('h' || n, 'v') FROM generate_series(1, 65) AS n))",
        "hapax.emit('a', '1', tenant => '')",
        "hapax.emit('a', '1', available_at => 'infinity')",
        "hapax.emit_bytes('a', NULL, 'image/png')",
        "hapax.emit_bytes('a', 'x', NULL)",
        "hapax.emit_bytes('a', 'x', '')",
        "hapax.emit_bytes('a', 'x', E'image/png\\r\\n')",
        "hapax.emit_bytes('a', decode(repeat('00', 1048577), 'hex'), 'image/png')",
    ] {
        let outcome = fixture.plain.query(&format!("SELECT {call}"), &[]).await;
        assert_eq!(state(outcome), "HX004", "{call}");
    }
    assert_eq!(fixture.count(COUNT_EVENTS).await, 0);
}

#[tokio::test]
async fn what_is_as_large_as_its_bound_is_carried() {
    let fixture = Fixture::new().await;
    let longest = "x".repeat(255);
    for call in [
        "hapax.emit('a', '\"' || repeat('x', 1048574) || '\"')",
        "hapax.emit_bytes('a', decode(repeat('00', 1048576), 'hex'), 'image/png')",
        &format!("hapax.emit('{longest}', '1', '{longest}', '{longest}')"),
        "hapax.emit('a', '1', headers => jsonb_build_object('x', repeat('y', 4095)))",
        "hapax.emit('a', '1', headers => (SELECT jsonb_object_agg('h' || n, 'v') FROM generate_series(1, 64) AS n))",
        "hapax.emit('a', ' [1e5, \"\\u0000\", null] ')",
    ] {
        let outcome = fixture.plain.query(&format!("SELECT {call}"), &[]).await;
        assert!(outcome.is_ok(), "{call}: {outcome:?}");
    }
    let longest = "SELECT max(octet_length(payload))::bigint FROM hapax.outbox_event";
    let base64 = PAYLOAD_BYTES_MAX.div_ceil(3) * 4;
    assert_eq!(fixture.count(longest).await, i64::try_from(base64).unwrap());
}

#[tokio::test]
async fn a_transaction_emits_no_more_than_the_bound() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = client.transaction().await.unwrap();
    let many = "SELECT hapax.emit('a', '1') FROM generate_series(1, $1)";
    let max = i32::try_from(EVENTS_PER_TRANSACTION_MAX).unwrap();
    tx.execute(many, &[&max]).await.unwrap();
    let (state, words) = refused(tx.execute("SELECT hapax.emit('a', '1')", &[]).await);
    assert_eq!(
        (&*state, &*words),
        ("HX004", "a transaction emits at most 10000 events")
    );
    tx.rollback().await.unwrap();
    client
        .execute("SELECT hapax.emit('a', '1')", &[])
        .await
        .unwrap();
}
