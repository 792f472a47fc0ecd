//! Idempotency keys: claims, look-ups and purges.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hapax::{
    event::Headers,
    idempotency::{Claim, KeyRecord, KeyState, OnExpired, PlannedRequest, Taken, evaluate_claim},
    key::{DerivationSecret, Operation, Scope, Tenant},
    limits::{PURGE_ROWS, PURGES_KEPT, TOMBSTONE},
    outbox::Draft,
    purges::{PurgeMark, Purged},
    quota::Usage,
    store::{ClaimOutcome, Effect, KeyMaintenance, Keys, StoreError, Transaction as _},
};

use crate::{
    Memory,
    transaction::{InsertRow, Tx},
};

impl Keys for Memory {
    type Tx = Tx;

    type Statement = InsertRow;

    async fn begin(&self, tenant: Option<Tenant>, context: Headers) -> Result<Tx, StoreError> {
        let writer = self.database.writer.clone().lock_owned().await;
        Ok(Tx::new(self, writer, None, Draft::new(tenant, context)))
    }

    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome<Tx>, StoreError> {
        self.claim_before(None, claim).await
    }

    async fn execute_plan(
        &self,
        planned: PlannedRequest<InsertRow>,
    ) -> Result<ClaimOutcome<Duration>, StoreError> {
        let mut tx = match self.claim_before(planned.deadline, planned.claim).await? {
            ClaimOutcome::Open(tx) => tx,
            ClaimOutcome::Taken(taken) => return Ok(ClaimOutcome::Taken(taken)),
        };
        for statement in planned.statements {
            tx.insert(statement)?;
        }
        for event in planned.events {
            tx.emit(event)?;
        }
        let fresh_for = tx.complete(&planned.response, Effect::Keep).await?;
        Ok(ClaimOutcome::Open(fresh_for))
    }

    async fn look_up(&self, scope: &Scope) -> Result<Option<KeyRecord>, StoreError> {
        let read_at = self.clock.now();
        let tables = self.tables();
        let row = tables.keys.get(scope);
        Ok(row.map(|row| KeyRecord {
            read_at,
            ..row.record.clone()
        }))
    }

    async fn derivation_secret(&self) -> Result<DerivationSecret, StoreError> {
        let secret = self.tables().derivation_secret;
        Ok(DerivationSecret::from_bytes(secret))
    }
}

impl Memory {
    /// Claims a key, unless another transaction runs until the deadline. The lock is taken before
    /// the row is read, so the row is what the previous transaction has committed. If another
    /// payload is running under the key, there is nothing to wait for.
    async fn claim_before(
        &self,
        deadline: Option<Instant>,
        mut claim: Claim,
    ) -> Result<ClaimOutcome<Tx>, StoreError> {
        if self.database.running.has_other_payload(&claim) {
            return Ok(ClaimOutcome::Taken(Taken::Mismatch));
        }
        let writer = self.database.writer.clone().lock_owned();
        let writer = match deadline {
            None => writer.await,
            Some(deadline) => tokio::time::timeout_at(deadline.into(), writer)
                .await
                .map_err(|_| StoreError::TimedOut)?,
        };
        if let Some(taken) = self.taken(&claim) {
            return Ok(ClaimOutcome::Taken(taken));
        }
        let draft = Draft::of(&mut claim);
        Ok(ClaimOutcome::Open(Tx::new(
            self,
            writer,
            Some(claim),
            draft,
        )))
    }

    fn taken(&self, claim: &Claim) -> Option<Taken> {
        let row = self.tables().keys.get(&claim.scope)?.clone();
        evaluate_claim(row.record, claim, self.clock.now())
    }
}

impl KeyMaintenance for Memory {
    async fn forget(&self, scope: &Scope) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        if tables.keys.remove(scope).is_none() {
            return Ok(false);
        }
        let last = tables.purges.last_key_value();
        let number = last.map_or(1, |(number, _)| number + 1);
        tables.purges.insert(number, scope.clone());
        if tables.purges.len() > PURGES_KEPT {
            tables.purges.pop_first();
        }
        Ok(true)
    }

    async fn purged(&self, since: Option<&PurgeMark>) -> Result<Purged, StoreError> {
        let tables = self.tables();
        let last = tables.purges.last_key_value();
        let until = PurgeMark {
            history: tables.history.to_string(),
            number: last.map_or(0, |(number, _)| *number),
        };
        let after = since.map_or(until.number, |since| since.number);
        let kept = tables.purges.iter().filter(|(number, _)| **number > after);
        let kept = kept.map(|(_, scope)| scope.clone()).collect();
        Ok(Purged::of(since, until, kept))
    }

    async fn purge_keys(&self) -> Result<Vec<(Operation, u64)>, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables();
        let expired = tables
            .keys
            .iter()
            .filter(|(_, row)| row.record.expires_at <= now);
        let expired = expired.map(|(scope, _)| scope.clone()).take(PURGE_ROWS);
        let expired: Vec<Scope> = expired.collect();
        let mut counts = BTreeMap::new();
        for scope in expired {
            *counts.entry(scope.operation.clone()).or_default() += 1;
            let Some(mut row) = tables.keys.remove(&scope) else {
                continue;
            };
            let until = row.record.expires_at.after(TOMBSTONE);
            let is_response = row.record.state == KeyState::Completed;
            if is_response && row.on_expired == OnExpired::Gone && until > now {
                row.record.state = KeyState::Tombstone;
                row.record.response = None;
                row.record.expires_at = until;
                tables.keys.insert(scope, row);
            }
        }
        Ok(counts.into_iter().collect())
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        let now = self.clock.now();
        let tables = self.tables();
        let mut tenants = BTreeMap::<Tenant, Usage>::new();
        for (Scope { tenant, .. }, row) in &tables.keys {
            let Some(response) = row.record.response.as_ref() else {
                continue;
            };
            if row.record.expires_at <= now {
                continue;
            }
            let usage = tenants.entry(tenant.clone()).or_insert(Usage {
                tenant: tenant.clone(),
                keys: 0,
                bytes: 0,
            });
            usage.keys += 1;
            usage.bytes += (response.header_block().len() + response.body.len()) as u64;
        }
        Ok(tenants.into_values().collect())
    }
}
