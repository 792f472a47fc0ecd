//! Routes of orders: create, read, list, and replace under a condition.
//!
//! `POST` returns a write plan, so several requests can share a commit. `PUT` does not need a key:
//! its condition is the version that the client has read, so a second `PUT` fails instead of being
//! applied.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, event::NewEvent, key::Tenant, store::StoreError};
use hapax_http::{
    Json, Path, Query, WritePlan,
    problem::{self, Problem},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::Shop;
use crate::{
    database::{Database, Row, Rows as _, Value, params, query},
    ids::written,
    members::{self, LIMIT, NoQuery, Page},
};

/// The body of a request to create or replace an order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    customer_id: String,
    amount: i64,
    currency: String,
    note: Option<String>,
}

/// An order in a response.
#[derive(Debug, Serialize)]
struct Order {
    id: String,
    customer_id: String,
    amount: i64,
    currency: String,
    note: Option<String>,
    version: i64,
    created_at: String,
    updated_at: String,
}

#[derive(Debug, Serialize)]
struct Listed {
    items: Vec<Order>,
    next: Option<String>,
}

/// `POST /orders`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    Json(stated): Json<Stated>,
) -> Result<WritePlan<D::Statement>, Problem> {
    stated.check()?;
    let now = shop.ids.now();
    let order = Order::of(shop.ids.mint("ord"), stated, 1, [now, now]);
    let row = params![
        tenant.as_str().to_owned(),
        order.id.clone(),
        order.customer_id.clone(),
        order.amount,
        order.currency.clone(),
        order.note.clone(),
        now.as_millis(),
    ];
    Ok(WritePlan::new(order.response(StatusCode::CREATED))
        .statement(D::statement(query::ORDER_INSERT, row))
        .emit(order.event("order.created")))
}

/// `GET /orders/{id}`.
pub(super) async fn read<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, Problem> {
    members::id(&id)?;
    let key = params![tenant.as_str().to_owned(), id];
    let rows = shop.store.select(query::ORDER_SELECT, key).await?;
    let row = rows.into_iter().next().ok_or_else(Problem::not_found)?;
    Ok(Order::read(row)?.response(StatusCode::OK))
}

/// `GET /orders`.
pub(super) async fn list<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let limit = members::limit(page.limit, LIMIT)?;
    let after = members::after(page.after, "ord")?;
    // One row more than requested shows whether there is a next page.
    let key = params![tenant.as_str().to_owned(), after, i64::from(limit) + 1];
    let rows = shop.store.select(query::ORDER_LIST, key).await?;
    let mut items = rows
        .into_iter()
        .map(Order::read)
        .collect::<Result<Vec<_>, _>>()?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(|order| order.id.clone());
    Ok(Json(Listed { items, next }).into_response())
}

/// `PUT /orders/{id}`.
pub(super) async fn replace<D: Database>(
    mut tx: hapax_http::Tx<D::Tx>,
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    Query(NoQuery {}): Query<NoQuery>,
    headers: HeaderMap,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    members::id(&id)?;
    stated.check()?;
    let key = || params![tenant.as_str().to_owned(), id.clone()];
    let rows = tx.select(query::ORDER_SELECT, key()).await?;
    let found = Order::read(rows.into_iter().next().ok_or_else(Problem::not_found)?)?;
    if !holds(&headers, found.version)? {
        return Err(Problem::new(problem::PRECONDITION).detail("the order has changed; reload it"));
    }
    let now = shop.ids.now();
    let mut order = Order::of(id.clone(), stated, found.version + 1, [now, now]);
    order.created_at = found.created_at;
    let mut row = key();
    row.extend(order.changed_columns(found.version, now));
    if tx.execute(query::ORDER_UPDATE, row).await? == 0 {
        return Err(Problem::new(problem::PRECONDITION).detail("the order has changed; reload it"));
    }
    tx.emit(order.event("order.updated"))?;
    Ok(order.response(StatusCode::OK))
}

/// Returns whether `If-Match` allows a change of this version.
///
/// # Errors
/// Fails with 428 if the header is missing.
fn holds(headers: &HeaderMap, version: i64) -> Result<bool, Problem> {
    let mut values = headers.get_all(header::IF_MATCH).iter().peekable();
    if values.peek().is_none() {
        let problem = Problem::new(problem::PRECONDITION).status(StatusCode::PRECONDITION_REQUIRED);
        return Err(problem.detail("send If-Match with the ETag of the order that you have read"));
    }
    let current = tag(version);
    let fits = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default();
        value.trim() == "*" || value.split(',').any(|tag| tag.trim() == current)
    };
    Ok(values.any(fits))
}

fn tag(version: i64) -> String {
    format!("\"{version}\"")
}

impl Stated {
    fn check(&self) -> Result<(), Problem> {
        members::name("customer_id", &self.customer_id)?;
        members::amount(self.amount)?;
        members::currency(&self.currency)?;
        members::text("note", self.note.as_deref().unwrap_or_default(), 500)
    }
}

impl Order {
    fn of(id: String, stated: Stated, version: i64, [created, updated]: [Timestamp; 2]) -> Self {
        Self {
            id,
            customer_id: stated.customer_id,
            amount: stated.amount,
            currency: stated.currency,
            note: stated.note,
            version,
            created_at: written(created),
            updated_at: written(updated),
        }
    }

    fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.text("id")?,
            customer_id: row.text("customer_id")?,
            amount: row.integer("amount")?,
            currency: row.text("currency")?,
            note: row.maybe_text("note")?,
            version: row.integer("version")?,
            created_at: written(Timestamp::from_millis(row.integer("created_at")?)),
            updated_at: written(Timestamp::from_millis(row.integer("updated_at")?)),
        })
    }

    fn changed_columns(&self, seen: i64, now: Timestamp) -> Vec<Value> {
        params![
            seen,
            self.customer_id.clone(),
            self.amount,
            self.currency.clone(),
            self.note.clone(),
            now.as_millis(),
        ]
    }

    fn event(&self, kind: &str) -> NewEvent {
        NewEvent::json(kind, self)
            .about("order", self.id.clone())
            .sequence(self.version)
    }

    fn response(&self, status: StatusCode) -> Response {
        let etag = HeaderValue::from_str(&tag(self.version)).expect("a number is visible ASCII");
        let mut response = (status, [(header::ETAG, etag)], Json(self)).into_response();
        if status == StatusCode::CREATED {
            super::locate(&mut response, &format!("/orders/{}", self.id));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_holds_for_the_version_it_names() {
        assert_eq!(check(Some("\"3\"")), Some(true));
        assert_eq!(check(Some("\"1\", \"3\"")), Some(true));
        assert_eq!(check(Some("*")), Some(true));
        for stale in ["\"2\"", "3", "W/\"3\"", "", "\"33\"", "\"2\", *", "*, *"] {
            assert_eq!(check(Some(stale)), Some(false), "{stale}");
        }
        assert_eq!(check(None), None);
    }

    fn check(if_match: Option<&'static str>) -> Option<bool> {
        let tags = if_match.map(|tag| (header::IF_MATCH, HeaderValue::from_static(tag)));
        holds(&tags.into_iter().collect(), 3).ok()
    }
}
