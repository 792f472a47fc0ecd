//! The journal: the keys under which operations were sent, which must survive a crash of the
//! client.
//!
//! A client that dies after it has sent a request does not know whether the request had an effect.
//! It is safe to send it again under the same key, and only under that key. Therefore the key is
//! recorded before the first byte is sent and removed when the outcome is known. The caller decides
//! what the same operation is; by default it is the same method, URL and body.

mod file;
mod record;

use std::{fmt::Debug, time::Duration};

use futures_util::future::BoxFuture;
use hapax::{
    key::{Fingerprint, FingerprintBuilder, IdempotencyKey},
    sink::BoxError,
};

pub use file::FileJournal;

/// Version of the hash of a body.
const BODY_HASH: u8 = 1;

/// The identity of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intent {
    /// The caller's name for it, which distinguishes equal requests.
    pub name: Option<String>,
    /// The method.
    pub method: String,
    /// The complete URL.
    pub url: String,
    /// The hash of the body.
    pub body: Fingerprint,
}

impl Intent {
    /// Creates an identity without a name.
    pub fn new(method: impl Into<String>, url: impl Into<String>, body: &[u8]) -> Self {
        Self {
            name: None,
            method: method.into(),
            url: url.into(),
            body: FingerprintBuilder::new(BODY_HASH).part(body).finish(),
        }
    }
}

/// The key of an operation that starts or is continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The key.
    pub key: IdempotencyKey,
    /// Whether an earlier run may have sent it.
    pub is_resumed: bool,
    /// The time since the key was recorded first; `None` if it is not known, for example after the
    /// clock was set back. Services delete keys, so a key of unknown age is not sent again.
    pub age: Option<Duration>,
}

impl Begun {
    /// A key that is recorded now.
    pub fn now(key: IdempotencyKey) -> Self {
        Self {
            key,
            is_resumed: false,
            age: Some(Duration::ZERO),
        }
    }
}

/// Where keys are recorded before anything is sent under them.
pub trait Journal: Debug + Send + Sync + 'static {
    /// Records that `intent` is about to be sent under `fresh`. If it is unfinished under another
    /// key, that key is kept.
    ///
    /// The record must survive a crash of the machine when this returns.
    fn begin<'a>(
        &'a self,
        intent: &'a Intent,
        fresh: IdempotencyKey,
    ) -> BoxFuture<'a, Result<Begun, BoxError>>;

    /// Removes an operation whose outcome is known. The next operation with the same identity has a
    /// new key.
    fn finish<'a>(
        &'a self,
        intent: &'a Intent,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>>;

    /// Removes an operation that had no effect as far as this run knows. If another run has
    /// continued under the key, its outcome is not known, and the operation is kept.
    fn withdraw<'a>(
        &'a self,
        intent: &'a Intent,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
}
