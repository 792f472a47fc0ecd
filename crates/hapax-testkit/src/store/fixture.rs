//! Fixture of the store suite: a fresh store with its clock, and common steps.
//!
//! A step that must succeed fails with a message, so that the tests are easy to read.

use std::{sync::Arc, time::Duration};

use hapax::{
    delivery::{Frontier, Shards},
    event::{EventId, Headers, NewEvent},
    idempotency::{Claim, PlannedRequest, StoredResponse, Taken},
    outbox::OutboxEvent,
    store::{ClaimOutcome, Effect, Keys, Source, StoreError, Transaction},
};
use tokio::task::JoinError;

use super::{Statement, StoreUnderTest, Tx};
use crate::{
    clock::{ManualClock, seeded_random},
    events::{claim, event, response, single_shot},
    wait::Patience,
};

/// How long a duplicate retries until it receives the first request's response.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A fresh store with its clock, and common steps.
#[derive(Debug)]
pub(crate) struct Fixture<S> {
    pub(crate) clock: ManualClock,
    under_test: S,
}

impl<S: StoreUnderTest> Fixture<S> {
    pub(crate) async fn fresh() -> Self {
        let clock = ManualClock::new();
        let under_test = S::fresh(clock.clock(), seeded_random(1)).await;
        Self { clock, under_test }
    }

    /// A fixture of a store that was opened with this clock.
    pub(crate) fn of(clock: ManualClock, under_test: S) -> Self {
        Self { clock, under_test }
    }

    pub(crate) async fn reopen(self) -> Self {
        Self {
            clock: self.clock,
            under_test: self.under_test.reopen().await,
        }
    }

    pub(crate) fn store(&self) -> &S::Store {
        self.under_test.store()
    }

    pub(crate) fn under_test(&self) -> &S {
        &self.under_test
    }

    pub(crate) async fn keep_image(&self) {
        self.under_test.keep_image().await;
    }

    pub(crate) async fn set_back(&self) {
        self.under_test.set_back().await;
    }

    /// The committed rows, sorted.
    pub(crate) async fn rows(&self) -> Vec<String> {
        let mut rows = self.under_test.rows().await;
        rows.sort();
        rows
    }

    /// Opens a transaction without a key.
    pub(crate) async fn begin(&self) -> Tx<S> {
        let begun = self.store().begin(None, Headers::new()).await;
        begun.expect("a transaction can be opened")
    }

    /// Claims a key that must be free.
    pub(crate) async fn claim(&self, claim: Claim) -> Tx<S> {
        match self
            .store()
            .claim(claim)
            .await
            .expect("a claim returns a result")
        {
            ClaimOutcome::Open(tx) => tx,
            ClaimOutcome::Taken(taken) => panic!("the key should be free, not {taken:?}"),
        }
    }

    /// Claims a key that must be taken.
    pub(crate) async fn taken(&self, claim: Claim) -> Taken {
        match self
            .store()
            .claim(claim)
            .await
            .expect("a claim returns a result")
        {
            ClaimOutcome::Open(_) => panic!("the key should be taken"),
            ClaimOutcome::Taken(taken) => taken,
        }
    }

    /// Executes a request: writes a row and stores a response with it.
    pub(crate) async fn run(&self, claim: Claim, row: &str, response: &StoredResponse) {
        let mut tx = self.claim(claim).await;
        S::write_row(&mut tx, row).await;
        let kept = tx.complete(response, Effect::Keep).await;
        kept.expect("a response is stored");
    }

    /// Claims a key and returns its stored response.
    pub(crate) async fn replay(&self, claim: Claim) -> StoredResponse {
        match self.taken(claim).await {
            Taken::Replay { response, .. } => response,
            other => panic!("the response should be replayed, not {other:?}"),
        }
    }

    /// Commits events in one transaction without a key.
    pub(crate) async fn emit(&self, events: Vec<NewEvent>) -> Vec<EventId> {
        let mut tx = self.begin().await;
        let ids = events
            .into_iter()
            .map(|event| tx.emit(event).expect("an event is emitted"))
            .collect();
        tx.commit().await.expect("events are committed");
        ids
    }

    /// All events in the outbox.
    pub(crate) async fn events(&self) -> Vec<Arc<OutboxEvent>> {
        self.events_beyond(Frontier::default()).await.0
    }

    /// All events after `frontier`, and the frontier after them.
    pub(crate) async fn events_beyond(
        &self,
        mut frontier: Frontier,
    ) -> (Vec<Arc<OutboxEvent>>, Frontier) {
        let mut events = Vec::new();
        loop {
            let batch = self.store().read(&frontier, Shards::ALL, 100).await;
            let batch = batch.expect("the outbox is read");
            frontier = batch.frontier;
            if batch.events.is_empty() {
                return (events, frontier);
            }
            events.extend(batch.events);
        }
    }
}

