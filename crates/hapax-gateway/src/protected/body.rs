//! Time limit for the body of a protected request, which is read before anything is sent.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use hapax::sink::BoxError;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// Limits the time until the end of a body.
pub(crate) fn timed(body: Body, end: Instant) -> Body {
    if body.is_end_stream() {
        return body;
    }
    Body::new(Timed {
        body,
        end,
        sleep: None,
    })
}

struct Timed {
    body: Body,
    end: Instant,
    /// Created when the client is waited for: most bodies have already arrived.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let end = self.end;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(end)));
        match sleep.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(Late.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Debug)]
struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client did not send the body in time")
    }
}

impl Error for Late {}
