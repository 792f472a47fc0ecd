//! The claim of a leader on a key, and the ways in which its request ends.
//!
//! Each way consumes the [`ClaimGuard`]: it creates the response, counts and logs the request, and
//! passes the outcome to the followers or lets the next one lead. A guard that is only dropped also
//! lets the next follower lead, so that a panic leaves no follower waiting. The request is then
//! neither counted nor logged here.

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use bytes::Bytes;
use hapax::{
    admin::KeyState,
    idempotency::{Claim, OnClaimed, StoredResponse, Taken},
    key::IdempotencyKey,
    request_log::Line,
    store::{Keys, StoreError},
};
use http::{Extensions, HeaderMap};

use super::{
    join::Joined,
    line::{self, FREE, RequestLine},
    run::Finished,
};
use crate::{
    cache::ScopeRef,
    key_status::KeyStatus,
    operation::ProtectedOperation,
    problem::{self, Problem, UNAVAILABLE},
    request_id::RequestId,
    settings::{Moment, RETRY_AFTER},
    stored::Stored,
    telemetry::Outcome,
};

/// The claim of a request that leads the duplicates of its key on this node.
///
/// The request runs until one of the methods that return a [`Response`] ends it.
pub(super) struct ClaimGuard<K: Keys> {
    pub(super) operation: Arc<ProtectedOperation<K>>,
    /// The claim that is sent to the store: the key, its scope, and the fingerprint of the request.
    pub(super) claim: Claim,
    pub(super) id: RequestId,
    /// The lead. Followers wait until it ends or is dropped.
    joined: Joined,
    /// A moment before the store was asked. The duration for which a response is fresh starts here.
    asked_at: Moment,
    /// Whether the key is already counted in the quota, so that its response adds bytes only.
    is_counted: bool,
    /// Whether the handler has started in a transaction that holds the key.
    has_started: bool,
    /// The part of the line in the request log that was known when the request arrived.
    line: RequestLine,
    /// The state in which this request found the key, if it is known.
    from_state: Option<&'static str>,
    /// The state in which this request leaves the key if it stores no response.
    released_to: &'static str,
}

impl<K: Keys> ClaimGuard<K> {
    pub(super) fn new(
        operation: &Arc<ProtectedOperation<K>>,
        claim: Claim,
        joined: Joined,
        id: RequestId,
        line: RequestLine,
    ) -> Self {
        Self {
            operation: Arc::clone(operation),
            claim,
            id,
            joined,
            asked_at: operation.idempotency.settings().moment(),
            is_counted: false,
            has_started: false,
            line,
            from_state: None,
            released_to: FREE,
        }
    }

    /// Whether no other request with this key was running on this node when this one arrived.
    pub(super) fn is_first(&self) -> bool {
        self.joined.is_first
    }

    /// Confirms that the key belongs to this request, so that requests with another fingerprint
    /// need not wait.
    pub(super) fn confirm(&mut self) {
        self.joined.leader.confirm();
        self.from_state = Some(FREE);
    }

    /// Returns what a pipelined claim calls as soon as it has the key. It confirms the same.
    pub(super) fn on_claimed(&self) -> OnClaimed {
        let confirmation = self.joined.leader.confirmation();
        OnClaimed::new(move || confirmation.confirm())
    }

    /// Retracts the confirmation: the key was lost and is claimed again. Until then its state is
    /// unknown.
    pub(super) fn retract(&mut self) {
        self.joined.leader.retract();
        self.from_state = None;
    }

    /// Records that the handler starts. It must not run again without its key, because another
    /// request may have taken the key since, or its own commit may have happened.
    pub(super) fn start(&mut self) {
        self.has_started = true;
    }

    /// Whether the handler has started.
    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Records that the key stays in progress if this request stores no response.
    pub(super) fn stays_in_progress(&mut self) {
        self.released_to = KeyState::InProgress.as_str();
    }

    /// Records that the key of a phased request is committed, with this many bytes of the request.
    /// A new key is counted in the quota from now on. A resumed one was counted when it was new.
    pub(super) fn entered(&mut self, bytes: usize, is_new: bool) {
        self.is_counted = true;
        if is_new {
            let quotas = self.operation.idempotency.quotas();
            quotas.add(&self.claim.scope.tenant, 1, bytes);
        } else {
            self.from_state = Some(KeyState::InProgress.as_str());
        }
    }

    /// Ends with a committed response, for this client and its followers.
    pub(super) fn stored(
        self,
        response: StoredResponse,
        fresh_for: Duration,
        exchange: HeaderMap,
        extensions: Extensions,
    ) -> Response {
        let bytes = bytes_of(&response);
        match self.cache(response, fresh_for) {
            Ok(stored) => {
                let quotas = self.operation.idempotency.quotas();
                let keys = u64::from(!self.is_counted);
                quotas.add(&self.claim.scope.tenant, keys, bytes);
                let response = stored.first(exchange, extensions);
                // A pipelined or optimistic claim does not record that the key was free.
                let states = (self.from_state.or(Some(FREE)), Some(stored.state()));
                self.record(Outcome::Created, states, &response);
                let replay = self.joined.replay(stored);
                self.joined.leader.finish(&replay);
                response
            }
            Err(error) => self.failed(&error.into()),
        }
    }

