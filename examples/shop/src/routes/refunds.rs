//! Refunds: the reverse operation, never more than was charged.
//!
//! The charge's row holds the sum of its refunds, and the statement that adds
//! to it changes nothing when the sum would exceed the charge: two refunds at
//! once, at whichever instances, cannot both take the last of it.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{event::NewEvent, key::Tenant};
use hapax_http::{Json, Query, problem::Problem};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Shop, ledger};
use crate::{
    database::{Database, Rows, params, query},
    ids::written,
    members::{self, NoQuery},
    problem::REFUND_EXCEEDS,
};

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

/// `POST /refunds`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    mut tx: hapax_http::Tx<D::Tx>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    members::name("charge_id", &stated.charge_id)?;
    members::amount(stated.amount)?;
    let currency = reserve(&mut *tx, &tenant, &stated).await?;
    let now = shop.ids.now();
    let refund = Refund {
        id: shop.ids.mint("rf"),
        charge_id: stated.charge_id,
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
    ];
    tx.execute(query::REFUND_INSERT, row).await?;
    let entry = ledger::Entry {
        tenant: tenant.as_str(),
        charge_id: &refund.charge_id,
        kind: "refund",
        amount: refund.amount,
        source: "shop",
    };
    entry.write(&mut *tx, &shop.ids).await?;
    tx.emit(refund.event())?;
    Ok((StatusCode::CREATED, Json(refund)).into_response())
}

/// Takes the amount from what is left of the charge, and returns the charge's currency.
async fn reserve(tx: &mut impl Rows, tenant: &Tenant, stated: &Stated) -> Result<String, Problem> {
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

impl Refund {
    fn event(&self) -> NewEvent {
        let succeeded = Succeeded {
            refund_id: &self.id,
            charge_id: &self.charge_id,
            amount: self.amount,
        };
        NewEvent::json("refund.succeeded", &succeeded).about("charge", self.charge_id.clone())
    }
}
