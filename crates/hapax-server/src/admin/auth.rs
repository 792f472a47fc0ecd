//! Authentication: a bearer token with every request.
//!
//! Without configured tokens every process on the same machine is allowed. Web pages in a browser
//! on it are not, with any host name for the address, and neither are requests through a
//! proxy on it. Roles and tenants of tokens are defined in `hapax_console`, which uses the same
//! tokens.

use std::collections::BTreeMap;

use axum::{
    extract::{Extension, FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, Method, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hapax::admin::Actor;
use hapax_console::{Given, Role, Tokens, is_local};
use hapax_http::{
    Problem,
    problem::{AUTH_FORBIDDEN, AUTH_INVALID},
};
use secrecy::ExposeSecret as _;

use super::AdminApi;
use crate::config::{self, Token, Wrong};

/// The authenticated caller.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) actor: Actor,
}

/// The tokens of the configuration, parsed.
pub(crate) fn tokens(tokens: &BTreeMap<String, Token>) -> Result<Tokens, Wrong> {
    let path = |name: &str, setting: &str| format!("admin.tokens.{name}.{setting}");
    let mut revealed = Vec::new();
    for (name, token) in tokens {
        let text = token.token.reveal();
        let text = text.map_err(|bad| Wrong::at(path(name, "token"), bad))?;
        revealed.push((name, token, text));
    }
    let given = revealed.iter().map(|(name, token, text)| Given {
        name,
        token: text.expose_secret(),
        role: match token.role {
            config::Role::Viewer => Role::Viewer,
            config::Role::Operator => Role::Operator,
        },
        tenant: token.tenant.as_deref(),
    });
    Tokens::of(given).map_err(|bad| Wrong::at(path(&bad.name, bad.setting), bad.problem))
}

/// Middleware that refuses requests without a valid token or a sufficient role.
pub(super) async fn pass(
    State(admin): State<AdminApi>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller(&admin.0.tokens, request.method(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            let mut response = next.run(request).await;
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.insert(
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            );
            response
        }
        Err(problem) => problem.into_response(),
    }
}

fn caller(tokens: &Tokens, method: &Method, headers: &HeaderMap) -> Result<Caller, Problem> {
    let caller = if tokens.is_empty() {
        check_local(headers)?;
        hapax_console::Caller::local()
    } else {
        let known = bearer(headers).and_then(|token| tokens.find(token));
        let known = known.ok_or_else(|| {
            let scheme = HeaderValue::from_static("Bearer");
            Problem::new(AUTH_INVALID)
                .detail("send Authorization: Bearer and a token of [admin.tokens]")
                .header(header::WWW_AUTHENTICATE, scheme)
        })?;
        known.clone()
    };
    let acts = !matches!(*method, Method::GET | Method::HEAD);
    if acts && caller.role != Role::Operator {
        tracing::warn!(
            actor = caller.actor.name,
            "a viewer tried to change something"
        );
        return Err(forbidden("a viewer has read access only"));
    }
    let actor = caller.actor;
    Ok(Caller { actor })
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Refuses requests from web pages: they send an `Origin`, or a host name that is not local.
fn check_local(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::ORIGIN) {
        return Err(forbidden(
            "without tokens, requests from web pages are refused",
        ));
    }
    if is_local(headers) {
        return Ok(());
    }
    let detail = "without tokens, only direct requests from localhost are allowed";
    Err(forbidden(detail))
}

fn forbidden(detail: &'static str) -> Problem {
    Problem::new(AUTH_FORBIDDEN).detail(detail)
}

impl FromRequestParts<AdminApi> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &AdminApi) -> Result<Self, Problem> {
        let caller = Extension::<Self>::from_request_parts(parts, admin).await;
        caller
            .map(|it| it.0)
            .map_err(|_| forbidden("the request was not authenticated"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_can_never_work_is_named_by_its_setting() {
        let token = |text: &str| Token {
            token: config::Secret::from(text),
            role: config::Role::Viewer,
            tenant: None,
        };
        let of = |one: &str, two: &str| {
            let given = [("ann", one), ("bob", two)];
            let given = given.map(|(name, text)| (name.to_owned(), token(text)));
            tokens(&BTreeMap::from(given))
        };
        of("0123456789abcdef", "0123456789abcdeg").unwrap();
        let wrong = of("0123456789abcdef", "0123456789abcdef").unwrap_err();
        assert_eq!(wrong.path(), "admin.tokens.bob.token");
        assert!(!wrong.problem().contains("0123"), "{wrong}");
    }

    #[test]
    fn without_tokens_a_page_of_a_browser_is_not_let_in() {
        let none = Tokens::default();
        let ask = |name: &'static str, value: &'static str, host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            caller(&none, &Method::POST, &headers).is_ok()
        };
        assert!(ask("x-a", "b", "localhost:9465"));
        assert!(!ask("origin", "http://evil.example", "localhost:9465"));
        assert!(!ask("x-a", "b", "evil.example:9465"));
        assert!(!ask("x-forwarded-for", "10.0.0.1", "localhost:9465"));
    }
}
