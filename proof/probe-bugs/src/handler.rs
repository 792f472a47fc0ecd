//! Handlers: where a request goes.
//!
//! Operations go to `protected`, which keeps the promise of the key. Lists and the health check
//! have their responses here.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    http::{Head, Request},
    node::{Node, Principal, Reply},
    orders::Order,
    prepare, protected,
    response::Response,
    route::{Kind, Route},
};

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

/// Leaves the key of a request in progress, as the bug `cut-body-poisons-key` does.
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
