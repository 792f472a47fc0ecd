//! `GET /ledger`: the entries of a tenant.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, key::Tenant, store::StoreError};
use hapax_http::{Json, Query, problem::Problem};
use serde::{Deserialize, Serialize};

use super::Shop;
use crate::{
    database::{Database, Row, params, query},
    ids::written,
    members::{self, LIMIT_MAX},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    charge_id: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Listed {
    entries: Vec<Written>,
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Written {
    id: String,
    charge_id: String,
    kind: String,
    amount: i64,
    source: String,
    excess: i64,
    created_at: String,
}

/// `GET /ledger`.
pub(super) async fn list<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    let limit = members::limit(wanted.limit, LIMIT_MAX)?;
    let after = members::after(wanted.after, "le")?;
    let mut key = params![tenant.as_str().to_owned(), after, i64::from(limit) + 1];
    let query = match wanted.charge_id {
        Some(charge) => {
            members::name("charge_id", &charge)?;
            key.push(charge.into());
            query::LEDGER_LIST_BY_CHARGE
        }
        None => query::LEDGER_LIST,
    };
    let rows = shop.store.select(query, key).await?;
    let mut entries = rows
        .into_iter()
        .map(Written::read)
        .collect::<Result<Vec<_>, _>>()?;
    let more = entries.len() > limit as usize;
    entries.truncate(limit as usize);
    let next = entries
        .last()
        .filter(|_| more)
        .map(|entry| entry.id.clone());
    Ok(Json(Listed { entries, next }).into_response())
}

impl Written {
    fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.text("id")?,
            charge_id: row.text("charge_id")?,
            kind: row.text("kind")?,
            amount: row.integer("amount")?,
            source: row.text("source")?,
            excess: row.integer("excess")?,
            created_at: written(Timestamp::from_millis(row.integer("created_at")?)),
        })
    }
}