    /// Ends with the outcome that the store has returned, for this client and its followers.
    pub(super) fn taken(self, taken: Taken) -> Response {
        let status = match taken {
            Taken::Mismatch => KeyStatus::Mismatch,
            Taken::Gone => KeyStatus::Gone,
            Taken::InProgress => KeyStatus::InProgress,
            Taken::Replay {
                response,
                fresh_for,
            } => match self.cache(response, fresh_for) {
                Ok(stored) => self.joined.replay(stored),
                Err(error) => return self.failed(&error.into()),
            },
        };
        self.respond(&status)
    }

    /// Returns the outcome from the replay cache, even if the key may have been purged: the
    /// alternative is to run the request without its key.
    pub(super) fn cached_response(&self) -> Option<KeyStatus> {
        let scope = ScopeRef::of(&self.claim.scope);
        let stored = self.operation.idempotency.in_memory(&scope)?;
        let status = if stored.fingerprint == self.claim.fingerprint {
            self.joined.replay(stored)
        } else {
            KeyStatus::Mismatch
        };
        Some(status)
    }

    /// Ends with this outcome, for this client and its followers.
    pub(super) fn respond(self, status: &KeyStatus) -> Response {
        let profile = self.operation.policy.profile;
        let (outcome, state) = (status.outcome(), status.state());
        let key = &self.claim.scope.key;
        let response = status.clone().into_response(key, profile, &self.id);
        self.record(outcome, (state, state), &response);
        self.joined.leader.finish(status);
        response
    }

    /// Ends with a response of the layer, because the handler has not run or its transaction was
    /// rolled back. Nothing is stored, and the next follower may run.
    pub(super) fn released(self, response: Response) -> Response {
        self.unstored(Outcome::Released, response)
    }

    /// Ends with the handler's response. Nothing is stored, and the next follower may run.
    pub(super) fn not_stored(self, finished: Finished) -> Response {
        let outcome = if finished.is_store_failure() {
            Outcome::StoreError
        } else {
            Outcome::Released
        };
        self.unstored(outcome, finished.into_response())
    }

    fn unstored(self, outcome: Outcome, response: Response) -> Response {
        // If it is unknown whether this request has got the key, so is the state that it leaves.
        let to_state = self.from_state.map(|_| self.released_to);
        self.record(outcome, (self.from_state, to_state), &response);
        response
    }

    /// Ends with a failure of the store. If the result of a commit was lost, the request may have
    /// had its effect. The next follower may run, and its claim finds out.
    pub(super) fn failed(self, problem: &Problem) -> Response {
        let response = problem::write_out(problem, &self.id);
        self.record(Outcome::StoreError, (None, None), &response);
        response
    }

    /// Counts the request and writes its line.
    fn record(
        &self,
        outcome: Outcome,
        (from_state, to_state): (Option<&'static str>, Option<&'static str>),
        response: &Response,
    ) {
        self.operation.counts.request(outcome);
        let line = Line {
            from_state,
            to_state,
            ..line::of(&self.claim.scope, &self.id)
        };
        self.line
            .write(&self.operation, outcome.as_str(), response, line);
    }

    /// Prepares a stored response for sending, and caches it for later requests. It shows that the
    /// key belongs to this fingerprint, so the key is confirmed too.
    ///
    /// # Errors
    /// Fails if the response is not valid in HTTP.
    fn cache(
        &self,
        response: StoredResponse,
        fresh_for: Duration,
    ) -> Result<Arc<Stored>, StoreError> {
        let profile = self.operation.policy.profile;
        let expires_at = self.asked_at.after(fresh_for);
        let (scope, fingerprint) = (&self.claim.scope, self.claim.fingerprint);
        let key: &IdempotencyKey = &scope.key;
        let stored = Stored::new(response, key, fingerprint, expires_at, profile);
        let stored = Arc::new(stored.ok_or_else(|| StoreError::Corrupt {
            what: "a response that is not valid HTTP".to_owned(),
        })?);
        // Before the lead ends: the next leader reads the cache after it has joined.
        let idempotency = &self.operation.idempotency;
        idempotency.cache_response(scope, &stored, self.joined.generation);
        self.joined.leader.confirm();
        Ok(stored)
    }
}

/// Estimates the size of a response in its row, in bytes.
fn bytes_of(response: &StoredResponse) -> usize {
    let line = |(name, value): &(String, Bytes)| name.len() + value.len() + ": \r\n".len();
    response.headers.iter().map(line).sum::<usize>() + response.body.len()
}

/// Converts the failure of a claim into a problem, which says that nothing was changed.
pub(super) fn claim_problem(error: StoreError) -> Problem {
    match error {
        StoreError::TimedOut => error.into(),
        error => Problem::new(UNAVAILABLE)
            .detail("the key cannot be claimed now; nothing was changed, try again")
            .retry_after(RETRY_AFTER)
            .caused_by(error),
    }
}
