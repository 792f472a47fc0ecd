//! The route of refunds, whose sum never exceeds the charge.
//!
//! The row of a charge contains the sum of its refunds. The first phase adds the amount to the sum
//! and writes a pending refund. Its statement changes nothing if the sum would exceed the charge,
//! so two concurrent refunds, on any instances, cannot both take the last of it. Then the provider
//! refunds under its key. The last phase completes the refund with its ledger entry, its event and
//! the response. If the provider refuses, the reservation is returned in the same commit as the
//! response.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, event::NewEvent, failpoint::Failpoints, key::Tenant, store::StoreError};
use hapax_http::{Disposition, Json, Phased, Query, problem::Problem};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Shop, provided};
use crate::{
    database::{Database, Row, Rows, params, query},
    ids::written,
    ledger,
    members::{self, NoQuery},
    problem::REFUND_EXCEEDS,
    providers::{
        Found, KEY_REUSED, Label, Made, Operation, Outcome, Payments, Settled, Wanted, settle,
    },
};

/// The phase that reserves the amount.
const RESERVED: &str = "reserved";
/// The phase that returns the amount after the provider did nothing; a retry reserves it again.
const RETURNED: &str = "returned";

/// The body of a refund.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    charge_id: String,
    amount: i64,
}

#[derive(Debug, Serialize)]
struct Refund {
    id: String,
    charge_id: String,
    amount: i64,
    currency: String,
    created_at: String,
}

#[derive(Debug, Serialize)]
struct Succeeded<'a> {
    refund_id: &'a str,
    charge_id: &'a str,
    amount: i64,
}

/// A refund to request from the provider under a key.
struct Refunding<'a> {
    provider: &'a Payments,
    label: Label<'a>,
    refund: &'a Refund,
    is_resumed: bool,
    failpoints: &'a Failpoints,
}

/// `POST /refunds`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    mut phased: Phased<D::Tx>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    members::name("charge_id", &stated.charge_id)?;
    members::amount(stated.amount)?;
    let provider = provided(shop.providers.payment.as_ref(), &phased)?;
    let key = phased.provider_key("refund");
    let refund = reserved(&shop, &mut phased, &tenant, &stated, &key).await?;
    match call(&shop, &phased, provider, &key, &refund).await {
        Settled::Done(made) => {
            let mut tx = phased.last().await?;
            refund.settle(&mut *tx, &shop, &tenant, made.id).await?;
            tx.emit(refund.event())?;
            drop(tx);
            Ok((StatusCode::CREATED, Json(refund)).into_response())
        }
        Settled::Refused(refusal) if refusal.code != KEY_REUSED => {
            let mut tx = phased.last().await?;
            refund.give_back(&mut *tx, &tenant).await?;
            drop(tx);
            // The refusal is stored like others, but here the writes of the phase are kept.
            let kept = Extension(Disposition::WithEffect);
            Ok((kept, super::refused(refusal)).into_response())
        }
        Settled::Refused(refusal) => Err(super::refused(refusal)),
        Settled::Nothing(error) => {
            let back = async |tx: &mut D::Tx| refund.give_back(tx, &tenant).await;
            phased.phase(RETURNED, back).await?;
            // Only after the phase: if it fails, the reservation and the key must stay.
            phased.nothing_happened();
            Err(super::failed(error))
        }
        Settled::Unknown(error) => Err(super::unknown(error)),
    }
}

/// Returns the pending refund, which an earlier attempt or this one has written.
async fn reserved<D: Database>(
    shop: &Shop<D>,
    phased: &mut Phased<D::Tx>,
    tenant: &Tenant,
    stated: &Stated,
    key: &str,
) -> Result<Refund, Problem> {
    if phased.recovery_point().as_deref() == Some(RESERVED) {
        return Refund::find(&shop.store, tenant, key).await;
    }
    let reserve = async |tx: &mut D::Tx| reserve(tx, shop, tenant, stated, key).await;
    let refund = phased.phase(RESERVED, reserve).await?;
    shop.failpoints.hit("refunds.reserved");
    Ok(refund)
}

/// Refunds at the provider once, even if responses are lost.
async fn call<D: Database>(
    shop: &Shop<D>,
    phased: &Phased<D::Tx>,
    provider: &Payments,
    key: &str,
    refund: &Refund,
) -> Settled<Made> {
    let headers = phased.context();
    let refunding = Refunding {
        provider,
        label: Label { key, headers },
        refund,
        is_resumed: phased.is_resumed(),
        failpoints: &shop.failpoints,
    };
    settle(&shop.ids.sources().1, &refunding).await
}

