//! What must outlive the client: under which key an operation was sent.
//!
//! A client that dies after it sent a request does not know whether the request had its effect. It
//! is safe to send it again under the same key, and only under that one; so the key is written down
//! before the first byte is sent, and struck out once its fate is known. What is the same operation
//! is for the caller to say: by default the same method, address and body are.

mod file;
mod record;

use std::{fmt::Debug, time::Duration};

use futures_util::future::BoxFuture;
use hapax::{
    key::{Fingerprint, FingerprintBuilder, IdempotencyKey},
    sink::BoxError,
};

pub use file::FileJournal;

/// The version of the hash of a body.
const BODY_HASH: u8 = 1;

/// What is about to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intent {
    /// The caller's own name for it: what tells two equal requests apart.
    pub name: Option<String>,
    /// The method.
    pub method: String,
    /// The whole address.
    pub url: String,
    /// The hash of the body.
    pub body: Fingerprint,
}

impl Intent {
    /// An intent without a name.
    pub fn new(method: impl Into<String>, url: impl Into<String>, body: &[u8]) -> Self {
        Self {
            name: None,
            method: method.into(),
            url: url.into(),
            body: FingerprintBuilder::new(BODY_HASH).part(body).finish(),
        }
    }
}

/// Under which key an operation goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The key.
    pub key: IdempotencyKey,
    /// Whether an earlier run may have sent it.
    pub is_resumed: bool,
    /// How long ago the key was written down first; `None` where that cannot be known, as after a
    /// clock was set back. A service forgets keys: one of an unknown age is not sent again.
    pub age: Option<Duration>,
}

impl Begun {
    /// A key that was written down now.
    pub fn now(key: IdempotencyKey) -> Self {
        Self {
            key,
            is_resumed: false,
            age: Some(Duration::ZERO),
        }
    }
}

/// Where keys are written down before anything is sent under them.
pub trait Journal: Debug + Send + Sync + 'static {
    /// Writes down that `intent` is about to be sent under `fresh`, unless it is unfinished under
    /// another key, which then stays its key.
    ///
    /// What was written must survive a crash of the machine when this returns.
    fn begin<'a>(
        &'a self,
        intent: &'a Intent,
        fresh: IdempotencyKey,
    ) -> BoxFuture<'a, Result<Begun, BoxError>>;

    /// Strikes out an intent whose fate is known: the next one that equals it has a key of its own.
    fn finish<'a>(
        &'a self,
        intent: &'a Intent,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>>;

    /// Strikes out an intent that came to nothing as far as whoever began it can know, unless
    /// another run has gone on under its key since: what became of that one is not known.
    fn withdraw<'a>(
        &'a self,
        intent: &'a Intent,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
}
