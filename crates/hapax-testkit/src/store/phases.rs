//! Conformance tests of phased requests: one owner at a time, and a later owner fences the earlier
//! one.
//!
//! An owner whose lease has expired may be alive and late. Nothing that it tries changes anything,
//! so that rows, events and the response are all from one owner.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    event::Headers,
    idempotency::{Claim, KeyState, Taken},
    phases::{Entry, Ownership},
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, Phases, StoreError, Transaction},
};

use super::{
    PhasesUnderTest, Tx,
    fixture::{Fixture, PATIENCE, check_error, optimistic_or_replay, replayed, try_optimistic},
};
use crate::{
    events::{RETENTION, claim, event, fingerprint, response, single_shot},
    wait::Patience,
};

pub(super) const LEASE: Duration = Duration::from_secs(10);

/// A key that was entered is taken for all callers in all modes. If the payload differs, the
/// mismatch is reported instead of the key in progress.
pub async fn an_entered_key_is_in_progress<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    assert_eq!((owned.resumed, owned.recovery_point), (false, None));
    assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
    assert_eq!(fixture.taken(claim("k")).await, Taken::InProgress);
    let ran = try_optimistic::<S>(fixture.store(), claim("k"), "optimistic");
    assert_eq!(ran.await, None);
    let plan = single_shot(claim("k"), vec![S::row_statement("plan")], "plan");
    let ran = fixture.store().execute_plan(plan).await;
    assert_eq!(
        ran.expect("it returns a result"),
        ClaimOutcome::Taken(Taken::InProgress)
    );
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    assert_eq!(taken(&fixture, other.clone()).await, Taken::Mismatch);
    assert_eq!(fixture.taken(other).await, Taken::Mismatch);
    let row = fixture.store().look_up(&claim("k").scope).await;
    let row = row.expect("a key is looked up").expect("it is there");
    assert_eq!(row.state, KeyState::InProgress);
    assert!(row.response.is_none());
    assert_eq!(fixture.rows().await, Vec::<String>::new());
}

/// A claim in progress has no row, but an entry with another payload is a mismatch at once.
pub async fn an_entry_beside_a_running_claim_compares_payloads<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut tx = fixture.claim(claim("k")).await;
    S::write_row(&mut tx, "rolled back").await;
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    assert_eq!(taken(&fixture, other.clone()).await, Taken::Mismatch);
    tx.rollback().await;
    let entered = owned(enter(&fixture, other, None).await);
    assert_eq!(entered.fingerprint, fingerprint(2));
}

/// An entry is committed before it is returned: after a crash the key is in progress.
pub async fn an_entry_outlives_a_crash<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = own(&fixture, "k").await;
    let fixture = fixture.reopen().await;
    assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
    fixture.clock.advance(LEASE);
    let second = own(&fixture, "k").await;
    assert!(second.resumed && second.epoch > first.epoch);
    assert_eq!(second.provider_key("charge"), first.provider_key("charge"));
}

/// The rows and events of a phase and its recovery point are one commit.
pub async fn a_phase_commits_rows_events_and_its_recovery_point<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    phase(&fixture, &owned, "authorized")
        .await
        .expect("it ends");
    phase(&fixture, &owned, "charged").await.expect("it ends");
    assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.rows().await, ["authorized", "charged"]);
    let events = fixture.events().await;
    assert_eq!(events.len(), 2);
    let headers = &events[0].event.headers;
    assert_eq!(headers["correlation_id"], "corr-1");
    assert_eq!(
        headers["idempotency_key_hash"],
        claim("k").scope.key.short_hash()
    );
    let tenant = events[0].event.tenant.as_ref();
    assert_eq!(tenant, Some(&claim("k").scope.tenant));
    fixture.clock.advance(LEASE);
    let next = own(&fixture, "k").await;
    assert_eq!(next.recovery_point.as_deref(), Some("charged"));
}

