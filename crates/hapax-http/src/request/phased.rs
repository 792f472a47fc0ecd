//! Phased mode: the key is committed first, and the response with the last phase.
//!
//! A run that does not complete ends its lease, so that a retry resumes immediately. If the store
//! fails when the response is to be stored, the owner tries again until its lease ends. If an owner
//! has lost its key, its own response is dropped, and its client receives the outcome of the new
//! owner.

use std::{sync::Arc, time::Duration};

use axum::{extract::OriginalUri, response::Response};
use bytes::Bytes;
use hapax::{
    idempotency::{Disposition, OnFailure, StoredResponse, Taken, evaluate_claim},
    phases::{Entry, Ownership, evaluate_entry},
    retry::Delays,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use http::request::Parts;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    RequestContext,
    claim_guard::{ClaimGuard, claim_problem},
    run::Finished,
};
use crate::{
    operation::Phasing,
    phased::{Handover, Last, Lent, Owner, encode},
    problem::{InPhases, Problem, TIMEOUT, UNAVAILABLE},
    profile::Profile,
    settings::{RETRY_AFTER, until},
};

/// The shortest and the longest interval at which a duplicate polls the key.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// The shortest and the longest interval at which a response is offered to a store that fails.
const STORE_RETRIES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Takes the key, runs the handler in phases, and stores its response or ends the lease.
pub(super) async fn phased<K: Keys>(
    mut context: RequestContext<K>,
    mut guard: ClaimGuard<K>,
    phasing: Phasing<K>,
) -> Response {
    let end = context.end();
    let handed = context.parts.extensions.remove::<Handover>();
    let handed = handed.and_then(|handover| handover.take());
    let by = if handed.is_some() {
        "completer"
    } else {
        "retry"
    };
    let mut bytes = 0;
    let lease = context.operation.idempotency.settings().lease;
    // It is not known here since when the completer has the key.
    let mut held_until = Instant::now();
    let entered = if let Some(ownership) = handed {
        Ok(ClaimOutcome::Open(ownership))
    } else {
        let last_look = context.wait_end(Instant::now());
        let entry = entry(&context, &guard, &phasing);
        bytes = entry.request.as_ref().map_or(0, Bytes::len);
        let entering = enter(&guard, &phasing, &context.parts, entry, last_look);
        let (asked, entered) = entering.await;
        held_until = asked + lease;
        entered
    };
    let ownership = match entered {
        Ok(ClaimOutcome::Open(ownership)) => ownership,
        Ok(ClaimOutcome::Taken(taken)) => return guard.taken(taken),
        Err(error) => return guard.failed(&claim_problem(error)),
    };
    guard.confirm();
    // A resumed key is not new.
    guard.entered(bytes, !ownership.resumed);
    if ownership.resumed {
        guard.operation.counts.takeover(by);
    }
    own(context, guard, phasing, (ownership, held_until), end).await
}

/// Returns the claim of this request, with the encoded request to be stored if a
/// completer may resume it.
fn entry<K: Keys>(
    context: &RequestContext<K>,
    guard: &ClaimGuard<K>,
    phasing: &Phasing<K>,
) -> Entry {
    let settings = context.operation.idempotency.settings();
    let original = context.parts.extensions.get::<OriginalUri>();
    let uri = original.map_or(&context.parts.uri, |original| &original.0);
    let request = if phasing.is_left_to_client {
        None
    } else {
        encode(&context.parts, uri, &context.kept, &phasing.kept_headers)
    };
    Entry {
        claim: guard.claim.clone(),
        lease: settings.lease,
        request,
        recovery_point: None,
    }
}

/// Takes the key. If another owner has it, waits for that owner until `last_look`. Also returns when
/// the key was asked for, which is when the lease begins at the earliest.
///
/// The first phase may contain the time, so it is computed again after each wait.
async fn enter<K: Keys>(
    guard: &ClaimGuard<K>,
    phasing: &Phasing<K>,
    parts: &Parts,
    entry: Entry,
    last_look: Instant,
) -> (Instant, Result<ClaimOutcome<Ownership>, StoreError>) {
    let arrived = Instant::now();
    let mut waited = false;
    loop {
        let asked = Instant::now();
        let entry = Entry {
            recovery_point: phasing.first_phase.as_ref().and_then(|name| name(parts)),
            ..entry.clone()
        };
        let entered = phasing.store.enter(entry).await;
        let running = matches!(entered, Ok(ClaimOutcome::Taken(Taken::InProgress)));
        if running {
            match wait_for_owner(guard, last_look).await {
                Ok(true) => {
                    waited = true;
                    continue;
                }
                Ok(false) => {}
                Err(error) => return (asked, Err(error)),
            }
        }
        if entered.is_ok() && (waited || running) {
            guard.operation.counts.wait(arrived.elapsed());
        }
        return (asked, entered);
    }
}

