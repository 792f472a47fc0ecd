//! Payments, through a provider that lives in this very database.
//!
//! Because it does, the charge, its ledger entry, its event and the answer are
//! one commit. A declined card is a refusal: remembered, and without effect.
//! The cards that stand for a provider at the other end of a network are
//! refused by name, because this provider cannot time out.

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
    database::{Database, Rows as _, params, query},
    ids::written,
    members::{self, NoQuery},
    problem::CARD_DECLINED,
};

/// Cards of providers that can lose an answer, which this one cannot.
const NOT_SIMULATED: [&str; 4] = [
    "tok_timeout_applied",
    "tok_timeout_not_applied",
    "tok_5xx",
    "tok_slow",
];

/// A payment as it is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    order_id: Option<String>,
    amount: i64,
    currency: String,
    card: String,
}

#[derive(Debug, Serialize)]
struct Charge {
    id: String,
    order_id: Option<String>,
    amount: i64,
    currency: String,
    created_at: String,
}

#[derive(Debug, Serialize)]
struct Succeeded<'a> {
    charge_id: &'a str,
    order_id: Option<&'a str>,
    amount: i64,
    currency: &'a str,
}

/// `POST /payments`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    mut tx: hapax_http::Tx<D::Tx>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    stated.check()?;
    if let Some(order) = &stated.order_id {
        let key = params![tenant.as_str().to_owned(), order.clone()];
        if tx.select(query::ORDER_SELECT, key).await?.is_empty() {
            return Err(Problem::not_found()
                .member("order_id")
                .detail("there is no such order"));
        }
    }
    if stated.card == "tok_declined" {
        return Err(Problem::new(CARD_DECLINED));
    }
    let now = shop.ids.now();
    let charge = Charge {
        id: shop.ids.mint("ch"),
        order_id: stated.order_id,
        amount: stated.amount,
        currency: stated.currency,
        created_at: written(now),
    };
    let row = params![
        charge.id.clone(),
        tenant.as_str().to_owned(),
        charge.order_id.clone(),
        charge.amount,
        charge.currency.clone(),
        now.as_millis(),
    ];
    tx.execute(query::CHARGE_INSERT, row).await?;
    let entry = ledger::Entry {
        tenant: tenant.as_str(),
        charge_id: &charge.id,
        kind: "charge",
        amount: charge.amount,
        source: "shop",
    };
    entry.write(&mut *tx, &shop.ids).await?;
    tx.emit(charge.event())?;
    Ok((StatusCode::CREATED, Json(charge)).into_response())
}

impl Stated {
    fn check(&self) -> Result<(), Problem> {
        members::amount(self.amount)?;
        members::currency(&self.currency)?;
        if let Some(order) = &self.order_id {
            members::name("order_id", order)?;
        }
        match self.card.as_str() {
            "tok_ok" | "tok_declined" => Ok(()),
            card if NOT_SIMULATED.contains(&card) => Err(Problem::invalid(
                "card",
                format!("this provider does not simulate {card}"),
            )),
            _ => Err(Problem::invalid("card", "card is tok_ok or tok_declined")),
        }
    }
}

impl Charge {
    fn event(&self) -> NewEvent {
        let succeeded = Succeeded {
            charge_id: &self.id,
            order_id: self.order_id.as_deref(),
            amount: self.amount,
            currency: &self.currency,
        };
        NewEvent::json("payment.succeeded", &succeeded).about("charge", self.id.clone())
    }
}
