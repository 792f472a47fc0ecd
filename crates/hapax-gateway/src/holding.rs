//! A body that holds a value: what is occupied until hyper has dropped the body.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

/// A body, and a value that is dropped together with it.
pub(crate) struct Holding<V> {
    body: Body,
    _held: V,
}

impl<V> Holding<V> {
    pub(crate) fn new(body: Body, held: V) -> Self {
        Self { body, _held: held }
    }
}

impl<V: Unpin> HttpBody for Holding<V> {
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