/// Polls until the key has no owner. Returns false if the time runs out first.
async fn wait_for_owner<K: Keys>(
    guard: &ClaimGuard<K>,
    last_look: Instant,
) -> Result<bool, StoreError> {
    let mut delays = Delays::new(LOOKS);
    while Instant::now() + delays.next_delay() < last_look {
        sleep(delays.advance()).await;
        let store = guard.operation.idempotency.store();
        let record = store.look_up(&guard.claim.scope).await?;
        let now = record.as_ref().map(|record| record.read_at);
        let found = evaluate_entry(record, &guard.claim, now.unwrap_or_default());
        if found != ClaimOutcome::Taken(Taken::InProgress) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs the handler as the key's owner.
async fn own<K: Keys>(
    mut context: RequestContext<K>,
    guard: ClaimGuard<K>,
    phasing: Phasing<K>,
    (ownership, held_until): (Ownership, Instant),
    end: Instant,
) -> Response {
    let lease = context.operation.idempotency.settings().lease;
    let last_look = context.deadline;
    let owner = Owner::new(
        phasing.store,
        ownership,
        guard.claim.context.clone(),
        held_until,
    );
    let owner = Arc::new(owner);
    let renewing = owner.keep(lease);
    context.parts.extensions.insert(Lent(Arc::clone(&owner)));
    context.parts.extensions.insert(InPhases);
    let run = context.into_run(end);
    let finished = run.finish_unless(cut(&owner, end)).await;
    owner.settle().await;
    let answered = finish(guard, &owner, finished, last_look).await;
    owner.renewed().await;
    drop(renewing);
    answered
}

/// Completes when the handler must be aborted: at the end of its time, or if it has lost its key.
async fn cut<T: Transaction>(owner: &Owner<T>, end: Instant) -> Problem {
    tokio::select! {
        () = sleep_until(end) => Problem::new(TIMEOUT)
            .detail("the time ran out; a retry continues where this request stopped")
            .retry_after(RETRY_AFTER),
        () = owner.fenced() => Problem::new(UNAVAILABLE).retry_after(RETRY_AFTER),
    }
}

async fn finish<K: Keys>(
    guard: ClaimGuard<K>,
    owner: &Owner<K::Tx>,
    finished: Finished,
    deadline: Option<Instant>,
) -> Response {
    let (last, finished) = match owner.close_last() {
        Last::None => (None, finished),
        Last::Open(tx) => (Some(tx), finished),
        Last::Kept => {
            let kept =
                "the handler still held its last phase when it responded; it was rolled back";
            let problem = Finished::problem(&Problem::internal(kept), &guard.id).await;
            (None, problem)
        }
    };
    let effect = match verdict(&finished, owner, guard.operation.policy.profile) {
        _ if owner.is_fenced() => None,
        KeyDisposition::Store(effect) => Some(effect),
        verdict => {
            roll_back(last).await;
            owner.renewed().await;
            return let_go(guard, owner, verdict, finished, deadline).await;
        }
    };
    let Some(effect) = effect else {
        roll_back(last).await;
        return fenced(guard, deadline).await;
    };
    let (response, exchange, extensions) = finished.split(&guard.operation.policy.per_request);
    let completed = match last {
        // What the handler has written is lost with its phase.
        Some(tx) => owner.heed(tx.complete(&response, effect).await),
        // No phase is open, so there is nothing that the response could keep or drop.
        None => complete(owner, &response).await,
    };
    match completed {
        Ok(fresh_for) => guard.stored(response, fresh_for, exchange, extensions),
        Err(StoreError::Fenced) => fenced(guard, deadline).await,
        Err(error) => {
            owner.renewed().await;
            give_back(owner).await;
            guard.failed(&Problem::from(error).unfinished())
        }
    }
}

/// Stores a response in a separate commit. If the store fails, tries again while the key is held: only
/// this process knows the outcome of the request.
///
/// If a commit has happened although its result was lost, the next attempt is fenced, and the client
/// receives the response that was stored.
async fn complete<T: Transaction>(
    owner: &Owner<T>,
    response: &StoredResponse,
) -> Result<Duration, StoreError> {
    let mut delays = Delays::new(STORE_RETRIES);
    loop {
        match owner.finish(response).await {
            Err(error) if is_transient(&error) && owner.is_held() => {
                tracing::warn!(
                    error = error.error_chain(),
                    "cannot store a response and will retry while the key is owned"
                );
                sleep(delays.advance()).await;
            }
            completed => return completed,
        }
    }
}

/// Whether the store may accept the same transaction later.
fn is_transient(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unavailable { .. } | StoreError::TimedOut | StoreError::Conflict { .. }
    )
}

/// Disposition of a phased key after its handler has responded.
#[derive(Clone, Copy)]
enum KeyDisposition {
    Store(Effect),
    Release,
    GiveBack,
}

/// Returns what happens to the key: the handler's choice, or else the rule for the status.
///
/// A client error releases a key that has had no effect yet. A failure leaves the key in progress,
/// unless the handler has declared that nothing happened. A handler that does not know the outcome
/// keeps the key in progress.
fn verdict<T: Transaction>(
    finished: &Finished,
    owner: &Owner<T>,
    profile: Profile,
) -> KeyDisposition {
    if finished.keeps_in_progress() {
        return KeyDisposition::GiveBack;
    }
    let is_mistake = finished.status().is_client_error();
    match finished.verdict(OnFailure::Release, Profile::default()) {
        // After a phase the refusal is stored under every profile, because the phase stays.
        Disposition::EffectFree
            if profile.stores_successes_only()
                && owner.is_untouched()
                && !finished.is_overruled() =>
        {
            KeyDisposition::Release
        }
        Disposition::WithEffect => KeyDisposition::Store(Effect::Keep),
        Disposition::EffectFree => KeyDisposition::Store(Effect::Drop),
        Disposition::Release if finished.is_overruled() => KeyDisposition::Release,
        Disposition::Release if owner.came_to_nothing() => KeyDisposition::Release,
        Disposition::Release if is_mistake && owner.is_untouched() => KeyDisposition::Release,
        Disposition::Release => KeyDisposition::GiveBack,
    }
}

async fn let_go<K: Keys>(
    mut guard: ClaimGuard<K>,
    owner: &Owner<K::Tx>,
    verdict: KeyDisposition,
    finished: Finished,
    deadline: Option<Instant>,
) -> Response {
    if let KeyDisposition::Release = verdict {
        if let Err(error) = owner.release().await {
            tracing::warn!(error = error.error_chain(), "cannot release a key");
        }
    } else {
        guard.stays_in_progress();
        give_back(owner).await;
    }
    if owner.is_fenced() {
        return fenced(guard, deadline).await;
    }
    guard.not_stored(finished)
}

/// Ends the lease. If this fails, the lease expires by itself.
async fn give_back<T: Transaction>(owner: &Owner<T>) {
    if let Err(error) = owner.give_back().await {
        tracing::warn!(
            error = error.error_chain(),
            "cannot release the lease of a key"
        );
    }
}

async fn roll_back<T: Transaction>(last: Option<T>) {
    if let Some(tx) = last {
        tx.rollback().await;
    }
}

/// Handles the loss of the key: responds with the outcome of the new owner.
async fn fenced<K: Keys>(guard: ClaimGuard<K>, deadline: Option<Instant>) -> Response {
    guard.operation.counts.fenced();
    tracing::warn!(
        operation = guard.operation.name.as_str(),
        request_id = guard.id.as_str(),
        "the key was taken over while its handler ran; nothing more was committed"
    );
    let wait = until(Instant::now(), guard.operation.policy.wait);
    let last_look = deadline.map_or(wait, |deadline| deadline.min(wait));
    let mut delays = Delays::new(LOOKS);
    let taken = loop {
        let store = guard.operation.idempotency.store();
        let record = match store.look_up(&guard.claim.scope).await {
            Ok(record) => record,
            Err(error) => return guard.failed(&error.into()),
        };
        let taken = record.and_then(|record| {
            let now = record.read_at;
            evaluate_claim(record, &guard.claim, now)
        });
        match taken {
            Some(Taken::InProgress) if Instant::now() + delays.next_delay() < last_look => {
                sleep(delays.advance()).await;
            }
            Some(taken) => break taken,
            None => break Taken::InProgress,
        }
    };
    guard.taken(taken)
}
