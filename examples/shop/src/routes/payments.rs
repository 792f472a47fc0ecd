//! The route of payments, which an external provider charges.
//!
//! No transaction of the shop can undo a charge at the provider, so a payment is phased. The
//! provider is called under a key that is the same for every attempt. The charge, its ledger entry
//! and its event are one phase, and the response is stored last. A declined card is a refusal,
//! which is stored and has no effect. If the outcome of the call is unknown, the shop repeats it
//! and then looks the key up at the provider. The shop releases the key only if the provider does
//! not know it and no call is running.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{
    Timestamp, event::NewEvent, failpoint::Failpoints, key::Tenant, store::Transaction as _,
};
use hapax_http::{Json, Phased, Query, problem::Problem};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Shop, provided};
use crate::{
    database::{Database, Rows as _, params, query},
    ids::written,
    ledger,
    members::{self, NoQuery},
    problem::PROVIDER_DUPLICATE,
    providers::{Found, Label, Made, Operation, Order, Outcome, Payments, Settled, Wanted, settle},
};

/// The phase that records the charge.
const CHARGED: &str = "charged";
/// The header that names a problem code on a successful response.
const PROBLEM_CODE: HeaderName = HeaderName::from_static("problem-code");

/// The body of a payment.
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

/// A charge to request from the provider under a key.
struct Charging<'a> {
    provider: &'a Payments,
    label: Label<'a>,
    order: Order<'a>,
    is_resumed: bool,
    failpoints: &'a Failpoints,
}

/// `POST /payments`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    mut phased: Phased<D::Tx>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    stated.check()?;
    if phased.recovery_point().is_some() {
        let charge = find(&shop.store, &tenant, &phased.provider_key("charge")).await?;
        return Ok((StatusCode::CREATED, Json(charge)).into_response());
    }
    check_order(&shop.store, &tenant, stated.order_id.as_ref()).await?;
    let charged = charge(&shop, &phased, &stated).await?;
    let key = phased.provider_key("charge");
    let (is_duplicate, now) = (charged.is_duplicate, shop.ids.now());
    let charge = Charge::of(charged, stated, now);
    let write = async |tx: &mut D::Tx| write(tx, &shop, &tenant, &charge, &key, now).await;
    phased.phase(CHARGED, write).await?;
    shop.failpoints.hit("payments.charged");
    let mut response = (StatusCode::CREATED, Json(charge)).into_response();
    if is_duplicate {
        let code = HeaderValue::from_static(PROVIDER_DUPLICATE.name());
        response.headers_mut().insert(PROBLEM_CODE, code);
    }
    Ok(response)
}

/// Charges the card at the provider once, even if responses are lost.
async fn charge<D: Database>(
    shop: &Shop<D>,
    phased: &Phased<D::Tx>,
    stated: &Stated,
) -> Result<Made, Problem> {
    let provider = provided(shop.providers.payment.as_ref(), phased)?;
    let key = phased.provider_key("charge");
    let order = Order {
        card: &stated.card,
        amount: stated.amount,
        currency: &stated.currency,
    };
    let charging = Charging {
        provider,
        label: Label {
            key: &key,
            headers: phased.context(),
        },
        order,
        is_resumed: phased.is_resumed(),
        failpoints: &shop.failpoints,
    };
    match settle(&shop.ids.sources().1, &charging).await {
        Settled::Done(made) => Ok(made),
        Settled::Refused(refusal) => Err(super::refused(refusal)),
        Settled::Nothing(error) => {
            phased.nothing_happened();
            Err(super::failed(error))
        }
        Settled::Unknown(error) => Err(super::unknown(error)),
    }
}

/// Reads the charge that an earlier attempt recorded.
async fn find<D: Database>(store: &D, tenant: &Tenant, key: &str) -> Result<Charge, Problem> {
    let row = params![key.to_owned(), tenant.as_str().to_owned()];
    let mut found = store.select(query::CHARGE_FIND, row).await?;
    let mut row = found
        .pop()
        .ok_or_else(|| Problem::internal("the recorded charge is missing"))?;
    Ok(Charge {
        id: row.text("id")?,
        order_id: row.maybe_text("order_id")?,
        amount: row.integer("amount")?,
        currency: row.text("currency")?,
        created_at: written(Timestamp::from_millis(row.integer("created_at")?)),
    })
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
            .detail("no order has this id"));
    }
    Ok(())
}

/// Writes the charge, its ledger entry and its event.
async fn write<D: Database>(
    tx: &mut D::Tx,
    shop: &Shop<D>,
    tenant: &Tenant,
    charge: &Charge,
    key: &str,
    now: Timestamp,
) -> Result<(), Problem> {
    let row = params![
        charge.id.clone(),
        tenant.as_str().to_owned(),
        charge.order_id.clone(),
        charge.amount,
        charge.currency.clone(),
        now.as_millis(),
        key.to_owned(),
    ];
    tx.execute(query::CHARGE_INSERT, row).await?;
    let entry = ledger::Entry {
        tenant: tenant.as_str(),
        charge_id: &charge.id,
        kind: "charge",
        amount: charge.amount,
        source: "shop",
        excess: 0,
    };
    entry.write(tx, &shop.ids).await?;
    tx.emit(charge.event())?;
    Ok(())
}

impl Operation<Made> for Charging<'_> {
    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    async fn call(&self) -> Outcome<Made> {
        self.failpoints.hit("payments.call.before");
        let outcome = self.provider.charge(self.label, self.order).await;
        self.failpoints.hit("payments.call.after");
        outcome
    }

    async fn look_up(&self) -> Found<Made> {
        let wanted = Wanted::charge(self.order);
        self.provider.look_up(self.label, wanted).await
    }
}

impl Stated {
    fn check(&self) -> Result<(), Problem> {
        members::amount(self.amount)?;
        members::currency(&self.currency)?;
        if let Some(order) = &self.order_id {
            members::name("order_id", order)?;
        }
        members::card(&self.card)
    }
}

impl Charge {
    fn of(charged: Made, stated: Stated, now: Timestamp) -> Self {
        Self {
            id: charged.id,
            order_id: stated.order_id,
            amount: stated.amount,
            currency: stated.currency,
            created_at: written(now),
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
