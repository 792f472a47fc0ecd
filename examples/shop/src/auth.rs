//! Authentication by bearer tokens, each of which belongs to a tenant.
//!
//! The table contains only the SHA-256 of each token. A look-up therefore takes the same time
//! however many characters of a wrong token are right, and a memory dump does not reveal tokens.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use hapax::key::Tenant;
use hapax_http::problem::{self, Problem};
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// The configured tokens, by their hash.
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

/// Adds the tenant to a request with a known token; refuses other requests with 401.
pub(crate) async fn authenticate(
    State(tokens): State<Tokens>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let tenant = tokens.tenant(request.headers())?;
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}

fn refuse(code: problem::Code, detail: &'static str) -> Problem {
    let challenge = HeaderValue::from_static("Bearer");
    Problem::new(code)
        .detail(detail)
        .header(header::WWW_AUTHENTICATE, challenge)
}
