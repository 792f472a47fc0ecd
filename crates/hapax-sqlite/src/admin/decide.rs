//! Decisions of operators about sagas that need attention.
//!
//! A decision is one transaction, which contains the changed rows, the new status of the saga and a
//! line of the audit log. It takes the saga from its owner, so that no worker overwrites the
//! decision, and releases it again. A decision that is not valid is refused without taking the saga.

use hapax::{
    admin::{Actor, AdminError, check_decision, decision_detail, saga_has_changed, saga_object},
    limits::LEASE,
    saga::{Decision, Owned, SagaRecord},
};
use rusqlite::params;

use super::{audited::AuditedTransaction, handle::SqliteAdmin};
use crate::{
    query,
    saga::{give_back, rows::find_one, write_status, write_step},
};

const ACTION: &str = "decide";

/// Applies a decision to a saga that still has this epoch.
pub(super) async fn decide(
    store: &SqliteAdmin,
    actor: &Actor,
    id: &str,
    epoch: i64,
    decision: &Decision,
    reason: &str,
) -> Result<(), AdminError> {
    check_decision(decision, reason)?;
    let new = NewDecision {
        actor: actor.clone(),
        id: id.to_owned(),
        decision: decision.clone(),
        reason: reason.to_owned(),
    };
    store
        .change_or_refuse(move |act| new.apply(act, epoch))
        .await
}

/// A decision to be applied.
struct NewDecision {
    actor: Actor,
    id: String,
    decision: Decision,
    reason: String,
}

impl NewDecision {
    fn apply(
        &self,
        act: &AuditedTransaction<'_>,
        epoch: i64,
    ) -> Result<Result<(), AdminError>, AdminError> {
        let found = act.with(|conn| find_one(conn, query!("saga/find"), params![self.id]))?;
        let own =
            |saga: &SagaRecord| self.actor.tenant.is_none() || saga.tenant == self.actor.tenant;
        let saga = found
            .filter(own)
            .ok_or_else(|| AdminError::not_found(saga_object(&self.id)))?;
        let (rows, status) = match self.decision.evaluate(&saga, &self.reason, act.now) {
            Ok(changes) => changes,
            Err(error) => return self.refuse(act, error.to_string()),
        };
        if saga.epoch != epoch {
            return self.refuse(act, saga_has_changed(&self.id));
        }
        let until = act.now.after(LEASE).as_millis();
        let taken = params![self.id, until];
        let taken = act.with(|conn| find_one(conn, query!("saga/seize"), taken))?;
        let owned = Owned::of(&taken.ok_or_else(|| AdminError::not_found(saga_object(&self.id)))?);
        for row in &rows {
            act.with(|conn| write_step(conn, &owned.id, row))?;
        }
        act.with(|conn| write_status(conn, &owned, &status, act.now))?;
        let (due, seen) = ((act.now, act.now), saga.signals.len());
        act.with(|conn| give_back(conn, &owned, due, "a worker", seen))?;
        let detail = decision_detail(&self.decision, &self.reason);
        act.note(&self.actor, ACTION, &saga_object(&self.id), &detail, "done")?;
        Ok(Ok(()))
    }

    /// Writes the refused decision to the audit log.
    fn refuse(
        &self,
        act: &AuditedTransaction<'_>,
        why: String,
    ) -> Result<Result<(), AdminError>, AdminError> {
        let detail = decision_detail(&self.decision, &self.reason);
        act.note(
            &self.actor,
            ACTION,
            &saga_object(&self.id),
            &detail,
            "refused",
        )?;
        Ok(Err(AdminError::conflict(why)))
    }
}
