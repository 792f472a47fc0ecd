//! Tests of several services with the same routes on one database, and of a service that is not a
//! route of axum.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    mem,
    task::{Context, Poll},
};

use axum::{Router, body::Body, response::Response, routing::post};
use hapax::{key::Tenant, store::Keys as _};
use hapax_http::{Idempotency, Settings, Tx};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::stage::{Stage, scope};

#[tokio::test]
async fn services_with_names_of_their_own_have_keys_of_their_own() {
    let stage = Stage::new().await;
    let (billing, shipping) = (
        service(&stage, Some("billing")),
        service(&stage, Some("shipping")),
    );
    for (router, name) in [(&billing, "billing"), (&shipping, "shipping")] {
        for status in ["stored", "replayed"] {
            assert_eq!(send(router).await, (status.to_owned(), name.to_owned()));
        }
    }
    let keys = [
        "billing:POST /orders",
        "shipping:POST /orders",
        "POST /orders",
    ];
    assert_eq!(stored(&stage, keys).await, [true, true, false]);
}

/// A service without a name finds keys that were stored before services had names.
#[tokio::test]
async fn a_service_without_a_name_keeps_its_keys() {
    let stage = Stage::new().await;
    let first = send(&service(&stage, None)).await;
    assert_eq!(first.0, "stored");
    let again = send(&service(&stage, None)).await;
    assert_eq!(again, ("replayed".to_owned(), String::new()));
    let keys = ["POST /orders", ":POST /orders", "billing:POST /orders"];
    assert_eq!(stored(&stage, keys).await, [true, false, false]);
}

#[tokio::test]
#[should_panic(expected = "a service's name is")]
async fn what_is_no_name_is_refused_where_the_service_is_wired() {
    let stage = Stage::new().await;
    drop(service(&stage, Some("no name")));
}

#[tokio::test]
async fn a_request_waits_until_its_copy_of_the_inner_service_is_ready() {
    let stage = Stage::new().await;
    let mut settings = Settings::new(stage.clock.clone(), stage.random.clone());
    settings.tenant = Tenant::new("alice").ok();
    let idempotency = Idempotency::new(stage.store.clone(), settings);
    let strict = Strict { is_ready: false };
    let service = idempotency.operation("/orders").layer(strict);
    for method in [Method::GET, Method::POST] {
        let request = Request::builder().method(method).uri("/orders");
        let request = request.header("idempotency-key", "k").body(Body::empty());
        let response = service.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}

/// A service of which only the copy that has said that it is ready may be called.
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(mem::take(&mut self.is_ready), "it was not asked");
        ready(Ok(Response::default()))
    }
}

/// Creates a service whose handler responds with its name.
fn service(stage: &Stage, name: Option<&'static str>) -> Router {
    let mut settings = Settings::new(stage.clock.clone(), stage.random.clone());
    settings.service = name.map(ToOwned::to_owned);
    settings.tenant = Tenant::new("alice").ok();
    let idempotency = Idempotency::new(stage.store.clone(), settings);
    let response = move |_: Tx<hapax_sqlite::Tx>| async move { name.unwrap_or_default() };
    let layer = idempotency.operation("/orders");
    Router::new().route("/orders", post(response).layer(layer))
}

async fn send(router: &Router) -> (String, String) {
    let request = Request::post("/orders").header("idempotency-key", "k");
    let request = request.body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let status = response.headers()["idempotency-status"].to_str().unwrap();
    let status = status.to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn stored<const N: usize>(stage: &Stage, operations: [&str; N]) -> [bool; N] {
    let mut found = [false; N];
    for (found, operation) in found.iter_mut().zip(operations) {
        let scope = scope("alice", operation, "k");
        *found = stage.store.look_up(&scope).await.unwrap().is_some();
    }
    found
}
