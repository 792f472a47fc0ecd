//! Sagas: looked at, and decided about where nobody but a person can say how one goes on.
//!
//! A decision is one transaction: the rows that it changes, how the saga stands then, and its line
//! in the audit log. It takes the saga from whoever has it first, so that no worker writes over it;
//! one that would be refused takes nothing from anybody.

use std::time::Duration;

use hapax::{
    Timestamp,
    limits::{LEASE, SAGA_INPUT_BYTES_MAX},
    saga::{Decision, Filter, Owned, SagaRecord, Standing, StepRecord},
    store::{SagaRows as _, Sagas as _, StoreError, Transaction as _},
};
use serde_json::json;

use super::{Actor, OperateError, PAGE_MAX, Page, act::Act, audit, dead_letters::check_reason};
use crate::{
    outbox::rows,
    postgres::Postgres,
    saga::{Listing, Seen, leaf, see, seize},
};

/// A saga, as somebody sees it who does not hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The saga.
    pub saga: SagaRecord,
    /// Until when a worker holds it; it may have lapsed, and be taken by nobody.
    pub held_until: Option<Timestamp>,
    /// When it was looked at, by the database's clock.
    pub at: Timestamp,
}

/// Lists sagas by id, without their steps, input and signals.
///
/// # Errors
/// Fails when the store cannot be read.
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

/// Sagas of each state that a page looks at, a page of the table each: some tens of milliseconds.
const LOOK: i64 = 5_000;

/// Reads a saga with its steps.
///
/// # Errors
/// `NotFound` when there is none, or it is another tenant's.
pub async fn get(store: &Postgres, actor: &Actor, id: &str) -> Result<Look, OperateError> {
    let seen = see(store, id).await?;
    let own = |seen: &Seen| actor.tenant.is_none() || seen.saga.tenant == actor.tenant;
    let seen = seen.filter(own);
    let seen = seen.ok_or_else(|| OperateError::not_found(object(id)))?;
    Ok(seen.into())
}

/// Carries a decision out about a saga as it was looked at, and lets it go on at once.
///
/// `epoch` is the saga's epoch when it was looked at: it rises whenever a worker takes the saga, or
/// somebody else decides about it.
///
/// # Errors
/// `NotFound` when there is no such saga, `Conflict` when the decision does not fit its rows or
/// its epoch is another one by now, `Invalid` without a reason.
pub async fn decide(
    store: &Postgres,
    actor: &Actor,
    id: &str,
    epoch: i64,
    decision: &Decision,
    reason: &str,
) -> Result<(), OperateError> {
    check_reason(reason)?;
    check_made(decision)?;
    let look = get(store, actor, id).await?;
    if let Err(error) = decision.judge(&look.saga, reason, look.at) {
        return refuse(store, actor, id, decision, reason, error.to_string()).await;
    }
    let Some(saga) = seize(store, id, LEASE, Some(epoch)).await? else {
        let what = object(id);
        let why = format!(
            "{what} is not as it was looked at: a worker or somebody else has had it since; look at \
             it again"
        );
        return refuse(store, actor, id, decision, reason, why).await;
    };
    let owned = Owned::of(&saga);
    let written = match decision.judge(&saga, reason, store.now().0) {
        Ok((rows, standing)) => {
            let judged = Judged { rows, standing };
            let line = detail(decision, reason);
            write(store, actor, &owned, &judged, &line).await
        }
        Err(error) => refuse(store, actor, id, decision, reason, error.to_string()).await,
    };
    let waits_for = match &written {
        Ok(()) => "a worker",
        Err(_) => "a person",
    };
    let told = saga.signals.len();
    let given = store
        .give_back_saga(&owned, Duration::ZERO, waits_for, told)
        .await;
    if let Err(error) = given {
        // What is decided stands, and the saga goes on once the lease has lapsed.
        tracing::warn!(saga = id, error = error.error_chain(), "a saga lapses");
    }
    written
}

/// What a decision comes to.
struct Judged {
    rows: Vec<StepRecord>,
    standing: Standing,
}

async fn write(
    store: &Postgres,
    actor: &Actor,
    owned: &Owned,
    judged: &Judged,
    detail: &serde_json::Value,
) -> Result<(), OperateError> {
    let mut tx = match store.turn(owned, LEASE).await {
        Ok(held) => held.tx,
        Err(StoreError::Fenced) => {
            let what = format!("somebody else took {}", object(&owned.id));
            return Err(OperateError::conflict(what));
        }
        Err(error) => return Err(error.into()),
    };
    for row in &judged.rows {
        tx.write_step(owned, row).await?;
    }
    tx.write_standing(owned, &judged.standing).await?;
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

/// Writes down that somebody wanted what cannot be.
async fn refuse(
    store: &Postgres,
    actor: &Actor,
    id: &str,
    decision: &Decision,
    reason: &str,
    why: String,
) -> Result<(), OperateError> {
    let mut act = Act::begin(store).await?;
    let line = detail(decision, reason);
    act.note(actor, ACTION, &object(id), &line, "refused")
        .await?;
    act.commit().await?;
    Err(OperateError::conflict(why))
}

const ACTION: &str = "decide";

fn detail(decision: &Decision, reason: &str) -> serde_json::Value {
    let step = match decision {
        Decision::Done { step, .. } | Decision::Refused { step } => Some(step),
        Decision::Retry { .. } | Decision::Undo { .. } | Decision::Close => None,
    };
    json!({"decision": decision.as_str(), "step": step, "reason": reason})
}

fn check_made(decision: &Decision) -> Result<(), OperateError> {
    match decision {
        Decision::Done { made, .. } if made.len() > SAGA_INPUT_BYTES_MAX => {
            let problem = format!("is longer than {SAGA_INPUT_BYTES_MAX} bytes");
            Err(OperateError::invalid("made", problem))
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