/// Reserves the amount and writes a pending refund.
async fn reserve<D: Database>(
    tx: &mut D::Tx,
    shop: &Shop<D>,
    tenant: &Tenant,
    stated: &Stated,
    key: &str,
) -> Result<Refund, Problem> {
    let currency = take(tx, tenant, stated).await?;
    let now = shop.ids.now();
    let refund = Refund {
        id: shop.ids.mint("rf"),
        charge_id: stated.charge_id.clone(),
        amount: stated.amount,
        currency,
        created_at: written(now),
    };
    let row = params![
        refund.id.clone(),
        tenant.as_str().to_owned(),
        refund.charge_id.clone(),
        refund.amount,
        now.as_millis(),
        key.to_owned(),
    ];
    tx.execute(query::REFUND_INSERT, row).await?;
    Ok(refund)
}

/// Adds the amount to the refunded sum of the charge, and returns the charge's currency.
async fn take(tx: &mut impl Rows, tenant: &Tenant, stated: &Stated) -> Result<String, Problem> {
    let charge = || params![stated.charge_id.clone()];
    let mut found = tx.select(query::CHARGE_SELECT, charge()).await?;
    let missing = || {
        Problem::not_found()
            .member("charge_id")
            .detail("no charge has this id")
    };
    let mut found = found.pop().ok_or_else(missing)?;
    if found.text("tenant")? != tenant.as_str() {
        return Err(missing());
    }
    let key = params![
        stated.charge_id.clone(),
        tenant.as_str().to_owned(),
        stated.amount
    ];
    if tx.execute(query::CHARGE_REFUND, key).await? == 0 {
        // Another request may have refunded a part since the charge was read.
        let mut now = tx.select(query::CHARGE_SELECT, charge()).await?;
        let now = now.pop().ok_or_else(missing)?;
        let left = now.integer("amount")? - now.integer("refunded")?;
        let detail = format!("{left} of the charge can still be refunded");
        return Err(Problem::new(REFUND_EXCEEDS).member("amount").detail(detail));
    }
    Ok(found.text("currency")?)
}

impl Operation<Made> for Refunding<'_> {
    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    async fn call(&self) -> Outcome<Made> {
        self.failpoints.hit("refunds.call.before");
        let refund = self.refund;
        let asked = self
            .provider
            .refund(self.label, &refund.charge_id, refund.amount);
        let outcome = asked.await;
        self.failpoints.hit("refunds.call.after");
        outcome
    }

    async fn look_up(&self) -> Found<Made> {
        let wanted = Wanted::refund(self.refund.amount);
        self.provider.look_up(self.label, wanted).await
    }
}

impl Refund {
    /// Reads the pending refund that an earlier attempt has written.
    async fn find<D: Database>(store: &D, tenant: &Tenant, key: &str) -> Result<Self, Problem> {
        let row = params![key.to_owned(), tenant.as_str().to_owned()];
        let mut found = store.select(query::REFUND_FIND, row).await?;
        let row = found
            .pop()
            .ok_or_else(|| Problem::internal("the pending refund is missing"))?;
        Ok(Self::read(row)?)
    }

    fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.text("id")?,
            charge_id: row.text("charge_id")?,
            amount: row.integer("amount")?,
            currency: row.text("currency")?,
            created_at: written(Timestamp::from_millis(row.integer("created_at")?)),
        })
    }

    /// Completes the refund, and writes its ledger entry.
    async fn settle<D: Database>(
        &self,
        tx: &mut D::Tx,
        shop: &Shop<D>,
        tenant: &Tenant,
        provider_ref: String,
    ) -> Result<(), Problem> {
        let tenant = tenant.as_str();
        let row = params![self.id.clone(), tenant.to_owned(), provider_ref];
        if tx.execute(query::REFUND_SETTLE, row).await? == 0 {
            return Err(Problem::internal("the pending refund is missing"));
        }
        let entry = ledger::Entry {
            tenant,
            charge_id: &self.charge_id,
            kind: "refund",
            amount: self.amount,
            source: "shop",
        };
        Ok(entry.write(tx, &shop.ids).await?)
    }

    /// Returns the reserved amount to the charge, and deletes the pending refund.
    async fn give_back(&self, tx: &mut impl Rows, tenant: &Tenant) -> Result<(), Problem> {
        let tenant = || tenant.as_str().to_owned();
        let row = params![self.id.clone(), tenant()];
        if tx.execute(query::REFUND_DROP, row).await? == 1 {
            let row = params![self.charge_id.clone(), tenant(), self.amount];
            tx.execute(query::CHARGE_RESTORE, row).await?;
        }
        Ok(())
    }

    fn event(&self) -> NewEvent {
        let succeeded = Succeeded {
            refund_id: &self.id,
            charge_id: &self.charge_id,
            amount: self.amount,
        };
        NewEvent::json("refund.succeeded", &succeeded).about("charge", self.charge_id.clone())
    }
}
