//! Handlers: who asks, and where the request goes.
//!
//! Operations go to `protected`, which keeps the promise of the key. Lists and the health check are
//! answered here.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    bugs::Bug,
    http::{Head, Request},
    orders::Order,
    prepare,
    profile::{Profile, Rules},
    protected,
    response::Response,
    route::{Kind, Route},
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

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) name: &'static str,
    /// The credential, of which a principal has two.
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
    fn of(head: &Head) -> Option<Self> {
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

/// The reply to a request.
pub(crate) async fn handle(node: Arc<Node>, request: Request) -> Reply {
    let operation = match Route::of(&request.head.method, &request.head.path) {
        Route::Operation(operation) => operation,
        Route::Health => {
            let response = Response::new(200).header("Content-Type", "text/plain");
            return Reply::of(response.with_body("ok\n"));
        }
        Route::List(kind) => return Reply::of(list(&node, &request.head, kind)),
        Route::WrongMethod => {
            let detail = "the path has no such method";
            return Reply::of(Response::problem(405, "VALIDATION.method", detail));
        }
        Route::Unknown => {
            let detail = "there is no such path";
            return Reply::of(Response::problem(404, "NOT_FOUND.path", detail));
        }
    };
    let Some(principal) = Principal::of(&request.head) else {
        return Reply::of(unauthorized());
    };
    protected::run(&node, &operation, &principal, &request).await
}

/// Leaves the key of a request in progress, as [`Bug::CutBodyPoisonsKey`] does.
pub(crate) fn poison(node: &Node, request: &Request) {
    let head = &request.head;
    let Route::Operation(operation) = Route::of(&head.method, &head.path) else {
        return;
    };
    let Some(principal) = Principal::of(head) else {
        return;
    };
    if let Ok(Some(key)) = prepare::key_of(node, head) {
        let scope = prepare::scope(node, &operation, &principal, head, key);
        node.store.poison(&scope, node.number);
    }
}

/// The effects of the principal, as a JSON array.
fn list(node: &Node, head: &Head, kind: Option<Kind>) -> Response {
    let Some(principal) = Principal::of(head) else {
        return unauthorized();
    };
    let orders = node.store.orders(principal.name, kind);
    let listed: Vec<Value> = orders.iter().map(Order::listed).collect();
    Response::new(200)
        .header("Content-Type", "application/json")
        .with_body(Value::Array(listed).to_string())
}

fn unauthorized() -> Response {
    let detail =
        "expected the header Authorization: Bearer alice, alice-rotated, bob or bob-rotated";
    Response::problem(401, "AUTH.unauthenticated", detail).header("WWW-Authenticate", "Bearer")
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
    fn another_token_is_nobody() {
        for headers in [
            "a: b",
            "Authorization: alice",
            "Authorization: Bearer carol",
        ] {
            assert_eq!(principal(headers), None, "{headers}");
        }
    }
}
