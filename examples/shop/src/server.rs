//! The HTTP/1.1 server of the shop, with its limits.
//!
//! `hapax_console::serve` describes how connections, headers, bodies and responses are bounded. A
//! handler can have its connection closed instead of sending a response.

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body};
use hapax::limits::LISTENER_SHARE;
use hapax_console::serve::{self, Bounds};
use http::{Request, Response};
use tokio::{net::TcpListener, sync::watch};
use tower::ServiceExt;

/// How long a client may take to send its headers, and how long an idle connection stays open.
const HEADERS: Duration = Duration::from_secs(30);
/// How long a client may take to send a body: a mebibyte at 17 KiB/s.
const BODY: Duration = Duration::from_mins(1);

/// An extension of a response; the server then closes the connection instead of sending it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered;

/// Becomes true when the tasks of the shop have to stop.
pub(crate) type Stop = watch::Receiver<bool>;

/// Waits until `stop` is set.
pub(crate) async fn stopped(stop: &mut Stop) {
    // The sender is dropped only when the process ends, which is also a reason to stop.
    let _said = stop.wait_for(|stop| *stop).await;
}

/// Returns the limits for clients of the shop.
pub(crate) fn bounds() -> Bounds {
    let mut bounds = Bounds::sharing(serve::descriptors(), LISTENER_SHARE);
    (bounds.head, bounds.body) = (HEADERS, BODY);
    bounds
}

/// Serves `router` on `listener` until `stop` is set.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: Stop) {
    let service = ServiceExt::<Request<Body>>::map_result(router, answer);
    serve::serve(listener, service, bounds(), stop).await;
}

fn answer(answered: Result<Response<Body>, Infallible>) -> Result<Response<Body>, NoResponse> {
    let response = answered?;
    if response.extensions().get::<Unanswered>().is_some() {
        return Err(NoResponse);
    }
    Ok(response)
}

#[derive(Debug, thiserror::Error)]
#[error("the response was withheld on purpose")]
struct NoResponse;

impl From<Infallible> for NoResponse {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
