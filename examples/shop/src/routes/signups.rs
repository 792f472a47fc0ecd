//! The route of signups: one user and one welcome mail per e-mail address.
//!
//! If a request has no key, the key is derived from the address in lower case. The fingerprint uses
//! the address in lower case too: `Ann@x.org` and `ann@x.org` with the same name are the same
//! request, and with different names a conflict. After the key has expired, the table still
//! prevents a second signup of the address.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{event::NewEvent, key::Tenant};
use hapax_http::{Derived, Json, Query, View, problem::Problem};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::Shop;
use crate::{
    database::{Database, Rows as _, params, query},
    ids::written,
    members::{self, NoQuery},
    problem::SIGNUP_EXISTS,
};

/// The body of a signup.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    email: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct User {
    id: String,
    email: String,
    name: String,
    created_at: String,
}

#[derive(Debug, Serialize)]
struct SignedUp<'a> {
    user_id: &'a str,
    email: &'a str,
    name: &'a str,
}

/// `POST /signups`.
pub(super) async fn create<D: Database>(
    mut tx: hapax_http::Tx<D::Tx>,
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    members::email(&stated.email)?;
    members::line("name", &stated.name, 200)?;
    let now = shop.ids.now();
    let user = User {
        id: shop.ids.mint("usr"),
        email: stated.email,
        name: stated.name,
        created_at: written(now),
    };
    let row = params![
        tenant.as_str().to_owned(),
        folded(&user.email),
        user.id.clone(),
        user.email.clone(),
        user.name.clone(),
        now.as_millis(),
    ];
    if tx.execute(query::USER_INSERT, row).await? == 0 {
        return Err(Problem::new(SIGNUP_EXISTS).member("email"));
    }
    tx.emit(user.event())?;
    Ok((StatusCode::CREATED, Json(user)).into_response())
}

/// Derives the key of a signup without an `Idempotency-Key`.
pub(super) fn derive(request: &View<'_>) -> Result<Derived, Problem> {
    let stated: Stated = request.json()?;
    members::email(&stated.email)?;
    Ok(Derived::new().member("email", folded(&stated.email)))
}

/// Returns the address in lower case, which is equal for all spellings of it.
fn folded(email: &str) -> String {
    email.to_lowercase()
}

impl User {
    fn event(&self) -> NewEvent {
        let signed_up = SignedUp {
            user_id: &self.id,
            email: &self.email,
            name: &self.name,
        };
        NewEvent::json("user.signed_up", &signed_up).about("user", self.id.clone())
    }
}