/// The last phase stores the response with its rows and events, and it is replayed in all modes.
pub async fn the_last_phase_stores_the_answer<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    phase(&fixture, &owned, "charged").await.expect("it ends");
    fixture.clock.advance(Duration::from_secs(3));
    let kept_for = finish(&fixture, &owned, "done", Effect::Keep).await;
    assert_eq!(kept_for.expect("a response is stored"), RETENTION);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.rows().await, ["charged", "done"]);
    assert_eq!(fixture.events().await.len(), 2);
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
    match taken(&fixture, claim("k")).await {
        Taken::Replay { response: told, .. } => assert_eq!(told, response("done")),
        other => panic!("the response should be replayed, not {other:?}"),
    }
    fixture.clock.advance(almost(RETENTION));
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
    fixture.clock.advance(Duration::from_millis(1));
    assert!(!own(&fixture, "k").await.resumed);
}

/// A phase without rows advances the key nevertheless, and so does a response alone.
pub async fn a_phase_without_rows_advances_its_key<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = own(&fixture, "k").await;
    let tx = open(&fixture, &first, Some("seen")).await;
    tx.commit().await.expect("it is committed");
    fixture.clock.advance(LEASE);
    let second = own(&fixture, "k").await;
    assert_eq!(second.recovery_point.as_deref(), Some("seen"));
    let tx = open(&fixture, &second, None).await;
    let kept = tx.complete(&response("done"), Effect::Keep).await;
    kept.expect("a response is stored");
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
}

/// A refusal drops what its own phase wrote, and nothing that was committed before.
pub async fn a_refusal_keeps_the_phases_before_it<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    phase(&fixture, &owned, "authorized")
        .await
        .expect("it ends");
    let refused = finish(&fixture, &owned, "refused", Effect::Drop).await;
    refused.expect("a refusal is stored");
    assert_eq!(fixture.rows().await, ["authorized"]);
    assert_eq!(fixture.events().await.len(), 1);
    assert_eq!(fixture.replay(claim("k")).await, response("refused"));
}

/// After a phase that does not commit, the owner still has the key at the previous recovery point.
pub async fn a_phase_that_is_rolled_back_leaves_the_key_as_it_was<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    phase(&fixture, &owned, "first").await.expect("it ends");
    let mut tx = open(&fixture, &owned, Some("rolled back")).await;
    S::write_row(&mut tx, "rolled back").await;
    tx.rollback().await;
    let mut tx = open(&fixture, &owned, Some("dropped")).await;
    S::write_row(&mut tx, "dropped").await;
    drop(tx);
    assert_eq!(fixture.rows().await, ["first"]);
    fixture.clock.advance(LEASE);
    let next = own(&fixture, "k").await;
    assert_eq!(next.recovery_point.as_deref(), Some("first"));
}

/// A fenced owner cannot change anything, and the work of the new owner is kept.
pub async fn a_fenced_owner_changes_nothing<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let late = own(&fixture, "k").await;
    phase(&fixture, &late, "first").await.expect("it ends");
    fixture.clock.advance(LEASE);
    let owner = own(&fixture, "k").await;
    check_fenced(&fixture, &late).await;
    phase(&fixture, &owner, "second").await.expect("it ends");
    check_fenced(&fixture, &late).await;
    let kept = finish(&fixture, &owner, "done", Effect::Keep).await;
    kept.expect("a response is stored");
    check_fenced(&fixture, &late).await;
    assert_eq!(fixture.rows().await, ["done", "first", "second"]);
    assert_eq!(fixture.events().await.len(), 3);
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
}

/// After its response is stored, the key has no owner any more.
pub async fn a_finished_key_fences_its_owner<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    let kept = finish(&fixture, &owned, "done", Effect::Keep).await;
    kept.expect("a response is stored");
    check_fenced(&fixture, &owned).await;
    assert_eq!(fixture.rows().await, ["done"]);
    assert_eq!(fixture.replay(claim("k")).await, response("done"));
}

