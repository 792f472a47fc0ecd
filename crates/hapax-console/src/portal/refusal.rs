//! Pages of requests that are refused. None says anything about other tenants, and the page of an object
//! of another tenant is that of one that does not exist.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use hapax::admin::AdminError;
use http::{HeaderValue, StatusCode, header};

use crate::layout::Page;

/// An error page.
#[derive(Debug)]
pub(super) struct Refusal(Box<Page>);

/// A page, or an error page.
pub(super) type Shown = Result<Page, Refusal>;

impl Refusal {
    /// There is no such object, or it belongs to another tenant.
    pub(super) fn not_found() -> Self {
        let why = "There is no such page, or it does not belong to your account.";
        Self::page(StatusCode::NOT_FOUND, "Not found", why)
    }

    /// The request is not valid.
    pub(super) fn wrong(why: &str) -> Self {
        let why = format!("{} Nothing was done.", sentence(why));
        Self::page(StatusCode::BAD_REQUEST, "Invalid request", &why)
    }

    fn page(status: StatusCode, title: &'static str, why: &str) -> Self {
        Self(Page::problem(status, title, why).into())
    }
}

impl From<AdminError> for Refusal {
    fn from(error: AdminError) -> Self {
        match &error {
            AdminError::NotFound { .. } => Self::not_found(),
            AdminError::Conflict { what } => {
                let why = format!("{} Nothing was done.", sentence(what));
                Self::page(StatusCode::CONFLICT, "Not possible now", &why)
            }
            AdminError::Invalid { .. } => Self::wrong(&error.to_string()),
            AdminError::Busy => unavailable(),
            AdminError::Store(error) => {
                let error = error.error_chain();
                tracing::error!(error, "the portal cannot use the store");
                unavailable()
            }
            other => {
                tracing::error!(error = %other, "the portal failed");
                let why = "The portal could not complete the request. Try again later.";
                Self::page(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", why)
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

fn unavailable() -> Refusal {
    let why = "The service did not respond. Load the page again.";
    Refusal::page(StatusCode::SERVICE_UNAVAILABLE, "Unavailable", why)
}

/// A text as a sentence: with a capital letter and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|it| it.to_uppercase().to_string());
    let stop = if text.ends_with('.') { "" } else { "." };
    first.unwrap_or_default() + letters.as_str() + stop
}

/// The link or the session is not valid. Why is not said.
pub(super) fn no_session() -> Response {
    let why = "It has expired, or it was not copied completely. Open this page again from the place \
               where you found the link.";
    refuse(StatusCode::UNAUTHORIZED, "This link is not valid", why)
}

pub(super) fn read_only() -> Response {
    let why = "This link has read access only. Nothing was done.";
    refuse(StatusCode::FORBIDDEN, "Read-only access", why)
}

pub(super) fn cross_site() -> Response {
    let why = "The form was not sent by a page of this portal.";
    refuse(StatusCode::FORBIDDEN, "Cross-site request", why)
}

pub(super) fn expired_form() -> Response {
    let why = "The form belongs to another session. Go back, load the page again, and send the form \
               once more.";
    refuse(StatusCode::FORBIDDEN, "The form has expired", why)
}

/// Too many requests of the tenant.
pub(super) fn too_many(wait: Duration) -> Response {
    let why = "There were too many requests. Wait a moment, and try again.";
    let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, "Too many requests", why);
    let seconds = HeaderValue::from(wait.as_secs().saturating_add(1));
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

fn refuse(status: StatusCode, title: &'static str, why: &str) -> Response {
    Page::problem(status, title, why).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_found_is_not_named() {
        let page = |what: &str| Refusal::from(AdminError::not_found(what)).0;
        let (one, other) = (page("endpoint ep_1"), page("such tenant"));
        assert_eq!(one.status, StatusCode::NOT_FOUND);
        assert_eq!(one.title, other.title);
        assert_eq!(one.body.into_string(), other.body.into_string());
    }

    #[test]
    fn a_problem_becomes_a_sentence() {
        assert_eq!(sentence("url must be short"), "Url must be short.");
        assert_eq!(sentence("Done."), "Done.");
        assert_eq!(sentence(""), ".");
    }
}
