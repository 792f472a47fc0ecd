//! An axum service on Hapax with an arbitrary handler: one INSERT, one event, one response.
//!
//! The handler receives a transaction and may do anything with it, so requests do not share
//! commits. The key, the order, the event and the response are written in one commit.

use std::sync::Arc;

use anyhow::Context as _;
use axum::{
    Router,
    response::Response,
    routing::{MethodRouter, post},
};
use hapax::{event::NewEvent, event::Payload, key::Tenant};
use hapax_http::{Idempotency, Json, Problem, RequestIds, Settings, Tx};
use hapax_postgres::Postgres;
use http::{HeaderName, header};

use super::{Flags, ORDER_INSERT, Order, Stated, TENANT, make_tables};
use crate::{serve::answer::Answer, sources};

/// The headers of the handler; the layer adds the others.
const OWN: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// The service. If `is_pipelined` is set, the claim is pipelined with the INSERT.
pub(in crate::serve) async fn orders(
    flags: Flags,
    answer: Answer,
    is_pipelined: bool,
) -> anyhow::Result<Router> {
    make_tables(&flags.database).await?;
    let (clock, random) = (sources::clock(), sources::random());
    let mut settings =
        hapax_postgres::Settings::new(&flags.database, clock.clone(), random.clone());
    settings.connections = flags.pool;
    let store = Postgres::open(settings).await;
    let store = store.context("cannot open the store")?;
    let mut settings = Settings::new(clock, random.clone());
    settings.tenant = Some(Tenant::new(TENANT)?);
    let mut operation = Idempotency::new(store, settings).operation("/orders");
    if is_pipelined {
        operation = operation.claim_pipelined();
    }
    let orders: MethodRouter = route(answer.of_handler(&OWN)).layer(operation);
    Ok(Router::new()
        .route("/orders", orders)
        .layer(RequestIds::new(random)))
}

fn route(answer: Answer) -> MethodRouter {
    let answer = Arc::new(answer);
    post(
        move |tx: Tx<hapax_postgres::Tx>, Json(stated): Json<Stated>| {
            let answer = Arc::clone(&answer);
            async move { create(tx, stated, &answer).await }
        },
    )
}

async fn create(
    mut tx: Tx<hapax_postgres::Tx>,
    stated: Stated,
    answer: &Answer,
) -> Result<Response, Problem> {
    let order = Order::of(stated);
    tx.execute(ORDER_INSERT, &order.row()).await?;
    let payload = str::from_utf8(answer.body()).unwrap_or_default().to_owned();
    let event = NewEvent::new("order.created", Payload::Json(payload));
    tx.emit(event.about("order", order.id).sequence(1))?;
    Ok(answer.respond())
}
