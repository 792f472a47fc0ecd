//! Conformance tests of sagas: started once, owned by one worker, written under an epoch.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    event::Headers,
    idempotency::{OnExpired, Taken},
    key::Tenant,
    limits::SAGA_KEY,
    phases::Entry,
    saga::{
        Direction, Filter, Kind, NewSaga, Owned, Refusal, SagaStatus, State, StepRecord, StepState,
    },
    store::{
        ClaimOutcome, Effect, KeyMaintenance, Keys, Phases, SagaRecords, SagaRows, Sagas,
        StoreError, Transaction,
    },
};

use super::{
    SagasUnderTest,
    fixture::Fixture,
    phases::almost,
    saga_steps::{
        DAY, LEASE, find, give_back, ids, kind, lock, saga, seize, signal, start, step, take,
        write_status, write_step,
    },
};
use crate::{
    assert_matches,
    events::{RETENTION, claim, event, fingerprint, response, single_shot},
};

/// A saga exists and is due exactly if the transaction that starts it commits.
pub async fn a_saga_exists_exactly_when_its_transaction_commits<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.begin().await;
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    tx.rollback().await;
    assert_eq!(find(&fixture, "s1").await, None);
    assert!(take(&fixture).await.is_empty());
    start(&fixture, "s1").await;
    let fixture = fixture.reopen().await;
    assert_eq!(ids(&take(&fixture).await), ["s1"]);
}

/// If a saga is started several times, in one transaction or in two, it is started once.
pub async fn an_id_is_started_once<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.begin().await;
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    assert!(!tx.start_saga(&saga("s1")).await.expect("it is known"));
    tx.commit().await.expect("it is committed");
    let mut tx = fixture.begin().await;
    let other = NewSaga {
        input: Bytes::from_static(b"other"),
        ..saga("s1")
    };
    assert!(!tx.start_saga(&other).await.expect("it is known"));
    tx.commit().await.expect("it is committed");
    let found = find(&fixture, "s1").await.expect("the saga exists");
    assert_eq!(found.input, saga("s1").input);
}

/// The owner of a saga reads what it was started with.
pub async fn a_saga_reads_back_as_it_was_started<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let started_at = fixture.clock.now();
    let input: Vec<u8> = (0..=255).collect();
    let new = NewSaga {
        tenant: Some(Tenant::new("alice").expect("a tenant")),
        input: Bytes::from(input),
        headers: Headers::from([("traceparent".to_owned(), "00-é".to_owned())]),
        ..saga("s1")
    };
    let mut tx = fixture.begin().await;
    tx.start_saga(&new).await.expect("it is started");
    tx.commit().await.expect("it is committed");
    let taken = take(&fixture).await.remove(0);
    assert_eq!(
        (&taken.id, &taken.kind, &taken.tenant),
        (&new.id, &new.kind, &new.tenant)
    );
    assert_eq!((&taken.input, &taken.headers), (&new.input, &new.headers));
    assert_eq!(taken.created_at, started_at);
    assert_eq!(taken.ended_at, None);
    let status = SagaStatus {
        state: State::Running,
        compensating: false,
        reason: None,
        deadline_at: started_at.after(new.deadline),
    };
    assert_eq!(taken.status, status);
    assert_eq!(find(&fixture, "s1").await, Some(taken));
}

/// A saga without its own headers has those of the transaction that starts it.
pub async fn a_saga_carries_the_context_of_its_request<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let context = Headers::from([("traceparent".to_owned(), "t1".to_owned())]);
    let begun = fixture.store().begin(None, context.clone()).await;
    let mut tx = begun.expect("a transaction opens");
    tx.start_saga(&saga("s1")).await.expect("it is started");
    tx.commit().await.expect("it is committed");
    assert_eq!(take(&fixture).await[0].headers, context);
}

/// A saga that exceeds a limit is refused, and the transaction can still be rolled back.
pub async fn a_saga_that_is_too_large_is_refused<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for new in [
        saga(""),
        saga(&"x".repeat(256)),
        NewSaga {
            input: Bytes::from(vec![0; 64 * 1024 + 1]),
            ..saga("s1")
        },
    ] {
        let mut tx = fixture.begin().await;
        assert!(tx.start_saga(&new).await.is_err());
        tx.rollback().await;
    }
    assert!(take(&fixture).await.is_empty());
}