/// A renewed lease counts from the renewal.
pub async fn a_renewed_lease_does_not_lapse<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    for _ in 0..3 {
        fixture.clock.advance(almost(LEASE));
        assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
        let renewed = fixture.store().renew(&owned, LEASE).await;
        renewed.expect("a lease is renewed");
    }
    fixture.clock.advance(almost(LEASE));
    assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
    fixture.clock.advance(Duration::from_millis(1));
    assert!(own(&fixture, "k").await.resumed);
}

/// A late owner can continue until the key is taken over: only another owner fences it.
pub async fn an_expired_lease_is_still_its_owners_without_a_successor<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    fixture.clock.advance(LEASE * 10);
    phase(&fixture, &owned, "late").await.expect("it ends");
    let renewed = fixture.store().renew(&owned, LEASE).await;
    renewed.expect("a lease is renewed");
    assert_eq!(taken(&fixture, claim("k")).await, Taken::InProgress);
    let kept = finish(&fixture, &owned, "done", Effect::Keep).await;
    kept.expect("a response is stored");
    assert_eq!(fixture.rows().await, ["done", "late"]);
}

/// A key that is given back can be resumed at once, and its owner is fenced.
pub async fn a_key_given_back_is_resumed_at_once<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = own(&fixture, "k").await;
    phase(&fixture, &first, "charged").await.expect("it ends");
    let given = fixture.store().give_back(&first).await;
    given.expect("a key is given back");
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    assert_eq!(taken(&fixture, other).await, Taken::Mismatch);
    assert_eq!(fixture.taken(claim("k")).await, Taken::InProgress);
    let second = own(&fixture, "k").await;
    assert!(second.resumed);
    assert_eq!(second.recovery_point.as_deref(), Some("charged"));
    check_fenced(&fixture, &first).await;
}

/// A released key counts as never used: another payload can use it, and its owner is fenced.
pub async fn a_released_key_is_free<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = own(&fixture, "k").await;
    let released = fixture.store().release(&first).await;
    released.expect("a key is released");
    let row = fixture.store().look_up(&claim("k").scope).await;
    assert!(row.expect("a key is looked up").is_none());
    fixture.clock.advance(Duration::from_millis(1));
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    let second = owned(enter(&fixture, other, None).await);
    assert!(!second.resumed);
    assert_ne!(second.provider_key("charge"), first.provider_key("charge"));
    check_fenced(&fixture, &first).await;
    phase(&fixture, &second, "second").await.expect("it ends");
    assert_eq!(fixture.rows().await, ["second"]);
}

/// Deleting a key takes it from its owner.
pub async fn a_forgotten_key_fences_its_owner<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = own(&fixture, "k").await;
    let forgot = fixture.store().forget(&first.scope).await;
    assert!(forgot.expect("a key is forgotten"));
    check_fenced(&fixture, &first).await;
    fixture.clock.advance(Duration::from_millis(1));
    own(&fixture, "k").await;
    check_fenced(&fixture, &first).await;
    assert_eq!(fixture.rows().await, Vec::<String>::new());
}

/// An expired key starts again: it has no recovery point, and new provider keys.
pub async fn an_expired_key_is_entered_again<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = own(&fixture, "k").await;
    phase(&fixture, &first, "charged").await.expect("it ends");
    let kept = finish(&fixture, &first, "done", Effect::Keep).await;
    kept.expect("a response is stored");
    fixture.clock.advance(RETENTION);
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    let second = owned(enter(&fixture, other, None).await);
    assert!(!second.resumed && second.epoch > first.epoch);
    assert_eq!(second.recovery_point, None);
    assert_ne!(second.provider_key("charge"), first.provider_key("charge"));
    assert_eq!(fixture.taken(claim("k")).await, Taken::Mismatch);
    check_fenced(&fixture, &first).await;
}

/// An unfinished key is never purged, at any age.
pub async fn a_purge_never_touches_a_key_in_progress<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let owned = own(&fixture, "k").await;
    fixture.clock.advance(RETENTION * 100);
    let purged = fixture.store().purge_keys().await;
    assert_eq!(purged.expect("keys are purged"), []);
    phase(&fixture, &owned, "late").await.expect("it ends");
}

