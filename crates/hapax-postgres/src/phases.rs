//! Keys of phased requests: entering, renewing, advancing and finishing them, each with a commit.
//!
//! Entries (`entering`) and responses that wait at the same time are one transaction (`group`); what a
//! group has not written goes on alone. Later statements of an owner change its row only if the row still
//! has the owner's epoch and time of entry. A statement that finds no such row fails, and the commit that
//! is sent after it fails too.

mod entering;
mod group;

use std::{sync::Arc, time::Duration};

use hapax::{
    event::Headers,
    idempotency::StoredResponse,
    key::{Fingerprint, IdempotencyKey, Operation, Scope, Tenant},
    keyring::Keyring,
    limits::GRACE_DOUBLINGS,
    outbox::Draft,
    phases::{Entry, Lapsed, Ownership, TakenOver, check_name},
    store::{ClaimOutcome, Phases, StoreError},
};
use tokio_postgres::Row;

use crate::{
    error::{corrupt, encrypted, own_error},
    idempotency::{ResponseColumns, parts},
    phase::Phase,
    phase_member::{Finish, Written},
    postgres::Postgres,
    query,
    transaction::Tx,
    value::{Moment, Param, millis},
};

impl Phases for Postgres {
    async fn enter(&self, entry: Entry) -> Result<ClaimOutcome<Ownership>, StoreError> {
        let name = entry.recovery_point.as_deref().map(check_name);
        name.transpose().map_err(StoreError::statement)?;
        entering::enter(self, entry).await
    }

    async fn renew(&self, owned: &Ownership, lease: Duration) -> Result<(), StoreError> {
        let values: [&dyn Param; 2] = [&millis(lease), &self.time()];
        fenced(self, query!("idempotency/renew"), owned, &values).await
    }

    async fn phase(
        &self,
        owned: &Ownership,
        recovery_point: Option<&str>,
        context: Headers,
    ) -> Result<Tx, StoreError> {
        let mut session = self.session().await?;
        let begin = self.begin();
        session.run(async |link| link.run(&begin).await).await?;
        let draft = Draft::under(&owned.scope, context);
        let phase = Phase {
            owned: owned.clone(),
            recovery_point: recovery_point.map(str::to_owned),
        };
        Ok(Tx::of_phase(self, session, draft, phase))
    }

    async fn reach(&self, owned: &Ownership, recovery_point: &str) -> Result<(), StoreError> {
        check_name(recovery_point).map_err(StoreError::statement)?;
        let phase = Phase {
            owned: owned.clone(),
            recovery_point: Some(recovery_point.to_owned()),
        };
        phase.end_alone(self, None).await
    }

    async fn finish(
        &self,
        owned: &Ownership,
        response: &StoredResponse,
    ) -> Result<Duration, StoreError> {
        let finish = Arc::new(Finish {
            owned: owned.clone(),
            response: ResponseColumns::of(self.keyring(), &owned.scope, response)?,
        });
        let lane = match group::finish(self, &finish).await? {
            Written::Committed(()) => return Ok(owned.retention),
            // The statement finds out whether the owner is fenced, or waits for the row.
            Written::Refused => None,
            Written::Lost(error) => return Err(error),
            Written::Left(lane) => lane,
        };
        let phase = Phase {
            owned: owned.clone(),
            recovery_point: None,
        };
        group::in_lane(lane, phase.end_alone(self, Some(&finish.response))).await?;
        Ok(owned.retention)
    }

    async fn give_back(&self, owned: &Ownership) -> Result<(), StoreError> {
        self.renew(owned, Duration::ZERO).await
    }

    async fn release(&self, owned: &Ownership) -> Result<(), StoreError> {
        fenced(self, query!("idempotency/release"), owned, &[]).await
    }

    async fn take_over(
        &self,
        operations: &[Operation],
        lapsed: Lapsed,
    ) -> Result<Vec<TakenOver>, StoreError> {
        let operations: Vec<_> = operations.iter().map(Operation::as_str).collect();
        let limit = i64::try_from(lapsed.limit).unwrap_or(i64::MAX);
        let params: [&dyn Param; 6] = [
            &self.time(),
            &millis(lapsed.lease),
            &millis(lapsed.grace).min(i64::MAX >> GRACE_DOUBLINGS),
            &i64::from(GRACE_DOUBLINGS),
            &operations,
            &limit,
        ];
        let rows = self
            .commit(query!("idempotency/take_over"), &params)
            .await
            .map_err(own_error)?;
        let readable = |row| match taken_over(row, self.keyring()) {
            Ok(taken) => Some(taken),
            Err(error) => {
                // Its lease expires again, each time later. The other requests continue.
                tracing::error!(error = %error, "a stored request cannot be read or resumed");
                None
            }
        };
        Ok(rows.iter().filter_map(readable).collect())
    }
}

/// Runs a statement that changes the owner's row, and fails if it changed none.
async fn fenced(
    store: &Postgres,
    sql: &'static str,
    owned: &Ownership,
    values: &[&dyn Param],
) -> Result<(), StoreError> {
    let [tenant, operation, key] = parts(&owned.scope);
    let created_at = Moment(owned.created_at);
    let fence: [&dyn Param; 5] = [&tenant, &operation, &key, &owned.epoch, &created_at];
    let changed = store.commit(sql, &[&fence[..], values].concat()).await;
    let changed = changed.map_err(own_error)?;
    if changed.is_empty() {
        return Err(StoreError::Fenced);
    }
    Ok(())
}

fn taken_over(row: &Row, keyring: &Keyring) -> Result<TakenOver, StoreError> {
    let bad_part = |error| corrupt(format!("scope of a key: {error}"));
    let text = |name: &str| row.try_get::<_, String>(name).map_err(unreadable);
    let Moment(created_at) = row.try_get("created_at").map_err(unreadable)?;
    let Moment(expires_at) = row.try_get("expires_at").map_err(unreadable)?;
    let fingerprint: &[u8] = row.try_get("fingerprint").map_err(unreadable)?;
    let fingerprint = fingerprint
        .try_into()
        .map_err(|_| corrupt("idempotency key: its fingerprint is not 32 bytes long"))?;
    let request: &[u8] = row.try_get("request").map_err(unreadable)?;
    let scope = Scope {
        tenant: Tenant::new(text("tenant")?).map_err(bad_part)?,
        operation: Operation::new(text("operation")?).map_err(bad_part)?,
        key: IdempotencyKey::new(text("key")?).map_err(bad_part)?,
    };
    let request = keyring.decrypt_request(&scope, request);
    let request = request.map_err(encrypted("kept request"))?;
    let ownership = Ownership {
        scope,
        fingerprint: Fingerprint::from_bytes(fingerprint),
        epoch: row.try_get("epoch").map_err(unreadable)?,
        created_at,
        recovery_point: row.try_get("recovery_point").map_err(unreadable)?,
        resumed: true,
        retention: expires_at.since(created_at),
    };
    Ok(TakenOver { ownership, request })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes the error by value"
)]
fn unreadable(error: tokio_postgres::Error) -> StoreError {
    corrupt(format!("idempotency key: {error}"))
}
