//! Conformance tests of sagas: started once, owned by one worker, written under an epoch.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    event::Headers,
    idempotency::{Known, OnExpired},
    key::Tenant,
    limits::SAGA_KEY,
    phases::{Entered, Entry},
    saga::{Filter, Kind, NewSaga, Owned, Refusal, Standing, State, StepRecord, StepState, Way},
    store::{Effect, Keys, Phases, Ran, SagaRows, Sagas, StoreError, Transaction},
};

use super::{
    StoreUnderTest,
    bench::Bench,
    phases::almost,
    saga_steps::{
        DAY, LEASE, find, give_back, ids, kind, saga, seize, signal, stand, start, step, take,
        turn, write,
    },
};
use crate::events::{RETENTION, answer, claim, event, fingerprint, single_shot};

/// A saga exists and is due exactly if the transaction that starts it commits.
pub async fn a_saga_exists_exactly_when_its_transaction_commits<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let mut tx = bench.begin().await;
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    tx.rollback().await;
    assert_eq!(find(&bench, "s1").await, None);
    assert!(take(&bench).await.is_empty());
    start(&bench, "s1").await;
    let bench = bench.reopen().await;
    assert_eq!(ids(&take(&bench).await), ["s1"]);
}

/// If a saga is started several times, in one transaction or in two, it is started once.
pub async fn an_id_is_started_once<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let mut tx = bench.begin().await;
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    assert!(!tx.start_saga(&saga("s1")).await.expect("it is known"));
    tx.commit().await.expect("it is committed");
    let mut tx = bench.begin().await;
    let other = NewSaga {
        input: Bytes::from_static(b"other"),
        ..saga("s1")
    };
    assert!(!tx.start_saga(&other).await.expect("it is known"));
    tx.commit().await.expect("it is committed");
    let found = find(&bench, "s1").await.expect("the saga exists");
    assert_eq!(found.input, saga("s1").input);
}

/// The owner of a saga reads what it was started with.
pub async fn a_saga_reads_back_as_it_was_started<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let started_at = bench.clock.now();
    let input: Vec<u8> = (0..=255).collect();
    let new = NewSaga {
        tenant: Some(Tenant::new("alice").expect("a tenant")),
        input: Bytes::from(input),
        headers: Headers::from([("traceparent".to_owned(), "00-é".to_owned())]),
        ..saga("s1")
    };
    let mut tx = bench.begin().await;
    tx.start_saga(&new).await.expect("it is started");
    tx.commit().await.expect("it is committed");
    let taken = take(&bench).await.remove(0);
    assert_eq!(
        (&taken.id, &taken.kind, &taken.tenant),
        (&new.id, &new.kind, &new.tenant)
    );
    assert_eq!((&taken.input, &taken.headers), (&new.input, &new.headers));
    assert_eq!(taken.created_at, started_at);
    assert_eq!(taken.ended_at, None);
    let standing = Standing {
        state: State::Running,
        undoing: false,
        reason: None,
        deadline_at: started_at.after(new.deadline),
    };
    assert_eq!(taken.standing, standing);
    assert_eq!(find(&bench, "s1").await, Some(taken));
}

/// A saga without its own headers has those of the transaction that starts it.
pub async fn a_saga_carries_the_context_of_its_request<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let context = Headers::from([("traceparent".to_owned(), "t1".to_owned())]);
    let begun = bench.store().begin(None, context.clone()).await;
    let mut tx = begun.expect("a transaction opens");
    tx.start_saga(&saga("s1")).await.expect("it is started");
    tx.commit().await.expect("it is committed");
    assert_eq!(take(&bench).await[0].headers, context);
}

/// A saga that exceeds a limit is refused, and the transaction can still be rolled back.
pub async fn a_saga_that_is_too_large_is_refused<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    for new in [
        saga(""),
        saga(&"x".repeat(256)),
        NewSaga {
            input: Bytes::from(vec![0; 64 * 1024 + 1]),
            ..saga("s1")
        },
    ] {
        let mut tx = bench.begin().await;
        assert!(tx.start_saga(&new).await.is_err());
        tx.rollback().await;
    }
    assert!(take(&bench).await.is_empty());
}

