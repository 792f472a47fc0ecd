//! The response of a provider: JSON, an error `{code, detail}`, or a closed connection.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::server::Unanswered;

/// A response, or none.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Respond with this status and JSON body.
    Said(StatusCode, Value),
    /// Close the connection without a response.
    Lost,
}

/// The reason why an operation was not executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) detail: &'static str,
}

impl Refusal {
    pub(crate) const fn new(status: StatusCode, code: &'static str, detail: &'static str) -> Self {
        Self {
            status,
            code,
            detail,
        }
    }

    /// The current state of the object does not allow the operation.
    pub(crate) const fn conflict(code: &'static str, detail: &'static str) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// No object has this id.
    pub(crate) const fn unknown(detail: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }
}

impl Reply {
    pub(crate) fn error(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        Self::Said(status, json!({ "code": code, "detail": detail }))
    }

    /// The request is malformed.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::error(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// The provider failed, because of a fault or a real error.
    pub(crate) fn failed(detail: &str) -> Self {
        Self::error(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::error(refusal.status, refusal.code, refusal.detail)
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        match self {
            Self::Said(status, body) => (status, Json(body)).into_response(),
            Self::Lost => {
                let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
                response.extensions_mut().insert(Unanswered);
                response
            }
        }
    }
}
