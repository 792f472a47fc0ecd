//! Conformance tests of the inbox: each consumer accepts each message once.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    event::Headers,
    inbox::{Acceptance, Message, ResultError},
    store::{Effect, Keys, Outbox, StoreError, Transaction},
};

use super::{DeliveriesUnderTest, StoreUnderTest, fixture::Fixture};
use crate::events::{claim, event, message, response};

const DAY: Duration = Duration::from_hours(24);

/// The first acceptance of a message is new, and all later ones are duplicates, also after a
/// restart.
pub async fn a_message_is_first_once<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let hello = message("mailer", "m1", "hello");
    assert_eq!(take(&fixture, &hello).await, Acceptance::First);
    assert_eq!(take(&fixture, &hello).await, Acceptance::Duplicate);
    assert_eq!(
        take(&fixture, &message("mailer", "m2", "hello")).await,
        Acceptance::First
    );
    let fixture = fixture.reopen().await;
    assert_eq!(take(&fixture, &hello).await, Acceptance::Duplicate);
}

/// If a message is accepted twice in one transaction, the second one is a duplicate.
pub async fn a_message_is_first_once_in_one_transaction<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.begin().await;
    for expected in [Acceptance::First, Acceptance::Duplicate] {
        let accepted = tx.accept(&message("mailer", "m1", "hello")).await;
        assert_eq!(accepted.expect("the message is checked"), expected);
    }
    tx.commit().await.expect("it is committed");
}

/// A known id with another payload is reported and does not replace the first payload.
pub async fn a_known_id_with_another_payload_is_a_mismatch<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let hello = message("mailer", "m1", "hello");
    assert_eq!(take(&fixture, &hello).await, Acceptance::First);
    let other = message("mailer", "m1", "other");
    assert_eq!(take(&fixture, &other).await, Acceptance::Mismatch);
    assert_eq!(take(&fixture, &other).await, Acceptance::Mismatch);
    assert_eq!(take(&fixture, &hello).await, Acceptance::Duplicate);
}

/// A message that one consumer accepted is new for another one.
pub async fn each_consumer_takes_each_message<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for (consumer, id) in [
        ("a", "m1"),
        ("b", "m1"),
        ("a b", "c"),
        ("a", "b c"),
        ("A", "m1"),
    ] {
        let accepted = take(&fixture, &message(consumer, id, "hello")).await;
        assert_eq!(accepted, Acceptance::First, "{consumer:?} takes {id:?}");
    }
}

/// The payload of a message for one consumer is not compared with that for another one.
pub async fn each_consumer_knows_its_own_messages<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let outcome = [("a", "hello"), ("b", "other")];
    for expected in [Acceptance::First, Acceptance::Duplicate] {
        for (consumer, payload) in outcome {
            let accepted = take(&fixture, &message(consumer, "m1", payload)).await;
            assert_eq!(accepted, expected, "{consumer:?}");
        }
    }
}

/// An id is unique per source. The same id from another source is another message.
pub async fn each_source_has_ids_of_its_own<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let sent = [
        ("bank", "m1", "hello"),
        ("marketplace", "m1", "hello"),
        ("marketplace", "m2", "other"),
        ("bank", "m2", "hello"),
        ("Bank", "m1", "hello"),
        ("m1", "bank", "hello"),
    ];
    for expected in [Acceptance::First, Acceptance::Duplicate] {
        for (source, id, payload) in sent {
            let message = Message::new("ledger", source, id, payload.as_bytes());
            let accepted = take(&fixture, &message.expect("well formed")).await;
            assert_eq!(accepted, expected, "{id:?} of {source:?}");
        }
    }
    let other = Message::new("ledger", "bank", "m1", b"other").expect("well formed");
    assert_eq!(take(&fixture, &other).await, Acceptance::Mismatch);
}