/// Concurrent callers never receive the same saga.
pub async fn each_due_saga_is_taken_once<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    for number in 0..20 {
        start(&bench, &format!("s{number}")).await;
    }
    let ask = || async {
        let mut mine = Vec::new();
        loop {
            let taken = bench.store().take_sagas(&[kind(1)], LEASE, 3).await;
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
pub async fn a_held_saga_is_taken_again_after_its_lease<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let first = take(&bench).await.remove(0);
    bench.clock.advance(almost(LEASE));
    assert!(take(&bench).await.is_empty());
    bench.clock.advance(Duration::from_millis(1));
    let second = take(&bench).await.remove(0);
    assert!(second.epoch > first.epoch);
}

/// A commit of the owner renews the lease.
pub async fn a_turn_renews_the_lease<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let owned = Owned::of(&take(&bench).await[0]);
    bench.clock.advance(LEASE / 2);
    write(&bench, &owned, &step("a", Way::Do)).await;
    bench.clock.advance(almost(LEASE));
    assert!(take(&bench).await.is_empty());
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(take(&bench).await.len(), 1);
}

/// The longest due saga comes first, and no more than requested are returned.
pub async fn the_longest_due_saga_comes_first<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    for id in ["b", "c", "a"] {
        start(&bench, id).await;
        bench.clock.advance(Duration::from_millis(10));
    }
    let taken = bench.store().take_sagas(&[kind(1)], LEASE, 2).await;
    assert_eq!(ids(&taken.expect("sagas are taken")), ["b", "c"]);
    assert_eq!(ids(&take(&bench).await), ["a"]);
}

/// A caller receives only sagas of the kinds and versions that it knows.
pub async fn only_known_kinds_are_taken<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let other = Kind {
        name: "other".to_owned(),
        version: 1,
    };
    let store = bench.store();
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

/// A move is one commit: the service's rows, its events, and the row of the step.
pub async fn a_turn_commits_rows_events_and_its_step<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let mut tx = bench.begin().await;
    let new = NewSaga {
        tenant: Some(Tenant::new("alice").expect("a tenant")),
        headers: Headers::from([("traceparent".to_owned(), "t1".to_owned())]),
        ..saga("s1")
    };
    tx.start_saga(&new).await.expect("it is started");
    tx.commit().await.expect("it is committed");
    let owned = Owned::of(&take(&bench).await[0]);
    let mut tx = turn(&bench, &owned).await;
    S::write_row(&mut tx, "row").await;
    tx.emit(event("reserved")).expect("an event is emitted");
    tx.write_step(&owned, &step("a", Way::Do))
        .await
        .expect("a step is written");
    assert_eq!(
        find(&bench, "s1").await.map(|saga| saga.steps),
        Some(vec![])
    );
    tx.commit().await.expect("it is committed");
    let bench = bench.reopen().await;
    assert_eq!(bench.rows().await, ["row"]);
    let events = bench.events().await;
    assert_eq!(events.len(), 1);
    let event = &events[0].event;
    assert_eq!(event.tenant, new.tenant);
    assert_eq!(
        event.headers.get("traceparent").map(String::as_str),
        Some("t1")
    );
    let found = find(&bench, "s1").await.expect("the saga exists");
    assert_eq!(found.steps, [step("a", Way::Do)]);
}

/// A move that is rolled back or dropped leaves the saga unchanged.
pub async fn a_turn_that_is_rolled_back_leaves_nothing<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let owned = Owned::of(&take(&bench).await[0]);
    for drops in [false, true] {
        let mut tx = turn(&bench, &owned).await;
        S::write_row(&mut tx, "row").await;
        tx.write_step(&owned, &step("a", Way::Do))
            .await
            .expect("a step is written");
        if drops {
            drop(tx);
        } else {
            tx.rollback().await;
        }
    }
    let found = find(&bench, "s1").await.expect("the saga exists");
    assert!(found.steps.is_empty());
    assert!(bench.rows().await.is_empty());
}

/// The row of a step is updated as it progresses, and keeps its place in the order.
pub async fn steps_read_back_in_the_order_in_which_they_began<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let owned = Owned::of(&take(&bench).await[0]);
    let intended = StepRecord {
        state: StepState::Open,
        ended_at: None,
        made: Bytes::new(),
        ..step("ship", Way::Do)
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
        ..step("ship", Way::Do)
    };
    for row in [
        step("reserve", Way::Do),
        intended,
        step("bill", Way::Do),
        failed,
        step("reserve", Way::Undo),
        refused.clone(),
    ] {
        write(&bench, &owned, &row).await;
    }
    let found = find(&bench, "s1").await.expect("the saga exists");
    let expected = [
        step("reserve", Way::Do),
        refused,
        step("bill", Way::Do),
        step("reserve", Way::Undo),
    ];
    assert_eq!(found.steps, expected);
}

