//! Payments, through a provider that lives in this very database.
//!
//! The provider is a foreign system: what it has charged no transaction of the shop takes back.
//! So a payment is phased. The provider is called under a key that is the same for every attempt;
//! the charge, its ledger entry and its event are one phase, and the answer is stored last. A
//! declined card is a refusal: remembered, and without effect. The cards that stand for a provider
//! that loses its answers are refused by name, because this one does not.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{event::NewEvent, key::Tenant, store::Transaction as _};
use hapax_http::{Json, Phased, Query, problem::Problem};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Shop, ledger};
use crate::{
    database::{Database, Rows as _, params, query},
    ids::written,
    members::{self, NoQuery},
    problem::CARD_DECLINED,
    provider::{Card, Charged, Order, ProviderError},
};

/// Cards of providers that can lose an answer, which this one cannot.
const NOT_SIMULATED: [&str; 3] = ["tok_timeout_applied", "tok_timeout_not_applied", "tok_5xx"];
/// The phase that writes down what was charged.
const CHARGED: &str = "charged";

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
    mut phased: Phased<D::Tx>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    let card = stated.check()?;
    if phased.recovery_point().is_none() {
        check_order(&shop.store, &tenant, stated.order_id.as_ref()).await?;
    }
    let order = Order {
        card,
        amount: stated.amount,
        currency: &stated.currency,
    };
    let key = phased.provider_key("charge");
    // Again after a crash: under its key the provider tells what it has charged.
    let charged = shop.provider.charge(&key, order).await.map_err(refusal)?;
    let charge = Charge::of(&charged, stated);
    if phased.recovery_point().is_none() {
        let write = async |tx: &mut D::Tx| write(tx, &shop, &tenant, &charge, &charged).await;
        phased.phase(CHARGED, write).await?;
        shop.failpoints.hit("payments.charged");
    }
    Ok((StatusCode::CREATED, Json(charge)).into_response())
}

async fn check_order<D: Database>(
    store: &D,
    tenant: &Tenant,
    order: Option<&String>,
) -> Result<(), Problem> {
    let Some(order) = order else { return Ok(()) };
    let key = params![tenant.as_str().to_owned(), order.clone()];
    if store.select(query::ORDER_SELECT, key).await?.is_empty() {
        return Err(Problem::not_found()
            .member("order_id")
            .detail("there is no such order"));
    }
    Ok(())
}

/// What a caller is told when nothing was charged.
fn refusal(error: ProviderError) -> Problem {
    match error {
        ProviderError::Declined => Problem::new(CARD_DECLINED),
        ProviderError::Unavailable(error) => error.into(),
        error @ ProviderError::Mismatch => Problem::internal(error),
    }
}

/// Writes the charge, its ledger entry and its event.
async fn write<D: Database>(
    tx: &mut D::Tx,
    shop: &Shop<D>,
    tenant: &Tenant,
    charge: &Charge,
    charged: &Charged,
) -> Result<(), Problem> {
    let row = params![
        charge.id.clone(),
        tenant.as_str().to_owned(),
        charge.order_id.clone(),
        charge.amount,
        charge.currency.clone(),
        charged.created_at.as_millis(),
    ];
    tx.execute(query::CHARGE_INSERT, row).await?;
    let entry = ledger::Entry {
        tenant: tenant.as_str(),
        charge_id: &charge.id,
        kind: "charge",
        amount: charge.amount,
        source: "shop",
    };
    entry.write(tx, &shop.ids).await?;
    tx.emit(charge.event())?;
    Ok(())
}

impl Stated {
    fn check(&self) -> Result<Card, Problem> {
        members::amount(self.amount)?;
        members::currency(&self.currency)?;
        if let Some(order) = &self.order_id {
            members::name("order_id", order)?;
        }
        match self.card.as_str() {
            "tok_ok" => Ok(Card::Ok),
            "tok_declined" => Ok(Card::Declined),
            "tok_slow" => Ok(Card::Slow),
            card if NOT_SIMULATED.contains(&card) => Err(Problem::invalid(
                "card",
                format!("this provider does not simulate {card}"),
            )),
            _ => Err(Problem::invalid(
                "card",
                "card is tok_ok, tok_declined or tok_slow",
            )),
        }
    }
}

impl Charge {
    /// What was charged, as the client is told of it: the same however often it is asked.
    fn of(charged: &Charged, stated: Stated) -> Self {
        Self {
            id: charged.id.clone(),
            order_id: stated.order_id,
            amount: stated.amount,
            currency: stated.currency,
            created_at: written(charged.created_at),
        }
    }

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