/// Concurrent callers never receive the same saga.
pub async fn each_due_saga_is_taken_once<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for number in 0..20 {
        start(&fixture, &format!("s{number}")).await;
    }
    let ask = || async {
        let mut mine = Vec::new();
        loop {
            let taken = fixture.store().take_sagas(&[kind(1)], LEASE, 3).await;
            let taken = taken.expect("sagas are taken");
            if taken.is_empty() {
                return mine;
            }
            mine.extend(taken.into_iter().map(|saga| saga.id));
        }
    };
    let mut taken = join_all((0..8).map(|_| ask())).await.concat();
    // A statement that skips locked rows may return too few.
    taken.extend(ask().await);
    taken.sort();
    let mut all: Vec<_> = (0..20).map(|number| format!("s{number}")).collect();
    all.sort();
    assert_eq!(taken, all);
}

/// A saga whose worker died can be taken after its lease has expired, and not earlier.
pub async fn a_held_saga_is_taken_again_after_its_lease<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let first = take(&fixture).await.remove(0);
    fixture.clock.advance(almost(LEASE));
    assert!(take(&fixture).await.is_empty());
    fixture.clock.advance(Duration::from_millis(1));
    let second = take(&fixture).await.remove(0);
    assert!(second.epoch > first.epoch);
}

/// A commit of the owner renews the lease.
pub async fn a_turn_renews_the_lease<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let owned = Owned::of(&take(&fixture).await[0]);
    fixture.clock.advance(LEASE / 2);
    write_step(&fixture, &owned, &step("a", Direction::Forward)).await;
    fixture.clock.advance(almost(LEASE));
    assert!(take(&fixture).await.is_empty());
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(take(&fixture).await.len(), 1);
}

/// The longest due saga comes first, and no more than requested are returned.
pub async fn the_longest_due_saga_comes_first<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for id in ["b", "c", "a"] {
        start(&fixture, id).await;
        fixture.clock.advance(Duration::from_millis(10));
    }
    let taken = fixture.store().take_sagas(&[kind(1)], LEASE, 2).await;
    assert_eq!(ids(&taken.expect("sagas are taken")), ["b", "c"]);
    assert_eq!(ids(&take(&fixture).await), ["a"]);
}

/// A caller receives only sagas of the kinds and versions that it knows.
pub async fn only_known_kinds_are_taken<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let other = Kind {
        name: "other".to_owned(),
        version: 1,
    };
    let store = fixture.store();
    for kinds in [vec![], vec![kind(2)], vec![other.clone()]] {
        let taken = store.take_sagas(&kinds, LEASE, 10).await;
        assert!(taken.expect("sagas are taken").is_empty());
        let next = store.next_saga(&kinds).await;
        assert_eq!(next.expect("the next is known"), None);
    }
    let kinds = [other, kind(2), kind(1)];
    let taken = store.take_sagas(&kinds, LEASE, 10).await;
    assert_eq!(ids(&taken.expect("sagas are taken")), ["s1"]);
}

/// One commit contains the service's rows, its events and the row of the step.
pub async fn a_turn_commits_rows_events_and_its_step<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.begin().await;
    let new = NewSaga {
        tenant: Some(Tenant::new("alice").expect("a tenant")),
        headers: Headers::from([("traceparent".to_owned(), "t1".to_owned())]),
        ..saga("s1")
    };
    tx.start_saga(&new).await.expect("it is started");
    tx.commit().await.expect("it is committed");
    let owned = Owned::of(&take(&fixture).await[0]);
    let mut tx = lock(&fixture, &owned).await.tx;
    S::write_row(&mut tx, "row").await;
    tx.emit(event("reserved")).expect("an event is emitted");
    tx.write_step(&owned, &step("a", Direction::Forward))
        .await
        .expect("a step is written");
    assert_eq!(
        find(&fixture, "s1").await.map(|saga| saga.steps),
        Some(vec![])
    );
    tx.commit().await.expect("it is committed");
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.rows().await, ["row"]);
    let events = fixture.events().await;
    assert_eq!(events.len(), 1);
    let event = &events[0].event;
    assert_eq!(event.tenant, new.tenant);
    assert_eq!(
        event.headers.get("traceparent").map(String::as_str),
        Some("t1")
    );
    let found = find(&fixture, "s1").await.expect("the saga exists");
    assert_eq!(found.steps, [step("a", Direction::Forward)]);
}