/// A later owner fences the earlier one: no row, event or step of it is written.
pub async fn a_fenced_worker_writes_nothing<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let old = Owned::of(&take(&bench).await[0]);
    bench.clock.advance(LEASE);
    let new = Owned::of(&take(&bench).await[0]);
    let turned = bench.store().turn(&old, LEASE).await;
    assert!(matches!(turned, Err(StoreError::Fenced)));
    let given = bench.store().give_back_saga(&old, DAY, "it", 0).await;
    assert!(matches!(given, Err(StoreError::Fenced)), "{given:?}");
    write(&bench, &new, &step("a", Way::Do)).await;
    let gone = Owned {
        id: "s2".to_owned(),
        ..new
    };
    let turned = bench.store().turn(&gone, LEASE).await;
    assert!(matches!(turned, Err(StoreError::Fenced)));
}

/// An operator can take a saga from its worker, due or not. A saga that does not exist is not
/// taken.
pub async fn a_seized_saga_fences_its_worker<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let worker = Owned::of(&take(&bench).await[0]);
    write(&bench, &worker, &step("a", Way::Do)).await;
    let seized = seize(&bench, "s1").await.expect("the saga exists");
    assert_eq!(seized.steps.len(), 1);
    assert!(seized.epoch > worker.epoch);
    let turned = bench.store().turn(&worker, LEASE).await;
    assert!(matches!(turned, Err(StoreError::Fenced)));
    assert_eq!(seize(&bench, "s2").await, None);
}

/// A saga that was given back is due after its pause, or at once without a pause.
pub async fn a_saga_given_back_falls_due_after_its_pause<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    start(&bench, "s1").await;
    let owned = Owned::of(&take(&bench).await[0]);
    give_back(&bench, &owned, Duration::from_mins(1), 0).await;
    let found = find(&bench, "s1").await.expect("the saga exists");
    assert_eq!(found.waiting_for.as_deref(), Some("a test"));
    bench.clock.advance(Duration::from_millis(59_999));
    assert!(take(&bench).await.is_empty());
    bench.clock.advance(Duration::from_millis(1));
    let owned = Owned::of(&take(&bench).await[0]);
    give_back(&bench, &owned, Duration::ZERO, 0).await;
    assert_eq!(take(&bench).await.len(), 1);
}

/// The next due time is that of the first saga to become due. A saga that is owned becomes due when
/// its lease expires.
pub async fn the_next_saga_is_the_first_to_fall_due<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let now = bench.clock.now();
    let next = async || {
        let next = bench.store().next_saga(&[kind(1)]).await;
        next.expect("the next is known")
    };
    assert_eq!(next().await, None);
    start(&bench, "s1").await;
    assert_eq!(next().await, Some(now));
    let owned = Owned::of(&take(&bench).await[0]);
    assert_eq!(next().await, Some(now.after(LEASE)));
    give_back(&bench, &owned, DAY, 0).await;
    assert_eq!(next().await, Some(now.after(DAY)));
    start(&bench, "s2").await;
    assert_eq!(next().await, Some(now));
}

/// Sagas are listed by id, in pages, and optionally by name and state.
pub async fn sagas_are_listed_page_by_page<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    for id in ["s3", "s1", "s2"] {
        start(&bench, id).await;
    }
    let saga = seize(&bench, "s2").await.expect("the saga exists");
    let asking = Standing {
        state: State::NeedsAttention,
        ..saga.standing.clone()
    };
    stand(&bench, &saga, &asking).await;
    let list = async |filter: Filter, limit| {
        let listed = bench.store().sagas(&filter, limit).await;
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
pub async fn a_purge_deletes_only_what_ended_long_ago<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    for id in ["ended", "running"] {
        start(&bench, id).await;
        let saga = seize(&bench, id).await.expect("the saga exists");
        write(&bench, &Owned::of(&saga), &step("a", Way::Do)).await;
        assert!(signal(&bench, id, "paid", b"").await);
        if id == "ended" {
            let ended = Standing {
                state: State::Completed,
                ..saga.standing.clone()
            };
            stand(&bench, &saga, &ended).await;
        }
    }
    let purge = async || {
        let purged = bench.store().purge_sagas(DAY).await;
        purged.expect("sagas are purged")
    };
    bench.clock.advance(almost(DAY));
    assert_eq!(purge().await, 0);
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(purge().await, 1);
    assert_eq!(purge().await, 0);
    assert_eq!(find(&bench, "ended").await, None);
    let running = find(&bench, "running").await.expect("it stays");
    assert_eq!((running.steps.len(), running.signals.len()), (1, 1));
    // Nothing of the old saga is left for a new one with the same id.
    start(&bench, "ended").await;
    let anew = find(&bench, "ended").await.expect("the saga exists");
    assert_eq!((anew.steps.len(), anew.signals.len()), (0, 0));
}

