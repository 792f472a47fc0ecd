//! Encryption at rest: what the PostgreSQL tables contain, and who can read it.

use std::{num::NonZeroU8, time::Duration};

use bytes::Bytes;
use hapax::{
    admin::{Actor, EventAdmin as _, KeyAdmin as _},
    delivery::{Frontier, Shards},
    event::{EventId, Headers, NewEvent, Payload},
    idempotency::Taken,
    keyring::{ENCRYPTED_UNDER, Keyring},
    phases::{Entry, Lapsed},
    store::{ClaimOutcome, Effect, Keys, Phases, Source, StoreError, Transaction as _},
};
use hapax_postgres::Postgres;
use hapax_testkit::{
    assert_matches,
    events::{claim, fingerprint, keyring, response, single_shot},
};

use crate::{conformance::Server, fixture::Fixture};

/// A card number, used in a response, a request and an event.
const CARD: &str = r#"{"card":"4242424242424242"}"#;

/// The modules of the conformance suite that encryption could affect, run with encryption.
type Law = Server<false, true>;

hapax_testkit::suite! { Law, store,
    keys {
        an_answer_survives_a_restart
        of_many_claims_at_once_one_runs_and_the_others_replay
        a_dropped_effect_keeps_the_answer_alone
    }
    transaction {
        an_abandoned_completion_is_whole_or_nothing
    }
    single_shot {
        of_many_single_shots_of_one_key_one_runs
        hundreds_of_single_shots_at_once_all_commit
        an_abandoned_single_shot_is_whole_or_nothing
    }
    outbox {
        a_reader_among_writers_loses_and_repeats_nothing
    }
}

#[tokio::test]
async fn nothing_that_was_said_lies_in_a_table() {
    let encrypted = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    say_all(&encrypted.store).await;
    assert_eq!(tables_with_the_card(&encrypted).await, Vec::<String>::new());
    // Without encryption, the search finds the card number in the tables.
    let plain = Fixture::new().await;
    say_all(&plain.store).await;
    let found = tables_with_the_card(&plain).await;
    assert!(found.contains(&"idempotency_key".to_owned()), "{found:?}");
    assert!(
        found.iter().any(|it| it.starts_with("outbox_event")),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_partition_reads_all_that_is_encrypted_however_much_shorter_it_says_than_it_takes() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    for _ in 0..8_000 {
        // The payload is base64-encoded, then encrypted, and the ciphertext is base64-encoded
        // again: its column is about twice as long as the payload.
        let payload = Payload::Binary {
            content_type: "application/avro".to_owned(),
            bytes: Bytes::from_static(&[7; 280]),
        };
        tx.emit(NewEvent::new("reading.taken", payload).about("meter", "one"))
            .unwrap();
    }
    tx.commit().await.unwrap();
    let (two, mut read) = (NonZeroU8::new(2).unwrap(), [0, 0]);
    for (partition, read) in (0..).zip(&mut read) {
        let mut frontier = Frontier::default();
        loop {
            let shards = Shards::of_partition(partition, two).unwrap();
            let batch = Source::read(&fixture.store, &frontier, shards, 10_000).await;
            let batch = batch.unwrap();
            *read += batch.events.len();
            if batch.events.is_empty() {
                break;
            }
            frontier = batch.frontier;
        }
    }
    read.sort_unstable();
    assert_eq!(read, [0, 8_000]);
}

#[tokio::test]
async fn without_the_key_reading_fails_clearly_and_nothing_runs_again() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    say_all(&fixture.store).await;
    let other = beside(&fixture, keyring(&[2])).await;
    let missing = |error: StoreError| {
        let error = error.to_string();
        assert!(error.contains("not among the keys here"), "{error}");
    };
    missing(other.claim(claim("plan")).await.unwrap_err());
    missing(other.look_up(&claim("tx").scope).await.unwrap_err());
    let plan = single_shot(claim("plan"), Vec::new(), CARD);
    missing(other.execute_plan(plan).await.unwrap_err());
    missing(other.enter(entry("tx")).await.unwrap_err());
    missing(carried(&other).await.unwrap_err());
    let lapsed = Lapsed {
        lease: Duration::from_secs(5),
        grace: Duration::ZERO,
        limit: 10,
    };
    let operation = claim("x").scope.operation;
    // Detecting a mismatch or an expired key does not need the old response, so it works without
    // the encryption key.
    let mut changed = entry("tx");
    changed.claim.fingerprint = fingerprint(2);
    let outcome = other.enter(changed).await.unwrap();
    assert_matches!(outcome, ClaimOutcome::Taken(Taken::Mismatch));
    let expired = "UPDATE hapax.idempotency_key SET expires_at = now() - interval '1 s'
        WHERE key = 'tx'";
    fixture.plain.execute(expired, &[]).await.unwrap();
    let outcome = other.enter(entry("tx")).await.unwrap();
    assert_matches!(outcome, ClaimOutcome::Open(_));
    // A request that cannot be decrypted does not affect other requests.
    assert!(
        other
            .take_over(&[operation], lapsed)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_key_that_was_replaced_still_reads_and_the_new_one_writes() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    say_all(&fixture.store).await;
    let both = beside(&fixture, keyring(&[2, 1])).await;
    for key in ["plan", "tx"] {
        let taken = both.claim(claim(key)).await.unwrap();
        let ClaimOutcome::Taken(Taken::Replay {
            response: stored, ..
        }) = taken
        else {
            panic!("{key} was not rejected");
        };
        assert_eq!(stored, response(CARD));
    }
    assert_eq!(carried(&both).await.unwrap(), [CARD]);
    let plan = single_shot(claim("new"), Vec::new(), CARD);
    both.execute_plan(plan).await.unwrap();
    let new = beside(&fixture, keyring(&[2])).await;
    let record = new.look_up(&claim("new").scope).await.unwrap().unwrap();
    assert_eq!(record.response, Some(response(CARD)));
}

#[tokio::test]
async fn an_operator_reads_what_the_keys_at_hand_decrypt() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    say_all(&fixture.store).await;
    let ops = Actor::new("ops");
    let id = fixture
        .plain
        .query_one("SELECT event_id::text FROM hapax.outbox_event", &[]);
    let id: EventId = id.await.unwrap().get::<_, String>(0).parse().unwrap();
    for (numbers, reads) in [(&[1][..], true), (&[][..], false)] {
        let store = beside(&fixture, keyring(numbers).reading()).await;
        let key = store.key(&ops, None, "POST /orders", "tx").await;
        let key = key.unwrap();
        let event = store.find_event(&ops, id).await.unwrap().unwrap();
        assert_eq!(key.body.unwrap().raw == CARD.as_bytes(), reads);
        assert_eq!(event.event.payload.bytes() == CARD.as_bytes(), reads);
        let names: Vec<_> = key.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.contains(&ENCRYPTED_UNDER), !reads);
        assert_eq!(event.event.headers.contains_key(ENCRYPTED_UNDER), !reads);
    }
}

