//! The routes of a customer's e-mail address, whose `PUT` is naturally idempotent.
//!
//! The request contains the whole new state, so it needs neither a key nor a condition: running it
//! again leaves the same state and gets the same response. Only a change emits an event. A late
//! retry can still replace a newer address; orders, whose `PUT` requires `If-Match`, prevent that.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{event::NewEvent, key::Tenant};
use hapax_http::{Json, Path, Query, problem::Problem};
use serde::{Deserialize, Serialize};

use super::Shop;
use crate::{
    database::{Database, Rows as _, params, query},
    members::{self, NoQuery},
};

/// The body of a request to set the address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    email: String,
}

/// A customer in a response and in an event.
#[derive(Debug, Serialize)]
struct Customer {
    customer_id: String,
    email: String,
}

/// `PUT /customers/{id}/email`.
pub(super) async fn set_email<D: Database>(
    mut tx: hapax_http::Tx<D::Tx>,
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    Query(NoQuery {}): Query<NoQuery>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    members::id(&id)?;
    members::email(&stated.email)?;
    let row = params![
        tenant.as_str().to_owned(),
        id.clone(),
        stated.email.clone(),
        shop.ids.now().as_millis(),
    ];
    let customer = Customer {
        customer_id: id,
        email: stated.email,
    };
    if tx.execute(query::CUSTOMER_SET_EMAIL, row).await? > 0 {
        let changed = NewEvent::json("customer.email_changed", &customer);
        tx.emit(changed.about("customer", customer.customer_id.clone()))?;
    }
    Ok(Json(customer).into_response())
}

/// `GET /customers/{id}/email`.
pub(super) async fn email<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, Problem> {
    members::id(&id)?;
    let key = params![tenant.as_str().to_owned(), id.clone()];
    let mut rows = shop.store.select(query::CUSTOMER_EMAIL, key).await?;
    let mut row = rows.pop().ok_or_else(Problem::not_found)?;
    let customer = Customer {
        customer_id: id,
        email: row.text("email")?,
    };
    Ok(Json(customer).into_response())
}
