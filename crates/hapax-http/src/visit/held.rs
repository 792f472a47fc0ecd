//! The leader's hold on a key, and the ways in which it ends.
//!
//! Each way counts the request, passes the outcome to the followers or lets the next one lead, and
//! creates the response. Dropping a [`Held`] also lets the next follower lead, so that a panic
//! leaves no follower waiting.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use hapax::{
    idempotency::{Answer, Claim, Known},
    key::IdempotencyKey,
    store::{Keys, StoreError},
};
use http::{Extensions, HeaderMap};

use super::join::Joined;
use crate::{
    cache::ScopeRef,
    operation::Act,
    problem::{self, Problem, UNAVAILABLE},
    request_id::RequestId,
    settings::{Moment, RETRY_AFTER},
    stored::Stored,
    telemetry::Outcome,
    told::Told,
};

/// A key that this request claims.
pub(super) struct Held<K: Keys> {
    pub(super) act: Arc<Act<K>>,
    pub(super) claim: Claim,
    pub(super) id: RequestId,
    joined: Joined,
    /// A moment before the store was asked. The duration for which a response is fresh starts here.
    asked_at: Moment,
    /// Whether the key is already counted in the quota.
    is_counted: bool,
}

impl<K: Keys> Held<K> {
    pub(super) fn new(act: &Arc<Act<K>>, claim: Claim, joined: Joined, id: RequestId) -> Self {
        if tracing::span_enabled!(tracing::Level::DEBUG) {
            let hash = claim.scope.key.short_hash();
            tracing::Span::current().record("idempotency.key_hash", hash);
        }
        Self {
            act: Arc::clone(act),
            claim,
            id,
            joined,
            asked_at: act.idempotency.settings().moment(),
            is_counted: false,
        }
    }

    /// Confirms that the key belongs to this request, so that requests with another fingerprint
    /// need not wait.
    pub(super) fn confirm(&self) {
        self.joined.lead.confirm();
    }

    /// Records that the key is committed, with this many bytes of its request. A new key is counted
    /// in the quota from now on.
    pub(super) fn entered(&mut self, bytes: usize, is_new: bool) {
        self.is_counted = true;
        if is_new {
            let quotas = self.act.idempotency.quotas();
            quotas.add(&self.claim.scope.tenant, 1, bytes);
        }
    }

    /// Ends with a committed response, for this client and its followers.
    pub(super) fn stored(
        self,
        answer: Answer,
        fresh_for: std::time::Duration,
        exchange: HeaderMap,
        extensions: Extensions,
    ) -> Response {
        let bytes = bytes_of(&answer);
        match self.keep(answer, fresh_for) {
            Ok(stored) => {
                self.act.counts.request(Outcome::Created);
                let quotas = self.act.idempotency.quotas();
                let keys = u64::from(!self.is_counted);
                quotas.add(&self.claim.scope.tenant, keys, bytes);
                let told = self.joined.replay(Arc::clone(&stored));
                self.joined.lead.finish(&told);
                stored.first(exchange, extensions)
            }
            Err(error) => self.failed(&error.into()),
        }
    }

    /// Ends with the outcome that the store has returned, for this client and its followers.
    pub(super) fn known(self, known: Known) -> Response {
        let told = match known {
            Known::Mismatch => Told::Mismatch,
            Known::Gone => Told::Gone,
            Known::InProgress => Told::InProgress,
            Known::Replay { answer, fresh_for } => match self.keep(answer, fresh_for) {
                Ok(stored) => self.joined.replay(stored),
                Err(error) => return self.failed(&error.into()),
            },
        };
        self.told(told)
    }

    /// Returns the outcome from the replay cache, even if the key may have been purged.
    pub(super) fn remembered(&self) -> Option<Told> {
        let scope = ScopeRef::of(&self.claim.scope);
        let stored = self.act.idempotency.in_memory(&scope)?;
        let told = if stored.fingerprint == self.claim.fingerprint {
            self.joined.replay(stored)
        } else {
            Told::Mismatch
        };
        Some(told)
    }

    /// Ends with this outcome, for this client and its followers.
    pub(super) fn told(self, told: Told) -> Response {
        self.act.counts.request(told.outcome());
        self.joined.lead.finish(&told);
        told.into_response(self.act.idempotency.settings().profile, &self.id)
    }

    /// Ends with a response that is not stored. The next follower may run.
    pub(super) fn released(self, answer: Response) -> Response {
        self.act.counts.request(Outcome::Released);
        answer
    }

    /// Ends with a failure of the store. The request had no effect.
    pub(super) fn failed(self, problem: &Problem) -> Response {
        self.act.counts.request(Outcome::StoreError);
        problem::write_out(problem, &self.id)
    }

    fn keep(
        &self,
        answer: Answer,
        fresh_for: std::time::Duration,
    ) -> Result<Arc<Stored>, StoreError> {
        let settings = self.act.idempotency.settings();
        let expires_at = self.asked_at.after(fresh_for);
        let (scope, fingerprint) = (&self.claim.scope, self.claim.fingerprint);
        let key: &IdempotencyKey = &scope.key;
        let stored = Stored::new(answer, key, fingerprint, expires_at, settings.profile);
        let stored = Arc::new(stored.ok_or_else(|| StoreError::Corrupt {
            what: "a response that is not valid HTTP".to_owned(),
        })?);
        // In the cache first: the next leader reads the cache again after it has joined.
        let idempotency = &self.act.idempotency;
        idempotency.remember(scope, &stored, self.joined.generation);
        self.joined.lead.confirm();
        Ok(stored)
    }
}

/// Estimates the size of a response in its row, in bytes.
fn bytes_of(answer: &Answer) -> usize {
    let line = |(name, value): &(String, Bytes)| name.len() + value.len() + ": \r\n".len();
    answer.headers.iter().map(line).sum::<usize>() + answer.body.len()
}

/// Converts the failure of a claim into a problem.
pub(super) fn unclaimed(error: StoreError) -> Problem {
    match error {
        StoreError::TimedOut => error.into(),
        error => Problem::new(UNAVAILABLE)
            .detail("the key cannot be claimed now; nothing was changed, try again")
            .retry_after(RETRY_AFTER)
            .caused_by(error),
    }
}
