//! What a provider answers: JSON, an error of `{code, detail}`, or nothing at all.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::server::Unanswered;

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This status with this body.
    Said(StatusCode, Value),
    /// The connection is closed.
    Lost,
}

/// Why an operation was not done.
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

    /// Another state of things is in the way.
    pub(crate) const fn conflict(code: &'static str, detail: &'static str) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// There is nothing under this id.
    pub(crate) const fn unknown(detail: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }
}

impl Reply {
    pub(crate) fn error(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        Self::Said(status, json!({ "code": code, "detail": detail }))
    }

    /// The request is not one that this provider understands.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::error(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// The provider failed, as it was told to or by itself.
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