/// Of many that enter one key at the same time, one owns it.
pub async fn of_many_entries_at_once_one_owns<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    assert_eq!(owners(&fixture, 40).await, 1);
    fixture.clock.advance(LEASE);
    assert_eq!(
        owners(&fixture, 40).await,
        1,
        "also when the lease has expired"
    );
    fixture.clock.advance(LEASE);
    let late = own(&fixture, "k").await;
    let given = fixture.store().give_back(&late).await;
    given.expect("a key is given back");
    assert_eq!(
        owners(&fixture, 40).await,
        1,
        "also when the key is given back"
    );
}

/// Of concurrent phased, atomic and single-shot requests with one key, one is executed.
pub async fn every_mode_at_once_runs_once<S: PhasesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for round in 0..8 {
        let key = format!("k{round}");
        let asked = (0..16).map(|number| {
            let (store, key) = (fixture.store().clone(), key.clone());
            tokio::spawn(async move {
                match number % 4 {
                    0 => enter_or_replay::<S>(&store, &key).await,
                    1 => super::fixture::run_or_replay::<S>(&store, claim(&key), &key).await,
                    2 => optimistic_or_replay::<S>(&store, claim(&key), &key).await,
                    _ => shoot_or_replay::<S>(&store, &key).await,
                }
            })
        });
        for outcome in join_all(asked).await {
            assert_eq!(outcome.expect("no panic"), response(&key));
        }
    }
    assert_eq!(fixture.rows().await.len(), 8);
    assert_eq!(fixture.events().await.len(), 8);
}

/// The last millisecond before this much time has passed.
pub(super) fn almost(time: Duration) -> Duration {
    time.saturating_sub(Duration::from_millis(1))
}

/// Checks everything that a fenced owner can try.
pub(super) async fn check_fenced<S: PhasesUnderTest>(fixture: &Fixture<S>, late: &Ownership) {
    let fenced = |error: &StoreError| matches!(error, StoreError::Fenced);
    let (rows, events) = (fixture.rows().await, fixture.events().await.len());
    check_error(phase(fixture, late, "late").await, "fenced", fenced);
    for effect in [Effect::Keep, Effect::Drop] {
        let finished = finish(fixture, late, "late", effect).await;
        check_error(finished, "fenced", fenced);
    }
    let empty = open(fixture, late, Some("late")).await;
    check_error(empty.commit().await, "fenced", fenced);
    let empty = open(fixture, late, None).await;
    let finished = empty.complete(&response("late"), Effect::Keep).await;
    check_error(finished, "fenced", fenced);
    let store = fixture.store();
    check_error(store.reach(late, "late").await, "fenced", fenced);
    let finished = store.finish(late, &response("late")).await;
    check_error(finished, "fenced", fenced);
    check_error(store.renew(late, LEASE).await, "fenced", fenced);
    check_error(store.give_back(late).await, "fenced", fenced);
    check_error(store.release(late).await, "fenced", fenced);
    assert_eq!(fixture.rows().await, rows);
    assert_eq!(fixture.events().await.len(), events);
}

/// Enters a key without a stored request, and must own it.
pub(super) async fn own<S: PhasesUnderTest>(fixture: &Fixture<S>, key: &str) -> Ownership {
    owned(enter(fixture, claim(key), None).await)
}

/// Enters a key that must be taken.
pub(super) async fn taken<S: PhasesUnderTest>(fixture: &Fixture<S>, claim: Claim) -> Taken {
    match enter(fixture, claim, None).await {
        ClaimOutcome::Open(_) => panic!("the key should be taken"),
        ClaimOutcome::Taken(taken) => taken,
    }
}

pub(super) fn owned(entered: ClaimOutcome<Ownership>) -> Ownership {
    match entered {
        ClaimOutcome::Open(owned) => owned,
        ClaimOutcome::Taken(taken) => panic!("the key should be free, not {taken:?}"),
    }
}

