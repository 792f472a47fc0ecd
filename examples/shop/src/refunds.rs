//! Refunds that the provider has made: each is one row, one ledger entry and one event.
//!
//! The shop learns of a refund from the provider's response to its request and from webhooks, in
//! any order and any number of times. Both call [`Report::record`]. It recognizes a refund by the
//! provider's id, by the shop's id, and by the key under which the shop requested it; a refund that
//! it does not recognize was not requested by the shop, and is recorded too. Every transaction that
//! reads or changes the refunds of a charge locks the charge first.

use std::time::Duration;

use hapax::{Timestamp, event::NewEvent, key::Tenant, store::StoreError};
use hapax_http::problem::{IN_PROGRESS, Problem};
use serde::Serialize;

use crate::{
    database::{Row, Rows, params, query},
    ids::Ids,
    ledger,
    problem::REFUND_DIFFERS,
};

/// When the sender of a webhook should try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A locked charge.
#[derive(Debug)]
pub(crate) struct Charge {
    pub(crate) tenant: String,
    pub(crate) currency: String,
    id: String,
    amount: i64,
}

/// A refund that the provider has made, as its response or a webhook reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    pub(crate) charge_id: &'a str,
    pub(crate) amount: i64,
    /// The provider's id of the refund, or, in a webhook, the shop's.
    pub(crate) refund_id: &'a str,
    /// The key of the shop's call to the provider, if the report names one.
    pub(crate) provider_key: Option<&'a str>,
    /// The reporter of the refund: `shop`, or the source of a webhook.
    pub(crate) source: &'a str,
}

/// The row of a refund.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) id: String,
    pub(crate) created_at: Timestamp,
    /// Whether this report has written its ledger entry and its event.
    pub(crate) is_new: bool,
}

/// The refunds that a report can mean.
#[derive(Debug, Default)]
struct MatchingRefunds {
    made: Option<Recorded>,
    pending: Option<Recorded>,
}

#[derive(Debug, Serialize)]
struct Succeeded<'a> {
    refund_id: &'a str,
    charge_id: &'a str,
    amount: i64,
}

impl Charge {
    /// Locks a charge until the transaction ends; `None` if the shop does not know it.
    pub(crate) async fn lock(tx: &mut impl Rows, id: &str) -> Result<Option<Self>, StoreError> {
        let found = tx
            .select(query::CHARGE_LOCK, params![id.to_owned()])
            .await?;
        let mut rows = found.into_iter();
        rows.next().map(|row| Self::read(id, row)).transpose()
    }

    fn read(id: &str, mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: row.text("tenant")?,
            currency: row.text("currency")?,
            id: id.to_owned(),
            amount: row.integer("amount")?,
        })
    }

    /// Returns the amount that can still be refunded.
    pub(crate) async fn left(&self, tx: &mut impl Rows) -> Result<i64, StoreError> {
        let reserved = self.sum(tx, "reserved").await?;
        Ok((self.amount - reserved).max(0))
    }

    /// Returns the part of the latest refund by which the refunds exceed the charge.
    async fn excess(&self, tx: &mut impl Rows, amount: i64) -> Result<i64, StoreError> {
        let made = self.sum(tx, "made").await?;
        Ok((made - self.amount).clamp(0, amount))
    }

    async fn sum(&self, tx: &mut impl Rows, column: &str) -> Result<i64, StoreError> {
        let sums = tx
            .select(query::REFUND_SUM, params![self.id.clone()])
            .await?;
        sums.first().map_or(Ok(0), |row| row.integer(column))
    }
}