/// Acts like a client that retries until the response of the key is known.
///
/// If the claim succeeds, it writes the row `body`, emits one event about it, and responds with
/// `body`.
pub(crate) async fn run_or_replay<S: StoreUnderTest>(
    store: &S::Store,
    claim: Claim,
    body: &str,
) -> StoredResponse {
    let patience = Patience::within(PATIENCE);
    loop {
        match store
            .claim(claim.clone())
            .await
            .expect("a claim returns a result")
        {
            ClaimOutcome::Taken(taken) => match replayed(taken) {
                Some(response) => return response,
                None => patience.pause().await,
            },
            ClaimOutcome::Open(mut tx) => {
                S::write_row(&mut tx, body).await;
                tx.emit(event(body)).expect("an event is emitted");
                let kept = tx.complete(&response(body), Effect::Keep).await;
                kept.expect("a response is stored");
                return response(body);
            }
        }
    }
}

/// Executes a request once with an optimistic claim, or with a regular one in a store without them.
/// `None` if nothing was committed, because the key was not free.
///
/// It writes the row `body`, emits one event about it, and responds with `body`.
pub(crate) async fn try_optimistic<S: StoreUnderTest>(
    store: &S::Store,
    claim: Claim,
    body: &str,
) -> Option<StoredResponse> {
    let opened = store.claim_optimistic(claim.clone()).await;
    let mut tx = match opened.expect("a claim returns a result") {
        Some(tx) => tx,
        None => match store.claim(claim).await.expect("a claim returns a result") {
            ClaimOutcome::Open(tx) => tx,
            ClaimOutcome::Taken(_) => return None,
        },
    };
    S::write_row(&mut tx, body).await;
    tx.emit(event(body)).expect("an event is emitted");
    match tx.complete(&response(body), Effect::Keep).await {
        Ok(_) => Some(response(body)),
        Err(StoreError::NotClaimed | StoreError::Conflict { .. }) => None,
        Err(error) => panic!("a lost claim should be NotClaimed or Conflict: {error:?}"),
    }
}

/// Acts like the layer with an optimistic claim: if it loses, the key is claimed in the regular way.
pub(crate) async fn optimistic_or_replay<S: StoreUnderTest>(
    store: &S::Store,
    claim: Claim,
    body: &str,
) -> StoredResponse {
    match try_optimistic::<S>(store, claim.clone(), body).await {
        Some(response) => response,
        None => run_or_replay::<S>(store, claim, body).await,
    }
}

/// A single-shot request that writes `row`, emits one event and responds with `row`.
pub(crate) fn plan<S: StoreUnderTest>(key: &str, row: &str) -> PlannedRequest<Statement<S>> {
    let mut plan = single_shot(claim(key), vec![S::row_statement(row)], row);
    plan.events.push(event(row));
    plan
}

/// Acts like a client that sends a single-shot request until the response of its key is known.
pub(crate) async fn fire_or_replay<S: StoreUnderTest>(
    store: &S::Store,
    key: &str,
    row: &str,
) -> StoredResponse {
    let patience = Patience::within(PATIENCE);
    loop {
        match store
            .execute_plan(plan::<S>(key, row))
            .await
            .expect("it returns a result")
        {
            ClaimOutcome::Open(_) => return response(row),
            ClaimOutcome::Taken(taken) => match replayed(taken) {
                Some(response) => return response,
                None => patience.pause().await,
            },
        }
    }
}

/// The replayed response, once there is one.
pub(super) fn replayed(taken: Taken) -> Option<StoredResponse> {
    match taken {
        Taken::Replay { response, .. } => Some(response),
        Taken::InProgress => None,
        other => panic!("the key should replay, not {other:?}"),
    }
}

/// Requires that the request `k` has stored its row, its event and its response, all named `row`.
pub(crate) async fn check_all_is_stored<S: StoreUnderTest>(fixture: &Fixture<S>) {
    assert_eq!(fixture.replay(claim("k")).await, response("row"));
    assert_eq!(fixture.rows().await, ["row"]);
    let events = fixture.events().await;
    assert_eq!(events.len(), 1);
    let event = &events[0].event;
    assert_eq!(event.tenant, Some(claim("k").scope.tenant));
    let hash = claim("k").scope.key.short_hash();
    assert_eq!(event.headers["idempotency_key_hash"], hash);
    assert_eq!(event.headers["correlation_id"], "corr-1");
}

/// Requires that one of many requests was executed and that all of them received its response.
pub(crate) async fn check_one_ran<S: StoreUnderTest>(
    fixture: &Fixture<S>,
    responses: Vec<Result<StoredResponse, JoinError>>,
) {
    let responses = responses.into_iter().map(|one| one.expect("no panic"));
    let responses: Vec<_> = responses.collect();
    assert!(
        responses.iter().all(|response| *response == responses[0]),
        "{responses:?}"
    );
    let row = String::from_utf8_lossy(&responses[0].body).into_owned();
    assert_eq!(fixture.rows().await, [row]);
    assert_eq!(fixture.events().await.len(), 1);
}

/// Requires a certain variant of a store's error.
#[track_caller]
pub(crate) fn check_error<T>(
    outcome: Result<T, StoreError>,
    expected: &str,
    fits: impl FnOnce(&StoreError) -> bool,
) {
    match outcome {
        Ok(_) => panic!("expected the error {expected}, but the call succeeded"),
        Err(error) => assert!(fits(&error), "expected the error {expected}: {error:?}"),
    }
}
