//! Authentication by bearer tokens, each of which belongs to a tenant.
//!
//! The table contains only the SHA-256 of each token. A look-up therefore takes the same time
//! however many characters of a wrong token are right, and a memory dump does not reveal tokens.
//! The layer is a service and not a function (`axum::middleware::from_fn`), which would box the
//! route and two futures for every request.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};
use futures_util::future::Either;
use hapax::key::Tenant;
use hapax_http::problem::{self, Problem};
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tower::{Layer, Service};

/// The configured tokens, by their hash. As a layer, they add the tenant to a request with a known
/// token, and refuse other requests with 401.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(Arc<HashMap<[u8; 32], Tenant>>);

impl Tokens {
    pub(crate) fn new(tokens: &[(SecretString, Tenant)]) -> Self {
        let hashed = |(token, tenant): &(SecretString, Tenant)| {
            (Sha256::digest(token.expose_secret()).into(), tenant.clone())
        };
        Self(Arc::new(tokens.iter().map(hashed).collect()))
    }

    fn tenant(&self, headers: &HeaderMap) -> Result<Tenant, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Err(refuse(
                problem::AUTH_MISSING,
                "send Authorization: Bearer <token>",
            ));
        };
        let mut known = || {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            let alone = values.next().is_none() && scheme.eq_ignore_ascii_case("bearer");
            let digest: [u8; 32] = Sha256::digest(token.trim_start_matches(' ')).into();
            self.0.get(&digest).filter(|_| alone).cloned()
        };
        known().ok_or_else(|| refuse(problem::AUTH_INVALID, "the bearer token is unknown"))
    }
}

impl<S> Layer<S> for Tokens {
    type Service = Authenticated<S>;

    fn layer(&self, inner: S) -> Authenticated<S> {
        let tokens = self.clone();
        Authenticated { inner, tokens }
    }
}

/// A service whose requests have a tenant.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated<S> {
    inner: S,
    tokens: Tokens,
}

impl<S> Service<Request> for Authenticated<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        match self.tokens.tenant(request.headers()) {
            Ok(tenant) => {
                request.extensions_mut().insert(tenant);
                Either::Left(self.inner.call(request))
            }
            Err(problem) => Either::Right(ready(Ok(problem.into_response()))),
        }
    }
}

fn refuse(code: problem::Code, detail: &'static str) -> Problem {
    let challenge = HeaderValue::from_static("Bearer");
    Problem::new(code)
        .detail(detail)
        .header(header::WWW_AUTHENTICATE, challenge)
}
