//! Serves HTTP/1.1 on a listener until it is told to stop.
//!
//! Connections are bounded in number and a client must send its headers in
//! time. Told to stop, it accepts nothing more, lets every request in flight
//! finish, and returns when the last connection is closed or time is up.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};
use tower::ServiceExt as _;

/// Connections at a time: each costs a socket and some kilobytes.
const CONNECTIONS_MAX: usize = 1024;
/// How long a client may take over its headers, and an idle connection stays.
const HEADERS: Duration = Duration::from_secs(30);
/// How long a client may take over a body: a mebibyte at 17 KiB/s.
const BODY: Duration = Duration::from_mins(1);
/// How long requests in flight may take once the server stops.
const FINISH: Duration = Duration::from_secs(35);
/// How long to wait when the system has no sockets left.
const EXHAUSTED: Duration = Duration::from_millis(50);

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

/// Serves `router` on `listener` until `stop` says so.
pub(crate) async fn serve(listener: TcpListener, router: Router, mut stop: Stop) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let slot = Arc::clone(&slots).acquire_owned();
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = async { (slot.await, listener.accept().await) } => accepted,
        };
        match accepted {
            (Ok(slot), Ok((stream, _))) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    connection(stream, router, stop).await;
                    drop(slot);
                });
            }
            (_, Err(error)) if is_the_clients(&error) => {}
            (_, Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(EXHAUSTED).await;
            }
            (Err(_), _) => break,
        }
    }
    drop(listener);
    let closed = timeout(FINISH, async {
        while connections.join_next().await.is_some() {}
    });
    if closed.await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "gave up on connections that did not finish"
        );
    }
}

async fn connection(stream: TcpStream, router: Router, mut stop: Stop) {
    // Answers are small and wait for nothing; Nagle would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(router.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

async fn answer(router: Router, request: Request<Incoming>) -> Result<Response<Body>, NoAnswer> {
    let request = request.map(|body| Body::new(Timed::new(body, BODY)));
    let answered: Result<_, Infallible> = router.oneshot(request).await;
    let response = answered.unwrap_or_else(|never| match never {});
    if response.extensions().get::<Unanswered>().is_some() {
        return Err(NoAnswer);
    }
    Ok(response)
}

#[derive(Debug, thiserror::Error)]
#[error("the answer was lost on purpose")]
struct NoAnswer;

/// A body that ends early when its client takes too long over it.
struct Timed<B> {
    body: B,
    most: Duration,
    /// Made when the client is waited for the first time: most bodies are there already.
    end: Option<Pin<Box<Sleep>>>,
}

impl<B> Timed<B> {
    fn new(body: B, most: Duration) -> Self {
        let end = None;
        Self { body, most, end }
    }
}

impl<B> http_body::Body for Timed<B>
where
    B: http_body::Body + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = B::Data;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, axum::BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = frame {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let most = self.most;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(most)));
        end.as_mut()
            .poll(context)
            .map(|()| Some(Err("the client took too long over its body".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_come_ends_in_time() {
        let body = Body::new(Timed::new(Silent, Duration::from_millis(5)));
        assert!(axum::body::to_bytes(body, 16).await.is_err());
    }

    struct Silent;

    impl http_body::Body for Silent {
        type Data = hyper::body::Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            Poll::Pending
        }
    }
}
