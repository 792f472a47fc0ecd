//! A key in the hands of the request that leads, and the ways to let it go.
//!
//! Each way counts the request, tells or frees those that wait, and makes the
//! answer. Dropping it frees them too: a panic here leaves nobody waiting.

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
    /// Before the store was asked: what it says of time counts from then at the latest.
    asked_at: Moment,
    /// Whether the quota knows of the key already.
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

    /// The key stands for this request: others with another payload need not wait.
    pub(super) fn confirm(&self) {
        self.joined.lead.confirm();
    }

    /// The key itself is committed, with so many bytes of its request: it counts from now on, unless
    /// it has stood before.
    pub(super) fn entered(&mut self, bytes: usize, is_new: bool) {
        self.is_counted = true;
        if is_new {
            let quotas = self.act.idempotency.quotas();
            quotas.add(&self.claim.scope.tenant, 1, bytes);
        }
    }

    /// The answer is committed: it goes out, to this client and to those that wait.
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

    /// The store knows the key: what it says goes for those that wait too.
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

    /// What this node has in memory, whether or not it is known to hold still.
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

    /// This request, and those that wait, are told.
    pub(super) fn told(self, told: Told) -> Response {
        self.act.counts.request(told.outcome());
        self.joined.lead.finish(&told);
        told.into_response(self.act.idempotency.settings().profile, &self.id)
    }

    /// Nothing was kept: the next in line may run.
    pub(super) fn released(self, answer: Response) -> Response {
        self.act.counts.request(Outcome::Released);
        answer
    }

    /// The store failed this request, which had no effect.
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
            what: "an answer that HTTP cannot say".to_owned(),
        })?);
        // In the cache first: whoever misses it and leads next looks again.
        let idempotency = &self.act.idempotency;
        idempotency.remember(scope, &stored, self.joined.generation);
        self.joined.lead.confirm();
        Ok(stored)
    }
}

/// About what an answer takes in its row.
fn bytes_of(answer: &Answer) -> usize {
    let line = |(name, value): &(String, Bytes)| name.len() + value.len() + ": \r\n".len();
    answer.headers.iter().map(line).sum::<usize>() + answer.body.len()
}

/// What a client is told when its key could not be taken.
pub(super) fn unclaimed(error: StoreError) -> Problem {
    match error {
        StoreError::TimedOut => error.into(),
        error => Problem::new(UNAVAILABLE)
            .detail("the key cannot be taken now, and nothing runs without it; try again")
            .retry_after(RETRY_AFTER)
            .caused_by(error),
    }
}
