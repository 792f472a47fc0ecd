//! Tokens: compared in constant time, with a role and optionally a tenant.
//!
//! The admin API and the console share this module. The API requires a token with every request,
//! the console once per session. Without tokens, every process on the machine has access.
//! [`is_local`] excludes web pages that use another host name for the address, and proxies on the
//! machine that forward requests of others.

use std::net::IpAddr;

use hapax::admin::Actor;
use hapax::key::Tenant;
use http::{HeaderMap, HeaderName, header};
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

/// Minimum length of a token. A shorter one can be guessed.
const TOKEN_LENGTH_MIN: usize = 16;

/// A role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May read.
    Viewer,
    /// May read and change.
    Operator,
}

/// An actor with its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name for the audit log, and the tenant whose rows are visible.
    pub actor: Actor,
    /// The role.
    pub role: Role,
}

/// A token of the configuration.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// The name of the owner.
    pub name: &'a str,
    /// The token.
    pub token: &'a str,
    /// The role.
    pub role: Role,
    /// The only tenant whose rows are visible.
    pub tenant: Option<&'a str>,
}

/// A token that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadToken {
    /// The name of the owner.
    pub name: String,
    /// The setting that is not valid: `token` or `tenant`.
    pub setting: &'static str,
    /// The error.
    pub problem: String,
}

/// The tokens as hashes.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<KnownToken>);

#[derive(Clone, Debug)]
struct KnownToken {
    hash: [u8; 32],
    caller: Caller,
}

impl std::fmt::Debug for Given<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// Creates the list of tokens.
    ///
    /// # Errors
    /// Fails with the first token that is too short, has two owners, or has a tenant that is not
    /// valid.
    pub fn of<'a>(given: impl IntoIterator<Item = Given<'a>>) -> Result<Self, BadToken> {
        let mut known: Vec<KnownToken> = Vec::new();
        for one in given {
            let hash = hash(one.token.as_bytes());
            let bad = |setting, problem| BadToken {
                name: one.name.to_owned(),
                setting,
                problem,
            };
            if one.token.len() < TOKEN_LENGTH_MIN {
                let problem = format!("has fewer than {TOKEN_LENGTH_MIN} characters");
                return Err(bad("token", problem));
            }
            // Otherwise the actor and the tenant would depend on the order.
            if let Some(same) = known.iter().find(|it| it.hash == hash) {
                let other = &same.caller.actor.name;
                let problem = format!("is also the token of {other}: use different tokens");
                return Err(bad("token", problem));
            }
            let tenant = one.tenant.map(Tenant::new).transpose();
            let tenant = tenant.map_err(|error| bad("tenant", error.to_string()))?;
            let actor = Actor::new(one.name);
            let actor = match tenant {
                Some(tenant) => actor.of(tenant),
                None => actor,
            };
            let role = one.role;
            let caller = Caller { actor, role };
            known.push(KnownToken { hash, caller });
        }
        Ok(Self(known))
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The caller with this token. All tokens are compared completely, so that the duration reveals
    /// nothing about them.
    pub fn find(&self, token: &[u8]) -> Option<&Caller> {
        let asked = hash(token);
        let mut found = None;
        for known in &self.0 {
            if bool::from(known.hash.ct_eq(&asked)) {
                found = Some(&known.caller);
            }
        }
        found
    }
}

impl Caller {
    /// The caller on this machine, if there are no tokens.
    pub fn local() -> Self {
        Self {
            actor: Actor::new("local"),
            role: Role::Operator,
        }
    }
}

/// Whether a request uses a local host name and was not forwarded by a proxy.
pub fn is_local(headers: &HeaderMap) -> bool {
    headers.keys().all(|name| !tells_of_a_proxy(name)) && is_named_locally(headers)
}

fn tells_of_a_proxy(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
}

fn is_named_locally(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_do_not_share_a_token() {
        let of = |one: &str, two: &str| {
            let tokens = [("ann", one), ("bob", two)].map(|(name, token)| Given {
                name,
                token,
                role: Role::Viewer,
                tenant: None,
            });
            Tokens::of(tokens)
        };
        of("0123456789abcdef", "0123456789abcdeg").unwrap();
        let bad = of("0123456789abcdef", "0123456789abcdef").unwrap_err();
        assert_eq!((bad.name.as_str(), bad.setting), ("bob", "token"));
        assert!(!bad.problem.contains("0123"), "{bad:?}");
        assert!(of("0123456789abcdef", "short").is_err());
    }

    #[test]
    fn a_token_is_found_whole_or_not_at_all() {
        let tokens = Tokens::of([Given {
            name: "ann",
            token: "0123456789abcdef",
            role: Role::Operator,
            tenant: Some("acme"),
        }])
        .unwrap();
        let found = tokens.find(b"0123456789abcdef").unwrap();
        assert_eq!(found.actor.name, "ann");
        assert_eq!(found.role, Role::Operator);
        for other in ["", "0123456789abcde", "0123456789abcdefg"] {
            assert_eq!(tokens.find(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn only_names_of_loopback_are_local() {
        let local = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            is_local(&headers)
        };
        let own = [
            "localhost",
            "localhost:9465",
            "127.0.0.1:9465",
            "[::1]:9465",
            "127.0.0.1",
        ];
        assert!(own.into_iter().all(local));
        let others = [
            "evil.example:9465",
            "10.0.0.1",
            "",
            "localhost.evil.example",
            "[::2]:1",
        ];
        assert!(!others.into_iter().any(local));
        assert!(!is_local(&HeaderMap::new()));
    }

    #[test]
    fn what_a_proxy_passes_on_is_not_local() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "127.0.0.1:8080".parse().unwrap());
        assert!(is_local(&headers));
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "X-Forwarded-Proto",
            "x-forwarded-prefix",
            "x-real-ip",
        ] {
            let mut headers = headers.clone();
            let name: HeaderName = name.parse().unwrap();
            headers.insert(&name, "".parse().unwrap());
            assert!(!is_local(&headers), "{name}");
        }
    }
}
