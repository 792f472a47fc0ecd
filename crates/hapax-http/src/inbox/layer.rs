//! Tower service of the inbox: from a request to a verified message.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Bytes,
    extract::{FromRequestParts, RawPathParams, Request},
    response::Response,
};
use hapax::{
    event::Headers,
    request_log::Line,
    signature::{ID_HEADER, Received, SIGNATURE_HEADER, TIMESTAMP_HEADER, Verifier, verify},
    store::Keys,
};
use http::request::Parts;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument as _;

use super::{Inbox, WebhookLayer, accept};
use crate::{
    body::{self, Bounds, Kept},
    problem::{self, AUTH_SIGNATURE, BODY_TOO_LARGE, Code, NOT_FOUND, Problem},
    profile::FingerprintMode,
    request::{Inner, Run, apart},
    request_id::RequestId,
    settings::until,
    trace,
};

impl<K: Keys, S> Layer<S> for WebhookLayer<K>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    type Service = Verified<K>;

    fn layer(&self, inner: S) -> Verified<K> {
        let inbox = Arc::clone(&self.0);
        Verified {
            inner: Inner::new(inner),
            inbox,
        }
    }
}

/// A service whose requests are verified messages, each processed once.
#[derive(Clone)]
pub struct Verified<K: Keys> {
    inner: Inner,
    inbox: Arc<Inbox<K>>,
}

impl<K: Keys> Service<Request> for Verified<K> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    /// Is always ready. A request waits until its own copy of the inner service is.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let inner = self.inner.clone();
        let inbox = Arc::clone(&self.inbox);
        Box::pin(async move { Ok(take(inbox, inner, request).await) })
    }
}

impl<K: Keys> fmt::Debug for Verified<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verified")
    }
}

async fn take<K: Keys>(inbox: Arc<Inbox<K>>, inner: Inner, request: Request) -> Response {
    let arrived = Instant::now();
    let (mut parts, body) = request.into_parts();
    let placed = parts.extensions.get::<RequestId>().cloned();
    let id = placed.unwrap_or_else(|| RequestId::mint(&inbox.random));
    let bounds = Bounds {
        max: inbox.body_max,
        json_max: inbox.body_max,
    };
    let read = async {
        let (source, keys) = inbox.known_source(&mut parts).await?;
        let mode = FingerprintMode::default();
        let (kept, _) = body::read(body, &parts.headers, bounds, mode, &inbox.room).await?;
        let id = inbox.verified(&parts, &kept, &keys)?;
        let body = whole(&kept)?;
        let dedupe = &inbox.dedupe;
        let message = dedupe.message(&inbox.consumer, &source, &id, body, &inbox.room);
        let message = message.await?;
        Ok((kept, message))
    };
    let (kept, message) = match read.await {
        Ok(read) => read,
        Err(problem) => {
            let response = problem::write_out(&problem, &id);
            let refused = Line {
                consumer: Some(&inbox.consumer),
                outcome: "refused",
                ..Line::default()
            };
            inbox.write_line(refused, &response, &id, arrived);
            return response;
        }
    };
    parts.extensions.insert(message.clone());
    // The trace context is used only after verification, because before that the sender is unknown.
    let place = trace::place(&inbox.traces, &parts);
    let span = trace::message_span(
        &message.consumer,
        &message.source,
        &message.message_id,
        &place,
    );
    let mut context = Headers::from([("correlation_id".to_owned(), id.as_str().to_owned())]);
    trace::write_context(&mut context, &parts, Some(&place));
    let run = Run {
        inner,
        parts,
        kept,
        id: id.clone(),
        end: until(Instant::now(), inbox.handler_max),
    };
    let accepting = Box::pin(accept::accept(inbox, message, context, run, arrived));
    let response = apart(id, accepting).instrument(span.clone()).await;
    trace::answered(&span, &response);
    response
}

impl<K> Inbox<K> {
    /// Writes the line of a message that was answered with this response.
    pub(super) fn write_line(
        &self,
        line: Line<'_>,
        response: &Response,
        id: &RequestId,
        arrived: Instant,
    ) {
        let code = response.extensions().get::<Code>();
        self.log.write(&Line {
            status: Some(response.status().as_u16()),
            error_code: code.map(Code::name),
            request_id: Some(id.as_str()),
            correlation_id: Some(id.as_str()),
            took: arrived.elapsed(),
            ..line
        });
    }
}

impl<K: Keys> Inbox<K> {
    /// The source of a request with its keys; 404 if the source is unknown.
    async fn known_source(&self, parts: &mut Parts) -> Result<(String, Vec<Verifier>), Problem> {
        let source = match &self.source {
            Some(source) => Some(source.clone()),
            None => source_of_path(parts).await,
        };
        let source = source.ok_or_else(|| {
            Problem::internal("the route has no parameter `source`, and the layer sets no source")
        })?;
        match (self.sources)(&source) {
            Some(keys) => Ok((source, keys)),
            None => Err(Problem::new(NOT_FOUND).detail("this source is not known")),
        }
    }

    /// The sender's id of the message, if it is signed by its source.
    fn verified(&self, parts: &Parts, kept: &Kept, keys: &[Verifier]) -> Result<String, Problem> {
        let body = whole(kept)?;
        // If a header occurs twice, it is unknown which one the sender meant.
        let header = |name| {
            let mut values = parts.headers.get_all(name).iter();
            let only = values.next().filter(|_| values.next().is_none());
            only.and_then(|value| value.to_str().ok())
        };
        let received = Received {
            id: header(ID_HEADER).unwrap_or_default(),
            timestamp: header(TIMESTAMP_HEADER).unwrap_or_default(),
            signature: header(SIGNATURE_HEADER).unwrap_or_default(),
            body,
        };
        verify(&received, keys, self.clock.now(), self.tolerance).map_err(|error| {
            Problem::new(AUTH_SIGNATURE)
                .detail("the signature, its timestamp or its id is missing or not valid")
                .caused_by(error)
        })?;
        Ok(received.id.to_owned())
    }
}

/// The whole body, which the signature covers. A body that is not in memory is longer than any
/// message.
fn whole(kept: &Kept) -> Result<&Bytes, Problem> {
    kept.bytes()
        .ok_or_else(|| Problem::new(BODY_TOO_LARGE).detail("the message is too long"))
}

async fn source_of_path(parts: &mut Parts) -> Option<String> {
    let parameters = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    let mut parameters = parameters.iter();
    let source = parameters.find(|(name, _)| *name == "source");
    source.map(|(_, value)| value.to_owned())
}
