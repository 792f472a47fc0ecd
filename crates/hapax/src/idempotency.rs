//! Idempotency keys: claiming a key, and what is kept when the request has ended.
//!
//! A [`Claim`] takes a key in the transaction of the effect. If the key is taken already, [`evaluate_claim`]
//! decides what the second request receives. When the handler has returned a response, [`disposition`]
//! decides whether the response is kept. Both are pure functions, so that every store and every
//! protocol decides in the same way.

use std::{
    fmt,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    event::{Headers, NewEvent},
    key::{Fingerprint, Scope},
    limits::KEY_BYTES_MAX,
};

/// A request for an idempotency key.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The key.
    pub scope: Scope,
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// How long the response is kept.
    ///
    /// A store limits it to [`RETENTION_MAX`](crate::limits::RETENTION_MAX).
    pub retention: Duration,
    /// What happens if the key was used and has expired.
    pub on_expired: OnExpired,
    /// Headers that every event of this request carries (`traceparent`, `correlation_id`).
    pub context: Headers,
}

/// Callback of a pipelined claim. The store calls it once, when the claim has got its key.
pub struct OnClaimed(Box<dyn FnOnce() + Send + Sync>);

impl OnClaimed {
    /// Calls `claimed`.
    pub fn new(claimed: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Box::new(claimed))
    }

    /// Does nothing.
    pub fn nothing() -> Self {
        Self::new(|| ())
    }

    /// Reports that the claim has its key.
    pub fn call(self) {
        (self.0)();
    }
}

impl fmt::Debug for OnClaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnClaimed")
    }
}

/// Policy for a request whose key has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExpired {
    /// The request runs as if the key had never been used.
    #[default]
    New,
    /// The request does not run. Its client learns that the response is gone.
    Gone,
}

impl OnExpired {
    /// The name in the rows of a store.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// Policy for the key if the handler fails (5xx, panic, timeout).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The key is released, and a retry runs the handler again.
    #[default]
    Release,
    /// The effect is rolled back. The failure is stored and replayed.
    Store,
}

/// Policy for a request if the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreError {
    /// The request is refused. No handler runs without protection.
    #[default]
    Closed,
    /// The handler runs without protection.
    Open,
}

/// A stored response, which can be replayed byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredResponse {
    /// The HTTP status code.
    pub status: u16,
    /// Header names in lower case with their values, in the order in which they were sent.
    pub headers: Vec<(String, Bytes)>,
    /// The bytes of the body.
    pub body: Bytes,
}

impl StoredResponse {
    /// The id of the resource that the response names: the last segment of the path in the header
    /// `location` of a success. `None` if it is longer than [`KEY_BYTES_MAX`].
    pub fn resource_id(&self) -> Option<&str> {
        let location = self.headers.iter().find(|(name, _)| name == "location");
        let (_, location) = location.filter(|_| self.status < 300)?;
        let path = std::str::from_utf8(location)
            .ok()?
            .split(['?', '#'])
            .next()?;
        let path = match path.split_once("://") {
            Some((scheme, rest)) if !scheme.contains('/') => rest.split_once('/')?.1,
            _ => path,
        };
        let id = path.trim_end_matches('/').rsplit('/').next()?;
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
        (is_id && id.len() <= KEY_BYTES_MAX).then_some(id)
    }

    /// The headers as a block of `name: value\r\n` lines. Stores keep them in this form.
    ///
    /// Neither a name nor a value can contain a line break, so the block can be parsed without
    /// loss.
    pub fn header_block(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.headers.len() * 32);
        for (name, value) in &self.headers {
            block.extend_from_slice(name.as_bytes());
            block.extend_from_slice(b": ");
            block.extend_from_slice(value);
            block.extend_from_slice(b"\r\n");
        }
        block
    }

    /// Parses a block that [`StoredResponse::header_block`] has written; `None` if the block is not valid.
    pub fn parse_header_block(block: &[u8]) -> Option<Vec<(String, Bytes)>> {
        let mut headers = Vec::new();
        let mut rest = block;
        while !rest.is_empty() {
            let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
            let colon = rest[..end].windows(2).position(|pair| pair == b": ")?;
            let name = std::str::from_utf8(&rest[..colon]).ok()?.to_owned();
            headers.push((name, Bytes::copy_from_slice(&rest[colon + 2..end])));
            rest = &rest[end + 2..];
        }
        Some(headers)
    }
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The request has started and not ended. This state is committed in phased mode only.
    InProgress,
    /// The response is stored.
    Completed,
    /// The response was purged. Only the fact that the key was used is kept.
    Tombstone,
}