/// If the transaction of a step is rolled back or dropped, the saga is unchanged.
pub async fn a_turn_that_is_rolled_back_leaves_nothing<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let owned = Owned::of(&take(&fixture).await[0]);
    for drops in [false, true] {
        let mut tx = lock(&fixture, &owned).await.tx;
        S::write_row(&mut tx, "row").await;
        tx.write_step(&owned, &step("a", Direction::Forward))
            .await
            .expect("a step is written");
        if drops {
            drop(tx);
        } else {
            tx.rollback().await;
        }
    }
    let found = find(&fixture, "s1").await.expect("the saga exists");
    assert!(found.steps.is_empty());
    assert!(fixture.rows().await.is_empty());
}

/// The row of a step is updated as it progresses, and keeps its place in the order.
pub async fn steps_read_back_in_the_order_in_which_they_began<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let owned = Owned::of(&take(&fixture).await[0]);
    let intended = StepRecord {
        state: StepState::Open,
        ended_at: None,
        made: Bytes::new(),
        ..step("ship", Direction::Forward)
    };
    let failed = StepRecord {
        error: Some(Refusal::new("unknown", "no answer: é")),
        provider_key: Some("key".to_owned()),
        request: Bytes::from_static(b"{\"a\":1}"),
        ..intended.clone()
    };
    let refused = StepRecord {
        state: StepState::Refused,
        error: Some(Refusal::new("undeliverable", "no such place")),
        ..step("ship", Direction::Forward)
    };
    for row in [
        step("reserve", Direction::Forward),
        intended,
        step("bill", Direction::Forward),
        failed,
        step("reserve", Direction::Compensate),
        refused.clone(),
    ] {
        write_step(&fixture, &owned, &row).await;
    }
    let found = find(&fixture, "s1").await.expect("the saga exists");
    let expected = [
        step("reserve", Direction::Forward),
        refused,
        step("bill", Direction::Forward),
        step("reserve", Direction::Compensate),
    ];
    assert_eq!(found.steps, expected);
}

/// A later owner fences the earlier one: no row, event or step of it is written.
pub async fn a_fenced_worker_writes_nothing<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let old = Owned::of(&take(&fixture).await[0]);
    fixture.clock.advance(LEASE);
    let new = Owned::of(&take(&fixture).await[0]);
    let locked = fixture.store().lock_saga(&old, LEASE).await;
    assert!(matches!(locked, Err(StoreError::Fenced)));
    let given = fixture.store().give_back_saga(&old, DAY, "it", 0).await;
    assert_matches!(given, Err(StoreError::Fenced));
    write_step(&fixture, &new, &step("a", Direction::Forward)).await;
    let gone = Owned {
        id: "s2".to_owned(),
        ..new
    };
    let locked = fixture.store().lock_saga(&gone, LEASE).await;
    assert!(matches!(locked, Err(StoreError::Fenced)));
}

/// An operator can take a saga from its worker, due or not. A saga that does not exist is not
/// taken.
pub async fn a_seized_saga_fences_its_worker<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let worker = Owned::of(&take(&fixture).await[0]);
    write_step(&fixture, &worker, &step("a", Direction::Forward)).await;
    let seized = seize(&fixture, "s1").await.expect("the saga exists");
    assert_eq!(seized.steps.len(), 1);
    assert!(seized.epoch > worker.epoch);
    let locked = fixture.store().lock_saga(&worker, LEASE).await;
    assert!(matches!(locked, Err(StoreError::Fenced)));
    assert_eq!(seize(&fixture, "s2").await, None);
}