/// Two sources that send the same id at the same time have one effect each.
pub async fn two_sources_with_one_id_have_an_effect_each<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let takers = (0..40).map(|number| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            let source = ["bank", "marketplace"][number % 2];
            let message = Message::new("ledger", source, "m1", b"hello").expect("well formed");
            let mut tx = store.begin(None, Headers::new()).await.expect("it opens");
            let accepted = tx.accept(&message).await.expect("the message is checked");
            if accepted == Acceptance::First {
                S::write_row(&mut tx, source).await;
            }
            tx.commit().await.expect("it is committed");
        })
    });
    for taken in join_all(takers).await {
        taken.expect("no panic");
    }
    assert_eq!(fixture.rows().await, ["bank", "marketplace"]);
}

/// A message whose effect was rolled back was not accepted.
pub async fn a_message_that_was_rolled_back_is_first_again<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let hello = message("mailer", "m1", "hello");
    let mut tx = fixture.begin().await;
    assert_eq!(
        tx.accept(&hello).await.expect("the message is checked"),
        Acceptance::First
    );
    tx.rollback().await;
    let mut tx = fixture.claim(claim("k")).await;
    assert_eq!(
        tx.accept(&hello).await.expect("the message is checked"),
        Acceptance::First
    );
    let kept = tx.complete(&response("no"), Effect::Drop).await;
    kept.expect("a response is stored");
    assert_eq!(fixture.replay(claim("k")).await, response("no"));
    assert_eq!(take(&fixture, &hello).await, Acceptance::First);
    assert_eq!(take(&fixture, &hello).await, Acceptance::Duplicate);
}

/// A consumer can accept a message under an idempotency key, in one commit.
pub async fn a_keyed_transaction_takes_messages_too<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let hello = message("mailer", "m1", "hello");
    let mut tx = fixture.claim(claim("k")).await;
    assert_eq!(
        tx.accept(&hello).await.expect("the message is checked"),
        Acceptance::First
    );
    let kept = tx.complete(&response("yes"), Effect::Keep).await;
    kept.expect("a response is stored");
    assert_eq!(take(&fixture, &hello).await, Acceptance::Duplicate);
}

/// If many callers accept one message at the same time, and some of them fail, one effect is
/// committed.
pub async fn of_many_that_take_one_message_one_commits<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let takers = (0..60).map(|number| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            let mut tx = store.begin(None, Headers::new()).await.expect("it opens");
            let accepted = tx.accept(&message("mailer", "m1", "hello")).await;
            let first = accepted.expect("the message is checked") == Acceptance::First;
            if !first || number < 10 {
                tx.rollback().await;
                return 0;
            }
            S::write_row(&mut tx, "effect").await;
            tx.commit().await.expect("it is committed");
            1
        })
    });
    let effects: u32 = join_all(takers)
        .await
        .into_iter()
        .map(|one| one.expect("no panic"))
        .sum();
    assert_eq!(effects, 1);
    assert_eq!(fixture.rows().await, ["effect"]);
}

/// A message that the commit accepts is committed with its effect, its events and its result. If it
/// was accepted before, nothing is committed, and it is a duplicate or a mismatch as ever.
///
/// A store that accepts no messages at the commit passes with its regular acceptance.
pub async fn a_commit_accepts_a_message_with_its_effect_or_not_at_all<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let hello = message("mailer", "m1", "hello");
    let other = message("mailer", "m1", "other");
    assert!(at_commit::<S>(fixture.store(), &hello, "rolled back", false).await);
    assert!(at_commit::<S>(fixture.store(), &hello, "first", true).await);
    let fixture = fixture.reopen().await;
    for again in [&hello, &other] {
        assert!(!at_commit::<S>(fixture.store(), again, "again", true).await);
    }
    assert_eq!(take(&fixture, &hello).await, Acceptance::Duplicate);
    assert_eq!(take(&fixture, &other).await, Acceptance::Mismatch);
    let second = message("mailer", "m2", "hello");
    assert_eq!(take(&fixture, &second).await, Acceptance::First);
    assert!(!at_commit::<S>(fixture.store(), &second, "second", true).await);
    let elsewhere = message("ledger", "m1", "hello");
    assert!(at_commit::<S>(fixture.store(), &elsewhere, "elsewhere", true).await);
    assert_eq!(fixture.rows().await, ["elsewhere", "first"]);
    assert_eq!(fixture.events().await.len(), 2);
}

