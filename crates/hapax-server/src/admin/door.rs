//! Who may come in: bearer tokens, compared in constant time, with a role and perhaps a tenant.
//!
//! Without tokens everybody on the machine may; a page in a browser on it may not, whatever name
//! it has given the address.

use std::{collections::BTreeMap, net::IpAddr};

use axum::{
    extract::{Extension, FromRequestParts, Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hapax::key::Tenant;
use hapax_postgres::operate::Actor;
use ring::digest::{SHA256, digest};
use secrecy::ExposeSecret as _;
use subtle::ConstantTimeEq as _;

use super::{Admin, problem::Problem};
use crate::config::{Role, Token, Wrong};

/// Letters of a token: fewer can be guessed.
const TOKEN_LENGTH_MIN: usize = 16;

/// The tokens, as their hashes.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Known>);

#[derive(Debug)]
struct Known {
    hash: [u8; 32],
    role: Role,
    actor: Actor,
}

/// Who asks, in which role.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) actor: Actor,
    pub(super) role: Role,
}

impl Tokens {
    pub(super) fn of(tokens: &BTreeMap<String, Token>) -> Result<Self, Wrong> {
        let known = tokens.iter().map(|(name, token)| {
            let path = |setting: &str| format!("admin.tokens.{name}.{setting}");
            let text = token.token.reveal();
            let text = text.map_err(|bad| Wrong::at(path("token"), bad))?;
            if text.expose_secret().len() < TOKEN_LENGTH_MIN {
                let problem = format!("has fewer than {TOKEN_LENGTH_MIN} letters");
                return Err(Wrong::at(path("token"), problem));
            }
            let tenant = token.tenant.clone().map(Tenant::new).transpose();
            let tenant = tenant.map_err(|bad| Wrong::at(path("tenant"), bad.to_string()))?;
            Ok(Known {
                hash: hash(text.expose_secret().as_bytes()),
                role: token.role,
                actor: Actor {
                    name: name.clone(),
                    tenant,
                },
            })
        });
        let known: Vec<Known> = known.collect::<Result<_, _>>()?;
        for (place, one) in known.iter().enumerate() {
            // Who acted, and for which tenant, would be whichever comes last.
            if let Some(same) = known[..place].iter().find(|it| it.hash == one.hash) {
                let path = format!("admin.tokens.{}.token", one.actor.name);
                let problem = format!("is that of {} too: give each its own", same.actor.name);
                return Err(Wrong::at(path, problem));
            }
        }
        Ok(Self(known))
    }

    /// Whose token this is. All are compared, and each to its end: how long that takes tells
    /// nothing about any of them.
    fn find(&self, token: &[u8]) -> Option<&Known> {
        let asked = hash(token);
        let mut found = None;
        for known in &self.0 {
            if bool::from(known.hash.ct_eq(&asked)) {
                found = Some(known);
            }
        }
        found
    }
}

/// Lets in whoever may do this, and nobody else.
pub(super) async fn pass(State(admin): State<Admin>, mut request: Request, next: Next) -> Response {
    match caller(&admin.0.tokens, request.method(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            let mut response = next.run(request).await;
            let headers = response.headers_mut();
            headers.insert(
                header::CACHE_CONTROL,
                header::HeaderValue::from_static("no-store"),
            );
            headers.insert(
                header::X_CONTENT_TYPE_OPTIONS,
                header::HeaderValue::from_static("nosniff"),
            );
            response
        }
        Err(problem) => {
            let unknown = problem.status == StatusCode::UNAUTHORIZED;
            let mut response = problem.into_response();
            if unknown {
                let scheme = header::HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, scheme);
            }
            response
        }
    }
}

fn caller(tokens: &Tokens, method: &Method, headers: &HeaderMap) -> Result<Caller, Problem> {
    let caller = if tokens.0.is_empty() {
        check_local(headers)?;
        Caller {
            actor: Actor::new("local"),
            role: Role::Operator,
        }
    } else {
        let known = bearer(headers).and_then(|token| tokens.find(token));
        let known = known.ok_or_else(|| {
            let title = "The token is missing or unknown";
            let detail = "send Authorization: Bearer and a token of [admin.tokens]";
            Problem::new(StatusCode::UNAUTHORIZED, "AUTH.invalid", title, detail)
        })?;
        Caller {
            actor: known.actor.clone(),
            role: known.role,
        }
    };
    let acts = !matches!(*method, Method::GET | Method::HEAD);
    if acts && caller.role != Role::Operator {
        tracing::warn!(actor = caller.actor.name, "a viewer wanted to act");
        return Err(forbidden("a viewer sees and does not act"));
    }
    Ok(caller)
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// A page of a browser says where it comes from, or calls this machine by a name of its own.
fn check_local(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::ORIGIN) {
        return Err(forbidden("without tokens no page of a browser may ask"));
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let name = host.unwrap_or_default();
    let name = name.rsplit_once(':').map_or(name, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) {
            name
        } else {
            host.unwrap_or_default()
        }
    });
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_local = name == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if is_local {
        Ok(())
    } else {
        Err(forbidden("without tokens only localhost is answered"))
    }
}

fn forbidden(detail: &str) -> Problem {
    let title = "That is not allowed";
    Problem::new(StatusCode::FORBIDDEN, "AUTH.forbidden", title, detail)
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

impl FromRequestParts<Admin> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Problem> {
        let caller = Extension::<Self>::from_request_parts(parts, admin).await;
        caller
            .map(|it| it.0)
            .map_err(|_| forbidden("nobody let this request in"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_do_not_share_a_token() {
        let token = |text: &str| Token {
            token: crate::config::Secret::text(text),
            role: Role::Viewer,
            tenant: None,
        };
        let of = |one: &str, two: &str| {
            let tokens = [("ann", one), ("bob", two)];
            let tokens = tokens.map(|(name, text)| (name.to_owned(), token(text)));
            Tokens::of(&BTreeMap::from(tokens))
        };
        of("0123456789abcdef", "0123456789abcdeg").unwrap();
        let wrong = of("0123456789abcdef", "0123456789abcdef").unwrap_err();
        assert_eq!(wrong.path(), "admin.tokens.bob.token");
        assert!(!wrong.problem().contains("0123"), "{wrong}");
    }

    #[test]
    fn without_tokens_a_page_of_a_browser_is_not_let_in() {
        let tokens = Tokens(Vec::new());
        let ask = |name: &'static str, value: &'static str, host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            caller(&tokens, &Method::POST, &headers).is_ok()
        };
        for host in [
            "localhost",
            "localhost:9465",
            "127.0.0.1:9465",
            "[::1]:9465",
            "127.0.0.1",
        ] {
            assert!(ask("x-a", "b", host), "{host}");
            assert!(!ask("origin", "http://evil.example", host), "{host}");
        }
        for host in [
            "evil.example:9465",
            "10.0.0.1",
            "",
            "localhost.evil.example",
            "[::2]:1",
        ] {
            assert!(!ask("x-a", "b", host), "{host}");
        }
    }
}
