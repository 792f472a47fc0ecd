//! Sagas: queries, and decisions of operators about sagas that need attention.
//!
//! A decision is one transaction, which contains the changed rows, the new status of the saga and a
//! line of the audit log. The saga is first taken from its owner, so that no worker overwrites the
//! decision. A decision that is not valid is refused without taking the saga.

use std::time::Duration;

use hapax::{
    Timestamp,
    limits::{LEASE, SAGA_INPUT_BYTES_MAX},
    saga::{Decision, Filter, Owned, SagaRecord, SagaStatus, StepRecord},
    store::{SagaRows as _, Sagas as _, StoreError, Transaction as _},
};
use serde_json::json;

use super::{
    Actor, AdminError, PAGE_MAX, Page, audit, audited::AuditedTransaction,
    dead_letters::check_reason,
};
use crate::{
    postgres::Postgres,
    saga::{Listing, Seen, leaf, see, seize},
    value::rows,
};

/// A saga as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The saga.
    pub saga: SagaRecord,
    /// The end of its owner's lease, which may have passed without a new owner.
    pub held_until: Option<Timestamp>,
    /// When it was read, by the database's clock.
    pub at: Timestamp,
}

/// Lists sagas by id, without their steps, input and signals.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    filter: &Filter,
    limit: usize,
) -> Result<Page<Look, String>, StoreError> {
    let limit = limit.clamp(1, PAGE_MAX);
    let listing = Listing {
        filter,
        tenant: actor.tenant.as_ref(),
        limit,
    };
    let is_any = filter.name.is_none() && filter.version.is_none();
    let look = if is_any { rows(limit) } else { LOOK };
    let found = leaf(store, listing, look).await?;
    let items: Vec<Look> = found.sagas.into_iter().map(Look::from).collect();
    let last = items.last().filter(|_| items.len() == limit);
    let next = last.map(|look| look.saga.id.clone()).or(found.end);
    Ok(Page { items, next })
}

/// Sagas of each state that a page reads, each from another page of the table. This takes some tens
/// of milliseconds.
const LOOK: i64 = 5_000;

/// Reads a saga with its steps.
///
/// # Errors
/// `NotFound` if the saga does not exist or belongs to another tenant.
pub async fn get(store: &Postgres, actor: &Actor, id: &str) -> Result<Look, AdminError> {
    let seen = see(store, id).await?;
    let own = |seen: &Seen| actor.tenant.is_none() || seen.saga.tenant == actor.tenant;
    let seen = seen.filter(own);
    let seen = seen.ok_or_else(|| AdminError::not_found(object(id)))?;
    Ok(seen.into())
}

/// Applies a decision to a saga that has not changed since the operator read it. The saga then
/// continues at once.
///
/// `epoch` is the epoch of the saga when the operator read it. It is incremented whenever a worker
/// takes the saga or another operator decides about it.
///
/// # Errors
/// `NotFound` if the saga does not exist; `Conflict` if the decision does not fit its rows, or if
/// it has another epoch by now; `Invalid` without a reason.
pub async fn decide(
    store: &Postgres,
    actor: &Actor,
    id: &str,
    epoch: i64,
    decision: &Decision,
    reason: &str,
) -> Result<(), AdminError> {
    check_reason(reason)?;
    check_made(decision)?;
    let look = get(store, actor, id).await?;
    if let Err(error) = decision.evaluate(&look.saga, reason, look.at) {
        return refuse(store, actor, id, decision, reason, error.to_string()).await;
    }
    let Some(saga) = seize(store, id, LEASE, Some(epoch)).await? else {
        let what = object(id);
        let why = format!(
            "{what} has changed since it was looked at, by a worker or another operator: look at \
             it again"
        );
        return refuse(store, actor, id, decision, reason, why).await;
    };
    let owned = Owned::of(&saga);
    let written = match decision.evaluate(&saga, reason, store.now().0) {
        Ok((rows, status)) => {
            let judged = Judged { rows, status };
            let line = detail(decision, reason);
            write(store, actor, &owned, &judged, &line).await
        }
        Err(error) => refuse(store, actor, id, decision, reason, error.to_string()).await,
    };
    let waits_for = match &written {
        Ok(()) => "a worker",
        Err(_) => "a person",
    };
    let signals_seen = saga.signals.len();
    let given = store
        .give_back_saga(&owned, Duration::ZERO, waits_for, signals_seen)
        .await;
    if let Err(error) = given {
        // The decision is committed, and the saga continues when the lease has expired.
        tracing::warn!(
            saga = id,
            error = error.error_chain(),
            "a saga could not be released and continues when its lease expires"
        );
    }
    written
}

/// The changes that a decision makes.
struct Judged {
    rows: Vec<StepRecord>,
    status: SagaStatus,
}

async fn write(
    store: &Postgres,
    actor: &Actor,
    owned: &Owned,
    judged: &Judged,
    detail: &serde_json::Value,
) -> Result<(), AdminError> {
    let mut tx = match store.lock_saga(owned, LEASE).await {
        Ok(held) => held.tx,
        Err(StoreError::Fenced) => {
            let what = format!("{} was taken by another owner", object(&owned.id));
            return Err(AdminError::conflict(what));
        }
        Err(error) => return Err(error.into()),
    };
    for row in &judged.rows {
        tx.write_step(owned, row).await?;
    }
    tx.write_status(owned, &judged.status).await?;
    let object = object(&owned.id);
    let noted = tx.ask(async |link| {
        let line = audit::Line {
            actor,
            action: ACTION,
            object: &object,
            detail,
            outcome: "done",
        };
        audit::note(link, line).await
    });
    noted.await?;
    tx.commit().await?;
    Ok(())
}

/// Writes a refused decision to the audit log and returns the error.
async fn refuse(
    store: &Postgres,
    actor: &Actor,
    id: &str,
    decision: &Decision,
    reason: &str,
    why: String,
) -> Result<(), AdminError> {
    let mut act = AuditedTransaction::begin(store).await?;
    let line = detail(decision, reason);
    act.note(actor, ACTION, &object(id), &line, "refused")
        .await?;
    act.commit().await?;
    Err(AdminError::conflict(why))
}

const ACTION: &str = "decide";

fn detail(decision: &Decision, reason: &str) -> serde_json::Value {
    let step = match decision {
        Decision::Done { step, .. } | Decision::Refused { step } => Some(step),
        Decision::Retry { .. } | Decision::Compensate { .. } | Decision::Close => None,
    };
    json!({"decision": decision.as_str(), "step": step, "reason": reason})
}

fn check_made(decision: &Decision) -> Result<(), AdminError> {
    match decision {
        Decision::Done { made, .. } if made.len() > SAGA_INPUT_BYTES_MAX => {
            let problem = format!("is longer than {SAGA_INPUT_BYTES_MAX} bytes");
            Err(AdminError::invalid("made", problem))
        }
        _ => Ok(()),
    }
}

fn object(id: &str) -> String {
    format!("saga {id}")
}

impl From<Seen> for Look {
    fn from(seen: Seen) -> Self {
        let Seen {
            saga,
            held_until,
            at,
        } = seen;
        Self {
            saga,
            held_until,
            at,
        }
    }
}
