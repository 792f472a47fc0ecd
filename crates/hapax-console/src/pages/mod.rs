//! Pages, one module each, and what they share.

pub(crate) mod overview;
mod attention;
pub(crate) mod charts;
pub(crate) mod query;
mod list;
pub(crate) mod events;
mod event_state;
pub(crate) mod event_trace;
mod timeline;
pub(crate) mod deliveries;
mod keys;
mod inbox;
mod sagas;
pub(crate) mod unknown;
mod destinations;
pub(crate) mod endpoints;
pub(crate) mod endpoint_attempts;
pub(crate) mod endpoint_trace;
mod endpoint;
mod endpoint_trial;
mod polling;
#[cfg(feature = "catalogue")]
mod event_types;
mod advanced;
mod audit;
mod configuration;
mod reference;
mod explanation;
mod login;

use std::fmt;

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use hapax::admin::AdminError;
use http::StatusCode;

#[cfg(feature = "catalogue")]
use event_types::page_of as page_of_type;

use crate::{
    BASE, Console, act, assets,
    guard::{LOGIN, LOGOUT},
    layout::Page,
};

/// Number of rows per page.
pub(crate) const ROWS: usize = 50;

/// All routes.
pub(crate) fn routes() -> Router<Console> {
    let routes = Router::new()
        .route(BASE, get(overview::show))
        .route("/console/", get(|| async { Redirect::to(BASE) }))
        .route("/console/events", get(events::list))
        .route("/console/events/{id}", get(events::show))
        .route("/console/timeline", get(timeline::show))
        .route("/console/deliveries", get(deliveries::list))
        .route("/console/dead-letters", get(deliveries::dead))
        .route("/console/keys", get(keys::list))
        .route("/console/inbox", get(inbox::list))
        .route("/console/sagas", get(sagas::list))
        .route("/console/sagas/{id}", get(sagas::show))
        .route(unknown::LIST, get(unknown::list))
        .route("/console/unknown/request", get(unknown::show))
        .route("/console/destinations", get(destinations::list))
        .route("/console/destinations/{name}", get(destinations::show))
        .route("/console/endpoints", get(endpoints::list))
        .route("/console/endpoints/{id}", get(endpoint::show))
        .route(
            "/console/endpoints/{id}/try",
            get(endpoint_trial::show).post(endpoint_trial::run),
        )
        .route("/console/polling", get(polling::list))
        .route("/console/polling/{name}", get(polling::show))
        .route("/console/advanced", get(advanced::show))
        .route("/console/configuration", get(configuration::show))
        .route("/console/reference", get(reference::list))
        .route("/console/reference/{name}", get(reference::show))
        .route("/console/act", get(act::ask).post(act::act))
        .route(LOGIN, get(login::show).post(login::sign_in))
        .route(LOGOUT, axum::routing::post(login::sign_out))
        .route("/console/assets/{name}", get(assets::serve))
        .route("/console/{*rest}", get(missing))
        .method_not_allowed_fallback(no_method);
    #[cfg(feature = "catalogue")]
    let routes = routes
        .route("/console/catalogue", get(event_types::list))
        .route("/console/catalogue/{kind}", get(event_types::show));
    routes
}

/// An error page.
#[derive(Debug)]
pub(crate) struct ErrorPage(Box<Page>);

/// A page, or an error page.
pub(crate) type Shown = Result<Page, ErrorPage>;

impl ErrorPage {
    /// The request is not valid.
    pub(crate) fn wrong(why: impl AsRef<str>) -> Self {
        let title = "Invalid request";
        Self(Page::problem(StatusCode::BAD_REQUEST, title, why.as_ref()).into())
    }

    /// The current state does not permit the action.
    pub(crate) fn late(why: &impl fmt::Display) -> Self {
        let why = format!("{}. Nothing was done.", capital(&why.to_string()));
        Self(Page::problem(StatusCode::CONFLICT, "Not possible now", &why).into())
    }
}

impl From<AdminError> for ErrorPage {
    fn from(error: AdminError) -> Self {
        let (status, title, why) = match &error {
            AdminError::NotFound { .. } => {
                let why = format!("{error}, or you are not allowed to see it.");
                (StatusCode::NOT_FOUND, "Not found", capital(&why))
            }
            AdminError::Conflict { .. } => return Self::late(&error),
            AdminError::Invalid { .. } => {
                let why = format!("{}. Nothing was done.", capital(&error.to_string()));
                (StatusCode::BAD_REQUEST, "Invalid request", why)
            }
            AdminError::Store(error) => {
                tracing::error!(
                    error = error.error_chain(),
                    "the console cannot read the store"
                );
                let why = "The database did not respond. The reason is in the log of this \
                           process. Load the page again.";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                (status, "The database is unavailable", why.to_owned())
            }
            other => {
                tracing::error!(error = %other, "the console failed");
                let why = "The console failed. The error is in the log of this process.";
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                (status, "Internal error", why.to_owned())
            }
        };
        Self(Page::problem(status, title, &why).into())
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

async fn missing() -> Page {
    let why = "There is no such page in this console.";
    Page::problem(StatusCode::NOT_FOUND, "Not found", why)
}

async fn no_method() -> Page {
    let why = "This page does not support this method.";
    Page::problem(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", why)
}

/// The page of an event type: a console without a catalogue has none.
#[cfg(not(feature = "catalogue"))]
fn page_of_type(_: &Console, _: &hapax::admin::Actor, _: &str) -> Option<String> {
    None
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|it| it.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
