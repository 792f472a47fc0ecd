//! The shipping provider: shipments, and their cancellation.
//!
//! It ships to every country except the invalid code `ZZ`.

use std::{collections::HashSet, io, path::Path, sync::Arc};

use axum::{
    Router,
    extract::{self, Request, State},
    routing::post,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    decisions::{Made, Trade},
    provider::{Provider, read},
    reply::{Refusal, Reply},
};

/// The most items of a shipment.
const ITEMS_MAX: usize = 100;
/// The country code to which the provider does not ship.
const NOWHERE: &str = "ZZ";

/// The state that the shipping provider computes from its ledger.
#[derive(Debug, Default)]
pub(crate) struct Shipments {
    sent: HashSet<String>,
    cancelled: HashSet<String>,
}

/// A requested operation with its arguments.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "operation")]
pub(crate) enum Operation {
    Ship(Parcel),
    Cancel { shipment: String },
}

/// The items to ship, and their address.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Parcel {
    address: Address,
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    address: Address,
    items: Vec<Item>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct Address {
    name: String,
    line1: String,
    city: String,
    postal_code: String,
    country: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct Item {
    sku: String,
    quantity: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

type Counter = State<Arc<Provider<Shipments>>>;

/// Returns the routes of the provider, which keeps its ledger at `ledger`.
pub(crate) fn routes(ledger: &Path) -> io::Result<Router> {
    let provider = Provider::<Shipments>::open(ledger)?;
    let routes = Provider::<Shipments>::routes()
        .route("/shipments", post(ship))
        .route("/shipments/{id}/cancel", post(cancel));
    Ok(routes.with_state(provider))
}

async fn ship(State(provider): Counter, request: Request) -> Reply {
    let (headers, stated) = match read::<Stated>(request).await {
        Ok(read) => read,
        Err(reply) => return reply,
    };
    let Stated { address, items } = stated;
    if !(1..=ITEMS_MAX).contains(&items.len()) || items.iter().any(|item| item.quantity == 0) {
        let detail = format!("expected 1 to {ITEMS_MAX} items, each with a quantity of at least 1");
        return Reply::invalid(detail);
    }
    let asked = Operation::Ship(Parcel { address, items });
    provider.ask(&headers, asked, None).await
}

async fn cancel(
    State(provider): Counter,
    extract::Path(shipment): extract::Path<String>,
    request: Request,
) -> Reply {
    match read::<Nothing>(request).await {
        Ok((headers, Nothing {})) => {
            provider
                .ask(&headers, Operation::Cancel { shipment }, None)
                .await
        }
        Err(reply) => reply,
    }
}

impl Trade for Shipments {
    type Operation = Operation;
    const OPERATIONS: &'static [&'static str] = &["ship", "cancel"];

    fn operation(asked: &Operation) -> &'static str {
        match asked {
            Operation::Ship(_) => "ship",
            Operation::Cancel { .. } => "cancel",
        }
    }

    fn evaluate(&self, asked: &Operation) -> Result<Made, Refusal> {
        match asked {
            Operation::Ship(parcel) if parcel.address.country == NOWHERE => {
                let (status, detail) = (StatusCode::UNPROCESSABLE_ENTITY, "no such country");
                Err(Refusal::new(status, "undeliverable", detail))
            }
            Operation::Ship(_) => Ok(Made::of("shipment", "shp", [])),
            Operation::Cancel { shipment } if !self.sent.contains(shipment) => {
                Err(Refusal::unknown("no shipment has this id"))
            }
            Operation::Cancel { shipment } if self.cancelled.contains(shipment) => {
                let detail = "it is already cancelled";
                Err(Refusal::conflict("cancelled", detail))
            }
            Operation::Cancel { shipment } => {
                let members = [("shipment", Value::from(shipment.as_str()))];
                Ok(Made::of("cancellation", "cxl", members))
            }
        }
    }

    fn take(&mut self, asked: &Operation, id: &str) {
        match asked {
            Operation::Ship(_) => self.sent.insert(id.to_owned()),
            Operation::Cancel { shipment } => self.cancelled.insert(shipment.clone()),
        };
    }
}
