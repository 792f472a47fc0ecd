//! Extractors for path and query parameters.

use axum::extract::{FromRequestParts, Path as AxumPath, Query as AxumQuery};
use http::{Uri, request::Parts};
use serde::de::DeserializeOwned;

use super::json::member;
use crate::problem::{Problem, REQUEST_INVALID};

/// The query parameters. A query that does not fit `T` is refused with 400, which names the
/// parameter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read_query(&parts.uri).map(Self)
    }
}

/// The path parameters. A path that does not fit `T` is refused with 404, because no such resource
/// exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match AxumPath::<T>::from_request_parts(parts, state).await {
            Ok(AxumPath(value)) => Ok(Self(value)),
            Err(rejection) if rejection.status().is_server_error() => {
                Err(Problem::internal(rejection))
            }
            Err(_) if parts.uri.path().contains('%') => Err(Problem::new(REQUEST_INVALID)
                .detail("the path is not valid: expected escapes of UTF-8")),
            Err(_) => Err(Problem::not_found()),
        }
    }
}

/// Deserializes the query of `uri`.
pub(crate) fn read_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    match AxumQuery::try_from_uri(uri) {
        Ok(AxumQuery(value)) => Ok(value),
        Err(rejection) => {
            let text = rejection.body_text();
            let text = text.trim_start_matches("Failed to deserialize query string: ");
            let (path, said) = text.split_once(": ").unwrap_or(("", text));
            Err(Problem::invalid(member(path, said), text.to_owned()))
        }
    }
}