/// A key does not expire in any mode while a saga lives that was started under it. Then it expires
/// like any other key.
pub async fn a_key_of_a_live_saga_does_not_expire_in_any_mode<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let mut tx = bench.claim(claim("k")).await;
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    let kept = tx.complete(&answer("begun"), Effect::Keep).await;
    kept.expect("a response is stored");
    bench.run(claim("other"), "other", &answer("other")).await;
    let saga = seize(&bench, "s1").await.expect("the saga exists");
    let asking = Standing {
        state: State::NeedsAttention,
        ..saga.standing.clone()
    };
    stand(&bench, &saga, &asking).await;
    for _ in 0..2 {
        bench.clock.advance(RETENTION);
        check_stands(&bench).await;
        purge(&bench).await;
    }
    check_stands(&bench).await;
    let other = bench.store().look_up(&claim("other").scope).await;
    assert!(
        other.expect("looked up").is_none(),
        "no saga keeps this key alive"
    );
    let failed = Standing {
        state: State::Failed,
        ..asking
    };
    stand(&bench, &saga, &failed).await;
    assert_eq!(purge(&bench).await, 1);
    bench.run(claim("k"), "anew", &answer("anew")).await;
}

/// The saga of a phased request keeps the key alive, from the phase that starts it.
pub async fn a_saga_of_a_phase_keeps_the_key_of_its_request<S: StoreUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let entered = bench.store().enter(entry("k")).await;
    let Entered::Owned(owned) = entered.expect("a key is entered") else {
        panic!("the key should be free");
    };
    let phase = bench.store().phase(&owned, Some("started"), Headers::new());
    let mut tx = phase.await.expect("a phase opens");
    assert!(tx.start_saga(&saga("s1")).await.expect("it is started"));
    tx.commit().await.expect("it is committed");
    let last = bench.store().phase(&owned, None, Headers::new()).await;
    let last = last.expect("a phase opens");
    let kept = last.complete(&answer("begun"), Effect::Keep).await;
    kept.expect("a response is stored");
    bench.clock.advance(2 * RETENTION);
    assert_eq!(purge(&bench).await, 0);
    check_stands(&bench).await;
    let saga = seize(&bench, "s1").await.expect("the saga exists");
    let failed = Standing {
        state: State::Failed,
        ..saga.standing.clone()
    };
    stand(&bench, &saga, &failed).await;
    let entered = bench.store().enter(entry("k")).await;
    assert!(matches!(entered, Ok(Entered::Owned(_))), "{entered:?}");
}

/// Checks that all callers receive the response, and that it does not expire soon.
async fn check_stands<S: StoreUnderTest>(bench: &Bench<S>) {
    let mut gone = claim("k");
    gone.on_expired = OnExpired::Gone;
    for asked in [claim("k"), gone] {
        let known = bench.known(asked).await;
        let Known::Replay {
            answer: told,
            fresh_for,
        } = known
        else {
            panic!("the response should be replayed, not {known:?}");
        };
        assert_eq!((told, fresh_for), (answer("begun"), SAGA_KEY));
    }
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    assert_eq!(bench.known(other).await, Known::Mismatch);
    let entered = bench.store().enter(entry("k")).await;
    let is_known = matches!(entered, Ok(Entered::Known(Known::Replay { .. })));
    assert!(is_known, "{entered:?}");
    let shot = single_shot(claim("k"), vec![S::row_statement("twice")], "{}");
    let ran = bench.store().single_shot(shot).await;
    assert!(
        matches!(ran, Ok(Ran::Known(Known::Replay { .. }))),
        "{ran:?}"
    );
}

fn entry(key: &str) -> Entry {
    Entry {
        claim: claim(key),
        lease: LEASE,
        request: None,
    }
}

async fn purge<S: StoreUnderTest>(bench: &Bench<S>) -> u64 {
    let purged = bench.store().purge_keys().await;
    let purged = purged.expect("keys are purged");
    purged.iter().map(|(_, count)| count).sum()
}
