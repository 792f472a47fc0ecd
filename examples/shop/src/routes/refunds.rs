//! Refunds: the reverse operation, never more than was charged.
//!
//! The charge's row holds the sum of its refunds, and the statement that adds
//! to it changes nothing when the sum would exceed the charge: two refunds at
//! once, at whichever instances, cannot both take the last of it. That is the
//! first phase: the amount is reserved and the refund pending. The provider
//! refunds under its key; the last phase makes the refund done, with its entry,
//! its event and the answer. A refusal gives the reservation back with the
//! answer that says so.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, event::NewEvent, failpoint::Failpoints, key::Tenant, store::StoreError};
use hapax_http::{Json, Phased, Query, Remember, problem::Problem};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Shop, ledger, provided};
use crate::{
    database::{Database, Row, Rows, params, query},
    ids::written,
    members::{self, NoQuery},
    problem::REFUND_EXCEEDS,
    providers::{
        Found, KEY_REUSED, Label, Made, Operation, Outcome, Payments, Settled, Wanted, settle,
    },
};

/// The phase that takes the amount from what is left of the charge.
const RESERVED: &str = "reserved";
/// The phase that gives it back, because the provider has done nothing: the refund begins anew.
const RETURNED: &str = "returned";

/// A refund as it is asked for.
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

/// A refund that is asked for under its key.
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
            // The refusal is stored as any, but with what this phase wrote.
            let kept = Extension(Remember::WithEffect);
            Ok((kept, super::refused(refusal)).into_response())
        }
        Settled::Refused(refusal) => Err(super::refused(refusal)),
        Settled::Nothing(error) => {
            let back = async |tx: &mut D::Tx| refund.give_back(tx, &tenant).await;
            phased.phase(RETURNED, back).await?;
            // Said last: where the phase fails the reservation stands, and the key with it.
            phased.nothing_happened();
            Err(super::failed(error))
        }
        Settled::Unknown(error) => Err(super::unknown(error)),
    }
}

/// The pending refund: written by a request before this one, or now.
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

/// Has the provider refund, once, whatever becomes of its answers.
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

/// Takes the amount from what is left of the charge, and writes a pending refund of it.
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

/// Takes the amount from what is left of the charge, and returns the charge's currency.
async fn take(tx: &mut impl Rows, tenant: &Tenant, stated: &Stated) -> Result<String, Problem> {
    let charge = || params![stated.charge_id.clone()];
    let mut found = tx.select(query::CHARGE_SELECT, charge()).await?;
    let missing = || {
        Problem::not_found()
            .member("charge_id")
            .detail("there is no such charge")
    };
    let mut found = found.pop().ok_or_else(missing)?;
    if found.text(0)? != tenant.as_str() {
        return Err(missing());
    }
    let key = params![
        stated.charge_id.clone(),
        tenant.as_str().to_owned(),
        stated.amount
    ];
    if tx.execute(query::CHARGE_REFUND, key).await? == 0 {
        // Others may have refunded it since it was read.
        let mut now = tx.select(query::CHARGE_SELECT, charge()).await?;
        let now = now.pop().ok_or_else(missing)?;
        let left = now.integer(1)? - now.integer(2)?;
        let detail = format!("{left} of the charge can still be refunded");
        return Err(Problem::new(REFUND_EXCEEDS).member("amount").detail(detail));
    }
    Ok(found.text(3)?)
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
    /// What a request before this one reserved.
    async fn find<D: Database>(store: &D, tenant: &Tenant, key: &str) -> Result<Self, Problem> {
        let row = params![key.to_owned(), tenant.as_str().to_owned()];
        let mut found = store.select(query::REFUND_FIND, row).await?;
        let row = found
            .pop()
            .ok_or_else(|| Problem::internal("a refund that was reserved is not there"))?;
        Ok(Self::read(row)?)
    }

    fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.text(0)?,
            charge_id: row.text(1)?,
            amount: row.integer(2)?,
            currency: row.text(3)?,
            created_at: written(Timestamp::from_millis(row.integer(4)?)),
        })
    }

    /// Makes it done, with its ledger entry.
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
            return Err(Problem::internal("a refund that was reserved is not there"));
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

    /// Gives what was reserved back to the charge, and forgets the refund.
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
