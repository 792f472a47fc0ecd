//! The store's traits for keys: claims, planned requests, and the maintenance of the key table.

use std::time::Duration;

use hapax::{
    event::Headers,
    idempotency::{Claim, KeyRecord, OnClaimed, PlannedRequest},
    inbox::Message,
    key::{DerivationSecret, IdempotencyKey, Operation, Scope, Tenant},
    limits::{PURGE_ROWS, PURGES_KEPT, TOMBSTONE},
    outbox::Draft,
    purges::{PurgeMark, Purged},
    quota::Usage,
    store::{ClaimOutcome, KeyMaintenance, Keys, StoreError},
};
use tokio_postgres::Row;

use crate::{
    claim::{find, hold},
    error::{corrupt, encrypted},
    idempotency::{ClaimedKey, parts},
    postgres::Postgres,
    query, single_shot,
    statement::Statement,
    transaction::Tx,
    value::{Param, millis, rows},
};

impl Keys for Postgres {
    type Tx = Tx;

    type Statement = Statement;

    async fn begin(&self, tenant: Option<Tenant>, context: Headers) -> Result<Tx, StoreError> {
        let mut session = self.session().await?;
        session.begin(self.begin());
        Ok(Tx::new(self, session, Draft::new(tenant, context), None))
    }

    async fn claim(&self, mut claim: Claim) -> Result<ClaimOutcome<Tx>, StoreError> {
        let draft = Draft::of(&mut claim);
        Ok(match hold(self, &claim).await? {
            ClaimOutcome::Open((session, row)) => {
                let held = ClaimedKey { claim, row };
                ClaimOutcome::Open(Tx::new(self, *session, draft, Some(held)))
            }
            ClaimOutcome::Taken(taken) => ClaimOutcome::Taken(taken),
        })
    }

    async fn claim_pipelined(
        &self,
        mut claim: Claim,
        on_claimed: OnClaimed,
    ) -> Result<ClaimOutcome<Tx>, StoreError> {
        let draft = Draft::of(&mut claim);
        let session = self.session().await?;
        let pipelined = (claim, on_claimed);
        Ok(ClaimOutcome::Open(Tx::pipelined(
            self, session, draft, pipelined,
        )))
    }

    async fn claim_optimistic(&self, mut claim: Claim) -> Result<Option<Tx>, StoreError> {
        let draft = Draft::of(&mut claim);
        let session = self.session().await?;
        Ok(Some(Tx::optimistic(self, session, draft, claim)))
    }

    async fn accept_at_commit(
        &self,
        tenant: Option<Tenant>,
        context: Headers,
        message: &Message,
    ) -> Result<Option<Tx>, StoreError> {
        let session = self.session().await?;
        let draft = Draft::new(tenant, context);
        Ok(Some(Tx::accepting(self, session, draft, message.clone())))
    }

    async fn execute_plan(
        &self,
        planned: PlannedRequest<Statement>,
    ) -> Result<ClaimOutcome<Duration>, StoreError> {
        single_shot::run(self, planned).await
    }

    async fn look_up(&self, scope: &Scope) -> Result<Option<KeyRecord>, StoreError> {
        let Some(mut record) = find(self, scope).await? else {
            return Ok(None);
        };
        if let Some(kept) = record.response.take() {
            let response = self.keyring().decrypt_response(scope, kept);
            record.response = Some(response.map_err(encrypted("stored response"))?);
        }
        Ok(Some(record))
    }

    async fn derivation_secret(&self) -> Result<DerivationSecret, StoreError> {
        let rows = self.ask(query!("idempotency/secret"), &[]).await?;
        let secret: Option<&[u8]> = rows.first().and_then(|row| row.try_get(0).ok());
        let secret = secret.and_then(|bytes| bytes.try_into().ok());
        secret
            .map(DerivationSecret::from_bytes)
            .ok_or_else(|| corrupt("the secret of derived keys is missing or not 32 bytes long"))
    }
}

impl KeyMaintenance for Postgres {
    async fn forget(&self, scope: &Scope) -> Result<bool, StoreError> {
        let [tenant, operation, key] = parts(scope);
        let params: [&dyn Param; 4] = [&tenant, &operation, &key, &rows(PURGES_KEPT)];
        let gone = self.ask(query!("idempotency/forget"), &params).await?;
        Ok(!gone.is_empty())
    }

    async fn purged(&self, since: Option<&PurgeMark>) -> Result<Purged, StoreError> {
        // A caller without a mark only needs the current mark, so it gets no rows.
        let after = since.map_or(i64::MAX, |since| since.number);
        let found = self.ask(query!("idempotency/purged"), &[&after]).await?;
        let until = found
            .first()
            .ok_or_else(|| corrupt("purged keys: no row says how many"))?;
        let until = PurgeMark {
            history: until.get(0),
            number: until.get(1),
        };
        // A row that cannot be read is left out, and missed: then every answer is forgotten.
        let kept = found.iter().filter_map(purged_scope).collect();
        Ok(Purged::of(since, until, kept))
    }

    async fn purge_keys(&self) -> Result<Vec<(Operation, u64)>, StoreError> {
        let params: [&dyn Param; 3] = [&self.time(), &rows(PURGE_ROWS), &millis(TOMBSTONE)];
        let gone = self.ask(query!("idempotency/purge"), &params).await?;
        gone.iter().map(purged).collect()
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        let time = self.time();
        let usage = self.ask(query!("idempotency/usage"), &[&time]).await?;
        usage.iter().map(used).collect()
    }
}

/// The key of a row that says what was purged.
fn purged_scope(row: &Row) -> Option<Scope> {
    let part = |place| row.try_get::<_, Option<String>>(place).ok().flatten();
    Some(Scope {
        tenant: Tenant::new(part("tenant")?).ok()?,
        operation: Operation::new(part("operation")?).ok()?,
        key: IdempotencyKey::new(part("key")?).ok()?,
    })
}

fn used(row: &Row) -> Result<Usage, StoreError> {
    let bad = |error: &dyn std::fmt::Display| corrupt(format!("usage of a tenant: {error}"));
    let tenant: String = row.try_get("tenant").map_err(|error| bad(&error))?;
    let keys: i64 = row.try_get("keys").map_err(|error| bad(&error))?;
    let bytes: i64 = row.try_get("bytes").map_err(|error| bad(&error))?;
    Ok(Usage {
        tenant: Tenant::new(tenant).map_err(|error| bad(&error))?,
        keys: keys.unsigned_abs(),
        bytes: bytes.unsigned_abs(),
    })
}

fn purged(row: &Row) -> Result<(Operation, u64), StoreError> {
    let bad = |error: &dyn std::fmt::Display| corrupt(format!("operation of a key: {error}"));
    let operation: String = row.try_get(0).map_err(|error| bad(&error))?;
    let count: i64 = row.try_get(1).map_err(|error| bad(&error))?;
    let operation = Operation::new(operation).map_err(|error| bad(&error))?;
    Ok((operation, count.unsigned_abs()))
}
