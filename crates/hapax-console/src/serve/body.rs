//! Request bodies: limited in time, and read for a while after they were refused.
//!
//! A body ends early if its client takes too long. A body that is not read to its end is still
//! drained for a while after the response: closing the connection while the client is sending would
//! lose the response.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    BoxError,
    body::{Body, Bytes},
};
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};
use tokio::{
    runtime::Handle,
    time::{Sleep, sleep, timeout},
};

use super::place::Place;

/// How long a refused body is drained.
const HEARD_OUT: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a refused body that are drained.
const HEARD_OUT_BYTES: usize = 16 * 1024 * 1024;

/// Limits the body after `headers`: the client may take `most` to send it, and its connection's
/// `place` is informed while the server waits for it.
pub(super) fn bounded<B>(headers: &HeaderMap, body: B, most: Duration, place: Arc<Place>) -> Body
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Body::empty();
    }
    let waits_to_send = headers.contains_key(header::EXPECT);
    Body::new(Timed {
        body: Some(body),
        most,
        end: None,
        waits_to_send,
        place,
    })
}

/// Informs `place` when the server has produced all of `body`.
pub(super) fn responding(body: Body, place: Arc<Place>) -> Responding {
    Responding { body, place }
}

/// The body of a response, which informs the place of its connection when it is dropped.
pub(super) struct Responding {
    body: Body,
    place: Arc<Place>,
}

impl http_body::Body for Responding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Responding {
    fn drop(&mut self) {
        self.place.responded();
    }
}

struct Timed<B>
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
{
    /// `None` once it has ended or failed.
    body: Option<B>,
    most: Duration,
    /// Created when the client is waited for the first time: most bodies have already arrived.
    end: Option<Pin<Box<Sleep>>>,
    /// The client sends nothing before the server asks for it (`Expect: 100-continue`).
    waits_to_send: bool,
    place: Arc<Place>,
}

impl<B> http_body::Body for Timed<B>
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.waits_to_send = false;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.place.received(frame.data_ref().map_or(0, Bytes::len));
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(ended) => {
                self.place.received(0);
                self.body = None;
                return Poll::Ready(ended.map(|frame| frame.map_err(Into::into)));
            }
            Poll::Pending => self.place.wait(),
        }
        let most = self.most;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(most)));
        ready!(end.as_mut().poll(context));
        self.body = None;
        let late = "the client took too long to send the body";
        Poll::Ready(Some(Err(late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ended = || SizeHint::with_exact(0);
        self.body
            .as_ref()
            .map_or_else(ended, http_body::Body::size_hint)
    }
}

impl<B> Drop for Timed<B>
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
{
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(body), false, Ok(runtime)) =
            (unread, self.waits_to_send, Handle::try_current())
        {
            runtime.spawn(timeout(HEARD_OUT, hear_out(body)));
        }
    }
}

async fn hear_out<B: http_body::Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut bytes = 0;
    while bytes < HEARD_OUT_BYTES {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let Some(Ok(frame)) = frame else {
            return;
        };
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::mpsc};

    use super::*;

    const MOST: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_body_that_does_not_come_ends_in_time() {
        let body = Body::new(Timed {
            body: Some(Scripted::new(vec![Poll::Pending]).0),
            most: Duration::from_millis(5),
            end: None,
            waits_to_send: false,
            place: Place::new(),
        });
        assert!(axum::body::to_bytes(body, 16).await.is_err());
    }

    #[tokio::test]
    async fn an_unread_body_is_received_to_its_end() {
        let (body, asked) = Scripted::new(vec![Poll::Ready(()), Poll::Ready(())]);
        drop(bounded(&HeaderMap::new(), body, MOST, Place::new()));
        tokio::task::yield_now().await;
        assert_eq!(asked.try_iter().count(), 3);
    }

    #[tokio::test]
    async fn a_client_that_waits_for_leave_to_send_is_not_asked_for_what_nobody_reads() {
        let (body, asked) = Scripted::new(vec![Poll::Ready(())]);
        let expects = (
            header::EXPECT,
            http::HeaderValue::from_static("100-continue"),
        );
        drop(bounded(
            &HeaderMap::from_iter([expects]),
            body,
            MOST,
            Place::new(),
        ));
        tokio::task::yield_now().await;
        assert_eq!(asked.try_iter().count(), 0);
    }

    /// A scripted sequence of frames, and a channel that reports each poll.
    struct Scripted(Vec<Poll<()>>, mpsc::Sender<()>);

    impl Scripted {
        fn new(script: Vec<Poll<()>>) -> (Self, mpsc::Receiver<()>) {
            let (asked, heard) = mpsc::channel();
            (Self(script, asked), heard)
        }
    }

    impl http_body::Body for Scripted {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let _nobody = self.1.send(());
            match self.0.pop() {
                None => Poll::Ready(None),
                Some(Poll::Pending) => {
                    self.0.push(Poll::Pending);
                    Poll::Pending
                }
                Some(Poll::Ready(())) => {
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
                }
            }
        }
    }
}
