//! Pages of the portal, one module each, and what they share.
//!
//! A GET changes nothing in the store. Every change is a POST, for which the guard has checked the
//! session, its right to write, the origin and the CSRF token, so the pages do not check them again.
//! The secret of an endpoint is shown by a POST too.
//!
//! After most changes, the browser is redirected to a page whose parameter `done` names the change,
//! so that loading the page again does not repeat it. A form whose response shows a secret has a
//! nonce or a version instead.

mod open;
mod list;
mod create;
mod endpoint;
mod change;
mod act;
mod secret;
mod deliveries;
mod delivery;
mod event_types;

use axum::{
    Router,
    extract::{Path, State},
    response::{IntoResponse as _, Redirect, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode};

use super::{BASE, OPEN, Portal};
use crate::{
    assets,
    fields::{path_of, url},
    layout::Page,
};

/// The folder of the endpoints, and the path to which the form of a new one is sent. The list is at
/// [`BASE`].
const ENDPOINTS: &str = "/portal/endpoints";
/// The path of the form of a new endpoint.
const NEW: &str = "/portal/endpoints/new";

/// All routes.
pub(super) fn routes() -> Router<Portal> {
    Router::new()
        .route(BASE, get(list::show))
        .route("/portal/", get(home))
        .route(OPEN, get(open::open))
        .route(ENDPOINTS, get(home).post(create::create))
        .route(NEW, get(create::show))
        .route(
            "/portal/endpoints/{id}",
            get(endpoint::show).post(change::change),
        )
        .route("/portal/endpoints/{id}/enable", post(act::enable))
        .route("/portal/endpoints/{id}/disable", post(act::disable))
        .route("/portal/endpoints/{id}/delete", post(act::delete))
        .route("/portal/endpoints/{id}/replay", post(act::replay))
        .route("/portal/endpoints/{id}/test", post(act::test))
        .route("/portal/endpoints/{id}/rotate", post(secret::rotate))
        .route("/portal/endpoints/{id}/reveal", post(secret::reveal))
        .route("/portal/endpoints/{id}/deliveries", get(deliveries::list))
        .route("/portal/deliveries/{endpoint}/{event}", get(delivery::show))
        .route("/portal/event-types", get(event_types::show))
        .route("/portal/assets/{name}", get(asset))
        .route("/portal/{*rest}", get(missing))
        .method_not_allowed_fallback(no_method)
}

/// The path of an endpoint.
fn endpoint_path(id: &str) -> String {
    path_of(ENDPOINTS, id)
}

/// The path of the deliveries of an endpoint.
fn deliveries_path(id: &str) -> String {
    format!("{}/deliveries", endpoint_path(id))
}

/// The path of the delivery of an event to an endpoint.
fn delivery_path(endpoint: &str, event: &str) -> String {
    path_of(&path_of("/portal/deliveries", endpoint), event)
}

/// Redirects to a page after a change. `change` is a word that the layout turns into a sentence.
fn done(path: &str, change: &str) -> Response {
    Redirect::to(&url(path, &[("done", change)])).into_response()
}

/// Redirects to the list of endpoints.
async fn home() -> Redirect {
    Redirect::to(BASE)
}

/// Serves a static file of the brand or of the console.
async fn asset(
    State(portal): State<Portal>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match portal.0.brand.serve(&name) {
        Some(response) => response,
        None => assets::serve(Path(name), headers).await,
    }
}

/// The page for a path that does not exist, the same as for an object of another tenant.
async fn missing() -> super::refusal::Refusal {
    super::refusal::Refusal::not_found()
}

/// The page for a path that exists, with a method that it does not have.
async fn no_method() -> Page {
    let why = "This page does not support this method.";
    Page::problem(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", why)
}