/// A saga that was given back is due after its pause, or at once without a pause.
pub async fn a_saga_given_back_falls_due_after_its_pause<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    start(&fixture, "s1").await;
    let owned = Owned::of(&take(&fixture).await[0]);
    give_back(&fixture, &owned, Duration::from_mins(1), 0).await;
    let found = find(&fixture, "s1").await.expect("the saga exists");
    assert_eq!(found.waiting_for.as_deref(), Some("a test"));
    fixture.clock.advance(Duration::from_millis(59_999));
    assert!(take(&fixture).await.is_empty());
    fixture.clock.advance(Duration::from_millis(1));
    let owned = Owned::of(&take(&fixture).await[0]);
    give_back(&fixture, &owned, Duration::ZERO, 0).await;
    assert_eq!(take(&fixture).await.len(), 1);
}

/// The next due time is that of the first saga to become due. A saga that is owned becomes due when
/// its lease expires.
pub async fn the_next_saga_is_the_first_to_fall_due<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let now = fixture.clock.now();
    let next = async || {
        let next = fixture.store().next_saga(&[kind(1)]).await;
        next.expect("the next is known")
    };
    assert_eq!(next().await, None);
    start(&fixture, "s1").await;
    assert_eq!(next().await, Some(now));
    let owned = Owned::of(&take(&fixture).await[0]);
    assert_eq!(next().await, Some(now.after(LEASE)));
    give_back(&fixture, &owned, DAY, 0).await;
    assert_eq!(next().await, Some(now.after(DAY)));
    start(&fixture, "s2").await;
    assert_eq!(next().await, Some(now));
}

/// Sagas are listed by id, in pages, and optionally by name and state.
pub async fn sagas_are_listed_page_by_page<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for id in ["s3", "s1", "s2"] {
        start(&fixture, id).await;
    }
    let saga = seize(&fixture, "s2").await.expect("the saga exists");
    let asking = SagaStatus {
        state: State::NeedsAttention,
        ..saga.status.clone()
    };
    write_status(&fixture, &saga, &asking).await;
    let list = async |filter: Filter, limit| {
        let listed = fixture.store().sagas(&filter, limit).await;
        ids(&listed.expect("sagas are listed"))
    };
    assert_eq!(list(Filter::default(), 2).await, ["s1", "s2"]);
    let after = Filter {
        after: Some("s2".to_owned()),
        ..Filter::default()
    };
    assert_eq!(list(after, 2).await, ["s3"]);
    let asking = Filter {
        state: Some(State::NeedsAttention),
        ..Filter::default()
    };
    assert_eq!(list(asking, 10).await, ["s2"]);
    let named = |name: &str| Filter {
        name: Some(name.to_owned()),
        ..Filter::default()
    };
    assert_eq!(list(named("checkout"), 10).await.len(), 3);
    assert!(list(named("other"), 10).await.is_empty());
    let versioned = |version| Filter {
        version: Some(version),
        ..Filter::default()
    };
    assert_eq!(list(versioned(1), 10).await.len(), 3);
    assert!(list(versioned(2), 10).await.is_empty());
}

/// A finished saga is deleted completely after its retention. An unfinished one is kept.
pub async fn a_purge_deletes_only_what_ended_long_ago<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for id in ["ended", "running"] {
        start(&fixture, id).await;
        let saga = seize(&fixture, id).await.expect("the saga exists");
        write_step(&fixture, &Owned::of(&saga), &step("a", Direction::Forward)).await;
        assert!(signal(&fixture, id, "paid", b"").await);
        if id == "ended" {
            let ended = SagaStatus {
                state: State::Completed,
                ..saga.status.clone()
            };
            write_status(&fixture, &saga, &ended).await;
        }
    }
    let purge = async || {
        let purged = fixture.store().purge_sagas(DAY).await;
        purged.expect("sagas are purged")
    };
    fixture.clock.advance(almost(DAY));
    assert_eq!(purge().await, 0);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(purge().await, 1);
    assert_eq!(purge().await, 0);
    assert_eq!(find(&fixture, "ended").await, None);
    let running = find(&fixture, "running").await.expect("it stays");
    assert_eq!((running.steps.len(), running.signals.len()), (1, 1));
    // Nothing of the old saga is left for a new one with the same id.
    start(&fixture, "ended").await;
    let anew = find(&fixture, "ended").await.expect("the saga exists");
    assert_eq!((anew.steps.len(), anew.signals.len()), (0, 0));
}

