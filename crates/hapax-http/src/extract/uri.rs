//! Path and query parameters into types.

use axum::extract::{FromRequestParts, Path as AxumPath, Query as AxumQuery};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::{Problem, REQUEST_INVALID};

/// The query, as a type; what does not fit is 400.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match AxumQuery::<T>::try_from_uri(&parts.uri) {
            Ok(AxumQuery(value)) => Ok(Self(value)),
            Err(rejection) => {
                let text = rejection.body_text();
                let text = text.trim_start_matches("Failed to deserialize query string: ");
                Err(Problem::invalid("query", text.to_owned()))
            }
        }
    }
}

/// The path's parameters, as a type; what does not fit is 404, for nothing stands there.
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
            Err(_) if parts.uri.path().contains('%') => {
                Err(Problem::new(REQUEST_INVALID).detail("the path is not valid"))
            }
            Err(_) => Err(Problem::not_found()),
        }
    }
}
