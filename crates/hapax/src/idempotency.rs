//! What happens to a request that carries a key: claim, run, complete.
//!
//! A [`Claim`] takes a key in the transaction of the effect. When the key is
//! taken already, [`judge`] says what the second request is told; when the
//! handler has answered, [`remember`] says whether the answer is kept. Both
//! are decisions without input or output, so that every store and every
//! protocol decides alike.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    event::{Headers, NewEvent},
    key::{Fingerprint, Scope},
    seeded::{self, Bug},
};

/// What a request asks of the key table.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which key.
    pub scope: Scope,
    /// What was asked under it.
    pub fingerprint: Fingerprint,
    /// How long the answer is to be remembered.
    ///
    /// A store keeps it no longer than [`RETENTION_MAX`](crate::limits::RETENTION_MAX), whatever
    /// is asked.
    pub retention: Duration,
    /// What to do when the key was used and has expired.
    pub on_expired: OnExpired,
    /// Headers that every event of this request carries (`traceparent`, `correlation_id`).
    pub context: Headers,
}

/// What a key's request gets after the key has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExpired {
    /// It runs as if the key had never been seen.
    #[default]
    New,
    /// It is told that the answer is gone, and nothing runs.
    Gone,
}

/// What happens to the key when the handler fails (5xx, panic, timeout).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The key is let go and a retry runs again.
    #[default]
    Release,
    /// The failure is stored, effect-free, and replayed.
    Store,
}

/// What happens to a request when the key table cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreError {
    /// It is refused: nothing runs unprotected.
    #[default]
    Closed,
    /// It runs unprotected.
    Open,
}

/// An answer as it is stored: enough to send it again byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// Header names in lower case, with their values, in the order they were sent.
    pub headers: Vec<(String, Bytes)>,
    /// The body's bytes.
    pub body: Bytes,
}

impl Answer {
    /// The headers as one block of `name: value\r\n` lines, which is how stores keep them.
    ///
    /// Neither a name nor a value can hold a line break, so the block reads back unchanged.
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

    /// Reads back what [`Answer::header_block`] wrote; `None` when it is something else.
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

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Its request has started and not ended (phased mode only: atomic mode never commits this).
    InProgress,
    /// Its answer is stored.
    Completed,
    /// Its answer was purged; only the fact that it was used is left.
    Tombstone,
}

/// A row of the key table.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    /// What was asked under the key.
    pub fingerprint: Fingerprint,
    /// Where it stands.
    pub state: KeyState,
    /// How many owners it has had.
    pub epoch: i64,
    /// Until when its owner has it.
    pub lease_until: Option<Timestamp>,
    /// The stored answer, when it is completed.
    pub answer: Option<Answer>,
    /// When it was claimed.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When the row was read, by the clock that leases and expiry are judged by.
    pub read_at: Timestamp,
}

/// What a request is told about a key that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// The stored answer, to be sent again.
    Replay {
        /// What was answered.
        answer: Answer,
        /// How much longer it stands.
        fresh_for: Duration,
    },
    /// Another payload was sent under this key.
    Mismatch,
    /// The first request is still running.
    InProgress,
    /// The key was used and its answer is no longer kept.
    Gone,
}

/// Judges a claim against the row that holds its key; `None` means: run as new.
///
/// Expiry comes first, then the fingerprint, then the state: a mismatch is told even while
/// the first request is running.
pub fn judge(record: KeyRecord, claim: &Claim, now: Timestamp) -> Option<Known> {
    let expired = record.expires_at <= now && record.state != KeyState::InProgress;
    if expired || record.state == KeyState::Tombstone {
        return match claim.on_expired {
            OnExpired::New => None,
            OnExpired::Gone => Some(Known::Gone),
        };
    }
    if record.fingerprint != claim.fingerprint && !seeded::has(Bug::NoFingerprint) {
        return Some(Known::Mismatch);
    }
    match record.answer {
        Some(answer) => Some(Known::Replay {
            answer,
            fresh_for: record.expires_at.since(now),
        }),
        None => Some(Known::InProgress),
    }
}

