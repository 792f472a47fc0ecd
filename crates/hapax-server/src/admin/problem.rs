//! Errors as `application/problem+json`, with stable codes.

use axum::{
    Json,
    extract::{
        FromRequest, FromRequestParts, Request,
        rejection::{BytesRejection, JsonRejection},
    },
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use hapax::{admin::AdminError, store::StoreError};
use serde::{Serialize, de::DeserializeOwned};
use utoipa::ToSchema;

/// An error response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// A URI that identifies the kind of problem.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: Box<str>,
    /// The kind of problem in words.
    #[schema(value_type = String)]
    title: &'static str,
    /// The status of the response.
    pub(super) status: u16,
    /// What is wrong with this request.
    detail: String,
    /// A stable code for programs.
    #[schema(value_type = String)]
    code: &'static str,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// The member of the request that is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
}

impl Problem {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind: format!("https://hapax.dev/problems/{code}").into(),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            code,
            retryable: status == StatusCode::SERVICE_UNAVAILABLE,
            member: None,
        }
    }

    pub(super) fn member(member: impl Into<String>, problem: &str) -> Self {
        let member = member.into();
        let detail = format!("{member} {problem}");
        Self {
            member: Some(member),
            ..Self::new(
                StatusCode::BAD_REQUEST,
                "VALIDATION.member",
                "A member is not valid",
                detail,
            )
        }
    }

    fn request(detail: impl Into<String>) -> Self {
        let title = "The request is not valid";
        Self::new(StatusCode::BAD_REQUEST, "VALIDATION.request", title, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "Not found", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, Json(self)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::NotFound { what } => Self::not_found(format!("there is no {what}")),
            AdminError::Conflict { what } => {
                let title = "Conflict with another change or with the current state";
                Self::new(StatusCode::CONFLICT, "CONFLICT.state", title, what)
            }
            AdminError::Invalid { field, problem } => Self::member(field, &problem),
            AdminError::Busy => {
                let title = "The store is unavailable";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "UNAVAILABLE.store", title, error.to_string())
            }
            AdminError::Store(error) => Self::from(error),
            other => {
                tracing::error!(error = %other, "an operation failed");
                let title = "Internal error";
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "INTERNAL", title, "see the log")
            }
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = error.error_chain(), "the store failed");
        match error {
            StoreError::Unavailable { .. } | StoreError::TimedOut | StoreError::Conflict { .. } => {
                let title = "The store is unavailable";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "UNAVAILABLE.store", title, "try again later")
            }
            _ => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "INTERNAL", "Internal error", "see the log")
            }
        }
    }
}

/// Extractor of a JSON body. Errors become problems.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => Err(rejected(&rejection)),
        }
    }
}

fn rejected(rejection: &JsonRejection) -> Problem {
    match rejection {
        JsonRejection::MissingJsonContentType(_) => Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "VALIDATION.content_type",
            "The body is not JSON",
            "send application/json",
        ),
        JsonRejection::BytesRejection(BytesRejection::FailedToBufferBody(_)) => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "VALIDATION.body.too_large",
            "The body is too large or broke off",
            "send at most 64 KiB",
        ),
        other => Problem::request(other.body_text()),
    }
}

/// Extractor of the query string. Unknown parameters become problems.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let read = read.map_err(|rejection| Problem::request(rejection.body_text()))?;
        Ok(Self(read.0))
    }
}

/// Extractor of the path parameters.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let read = read.map_err(|_| Problem::not_found("there is nothing at this path"))?;
        Ok(Self(read.0))
    }
}

pub(super) async fn no_route() -> Problem {
    Problem::not_found("there is no such route: see /admin/v1/openapi.json")
}

pub(super) async fn no_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "VALIDATION.method",
        "The route has no such method",
        "see /admin/v1/openapi.json",
    )
}
