//! The store and SQL callers with the same key, the same inbox and the same outbox.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{
    delivery::{Frontier, Shards},
    event::{Event, Headers, NewEvent, Payload},
    idempotency::{StoredResponse, Taken},
    inbox::Acceptance,
    key::Tenant,
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Source, StoreError, Transaction},
};
use hapax_testkit::{
    assert_matches,
    events::{claim as rust_claim, fingerprint, keyring, message},
    wait::Patience,
};
use tokio_postgres::types::ToSql;

use super::{ClaimRow, SCOPE, claim, claim_with, complete, open};
use crate::fixture::{Fixture, INSERT, PATIENCE};

/// A response with everything that a response may contain: repeated and empty headers, and a body
/// that is not text.
fn rich_answer() -> StoredResponse {
    let headers: [(&str, &[u8]); 5] = [
        ("content-type", b"application/octet-stream"),
        ("link", b"</a>; rel=\"next\""),
        ("link", b"caf\xe9: \t\x80\xff"),
        ("x-empty", b""),
        ("x-colon", b"a: b: c"),
    ];
    StoredResponse {
        status: 201,
        headers: headers
            .map(|(name, value)| (name.to_owned(), Bytes::from_static(value)))
            .to_vec(),
        body: (0..=255).collect::<Vec<u8>>().into(),
    }
}

#[tokio::test]
async fn sql_says_that_it_cannot_read_an_encrypted_answer() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    let tx = fixture.claim(rust_claim("rust")).await;
    tx.complete(&rich_answer(), Effect::Keep).await.unwrap();
    let error = claim(&fixture.plain, "rust").await.unwrap_err();
    assert_eq!(
        error.code().map(tokio_postgres::error::SqlState::code),
        Some("HX010")
    );
}

#[tokio::test]
async fn the_store_and_sql_replay_each_others_answers_byte_for_byte() {
    let fixture = Fixture::new().await;
    let response = rich_answer();
    let tx = fixture.claim(rust_claim("rust")).await;
    tx.complete(&response, Effect::Keep).await.unwrap();
    let result = claim(&fixture.plain, "rust").await.unwrap();
    assert_eq!(
        (result.outcome.as_str(), result.status),
        ("replay", Some(201))
    );
    assert_eq!(result.body.as_deref(), Some(&*response.body));

    // The response that SQL has returned is stored through SQL, and the store replays it unchanged.
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "sql").await;
    let sql = format!("SELECT hapax.complete({SCOPE}, 201, $2::text::jsonb, $3)");
    tx.execute(&sql, &[&"sql", &result.headers, &result.body])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    match fixture.store.claim(rust_claim("sql")).await.unwrap() {
        ClaimOutcome::Taken(Taken::Replay {
            response: stored,
            fresh_for,
        }) => {
            assert_eq!(stored, response);
            assert!(fresh_for > Duration::from_hours(23), "{fresh_for:?}");
        }
        other => panic!("expected a replay, got {other:?}"),
    }
    let mut other = rust_claim("sql");
    other.fingerprint = fingerprint(2);
    let known = fixture.store.claim(other).await.unwrap();
    assert_matches!(known, ClaimOutcome::Taken(Taken::Mismatch));
}

/// The function of the contract reads the id of a resource as the store does.
#[tokio::test]
async fn sql_and_the_store_find_the_same_resource_in_an_answer() {
    let fixture = Fixture::new().await;
    let long = format!("/orders/{}", "x".repeat(256));
    let locations = [
        "/orders/o1",
        "https://shop.example/orders/o1/?v=a/b#c/d",
        "https://shop.example",
        "x?y://z/w",
        "o1",
        "/a/b c",
        "/\u{e4}",
        "/",
        "",
        long.as_str(),
    ];
    for location in locations {
        for status in [201_u16, 303] {
            let headers = [
                ("Vary".to_owned(), "/a".to_owned()),
                ("Location".to_owned(), location.to_owned()),
                ("location".to_owned(), "/other".to_owned()),
            ];
            let pairs = serde_json::to_string(&headers).unwrap();
            let sql = "SELECT hapax.resource_id($1::int4, $2::text::jsonb)";
            let params: [&(dyn ToSql + Sync); 2] = [&i32::from(status), &pairs];
            let found = fixture.plain.query_one(sql, &params).await.unwrap();
            let headers = headers.map(|(name, value)| (name.to_lowercase(), Bytes::from(value)));
            let response = StoredResponse {
                status,
                headers: headers.to_vec(),
                body: Bytes::new(),
            };
            let found: Option<&str> = found.get(0);
            assert_eq!(found, response.resource_id(), "{location}");
        }
    }
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "sql").await;
    let headers = r#"[["location", "/orders/o1"]]"#;
    let sql = format!("SELECT hapax.complete({SCOPE}, 201, $2::text::jsonb, '')");
    tx.execute(&sql, &[&"sql", &headers]).await.unwrap();
    tx.commit().await.unwrap();
    let stored = "SELECT count(*) FROM hapax.idempotency_key WHERE resource_id = 'o1'";
    assert_eq!(fixture.count(stored).await, 1);
}

