//! The services: orders with idempotency on SQLite, and the same response without anything.

use std::{
    future::{Ready, ready},
    path::Path,
};

use anyhow::Context as _;
use axum::{
    Router,
    response::IntoResponse,
    routing::{MethodRouter, post},
};
use hapax::{
    event::{NewEvent, Payload},
    key::Tenant,
};
use hapax_http::{Idempotency, Json, RequestIds, WritePlan};
use hapax_sqlite::{Sqlite, Statement};
use http::{
    StatusCode,
    header::{CONTENT_TYPE, ETAG, LOCATION},
};
use serde_json::Value;

use crate::sources::{clock, random};

/// The body of every response and of every event, as long as an order of the shop.
const ORDER: &str = r#"{"id":"ord_0198f3b2c4d57e6f8a9b0c1d2e3f4a5b","customer_id":"cus_bench","amount":1299,"currency":"EUR","note":"two mugs, blue","version":1,"created_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z"}"#;

/// Opens the store in a folder.
pub(crate) async fn open(folder: &Path) -> anyhow::Result<Sqlite> {
    let settings = hapax_sqlite::Settings::new(folder.join("orders.db"), clock(), random());
    let store = Sqlite::open(settings).context("cannot open the store")?;
    let table = "CREATE TABLE shop_order (id INTEGER PRIMARY KEY, note TEXT NOT NULL)";
    store.migrate("orders", &[(1, "orders", table)]).await?;
    Ok(store)
}

/// The service whose `POST /orders` can be retried, as a write plan like that of the shop.
pub(crate) fn orders(store: Sqlite) -> anyhow::Result<Router> {
    let mut settings = hapax_http::Settings::new(clock(), random());
    settings.tenant = Some(Tenant::new("tenant")?);
    let operation = Idempotency::new(store, settings).operation("/orders");
    let orders: MethodRouter = post(create).layer(operation.single_shot());
    let router = Router::new().route("/orders", orders);
    Ok(router.layer(RequestIds::new(random())).with_state(()))
}

/// The service that only responds.
pub(crate) fn constant() -> Router {
    let orders = post(|| ready(created()));
    // With its state, a router builds its routes at once, as a listener does, and not for each request.
    Router::new().route("/orders", orders).with_state(())
}

/// An event about an order.
pub(crate) fn event() -> NewEvent {
    let payload = Payload::Json(ORDER.to_owned());
    NewEvent::new("order.created", payload).about("order", "ord_0198f3b2c4d57e6f8a9b0c1d2e3f4a5b")
}

fn create(Json(sent): Json<Value>) -> Ready<WritePlan<Statement>> {
    let note = sent["note"].as_str().unwrap_or_default().to_owned();
    let insert = Statement::new("INSERT INTO shop_order (note) VALUES (?1)", [note.into()]);
    ready(WritePlan::new(created()).statement(insert).emit(event()))
}

fn created() -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (ETAG, "\"1\""),
        (LOCATION, "/orders/ord_0198f3b2c4d57e6f8a9b0c1d2e3f4a5b"),
    ];
    (StatusCode::CREATED, headers, ORDER)
}
