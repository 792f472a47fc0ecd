//! Conformance tests of signals: each is received once, and none is lost.

use std::time::Duration;

use hapax::{
    Timestamp,
    saga::{Owned, Refusal, SagaStatus, State},
    store::{SagaRecords, SagaRows, Sagas, Transaction},
};

use super::{
    SagasUnderTest,
    fixture::Fixture,
    saga_steps::{
        DAY, LEASE, find, give_back, kind, lock, seize, signal, start, take, write_status,
    },
};

/// A signal makes a saga due. The first signal with a name is kept.
pub async fn a_signal_wakes_a_saga_and_stands_once<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let owned = Owned::of(&take(&fixture).await[0]);
    give_back(&fixture, &owned, DAY, 0).await;
    assert!(signal(&fixture, "s1", "paid", b"first").await);
    assert!(signal(&fixture, "s1", "paid", b"second").await);
    let woken = take(&fixture).await.remove(0);
    assert_eq!(woken.signals.len(), 1);
    assert_eq!(woken.signals[0].name, "paid");
    assert_eq!(woken.signals[0].payload, &b"first"[..]);
    assert!(!signal(&fixture, "s2", "paid", b"").await);
    let mut tx = fixture.begin().await;
    let accepted = tx.signal_saga("s1", "shipped", b"").await;
    assert!(accepted.expect("it returns a result"));
    tx.rollback().await;
    let found = find(&fixture, "s1").await.expect("the saga exists");
    assert_eq!(found.signals.len(), 1);
}

/// A signal that arrives while a worker owns the saga is not lost when the worker gives it back.
pub async fn a_signal_that_crosses_a_worker_is_not_lost<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let taken = take(&fixture).await.remove(0);
    assert!(signal(&fixture, "s1", "paid", b"").await);
    give_back(&fixture, &Owned::of(&taken), DAY, taken.signals.len()).await;
    let again = take(&fixture).await.remove(0);
    assert_eq!(again.signals.len(), 1);
    give_back(&fixture, &Owned::of(&again), DAY, again.signals.len()).await;
    assert!(take(&fixture).await.is_empty());
}

/// The owner of a saga learns how many signals have arrived since it was read.
pub async fn a_locked_saga_shows_how_many_signals_it_received<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for id in ["s1", "s2"] {
        start(&fixture, id).await;
    }
    let taken = take(&fixture).await;
    let owned = Owned::of(
        taken
            .iter()
            .find(|saga| saga.id == "s1")
            .expect("it is due"),
    );
    let signals_seen = async || {
        let locked = lock(&fixture, &owned).await;
        locked.tx.rollback().await;
        locked.signals_seen
    };
    assert_eq!(signals_seen().await, 0);
    assert!(signal(&fixture, "s2", "paid", b"").await);
    assert_eq!(signals_seen().await, 0);
    for name in ["paid", "paid", "shipped"] {
        assert!(signal(&fixture, "s1", name, b"").await);
    }
    assert_eq!(signals_seen().await, 2);
    let found = find(&fixture, "s1").await.expect("the saga exists");
    assert_eq!(found.signals.len(), 2);
}

/// A finished saga is not due and receives no signals.
pub async fn a_saga_that_has_ended_is_left_alone<S: SagasUnderTest>() {
    for state in [State::Completed, State::Failed] {
        let fixture = Fixture::<S>::fresh().await;
        start(&fixture, "s1").await;
        let saga = take(&fixture).await.remove(0);
        let reason = Refusal::new("declined", "no");
        let status = SagaStatus {
            state,
            compensating: true,
            reason: Some(reason),
            deadline_at: Timestamp::from_millis(5),
        };
        write_status(&fixture, &saga, &status).await;
        let found = find(&fixture, "s1").await.expect("the saga exists");
        assert_eq!(found.status, status);
        assert_eq!(found.ended_at, Some(fixture.clock.now()));
        assert!(!signal(&fixture, "s1", "paid", b"").await);
        give_back(&fixture, &Owned::of(&saga), Duration::ZERO, 0).await;
        fixture.clock.advance(DAY);
        assert!(take(&fixture).await.is_empty());
        let next = fixture.store().next_saga(&[kind(1)]).await;
        assert_eq!(next.expect("the next is known"), None);
    }
}

/// A saga that needs attention is not due by itself, but becomes due with a signal.
pub async fn a_saga_that_needs_attention_waits_for_a_word<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let saga = take(&fixture).await.remove(0);
    let asking = SagaStatus {
        state: State::NeedsAttention,
        ..saga.status.clone()
    };
    write_status(&fixture, &saga, &asking).await;
    give_back(&fixture, &Owned::of(&saga), Duration::ZERO, 0).await;
    fixture.clock.advance(DAY);
    assert!(take(&fixture).await.is_empty());
    assert!(signal(&fixture, "s1", "paid", b"").await);
    let woken = take(&fixture).await.remove(0);
    assert_eq!(woken.status.state, State::NeedsAttention);
    let running = SagaStatus {
        state: State::Running,
        ..woken.status.clone()
    };
    write_status(&fixture, &woken, &running).await;
    give_back(&fixture, &Owned::of(&woken), Duration::ZERO, 1).await;
    assert_eq!(take(&fixture).await.len(), 1);
}

/// A signal that arrives just before a saga needs attention is processed, even if its worker dies
/// before it gives the saga back.
pub async fn a_word_before_a_saga_is_given_back_outlives_its_worker<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let saga = take(&fixture).await.remove(0);
    assert!(signal(&fixture, "s1", "paid", b"").await);
    let asking = SagaStatus {
        state: State::NeedsAttention,
        ..saga.status.clone()
    };
    write_status(&fixture, &saga, &asking).await;
    assert!(take(&fixture).await.is_empty());
    fixture.clock.advance(LEASE);
    let woken = take(&fixture).await.remove(0);
    assert_eq!(woken.signals.len(), 1);
}

/// A signal that exceeds a limit is refused, and the transaction can still be rolled back.
pub async fn a_word_that_is_too_large_is_refused<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let (long, large) = ("x".repeat(256), vec![0; 64 * 1024 + 1]);
    for (name, payload) in [("", &b""[..]), (&long, b""), ("paid", &large)] {
        let mut tx = fixture.begin().await;
        assert!(tx.signal_saga("s1", name, payload).await.is_err());
        tx.rollback().await;
    }
    assert!(signal(&fixture, "s1", &long[..255], &large[..64 * 1024]).await);
}

/// The sagas that need attention, and no others, are counted by name.
pub async fn sagas_that_need_attention_are_counted_by_name<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let count = async || {
        let counted = fixture.store().sagas_in_attention().await;
        counted.expect("sagas are counted")
    };
    for id in ["s1", "s2", "s3"] {
        start(&fixture, id).await;
    }
    assert!(count().await.is_empty());
    for id in ["s1", "s2"] {
        let saga = seize(&fixture, id).await.expect("the saga exists");
        let asking = SagaStatus {
            state: State::NeedsAttention,
            ..saga.status.clone()
        };
        write_status(&fixture, &saga, &asking).await;
    }
    assert_eq!(count().await, [("checkout".to_owned(), 2)]);
}