/// A row of the key table.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    /// The fingerprint of the request that used the key.
    pub fingerprint: Fingerprint,
    /// The state of the key.
    pub state: KeyState,
    /// The number of owners that the key has had.
    pub epoch: i64,
    /// When the lease of the current owner ends.
    pub lease_until: Option<Timestamp>,
    /// The stored response of a completed key.
    pub response: Option<StoredResponse>,
    /// When the key was claimed.
    pub created_at: Timestamp,
    /// When the key expires.
    pub expires_at: Timestamp,
    /// When the row was read, by the clock that decides about leases and expiry.
    pub read_at: Timestamp,
}

/// The outcome of a claim whose key is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The stored response is replayed.
    Replay {
        /// The stored response.
        response: StoredResponse,
        /// Remaining retention of the response.
        fresh_for: Duration,
    },
    /// The key was used with another payload.
    Mismatch,
    /// The first request is still running.
    InProgress,
    /// The key was used, and its response is no longer kept.
    Gone,
}

/// Evaluates a claim against the existing row of its key; `None` if the request may run as new.
///
/// Expiry is checked first, then the fingerprint, then the state: a mismatch is reported even while
/// the first request is running.
pub fn evaluate_claim(record: KeyRecord, claim: &Claim, now: Timestamp) -> Option<Taken> {
    let expired = record.expires_at <= now && record.state != KeyState::InProgress;
    if expired || record.state == KeyState::Tombstone {
        return match claim.on_expired {
            OnExpired::New => None,
            OnExpired::Gone => Some(Taken::Gone),
        };
    }
    if record.fingerprint != claim.fingerprint {
        return Some(Taken::Mismatch);
    }
    match record.response {
        Some(response) => Some(Taken::Replay {
            response,
            fresh_for: record.expires_at.since(now),
        }),
        None => Some(Taken::InProgress),
    }
}

/// Disposition of a key and of its effect after the handler has returned a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The response is stored together with the effect, in one commit.
    WithEffect,
    /// The response is stored and the effect is rolled back. This is a refusal.
    EffectFree,
    /// Everything is rolled back and the key is released.
    Release,
}

/// Decides what is kept, by the status of the response.
///
/// A success is stored with its effect, and a business refusal is stored without one. If the error
/// is the caller's mistake, or temporary, the key is released, so that the corrected request may
/// run. This includes a failed precondition (412, 428), because the client has to reload the
/// resource and send another condition. The key is also released after a failure (5xx), unless
/// `on_failure` is [`OnFailure::Store`].
pub fn disposition(status: u16, on_failure: OnFailure) -> Disposition {
    match status {
        200..=399 => Disposition::WithEffect,
        402 | 404 | 409 | 410 | 422 => Disposition::EffectFree,
        500..=599 if on_failure == OnFailure::Store => Disposition::EffectFree,
        _ => Disposition::Release,
    }
}

/// A request that lists all its statements and events in advance, so that the whole write takes one
/// step.
///
/// Several such requests can share one commit; see the stores.
#[derive(Debug)]
pub struct PlannedRequest<S> {
    /// The key of the request.
    pub claim: Claim,
    /// The statements, in order. They are executed only if the key was free.
    pub statements: Vec<S>,
    /// The events of the same transaction.
    pub events: Vec<NewEvent>,
    /// The response to send when everything is committed.
    pub response: StoredResponse,
    /// When to give the request up, unless the store has started it by then and cannot interrupt it.
    /// `None` means never.
    pub deadline: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{IdempotencyKey, Operation, Tenant};