impl Report<'_> {
    /// Records the refund, unless it is recorded.
    ///
    /// It belongs to the tenant of its charge. If the charge is unknown, it belongs to `unclaimed`.
    ///
    /// # Errors
    /// Fails with 409 if the refund is recorded with another amount. It also fails with 409 if the
    /// report names a pending refund by the shop's id, because the provider's id, by which the next
    /// report may name it, is not known yet.
    pub(crate) async fn record(
        &self,
        tx: &mut impl Rows,
        ids: &Ids,
        unclaimed: &Tenant,
    ) -> Result<Recorded, Problem> {
        let charge = Charge::lock(tx, self.charge_id).await?;
        let tenant = charge
            .as_ref()
            .map_or(unclaimed.as_str(), |it| it.tenant.as_str());
        let (refund, source) = match self.find(tx).await? {
            MatchingRefunds {
                made: Some(made),
                pending,
            } => {
                self.join(tx, tenant, &made, pending).await?;
                return Ok(made);
            }
            MatchingRefunds {
                pending: Some(pending),
                ..
            } => {
                self.settle(tx, tenant, &pending).await?;
                (pending, "shop")
            }
            MatchingRefunds { .. } => match self.insert(tx, tenant, ids).await? {
                Some(new) => (new, self.source),
                None => return self.recorded_meanwhile(tx).await,
            },
        };
        let excess = match &charge {
            Some(charge) => charge.excess(tx, self.amount).await?,
            None => 0,
        };
        if excess > 0 {
            let (charge, refund) = (self.charge_id, refund.id.as_str());
            tracing::warn!(
                charge,
                refund,
                excess,
                "the refunds of a charge exceed its amount"
            );
        }
        let entry = ledger::Entry {
            tenant,
            charge_id: self.charge_id,
            kind: "refund",
            amount: self.amount,
            source,
            excess,
        };
        entry.write(tx, ids).await?;
        tx.emit(self.event(&refund.id, tenant)?)?;
        Ok(Recorded {
            is_new: true,
            ..refund
        })
    }

    async fn find(&self, tx: &mut impl Rows) -> Result<MatchingRefunds, Problem> {
        let names = params![
            self.charge_id.to_owned(),
            self.refund_id.to_owned(),
            self.provider_key.map(str::to_owned),
        ];
        let mut found = MatchingRefunds::default();
        for mut row in tx.select(query::REFUND_MATCH, names).await? {
            if row.integer("amount")? != self.amount {
                let problem = Problem::new(REFUND_DIFFERS).member("amount");
                return Err(problem.detail("this refund is recorded with another amount"));
            }
            let refund = Recorded {
                id: row.text("id")?,
                created_at: Timestamp::from_millis(row.integer("created_at")?),
                is_new: false,
            };
            if row.text("state")? == "done" {
                found.made = Some(refund);
            } else {
                found.pending = Some(refund);
            }
        }
        Ok(found)
    }

    /// Replaces a refund that the shop has requested under the key by the row that a webhook without
    /// the key has written about it. A refund that is named by the shop's id is another one.
    async fn join(
        &self,
        tx: &mut impl Rows,
        tenant: &str,
        made: &Recorded,
        pending: Option<Recorded>,
    ) -> Result<(), StoreError> {
        let pending = pending.filter(|pending| pending.id != self.refund_id);
        if let (Some(pending), Some(key)) = (pending, self.provider_key) {
            let row = params![pending.id, tenant.to_owned()];
            tx.execute(query::REFUND_DROP, row).await?;
            let row = params![made.id.clone(), key.to_owned()];
            tx.execute(query::REFUND_ADOPT, row).await?;
        }
        Ok(())
    }

    /// Marks a refund that the shop has requested as done.
    async fn settle(
        &self,
        tx: &mut impl Rows,
        tenant: &str,
        pending: &Recorded,
    ) -> Result<(), Problem> {
        if pending.id == self.refund_id {
            return Err(Problem::new(IN_PROGRESS)
                .detail("the provider has not confirmed this refund yet; send the message again")
                .retry_after(RETRY_AFTER));
        }
        let row = params![
            pending.id.clone(),
            tenant.to_owned(),
            self.refund_id.to_owned(),
        ];
        if tx.execute(query::REFUND_SETTLE, row).await? == 0 {
            return Err(Problem::internal("the pending refund is missing"));
        }
        Ok(())
    }

    /// Writes a refund that the shop has not requested; `None` if another transaction has just
    /// written it.
    async fn insert(
        &self,
        tx: &mut impl Rows,
        tenant: &str,
        ids: &Ids,
    ) -> Result<Option<Recorded>, StoreError> {
        let new = Recorded {
            id: ids.mint("rf"),
            created_at: ids.now(),
            is_new: true,
        };
        let row = params![
            new.id.clone(),
            tenant.to_owned(),
            self.charge_id.to_owned(),
            self.amount,
            new.created_at.as_millis(),
            self.refund_id.to_owned(),
        ];
        let written = tx.execute(query::REFUND_RECORD, row).await?;
        Ok((written == 1).then_some(new))
    }

    async fn recorded_meanwhile(&self, tx: &mut impl Rows) -> Result<Recorded, Problem> {
        let made = self.find(tx).await?.made;
        made.ok_or_else(|| Problem::internal("the recorded refund is missing"))
    }

    /// The event, which belongs to the tenant of the charge even in the transaction of a webhook,
    /// which has no tenant.
    fn event(&self, refund_id: &str, tenant: &str) -> Result<NewEvent, Problem> {
        let tenant = Tenant::new(tenant).map_err(Problem::internal)?;
        let succeeded = Succeeded {
            refund_id,
            charge_id: self.charge_id,
            amount: self.amount,
        };
        let event = NewEvent::json("refund.succeeded", &succeeded).tenant(tenant);
        Ok(event.about("charge", self.charge_id.to_owned()))
    }
}
