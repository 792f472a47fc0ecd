//! Serves HTTP/1.1 on a listener until it is told to stop, within the shop's bounds.
//!
//! How connections, heads, bodies and answers are bounded stands in `hapax_console::serve`. A
//! handler can have its connection closed in place of an answer.

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body};
use hapax::limits::LISTENER_SHARE;
use hapax_console::serve::{self, Bounds};
use http::{Request, Response};
use tokio::{net::TcpListener, sync::watch};
use tower::ServiceExt;

/// How long a client may take over its headers, and an idle connection stays.
const HEADERS: Duration = Duration::from_secs(30);
/// How long a client may take over a body: a mebibyte at 17 KiB/s.
const BODY: Duration = Duration::from_mins(1);

/// Put into a response's extensions, closes the connection instead of answering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered;

/// Told to everybody who has to stop.
pub(crate) type Stop = watch::Receiver<bool>;

/// Waits until everybody has to stop.
pub(crate) async fn stopped(stop: &mut Stop) {
    // Who would say so is gone only when the process ends: that is a reason to stop, too.
    let _said = stop.wait_for(|stop| *stop).await;
}

/// What a client of the shop may take.
pub(crate) fn bounds() -> Bounds {
    let mut bounds = Bounds::sharing(serve::descriptors(), LISTENER_SHARE);
    (bounds.head, bounds.body) = (HEADERS, BODY);
    bounds
}

/// Serves `router` on `listener` until `stop` says so.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: Stop) {
    let service = ServiceExt::<Request<Body>>::map_result(router, answer);
    serve::serve(listener, service, bounds(), stop).await;
}

fn answer(answered: Result<Response<Body>, Infallible>) -> Result<Response<Body>, NoAnswer> {
    let response = answered?;
    if response.extensions().get::<Unanswered>().is_some() {
        return Err(NoAnswer);
    }
    Ok(response)
}

#[derive(Debug, thiserror::Error)]
#[error("the answer was lost on purpose")]
struct NoAnswer;

impl From<Infallible> for NoAnswer {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
