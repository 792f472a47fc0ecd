//! Encryption at rest: the file has no plaintext, and only the right keys can read it.

use std::{fs, time::Duration};

use bytes::Bytes;
use hapax::{
    delivery::{Frontier, Shards},
    event::{NewEvent, Payload},
    idempotency::Taken,
    keyring::Keyring,
    phases::{Entry, Lapsed, TakenOver},
    store::{ClaimOutcome, Effect, Keys as _, Phases as _, Source, StoreError, Transaction as _},
};
use hapax_sqlite::Sqlite;
use hapax_testkit::events::{claim, keyring, response, single_shot};

use crate::fixture::Fixture;

/// The secret in a response, a request and an event.
const CARD: &str = r#"{"card":"4242424242424242"}"#;

#[tokio::test]
async fn nothing_that_was_said_lies_in_the_file() {
    let encrypted = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    say_all(&encrypted.store).await;
    assert!(!holds_the_card(&encrypted));
    // The search finds the card if it is not encrypted.
    let plain = Fixture::new().await;
    say_all(&plain.store).await;
    assert!(holds_the_card(&plain));
}

#[tokio::test]
async fn without_the_key_reading_fails_clearly_and_nothing_runs_again() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    say_all(&fixture.store).await;
    let other = again(&fixture, keyring(&[2])).await;
    let missing = |error: StoreError| {
        let error = error.to_string();
        assert!(error.contains("not among the keys here"), "{error}");
    };
    missing(other.claim(claim("plan")).await.unwrap_err());
    missing(other.look_up(&claim("tx").scope).await.unwrap_err());
    let plan = single_shot(claim("plan"), Vec::new(), CARD);
    missing(other.execute_plan(plan).await.unwrap_err());
    missing(other.enter(entry("tx")).await.unwrap_err());
    missing(events(&other).await.unwrap_err());
    // The one unreadable request does not keep the others from being taken over.
    other.enter(entry("lapsed")).await.unwrap();
    let taken = taken_over(&other).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].ownership.scope.key.as_str(), "lapsed");
}

#[tokio::test]
async fn a_key_that_was_replaced_still_reads_and_the_new_one_writes() {
    let fixture = Fixture::with(|it| it.keyring = keyring(&[1])).await;
    say_all(&fixture.store).await;
    let both = again(&fixture, keyring(&[2, 1])).await;
    for key in ["plan", "tx"] {
        let ClaimOutcome::Taken(Taken::Replay {
            response: stored, ..
        }) = both.claim(claim(key)).await.unwrap()
        else {
            panic!("{key} should be completed");
        };
        assert_eq!(stored, response(CARD));
    }
    let found = events(&both).await.unwrap();
    assert_eq!(found, [CARD]);
    assert_eq!(taken_over(&both).await[0].request, CARD);
    let plan = single_shot(claim("new"), Vec::new(), CARD);
    both.execute_plan(plan).await.unwrap();
    let record = both.look_up(&claim("new").scope).await.unwrap().unwrap();
    assert_eq!(record.response, Some(response(CARD)));
}

#[tokio::test]
async fn what_was_kept_before_there_was_a_key_is_read_as_ever() {
    let fixture = Fixture::new().await;
    say_all(&fixture.store).await;
    let with_key = again(&fixture, keyring(&[1])).await;
    let record = with_key.look_up(&claim("tx").scope).await.unwrap().unwrap();
    assert_eq!(record.response, Some(response(CARD)));
    assert_eq!(events(&with_key).await.unwrap(), [CARD]);
    assert_eq!(taken_over(&with_key).await[0].request, CARD);
}

/// Stores a response of each kind, an event, and a request whose owner has died.
async fn say_all(store: &Sqlite) {
    let plan = single_shot(claim("plan"), Vec::new(), CARD);
    assert!(matches!(
        store.execute_plan(plan).await.unwrap(),
        ClaimOutcome::Open(_)
    ));
    let ClaimOutcome::Open(mut tx) = store.claim(claim("tx")).await.unwrap() else {
        panic!("the key is free");
    };
    let event = NewEvent::new("card.seen", Payload::Json(CARD.to_owned()));
    tx.emit(event).unwrap();
    tx.complete(&response(CARD), Effect::Keep).await.unwrap();
    let ClaimOutcome::Open(owned) = store.enter(entry("died")).await.unwrap() else {
        panic!("the key is free");
    };
    store.give_back(&owned).await.unwrap();
}

fn entry(key: &str) -> Entry {
    Entry {
        claim: claim(key),
        lease: Duration::ZERO,
        request: Some(Bytes::from_static(CARD.as_bytes())),
        recovery_point: None,
    }
}

async fn taken_over(store: &Sqlite) -> Vec<TakenOver> {
    let lapsed = Lapsed {
        lease: Duration::from_secs(5),
        grace: Duration::ZERO,
        limit: 10,
    };
    let operation = claim("x").scope.operation;
    store.take_over(&[operation], lapsed).await.unwrap()
}

async fn events(store: &Sqlite) -> Result<Vec<String>, StoreError> {
    let batch = Source::read(store, &Frontier::default(), Shards::ALL, 10).await?;
    let text = |payload: &Payload| String::from_utf8(payload.bytes().to_vec());
    let texts = batch
        .events
        .iter()
        .map(|it| text(&it.event.payload).unwrap());
    Ok(texts.collect())
}

/// Reopens the file with other keys.
async fn again(fixture: &Fixture, keyring: Keyring) -> Sqlite {
    fixture.store.close().await.unwrap();
    let mut settings = fixture.settings();
    settings.keyring = keyring;
    Sqlite::open(settings).unwrap()
}

/// Whether the file or its log contains the number of the card.
fn holds_the_card(fixture: &Fixture) -> bool {
    let number = b"4242424242424242";
    let files = fs::read_dir(fixture.directory.path()).unwrap();
    files
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .any(|bytes| bytes.windows(number.len()).any(|seen| seen == number))
}