    #[test]
    fn the_resource_is_the_end_of_the_location_of_a_success() {
        let check = |location: &str, expected: Option<&str>| {
            let mut response = StoredResponse {
                status: 201,
                headers: vec![("location".to_owned(), Bytes::from(location.to_owned()))],
                body: Bytes::new(),
            };
            assert_eq!(response.resource_id(), expected, "{location}");
            response.status = 303;
            assert_eq!(response.resource_id(), None);
        };
        check("/orders/ord_1", Some("ord_1"));
        check(
            "https://shop.example/orders/ord_1/?v=a/b#c/d",
            Some("ord_1"),
        );
        check("ord_1", Some("ord_1"));
        check("x?y://z/w", Some("x"));
        check(&"x".repeat(KEY_BYTES_MAX), Some(&"x".repeat(KEY_BYTES_MAX)));
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        for none in [
            "",
            "/",
            "https://shop.example",
            "/a/b c",
            "/\u{e4}",
            long.as_str(),
        ] {
            check(none, None);
        }
    }

    #[test]
    fn a_mismatch_is_returned_even_while_the_first_request_runs() {
        let mut record = completed();
        record.state = KeyState::InProgress;
        record.response = None;
        assert_eq!(
            evaluate_claim(record.clone(), &claim(2), at(0)),
            Some(Taken::Mismatch)
        );
        assert_eq!(
            evaluate_claim(record, &claim(1), at(0)),
            Some(Taken::InProgress)
        );
    }

    #[test]
    fn an_expired_key_runs_as_new_or_is_gone_whatever_its_fingerprint() {
        let mut gone = claim(2);
        gone.on_expired = OnExpired::Gone;
        assert_eq!(evaluate_claim(completed(), &claim(2), at(1_000)), None);
        assert_eq!(
            evaluate_claim(completed(), &gone, at(1_000)),
            Some(Taken::Gone)
        );
        assert_eq!(
            evaluate_claim(completed(), &gone, at(999)),
            Some(Taken::Mismatch)
        );
    }

    #[test]
    fn a_key_in_progress_never_expires() {
        let mut record = completed();
        record.state = KeyState::InProgress;
        record.response = None;
        assert_eq!(
            evaluate_claim(record, &claim(1), at(9_999)),
            Some(Taken::InProgress)
        );
    }

    #[test]
    fn what_is_remembered_follows_the_status() {
        let release = |status| disposition(status, OnFailure::Release);
        for status in [200, 201, 204, 302] {
            assert_eq!(release(status), Disposition::WithEffect, "{status}");
        }
        for status in [402, 404, 409, 410, 422] {
            assert_eq!(release(status), Disposition::EffectFree, "{status}");
        }
        for status in [
            400, 401, 403, 405, 406, 408, 411, 412, 413, 415, 421, 425, 426, 428, 429, 431, 500,
            503,
        ] {
            assert_eq!(release(status), Disposition::Release, "{status}");
        }
        assert_eq!(disposition(500, OnFailure::Store), Disposition::EffectFree);
        assert_eq!(disposition(429, OnFailure::Store), Disposition::Release);
    }

    #[test]
    fn a_header_block_reads_back_as_it_was_written() {
        let mut response = completed().response.unwrap();
        response
            .headers
            .push(("x-raw".to_owned(), Bytes::from_static(b"\xff: \t")));
        response.headers.push(("x-empty".to_owned(), Bytes::new()));
        let block = response.header_block();
        assert_eq!(
            StoredResponse::parse_header_block(&block),
            Some(response.headers)
        );
        assert_eq!(StoredResponse::parse_header_block(b"torn"), None);
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn claim(fingerprint: u8) -> Claim {
        Claim {
            scope: Scope {
                tenant: Tenant::new("alice").unwrap(),
                operation: Operation::new("POST /orders").unwrap(),
                key: IdempotencyKey::new("k").unwrap(),
            },
            fingerprint: Fingerprint::from_bytes([fingerprint; 32]),
            retention: Duration::from_secs(1),
            on_expired: OnExpired::New,
            context: Headers::default(),
        }
    }

    fn completed() -> KeyRecord {
        KeyRecord {
            fingerprint: Fingerprint::from_bytes([1; 32]),
            state: KeyState::Completed,
            epoch: 0,
            lease_until: None,
            response: Some(StoredResponse {
                status: 201,
                headers: vec![("etag".to_owned(), Bytes::from_static(b"\"1\""))],
                body: Bytes::from_static(b"{}"),
            }),
            created_at: at(0),
            expires_at: at(1_000),
            read_at: at(0),
        }
    }
}
