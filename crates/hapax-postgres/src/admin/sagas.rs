//! Sagas: queries, and decisions of operators about sagas that need attention.
//!
//! A decision is one transaction, which contains the changed rows, the new status of the saga and a
//! line of the audit log. The saga is first taken from its owner, so that no worker overwrites the
//! decision. A decision that is not valid is refused without taking the saga.

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    admin::{
        Actor, AdminError, PAGE_MAX, Page, SagaAdmin, SagaLook, check_decision, decision_detail,
        saga_has_changed, saga_object,
    },
    limits::LEASE,
    saga::{Decision, Filter, Owned, SagaStatus, StepRecord},
    store::{SagaRows as _, Sagas as _, StoreError, Transaction as _},
};

use super::{audit, audited::AuditedTransaction};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    saga::{Listing, leaf, see, seize},
    value::rows,
};

/// Sagas of each state that a page reads, each from another page of the table. This takes some tens
/// of milliseconds.
const LOOK: i64 = 5_000;

#[async_trait]
impl SagaAdmin for Postgres {
    async fn list_sagas(
        &self,
        actor: &Actor,
        filter: &Filter,
        limit: usize,
    ) -> Result<Page<SagaLook>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let listing = Listing {
            filter,
            tenant: actor.tenant.as_ref(),
            limit,
        };
        let is_any = filter.name.is_none() && filter.version.is_none();
        let look = if is_any { rows(limit) } else { LOOK };
        let found = leaf(self, listing, look).await?;
        let items = found.sagas;
        let last = items.last().filter(|_| items.len() == limit);
        let next = last.map(|look| look.saga.id.clone()).or(found.end);
        Ok(Page { items, next })
    }

    async fn look_at_saga(&self, actor: &Actor, id: &str) -> Result<SagaLook, AdminError> {
        let seen = see(self, &text(id)).await?;
        let own = |look: &SagaLook| actor.tenant.is_none() || look.saga.tenant == actor.tenant;
        let found = seen.filter(own);
        found.ok_or_else(|| AdminError::not_found(saga_object(id)))
    }

    async fn decide(
        &self,
        actor: &Actor,
        id: &str,
        epoch: i64,
        decision: &Decision,
        reason: &str,
    ) -> Result<(), AdminError> {
        check_decision(decision, reason)?;
        let look = self.look_at_saga(actor, id).await?;
        if let Err(error) = decision.evaluate(&look.saga, reason, look.at) {
            return refuse(self, actor, id, decision, reason, error.to_string()).await;
        }
        let Some(saga) = seize(self, id, LEASE, Some(epoch)).await? else {
            let why = saga_has_changed(id);
            return refuse(self, actor, id, decision, reason, why).await;
        };
        let owned = Owned::of(&saga);
        let written = match decision.evaluate(&saga, reason, self.now().0) {
            Ok((rows, status)) => {
                let judged = Judged { rows, status };
                let line = decision_detail(decision, reason);
                write(self, actor, &owned, &judged, &line).await
            }
            Err(error) => refuse(self, actor, id, decision, reason, error.to_string()).await,
        };
        let waits_for = match &written {
            Ok(()) => "a worker",
            Err(_) => "a person",
        };
        let signals_seen = saga.signals.len();
        let given = self
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
            let what = format!("{} was taken by another owner", saga_object(&owned.id));
            return Err(AdminError::conflict(what));
        }
        Err(error) => return Err(error.into()),
    };
    for row in &judged.rows {
        tx.write_step(owned, row).await?;
    }
    tx.write_status(owned, &judged.status).await?;
    let object = saga_object(&owned.id);
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
    let line = decision_detail(decision, reason);
    act.note(actor, ACTION, &saga_object(id), &line, "refused")
        .await?;
    act.commit().await?;
    Err(AdminError::conflict(why))
}

const ACTION: &str = "decide";
