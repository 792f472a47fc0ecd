//! A node, the principals that it knows, and the reply to a request.
//!
//! Both nodes have the same rules and the same store. They differ only in their number, which some
//! of the bugs look at.

use std::sync::Arc;

use crate::{
    bugs::Bug,
    http::Head,
    profile::{Profile, Rules},
    response::Response,
    store::{Row, Store},
};

/// One of the two nodes.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) profile: Profile,
    pub(crate) rules: Rules,
    pub(crate) bug: Option<Bug>,
    pub(crate) store: Arc<Store>,
}

/// A response, and what is to be stored when it was written.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) response: Response,
    /// Only with [`Bug::LostResponseReexecutes`].
    pub(crate) unsaved: Option<Row>,
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) name: &'static str,
    /// The credential; a principal has two.
    pub(crate) token: String,
}

impl Reply {
    /// A reply with nothing left to store.
    pub(crate) fn of(response: Response) -> Self {
        Self {
            response,
            unsaved: None,
        }
    }
}

impl Principal {
    /// The principal of a bearer token; `None` without a valid one.
    pub(crate) fn of(head: &Head) -> Option<Self> {
        let values = head.values("authorization");
        let [value] = values.as_slice() else {
            return None;
        };
        let token = std::str::from_utf8(value).ok()?.strip_prefix("Bearer ")?;
        let name = match token {
            "alice" | "alice-rotated" => "alice",
            "bob" | "bob-rotated" => "bob",
            _ => return None,
        };
        Some(Self {
            name,
            token: token.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(headers: &str) -> Option<Principal> {
        let head = Head::parse(format!("GET /orders HTTP/1.1\r\n{headers}").as_bytes());
        Principal::of(&head.expect("a head"))
    }

    #[test]
    fn a_principal_has_two_tokens() {
        let first = principal("Authorization: Bearer alice").expect("a principal");
        let second = principal("Authorization: Bearer alice-rotated").expect("a principal");
        assert_eq!(first.name, second.name);
        assert_ne!(first.token, second.token);
        let bob = principal("authorization: Bearer bob").expect("a principal");
        assert_eq!(bob.name, "bob");
    }

    #[test]
    fn another_token_has_no_principal() {
        for headers in [
            "a: b",
            "Authorization: alice",
            "Authorization: Bearer carol",
        ] {
            assert_eq!(principal(headers), None, "{headers}");
        }
    }
}
