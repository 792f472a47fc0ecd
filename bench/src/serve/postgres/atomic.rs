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
use hapax_http::{Idempotency, Json, OperationLayer, Problem, RequestIds, Settings, Tx};
use hapax_postgres::Postgres;
use http::{HeaderName, header};

use super::{Flags, ORDER_INSERT, Order, Stated, TENANT, make_tables};
use crate::{serve::answer::Answer, sources};

/// The headers of the handler; the layer adds the others.
const OWN: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// When the service claims a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) enum Claims {
    /// Before the handler starts.
    First,
    /// Together with the INSERT.
    Pipelined,
    /// Together with the response.
    Optimistic,
}

/// The service.
pub(in crate::serve) async fn orders(
    flags: Flags,
    answer: Answer,
    claims: Claims,
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
    let operation = Idempotency::new(store, settings).operation("/orders");
    let orders = route(answer.of_handler(&OWN), operation, claims);
    Ok(Router::new()
        .route("/orders", orders)
        .layer(RequestIds::new(random)))
}

fn route(answer: Answer, operation: OperationLayer<Postgres>, claims: Claims) -> MethodRouter {
    let answer = Arc::new(answer);
    let handler = move |tx: Tx<hapax_postgres::Tx>, Json(stated): Json<Stated>| {
        let answer = Arc::clone(&answer);
        async move { create(tx, stated, &answer).await }
    };
    match claims {
        Claims::First => post(handler).layer(operation),
        Claims::Pipelined => post(handler).layer(operation.claim_pipelined()),
        Claims::Optimistic => post(operation.transaction(handler)),
    }
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