pub(super) async fn enter<S: PhasesUnderTest>(
    fixture: &Fixture<S>,
    claim: Claim,
    request: Option<Bytes>,
) -> ClaimOutcome<Ownership> {
    let entered = fixture.store().enter(entry(claim, request)).await;
    entered.expect("an entry returns a result")
}

pub(super) fn entry(claim: Claim, request: Option<Bytes>) -> Entry {
    Entry {
        claim,
        lease: LEASE,
        request,
        recovery_point: None,
    }
}

async fn open<S: PhasesUnderTest>(
    fixture: &Fixture<S>,
    owned: &Ownership,
    recovery_point: Option<&str>,
) -> Tx<S> {
    let context = Headers::from([("correlation_id".to_owned(), "corr-1".to_owned())]);
    let tx = fixture.store().phase(owned, recovery_point, context).await;
    tx.expect("a phase opens")
}

/// Executes a phase: a row and an event named after it.
pub(super) async fn phase<S: PhasesUnderTest>(
    fixture: &Fixture<S>,
    owned: &Ownership,
    name: &str,
) -> Result<(), StoreError> {
    let mut tx = open(fixture, owned, Some(name)).await;
    S::write_row(&mut tx, name).await;
    tx.emit(event(name)).expect("an event is emitted");
    tx.commit().await
}

/// Executes the last phase: a row, an event and the response.
pub(super) async fn finish<S: PhasesUnderTest>(
    fixture: &Fixture<S>,
    owned: &Ownership,
    body: &str,
    effect: Effect,
) -> Result<Duration, StoreError> {
    let mut tx = open(fixture, owned, None).await;
    S::write_row(&mut tx, body).await;
    tx.emit(event(body)).expect("an event is emitted");
    tx.complete(&response(body), effect).await
}

/// The number of concurrent callers that own the key. The others must receive "in progress".
async fn owners<S: PhasesUnderTest>(fixture: &Fixture<S>, asking: usize) -> usize {
    let asked = (0..asking).map(|_| {
        let store = fixture.store().clone();
        tokio::spawn(async move { store.enter(entry(claim("k"), None)).await })
    });
    let mut owners = 0;
    for entered in join_all(asked).await {
        match entered
            .expect("no panic")
            .expect("an entry returns a result")
        {
            ClaimOutcome::Open(_) => owners += 1,
            ClaimOutcome::Taken(taken) => assert_eq!(taken, Taken::InProgress),
        }
    }
    owners
}

/// A phased client that retries.
async fn enter_or_replay<S: PhasesUnderTest>(
    store: &S::Store,
    key: &str,
) -> hapax::idempotency::StoredResponse {
    let patience = Patience::within(PATIENCE);
    loop {
        let entered = store.enter(entry(claim(key), None)).await;
        match entered.expect("an entry returns a result") {
            ClaimOutcome::Taken(taken) => match replayed(taken) {
                Some(response) => return response,
                None => patience.pause().await,
            },
            ClaimOutcome::Open(owned) => {
                let tx = store.phase(&owned, None, Headers::new()).await;
                let mut tx = tx.expect("a phase opens");
                S::write_row(&mut tx, key).await;
                tx.emit(event(key)).expect("an event is emitted");
                let kept = tx.complete(&response(key), Effect::Keep).await;
                kept.expect("a response is stored");
                return response(key);
            }
        }
    }
}

/// A single-shot client that retries.
async fn shoot_or_replay<S: PhasesUnderTest>(
    store: &S::Store,
    key: &str,
) -> hapax::idempotency::StoredResponse {
    let patience = Patience::within(PATIENCE);
    loop {
        let mut plan = single_shot(claim(key), vec![S::row_statement(key)], key);
        plan.events.push(event(key));
        match store
            .execute_plan(plan)
            .await
            .expect("a single-shot request returns a result")
        {
            ClaimOutcome::Open(_) => return response(key),
            ClaimOutcome::Taken(taken) => match replayed(taken) {
                Some(response) => return response,
                None => patience.pause().await,
            },
        }
    }
}
