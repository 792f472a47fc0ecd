//! Requests that run without a key: by the operation's policy, or because the store is away.
//!
//! A handler still gets a transaction where one can be had, and its rows and
//! events are committed or rolled back by the same table; only the answer is not
//! remembered.

use std::time::Duration;

use axum::response::Response;
use hapax::{
    idempotency::{Answer, Claim, OnExpired, OnStoreError, Remember, SingleShot},
    key::{Fingerprint, IdempotencyKey, Scope, Tenant},
    store::{Keys, Transaction},
};
use http::HeaderValue;

use super::{
    Inner, Visit,
    held::unclaimed,
    run::{Finished, Run},
};
use crate::{
    header::IDEMPOTENCY_STATUS,
    planned,
    problem::{self, Problem},
    telemetry::Outcome,
    tx::Slot,
};

/// How long the key of a plan without a key stands: it was minted, nobody can send it again.
const MINTED_RETENTION: Duration = Duration::from_secs(1);

/// Runs a request without a key.
pub(super) async fn unprotected<K: Keys, S: Inner>(visit: Visit<K, S>) -> Response {
    if visit.act.terms.single_shot {
        shot(visit).await
    } else {
        run(visit).await
    }
}

/// Runs the handler in a transaction without a key.
pub(super) async fn run<K: Keys, S: Inner>(mut visit: Visit<K, S>) -> Response {
    let (act, id, end) = (visit.act.clone(), visit.id.clone(), visit.end());
    let slot = match act.idempotency.store().begin(visit.context()).await {
        Ok(tx) => Slot::holding(tx),
        Err(error) if act.idempotency.settings().on_store_error == OnStoreError::Closed => {
            act.counts.request(Outcome::StoreError);
            return problem::write_out(&unclaimed(error), &id);
        }
        Err(_) => Slot::unreachable(),
    };
    visit.parts.extensions.insert(slot.clone());
    let opened = slot.is_open();
    let run = visit.into_run(end);
    let ((), finished) = run.finish(|response| ((), response)).await;
    act.counts.request(Outcome::Bypassed);
    let ended = match slot.close() {
        Some(tx) if finished.verdict(act.terms.on_failure) == Remember::WithEffect => {
            tx.commit().await.map_err(Problem::from)
        }
        Some(tx) => {
            tx.rollback().await;
            Ok(())
        }
        None if opened => Err(Problem::internal("the handler kept its transaction")),
        None => Ok(()),
    };
    bypassed(match ended {
        Ok(()) => finished.into_response(),
        Err(problem) => problem::write_out(&problem, &id),
    })
}

/// Carries a plan out under a key that was minted for it.
async fn shot<K: Keys, S: Inner>(visit: Visit<K, S>) -> Response {
    let (act, id, end) = (visit.act.clone(), visit.id.clone(), visit.end());
    let claim = minted(&visit);
    let run = visit.into_run(end);
    let (plan, finished) = run.finish(planned::split::<K::Statement>).await;
    act.counts.request(Outcome::Bypassed);
    if finished.verdict(act.terms.on_failure) != Remember::WithEffect {
        return bypassed(finished.into_response());
    }
    let shot = SingleShot {
        claim,
        statements: plan.statements,
        events: plan.events,
        answer: Answer {
            status: 204,
            ..Answer::default()
        },
    };
    bypassed(match act.idempotency.store().single_shot(shot).await {
        Ok(_) => finished.into_response(),
        Err(error) => Finished::problem(&error.into(), &id).await.into_response(),
    })
}

fn minted<K: Keys, S: Inner>(visit: &Visit<K, S>) -> Claim {
    let settings = visit.act.idempotency.settings();
    let placed = visit.parts.extensions.get::<Tenant>();
    let tenant = placed.or(settings.tenant.as_ref()).cloned();
    Claim {
        scope: Scope {
            tenant: tenant.expect("a request without a tenant was refused"),
            operation: visit.act.operation.clone(),
            key: IdempotencyKey::mint(&settings.random),
        },
        fingerprint: Fingerprint::from_bytes([0; 32]),
        retention: MINTED_RETENTION,
        on_expired: OnExpired::New,
        context: visit.context(),
    }
}

fn bypassed(mut response: Response) -> Response {
    let value = HeaderValue::from_static("bypassed");
    response.headers_mut().insert(IDEMPOTENCY_STATUS, value);
    response
}

impl<K: Keys, S: Inner> Visit<K, S> {
    /// The handler's run, until `end`.
    pub(super) fn into_run(self, end: tokio::time::Instant) -> Run<S> {
        Run {
            inner: self.inner,
            parts: self.parts,
            kept: self.kept,
            id: self.id,
            end,
        }
    }
}