/// If many callers accept one message at the same time, in both ways, one effect is committed.
pub async fn of_many_that_accept_one_message_at_the_commit_one_commits<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let takers = (0..60).map(|number| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            let hello = message("mailer", "m1", "hello");
            let row = number.to_string();
            if number % 3 > 0 {
                // Some of them do not commit.
                let commits = number >= 10;
                return at_commit::<S>(&store, &hello, &row, commits).await && commits;
            }
            let mut tx = store.begin(None, Headers::new()).await.expect("it opens");
            let accepted = tx.accept(&hello).await.expect("the message is checked");
            let is_first = accepted == Acceptance::First;
            if is_first {
                S::write_row(&mut tx, &row).await;
                tx.emit(event(&row)).expect("an event is emitted");
            }
            tx.commit().await.expect("it is committed");
            is_first
        })
    });
    let taken = join_all(takers).await;
    let taken = taken.into_iter().map(|one| one.expect("no panic"));
    assert_eq!(taken.filter(|is_first| *is_first).count(), 1);
    assert_eq!(fixture.rows().await.len(), 1);
    assert_eq!(fixture.events().await.len(), 1);
}

/// The inbox deletes a message after its retention, and not earlier.
pub async fn a_message_is_known_for_its_retention<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let hello = message("mailer", "m1", "hello");
    assert_eq!(take(&fixture, &hello).await, Acceptance::First);
    fixture
        .clock
        .advance(DAY.saturating_sub(Duration::from_secs(1)));
    assert_eq!(purge(&fixture).await, 0);
    assert_eq!(take(&fixture, &hello).await, Acceptance::Duplicate);
    fixture.clock.advance(Duration::from_secs(2));
    assert!(purge(&fixture).await > 0);
    assert_eq!(take(&fixture, &hello).await, Acceptance::First);
}

/// Accepts a message and commits, for any result.
async fn take<S: DeliveriesUnderTest>(fixture: &Fixture<S>, message: &Message) -> Acceptance {
    let mut tx = fixture.begin().await;
    let accepted = tx.accept(message).await.expect("the message is checked");
    tx.commit().await.expect("it is committed");
    accepted
}

/// Writes the row, emits one event about it, and accepts the message at the commit, or rolls back.
/// Returns false if the message was accepted before.
async fn at_commit<S: StoreUnderTest>(
    store: &S::Store,
    message: &Message,
    row: &str,
    commits: bool,
) -> bool {
    let opened = store.accept_at_commit(None, Headers::new(), message).await;
    let mut tx = if let Some(tx) = opened.expect("a transaction opens") {
        tx
    } else {
        let tx = store.begin(None, Headers::new()).await;
        let mut tx = tx.expect("a transaction opens");
        let accepted = tx.accept(message).await.expect("the message is checked");
        if accepted != Acceptance::First {
            tx.rollback().await;
            return false;
        }
        tx
    };
    S::write_row(&mut tx, row).await;
    tx.emit(event(row)).expect("an event is emitted");
    assert_eq!(tx.record_result("a\0b"), Err(ResultError::Nul));
    tx.record_result(row).expect("a short text");
    if !commits {
        tx.rollback().await;
        return true;
    }
    match tx.commit().await {
        Ok(()) => true,
        Err(StoreError::AcceptedBefore) => false,
        Err(error) => panic!("a known message should be AcceptedBefore: {error:?}"),
    }
}

async fn purge<S: DeliveriesUnderTest>(fixture: &Fixture<S>) -> u64 {
    let purged = fixture.store().purge_events(Duration::MAX, DAY).await;
    purged.expect("the inbox is purged")
}