/// A key does not expire in any mode while a saga lives that was started under it. Then it expires
/// like any other key.
pub async fn a_key_of_a_live_saga_does_not_expire_in_any_mode<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    let kept = tx.complete(&response("begun"), Effect::Keep).await;
    kept.expect("a response is stored");
    fixture
        .run(claim("other"), "other", &response("other"))
        .await;
    let saga = seize(&fixture, "s1").await.expect("the saga exists");
    let asking = SagaStatus {
        state: State::NeedsAttention,
        ..saga.status.clone()
    };
    write_status(&fixture, &saga, &asking).await;
    for _ in 0..2 {
        fixture.clock.advance(RETENTION);
        check_stands(&fixture).await;
        purge(&fixture).await;
    }
    check_stands(&fixture).await;
    let other = fixture.store().look_up(&claim("other").scope).await;
    assert!(
        other.expect("looked up").is_none(),
        "no saga keeps this key alive"
    );
    let failed = SagaStatus {
        state: State::Failed,
        ..asking
    };
    write_status(&fixture, &saga, &failed).await;
    assert_eq!(purge(&fixture).await, 1);
    fixture.run(claim("k"), "anew", &response("anew")).await;
}

/// The saga of a phased request keeps the key alive, from the phase that starts it.
pub async fn a_saga_of_a_phase_keeps_the_key_of_its_request<S: SagasUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let entered = fixture.store().enter(entry("k")).await;
    let ClaimOutcome::Open(owned) = entered.expect("a key is entered") else {
        panic!("the key should be free");
    };
    let phase = fixture
        .store()
        .phase(&owned, Some("started"), Headers::new());
    let mut tx = phase.await.expect("a phase opens");
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    tx.commit().await.expect("it is committed");
    let last = fixture.store().phase(&owned, None, Headers::new()).await;
    let last = last.expect("a phase opens");
    let kept = last.complete(&response("begun"), Effect::Keep).await;
    kept.expect("a response is stored");
    fixture.clock.advance(2 * RETENTION);
    assert_eq!(purge(&fixture).await, 0);
    check_stands(&fixture).await;
    let saga = seize(&fixture, "s1").await.expect("the saga exists");
    let failed = SagaStatus {
        state: State::Failed,
        ..saga.status.clone()
    };
    write_status(&fixture, &saga, &failed).await;
    let entered = fixture.store().enter(entry("k")).await;
    assert_matches!(entered, Ok(ClaimOutcome::Open(_)));
}

/// Checks that all callers receive the response, and that it does not expire soon.
async fn check_stands<S: SagasUnderTest>(fixture: &Fixture<S>) {
    let mut gone = claim("k");
    gone.on_expired = OnExpired::Gone;
    for asked in [claim("k"), gone] {
        let taken = fixture.taken(asked).await;
        let Taken::Replay {
            response: replayed,
            fresh_for,
        } = taken
        else {
            panic!("the response should be replayed, not {taken:?}");
        };
        assert_eq!((replayed, fresh_for), (response("begun"), SAGA_KEY));
    }
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    assert_eq!(fixture.taken(other).await, Taken::Mismatch);
    let entered = fixture.store().enter(entry("k")).await;
    let is_known = matches!(entered, Ok(ClaimOutcome::Taken(Taken::Replay { .. })));
    assert!(is_known, "{entered:?}");
    let plan = single_shot(claim("k"), vec![S::row_statement("twice")], "{}");
    let ran = fixture.store().execute_plan(plan).await;
    assert_matches!(ran, Ok(ClaimOutcome::Taken(Taken::Replay { .. })));
}

fn entry(key: &str) -> Entry {
    Entry {
        claim: claim(key),
        lease: LEASE,
        request: None,
        recovery_point: None,
    }
}

async fn purge<S: SagasUnderTest>(fixture: &Fixture<S>) -> u64 {
    let purged = fixture.store().purge_keys().await;
    let purged = purged.expect("keys are purged");
    purged.iter().map(|(_, count)| count).sum()
}