/// Stores a response of each kind, an event, and a request whose owner has died.
async fn say_all(store: &Postgres) {
    let plan = single_shot(claim("plan"), Vec::new(), CARD);
    let ran = store.execute_plan(plan).await.unwrap();
    assert!(matches!(ran, ClaimOutcome::Open(_)));
    let ClaimOutcome::Open(mut tx) = store.claim(claim("tx")).await.unwrap() else {
        panic!("expected a free key");
    };
    let event = NewEvent::new("card.seen", Payload::Json(CARD.to_owned()));
    tx.emit(event).unwrap();
    tx.complete(&response(CARD), Effect::Keep).await.unwrap();
    let ClaimOutcome::Open(owned) = store.enter(entry("died")).await.unwrap() else {
        panic!("expected a free key");
    };
    store.give_back(&owned).await.unwrap();
}

fn entry(key: &str) -> Entry {
    Entry {
        claim: claim(key),
        lease: Duration::from_secs(5),
        request: Some(Bytes::from_static(CARD.as_bytes())),
        recovery_point: None,
    }
}

async fn carried(store: &Postgres) -> Result<Vec<String>, StoreError> {
    let batch = Source::read(store, &Frontier::default(), Shards::ALL, 10).await?;
    let text = |payload: &Payload| String::from_utf8(payload.bytes().to_vec()).unwrap();
    Ok(batch
        .events
        .iter()
        .map(|it| text(&it.event.payload))
        .collect())
}

async fn beside(fixture: &Fixture, keyring: Keyring) -> Postgres {
    let set = |settings: &mut hapax_postgres::Settings| settings.keyring = keyring;
    let database = std::sync::Arc::clone(&fixture.database);
    Fixture::on(database, set).await.store
}

/// The tables of the schema in which the card number occurs, as text or as bytes.
async fn tables_with_the_card(fixture: &Fixture) -> Vec<String> {
    let tables = "SELECT relname::text FROM pg_class
        WHERE relnamespace = 'hapax'::regnamespace AND relkind = 'r'";
    let tables = fixture.plain.query(tables, &[]).await.unwrap();
    let mut found = Vec::new();
    for table in tables.iter().map(|row| row.get::<_, String>(0)) {
        let sql = format!(
            "SELECT count(*) FROM hapax.{table} AS it
             WHERE it::text LIKE '%4242424242424242%'
                OR it::text LIKE '%' || encode('4242424242424242', 'hex') || '%'"
        );
        if fixture.count(&sql).await > 0 {
            found.push(table);
        }
    }
    found
}