#[tokio::test]
async fn the_store_and_sql_shut_each_other_out() {
    let fixture = Fixture::with(|settings| settings.wait = Duration::from_millis(20)).await;
    let tx = fixture.claim(rust_claim("k")).await;
    assert_eq!(
        claim(&fixture.plain, "k").await.unwrap(),
        ClaimRow::of("in_progress")
    );
    let other = claim_with(&fixture.plain, "k", fingerprint(2), ", wait => '0'").await;
    assert_eq!(other.unwrap(), ClaimRow::of("mismatch"));
    tx.rollback().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    let known = fixture.store.claim(rust_claim("k")).await.unwrap();
    assert_matches!(known, ClaimOutcome::Taken(Taken::InProgress));
    let mut other = rust_claim("k");
    other.fingerprint = fingerprint(2);
    let known = fixture.store.claim(other).await.unwrap();
    assert_matches!(known, ClaimOutcome::Taken(Taken::Mismatch));
    tx.rollback().await.unwrap();
    fixture.claim(rust_claim("k")).await.rollback().await;
}

#[tokio::test]
async fn sql_that_has_claimed_a_key_is_never_robbed_of_it_by_an_optimistic_claim() {
    let fixture = Fixture::new().await;
    let optimistic = async || {
        let opened = fixture.store.claim_optimistic(rust_claim("k")).await;
        let mut tx = opened.unwrap().expect("the store has optimistic claims");
        tx.execute(INSERT, &[&"rust"]).await.unwrap();
        tx.complete(&rich_answer(), Effect::Keep).await
    };
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    assert_matches!(optimistic().await, Err(StoreError::NotClaimed));
    complete(&tx, "k", "sql").await.unwrap();
    tx.commit().await.unwrap();
    assert_matches!(optimistic().await, Err(StoreError::NotClaimed));
    assert_eq!(claim(&fixture.plain, "k").await.unwrap().outcome, "replay");
    fixture.store.forget(&rust_claim("k").scope).await.unwrap();
    optimistic().await.unwrap();
    assert_eq!(claim(&fixture.plain, "k").await.unwrap().outcome, "replay");
    assert_eq!(fixture.notes().await, ["rust"]);
}

#[tokio::test]
async fn of_store_and_sql_callers_that_race_for_a_key_one_runs() {
    const KEYS: usize = 15;
    let fixture = Arc::new(Fixture::with(|settings| settings.wait = PATIENCE).await);
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (store, mut client) = (fixture.store.clone(), fixture.database.client().await);
        racers.spawn(async move {
            for key in (0..KEYS).map(|number| format!("k{number}")) {
                if let ClaimOutcome::Open(mut tx) = store.claim(rust_claim(&key)).await.unwrap() {
                    tx.execute(INSERT, &[&key]).await.unwrap();
                    let response = hapax_testkit::events::response("rust");
                    tx.complete(&response, Effect::Keep).await.unwrap();
                }
            }
        });
        let store = fixture.store.clone();
        racers.spawn(async move {
            for key in (0..KEYS).map(|number| format!("k{number}")) {
                let opened = store.claim_optimistic(rust_claim(&key)).await.unwrap();
                let mut tx = opened.expect("the store has optimistic claims");
                tx.execute(INSERT, &[&key]).await.unwrap();
                let response = hapax_testkit::events::response("rust");
                let kept = tx.complete(&response, Effect::Keep).await;
                assert!(
                    matches!(kept, Ok(_) | Err(StoreError::NotClaimed)),
                    "{kept:?}"
                );
            }
        });
        racers.spawn(async move {
            for key in (0..KEYS).map(|number| format!("k{number}")) {
                let tx = client.transaction().await.unwrap();
                let result = claim_with(&tx, &key, fingerprint(1), ", wait => '30 seconds'").await;
                if result.unwrap().outcome == "open" {
                    tx.execute(INSERT, &[&key]).await.unwrap();
                    complete(&tx, &key, "sql").await.unwrap();
                }
                tx.commit().await.unwrap();
            }
        });
    }
    racers.join_all().await;
    let mut keys: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    keys.sort();
    assert_eq!(fixture.notes().await, keys);
}