/// What becomes of a key and of the effect once the handler has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remember {
    /// The answer is stored with the effect, in one commit.
    WithEffect,
    /// The answer is stored and the effect is rolled back: a refusal.
    EffectFree,
    /// Everything is rolled back and the key is let go.
    Release,
}

/// Says what is kept of an answer with this status.
///
/// Successes are stored with their effect, business refusals without one. The caller's mistake
/// or moment lets the key go, so that the corrected request may run: a failed precondition (412,
/// 428) too, because the caller is told to reload and send another condition. So does a failure,
/// unless `on_failure` says otherwise.
pub fn remember(status: u16, on_failure: OnFailure) -> Remember {
    match status {
        200..=399 => Remember::WithEffect,
        402 | 404 | 409 | 410 | 422 => Remember::EffectFree,
        500..=599 if on_failure == OnFailure::Store => Remember::EffectFree,
        _ => Remember::Release,
    }
}

/// A request that says beforehand all that it will do: the whole write in one go.
///
/// Several of them share one commit; see the stores.
#[derive(Debug)]
pub struct SingleShot<S> {
    /// The key it runs under.
    pub claim: Claim,
    /// Its statements, in order; they run only if the key was free.
    pub statements: Vec<S>,
    /// The events of the same transaction.
    pub events: Vec<NewEvent>,
    /// What is answered when all of it is committed.
    pub answer: Answer,
    /// When to give it up, unless the store has begun it by then; never when absent.
    pub deadline: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{IdempotencyKey, Operation, Tenant};

    #[test]
    fn a_mismatch_is_told_even_while_the_first_request_runs() {
        let mut record = completed();
        record.state = KeyState::InProgress;
        record.answer = None;
        assert_eq!(
            judge(record.clone(), &claim(2), at(0)),
            Some(Known::Mismatch)
        );
        assert_eq!(judge(record, &claim(1), at(0)), Some(Known::InProgress));
    }

    #[test]
    fn an_expired_key_runs_as_new_or_is_gone_whatever_its_fingerprint() {
        let mut gone = claim(2);
        gone.on_expired = OnExpired::Gone;
        assert_eq!(judge(completed(), &claim(2), at(1_000)), None);
        assert_eq!(judge(completed(), &gone, at(1_000)), Some(Known::Gone));
        assert_eq!(judge(completed(), &gone, at(999)), Some(Known::Mismatch));
    }

    #[test]
    fn a_key_in_progress_never_expires() {
        let mut record = completed();
        record.state = KeyState::InProgress;
        record.answer = None;
        assert_eq!(judge(record, &claim(1), at(9_999)), Some(Known::InProgress));
    }

    #[test]
    fn what_is_remembered_follows_the_status() {
        let release = |status| remember(status, OnFailure::Release);
        for status in [200, 201, 204, 302] {
            assert_eq!(release(status), Remember::WithEffect, "{status}");
        }
        for status in [402, 404, 409, 410, 422] {
            assert_eq!(release(status), Remember::EffectFree, "{status}");
        }
        for status in [
            400, 401, 403, 405, 406, 408, 411, 412, 413, 415, 421, 425, 426, 428, 429, 431, 500,
            503,
        ] {
            assert_eq!(release(status), Remember::Release, "{status}");
        }
        assert_eq!(remember(500, OnFailure::Store), Remember::EffectFree);
        assert_eq!(remember(429, OnFailure::Store), Remember::Release);
    }

    #[test]
    fn a_header_block_reads_back_as_it_was_written() {
        let mut answer = completed().answer.unwrap();
        answer
            .headers
            .push(("x-raw".to_owned(), Bytes::from_static(b"\xff: \t")));
        answer.headers.push(("x-empty".to_owned(), Bytes::new()));
        let block = answer.header_block();
        assert_eq!(Answer::parse_header_block(&block), Some(answer.headers));
        assert_eq!(Answer::parse_header_block(b"torn"), None);
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
            answer: Some(Answer {
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
