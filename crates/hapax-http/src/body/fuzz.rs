//! Entry points of the fuzzers for bodies, see [`crate::fuzz`].

use std::{
    convert::Infallible,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::body::Bytes;
use futures_util::stream;

use super::{
    BodyHash,
    canonical::{JsonError, Numbers},
};

/// Why JSON has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The text is not JSON.
    Syntax,
    /// An object has a duplicate member.
    Duplicate,
    /// The nesting is too deep.
    Depth,
    /// An object has too many members.
    Members,
}

/// The canonical form of JSON. `folded` replaces the values of top-level members.
pub fn canonical(json: &[u8], folded: &[(&str, &str)]) -> Result<Vec<u8>, Refused> {
    super::canonical::canonical(json, folded, Numbers::AsSent).map_err(|error| {
        assert!(!error.to_string().is_empty());
        match error {
            JsonError::Syntax { at } => {
                assert!(at <= json.len());
                Refused::Syntax
            }
            JsonError::Duplicate { .. } => Refused::Duplicate,
            JsonError::Depth => Refused::Depth,
            JsonError::Members => Refused::Members,
        }
    })
}

/// The hash of a multipart body that arrives in these chunks; `None` if it has none.
///
/// The stream is pending once before every chunk, like a body that arrives over the network.
pub fn multipart(chunks: Vec<Bytes>, content_type: &[u8]) -> Option<BodyHash> {
    let looks_max = 2 * chunks.len() + 2;
    let (mut chunks, mut is_there) = (chunks.into_iter(), true);
    let body = stream::poll_fn(move |_| {
        is_there = !is_there;
        if is_there {
            Poll::Ready(chunks.next().map(Ok::<_, Infallible>))
        } else {
            Poll::Pending
        }
    });
    let mut hash = pin!(super::multipart::hash(body, content_type));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..looks_max {
        if let Poll::Ready(hash) = hash.as_mut().poll(&mut context) {
            return hash.ok();
        }
    }
    panic!("the hash is pending after the end of the body");
}