#[tokio::test]
async fn a_message_is_taken_once_whoever_takes_it() {
    let fixture = Fixture::new().await;
    let take = async |id: &str, payload: &str| {
        let sql = "SELECT hapax.accept('ledger', $1, sha256($2), 'provider')";
        let row = fixture
            .plain
            .query_one(sql, &[&id, &payload.as_bytes()])
            .await;
        row.unwrap().get::<_, String>(0)
    };
    let rust = async |id: &str, payload: &str| {
        let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
        let acceptance = tx.accept(&message("ledger", id, payload)).await.unwrap();
        tx.commit().await.unwrap();
        acceptance
    };
    assert_eq!(take("a", "x").await, "first");
    assert_eq!(rust("a", "x").await, Acceptance::Duplicate);
    assert_eq!(rust("a", "y").await, Acceptance::Mismatch);
    assert_eq!(rust("b", "x").await, Acceptance::First);
    assert_eq!(take("b", "x").await, "duplicate");
    assert_eq!(take("b", "y").await, "mismatch");
}

#[tokio::test]
async fn an_event_of_sql_is_read_like_one_of_the_store() {
    let fixture = Fixture::new().await;
    let text = "{ \"n\": 1.0,\n \"n\":9007199254740993, \"s\": \"\u{1f9e6}\\u0000\" }";
    let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let soon = hapax::Timestamp::from_millis(4_102_444_800_000);
    let mut asked = rust_claim("k");
    asked.context.clear();
    let mut tx = fixture.claim(asked).await;
    for event in sample(text, &bytes, soon) {
        tx.emit(event).unwrap();
    }
    tx.complete(&rich_answer(), Effect::Keep).await.unwrap();

    fixture.store.forget(&rust_claim("k").scope).await.unwrap();
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    let emit = "SELECT hapax.emit('order.created/v1:a_b-c', $1, 'order', $2, 7,
        headers => '{\"x-mine\": \"caf\u{e9}\"}', available_at => to_timestamp(4102444800))";
    tx.execute(emit, &[&text, &"ord_\u{e9}"]).await.unwrap();
    let emit = "SELECT hapax.emit_bytes('blob', $1, 'image/png')";
    tx.execute(emit, &[&bytes]).await.unwrap();
    tx.commit().await.unwrap();

    let [rust_json, rust_binary, mut sql_json, mut sql_binary] = read(&fixture).await;
    let minute = Duration::from_mins(1);
    for (sql, rust) in [(&mut sql_json, &rust_json), (&mut sql_binary, &rust_binary)] {
        let apart = sql.created_at.since(rust.created_at);
        assert!(apart < minute && sql.id != rust.id, "{apart:?}");
        assert_eq!(&sql.id.to_string()[14..15], "7", "the version");
        sql.id = rust.id;
        sql.created_at = rust.created_at;
    }
    assert_eq!(sql_json, rust_json);
    assert_eq!(sql_binary, rust_binary);
    assert_eq!(sql_json.tenant, Some(Tenant::new("alice").unwrap()));
    assert_eq!(sql_json.payload.bytes(), text.as_bytes());
}

fn sample(text: &str, bytes: &[u8], soon: hapax::Timestamp) -> [NewEvent; 2] {
    let json = NewEvent::new("order.created/v1:a_b-c", Payload::Json(text.to_owned()))
        .about("order", "ord_\u{e9}")
        .sequence(7)
        .header("x-mine", "caf\u{e9}")
        .available_at(soon);
    let binary = Payload::Binary {
        content_type: "image/png".to_owned(),
        bytes: Bytes::copy_from_slice(bytes),
    };
    [json, NewEvent::new("blob", binary)]
}

/// Reads the outbox until it has four events.
async fn read(fixture: &Fixture) -> [Event; 4] {
    let patience = Patience::within(PATIENCE);
    let (mut frontier, mut events) = (Frontier::default(), Vec::new());
    while events.len() < 4 {
        let batch = Source::read(&fixture.store, &frontier, Shards::ALL, 10).await;
        let batch = batch.expect("the outbox was not read");
        events.extend(batch.events.iter().map(|it| it.event.clone()));
        frontier = batch.frontier;
        patience.pause().await;
    }
    events.try_into().expect("expected four events")
}
