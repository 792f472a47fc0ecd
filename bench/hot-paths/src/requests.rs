//! Paths of a request: a constant response, a replay from the cache, a first write.
//!
//! The router is called as hyper calls it. Building the request is part of each figure.

use std::path::Path;

use anyhow::ensure;
use axum::{Router, body::Body, extract::Request};
use hapax::limits::PURGES_FRESH;
use hapax_http::header::{IDEMPOTENCY_KEY, IDEMPOTENCY_STATUS};
use http::{HeaderValue, Method, StatusCode, Uri, header::CONTENT_TYPE};
use tokio::time::{advance, pause};
use tower::ServiceExt as _;

use crate::{service, sources::spread};

/// An order as small as that of a usual shop.
pub(crate) const SHORT: &str =
    r#"{"customer_id":"cus_bench","amount":1299,"currency":"EUR","note":"two mugs, blue"}"#;
/// A body of 500 bytes whose members have to be sorted for the fingerprint, on two levels.
pub(crate) const LONG: &str = concat!(
    r#"{"note":"two mugs, blue, and a teapot; ring twice, the bell is on the left of the door today","#,
    r#""items":[{"sku":"MUG-BLUE","quantity":2,"price":649},"#,
    r#"{"sku":"TEAPOT-GREEN","quantity":1,"price":2450}],"#,
    r#""customer_id":"cus_bench","amount":3748,"currency":"EUR","#,
    r#""address":{"street":"Via Garibaldi 12","city":"Torino","postal_code":"10122","country":"IT"},"#,
    r#""metadata":{"channel":"web","campaign":"autumn","session":"6f1ed002ab5595859014ebf0951522d9"},"#,
    r#""contact":{"name":"Ada Example","email":"ada@example.com"}}"#,
);
/// First writes that are not counted: they start threads and prepare statements.
const WARM_UP: u32 = 20;

/// Requests to a service that only responds.
pub(crate) async fn constant(count: u32) -> anyhow::Result<()> {
    let router = service::constant();
    let key = key(0)?;
    for _ in 0..count {
        send(&router, &key, SHORT, None).await?;
    }
    Ok(())
}

/// Replays from the cache.
pub(crate) async fn replays(folder: &Path, body: &'static str, count: u32) -> anyhow::Result<()> {
    let router = service::orders(service::open(folder).await?)?;
    let key = key(0)?;
    send(&router, &key, body, Some("stored")).await?;
    // After a while, a replay reads which keys were purged. The first one of the loop does so, and
    // then the time stands still: otherwise a slow machine would read them more often.
    pause();
    advance(PURGES_FRESH * 2).await;
    for _ in 0..count {
        send(&router, &key, body, Some("replayed")).await?;
    }
    Ok(())
}

/// First writes, each with its own commit.
pub(crate) async fn first_writes(folder: &Path, count: u32) -> anyhow::Result<()> {
    let router = service::orders(service::open(folder).await?)?;
    for number in 0..WARM_UP + count {
        send(&router, &key(number)?, SHORT, Some("stored")).await?;
    }
    Ok(())
}

/// The key of a request. Keys are spread, as those of clients are.
fn key(number: u32) -> anyhow::Result<HeaderValue> {
    let key = format!("order-{:016x}", spread(number.into()));
    Ok(HeaderValue::try_from(key)?)
}

/// Sends one request, and checks the status and where the response comes from.
async fn send(
    router: &Router,
    key: &HeaderValue,
    body: &'static str,
    expected: Option<&str>,
) -> anyhow::Result<()> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/orders");
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(IDEMPOTENCY_KEY, key.clone());
    let Ok(response) = router.clone().oneshot(request).await;
    let status = response.status();
    let origin = response.headers().get(IDEMPOTENCY_STATUS);
    let origin = origin.and_then(|origin| origin.to_str().ok());
    ensure!(
        status == StatusCode::CREATED && origin == expected,
        "expected status 201 and {expected:?}, got {status} and {origin:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_body_has_500_bytes() {
        assert_eq!(LONG.len(), 500);
        assert!(serde_json::from_str::<serde_json::Value>(LONG).is_ok());
    }

    #[tokio::test]
    async fn a_response_that_is_not_the_expected_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let router = service::orders(service::open(folder.path()).await.unwrap()).unwrap();
        let key = key(0).unwrap();
        assert!(send(&router, &key, SHORT, Some("replayed")).await.is_err());
        assert!(send(&router, &key, SHORT, Some("replayed")).await.is_ok());
        assert!(send(&router, &key, LONG, Some("replayed")).await.is_err());
    }
}
