//! Phased mode: requests that commit in several transactions, because they call remote systems in
//! between.
//!
//! The first transaction commits the key as `in_progress`, with a lease and an epoch; this is an
//! [`Ownership`]. Each phase commits rows, events and a recovery point, and the last phase commits
//! the response. All of them succeed only while the epoch is unchanged. If the owner dies, its
//! lease expires, and the next owner continues at the recovery point.
//!
//! A remote system must receive the same key for every attempt at a step.
//! [`Ownership::provider_key`] depends on the row of the key and on the step, and never on the
//! attempt.

use std::time::Duration;

use bytes::Bytes;
use uuid::Builder;

use crate::{
    clock::Timestamp,
    idempotency::{Claim, KeyRecord, KeyState, Taken, evaluate_claim},
    key::{Fingerprint, FingerprintBuilder, Scope},
    limits::RECOVERY_POINT_BYTES_MAX,
    store::ClaimOutcome,
};

/// Version of the format of provider keys. A change of the format would make providers execute a
/// step twice.
const PROVIDER_KEY_VERSION: u8 = 1;

/// A request for a key that is kept beyond the first transaction.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key and the fingerprint.
    pub claim: Claim,
    /// How long the key belongs to its owner unless the lease is renewed.
    pub lease: Duration,
    /// The request, stored so that it can be resumed without its client. It is deleted when the
    /// response is stored.
    pub request: Option<Bytes>,
    /// The recovery point at which a new key is entered, as if a phase of this name had been
    /// committed. A key that is resumed keeps the recovery point of its row.
    pub recovery_point: Option<String>,
}

/// The ownership of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The key.
    pub scope: Scope,
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The epoch of this owner. Every later owner has a higher epoch.
    pub epoch: i64,
    /// When the key was first entered. Together with the epoch this distinguishes the row from
    /// later rows of the same key.
    pub created_at: Timestamp,
    /// The name of the last phase that was committed, or the recovery point at which a new key was
    /// entered.
    pub recovery_point: Option<String>,
    /// Whether the key had an owner before that did not finish.
    pub resumed: bool,
    /// How long the response will be kept.
    pub retention: Duration,
}

impl Ownership {
    /// The key to send to a remote system for the step `step`. It is the same for every attempt.
    ///
    /// It is 36 characters long and has the form of a UUID (version 8). Another tenant, operation,
    /// key, payload or step results in another key, and so does the same idempotency key when it is
    /// used again after it has expired.
    pub fn provider_key(&self, step: &str) -> String {
        let scope = &self.scope;
        let hash = FingerprintBuilder::new(PROVIDER_KEY_VERSION)
            .part(scope.tenant.as_str().as_bytes())
            .part(scope.operation.as_str().as_bytes())
            .part(scope.key.as_str().as_bytes())
            .part(self.fingerprint.as_bytes())
            .part(&self.created_at.as_millis().to_be_bytes())
            .part(step.as_bytes())
            .finish();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }
}

/// A key that was taken over after its owner died, with the request to resume.
#[derive(Clone, Debug)]
pub struct TakenOver {
    /// The ownership of the key.
    pub ownership: Ownership,
    /// The stored request.
    pub request: Bytes,
}

/// Selection of the keys to take over.
#[derive(Clone, Copy, Debug)]
pub struct Lapsed {
    /// How long the new owner has a key unless it renews the lease.
    pub lease: Duration,
    /// How long after the end of its lease a key can be taken over, so that the client's own retry
    /// comes first.
    ///
    /// This time doubles with every owner that a key has had, at most
    /// [`GRACE_DOUBLINGS`](crate::limits::GRACE_DOUBLINGS) times, so that a request that always
    /// fails is tried less and less often.
    pub grace: Duration,
    /// The maximum number of keys to take over.
    pub limit: usize,
}

/// How a request that may enter its key begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There is no valid row. The request starts as new.
    New,
    /// The row belongs to the same request and has no owner. The request continues where it
    /// stopped.
    Resume,
}

/// Evaluates an entry against the existing row of its key.
///
/// A mismatch is checked first. A key in progress belongs to its owner until the end of its lease,
/// inclusive.
pub fn evaluate_entry(
    record: Option<KeyRecord>,
    claim: &Claim,
    now: Timestamp,
) -> ClaimOutcome<Start> {
    let Some(record) = record else {
        return ClaimOutcome::Open(Start::New);
    };
    let is_free = record.lease_until.is_none_or(|until| until <= now);
    let in_progress = record.state == KeyState::InProgress;
    match evaluate_claim(record, claim, now) {
        None => ClaimOutcome::Open(Start::New),
        Some(Taken::InProgress) if in_progress && is_free => ClaimOutcome::Open(Start::Resume),
        Some(taken) => ClaimOutcome::Taken(taken),
    }
}

/// Checks the name of a phase.
///
/// # Errors
/// Fails if the name is empty or longer than [`RECOVERY_POINT_BYTES_MAX`].
pub fn check_name(name: &str) -> Result<(), PhaseNameError> {
    match name.len() {
        1..=RECOVERY_POINT_BYTES_MAX => Ok(()),
        bytes => Err(PhaseNameError { bytes }),
    }
}

/// The name of a phase is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a phase must have 1 to {RECOVERY_POINT_BYTES_MAX} bytes, not {bytes}")]
pub struct PhaseNameError {
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Headers,
        idempotency::OnExpired,
        key::{IdempotencyKey, Operation, Tenant},
    };

    #[test]
    fn a_provider_key_is_the_same_for_every_attempt_of_a_step() {
        let first = ownership();
        let mut third = ownership();
        third.epoch = 3;
        third.resumed = true;
        third.recovery_point = Some("authorized".to_owned());
        third.retention = Duration::from_secs(9);
        assert_eq!(first.provider_key("charge"), third.provider_key("charge"));
    }

    #[test]
    fn a_provider_key_never_changes_its_format() {
        let key = ownership().provider_key("charge");
        assert_eq!(key, "e1c6c858-caf1-807f-94e3-7caf831bc142");
    }

    #[test]
    fn whatever_makes_another_intent_makes_another_provider_key() {
        let mut keys = vec![
            ownership().provider_key("charge"),
            ownership().provider_key("refund"),
            ownership().provider_key(""),
        ];
        let mut other = |change: fn(&mut Ownership)| {
            let mut owned = ownership();
            change(&mut owned);
            keys.push(owned.provider_key("charge"));
        };
        other(|it| it.scope.tenant = Tenant::new("bob").unwrap());
        other(|it| it.scope.operation = Operation::new("POST /refunds").unwrap());
        other(|it| it.scope.key = IdempotencyKey::new("K").unwrap());
        other(|it| it.fingerprint = Fingerprint::from_bytes([2; 32]));
        other(|it| it.created_at = Timestamp::from_millis(1_001));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 8);
    }

    #[test]
    fn parts_of_a_scope_that_join_alike_make_other_provider_keys() {
        let mut one = ownership();
        one.scope.tenant = Tenant::new("ab").unwrap();
        one.scope.operation = Operation::new("c").unwrap();
        let mut two = ownership();
        two.scope.tenant = Tenant::new("a").unwrap();
        two.scope.operation = Operation::new("bc").unwrap();
        assert_ne!(one.provider_key("x"), two.provider_key("x"));
    }

    #[test]
    fn a_key_in_progress_is_its_owners_until_its_lease_has_lapsed() {
        let running = record(KeyState::InProgress, Some(500));
        let told = |now, print| evaluate_entry(Some(running.clone()), &claim(print), at(now));
        assert_eq!(told(499, 1), ClaimOutcome::Taken(Taken::InProgress));
        assert_eq!(told(500, 1), ClaimOutcome::Open(Start::Resume));
        assert_eq!(
            told(9_999, 1),
            ClaimOutcome::Open(Start::Resume),
            "a key in progress never expires"
        );
        assert_eq!(told(499, 2), ClaimOutcome::Taken(Taken::Mismatch));
        assert_eq!(told(500, 2), ClaimOutcome::Taken(Taken::Mismatch));
        let given_back = record(KeyState::InProgress, None);
        assert_eq!(
            evaluate_entry(Some(given_back), &claim(1), at(0)),
            ClaimOutcome::Open(Start::Resume)
        );
    }

    #[test]
    fn a_key_that_stands_for_nothing_is_entered_again() {
        assert_eq!(
            evaluate_entry(None, &claim(1), at(0)),
            ClaimOutcome::Open(Start::New)
        );
        let expired = record(KeyState::Completed, None);
        assert_eq!(
            evaluate_entry(Some(expired.clone()), &claim(2), at(1_000)),
            ClaimOutcome::Open(Start::New)
        );
        let mut gone = claim(2);
        gone.on_expired = OnExpired::Gone;
        assert_eq!(
            evaluate_entry(Some(expired), &gone, at(1_000)),
            ClaimOutcome::Taken(Taken::Gone)
        );
    }

    #[test]
    fn a_phases_name_is_bounded() {
        assert!(check_name("charged").is_ok());
        assert!(check_name("").is_err());
        assert!(check_name(&"x".repeat(RECOVERY_POINT_BYTES_MAX + 1)).is_err());
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn ownership() -> Ownership {
        Ownership {
            scope: claim(1).scope,
            fingerprint: claim(1).fingerprint,
            epoch: 1,
            created_at: at(1_000),
            recovery_point: None,
            resumed: false,
            retention: Duration::from_secs(1),
        }
    }

    fn claim(fingerprint: u8) -> Claim {
        Claim {
            scope: Scope {
                tenant: Tenant::new("alice").unwrap(),
                operation: Operation::new("POST /payments").unwrap(),
                key: IdempotencyKey::new("k").unwrap(),
            },
            fingerprint: Fingerprint::from_bytes([fingerprint; 32]),
            retention: Duration::from_secs(1),
            on_expired: OnExpired::New,
            context: Headers::default(),
        }
    }

    fn record(state: KeyState, lease_until: Option<i64>) -> KeyRecord {
        KeyRecord {
            fingerprint: Fingerprint::from_bytes([1; 32]),
            state,
            epoch: 1,
            lease_until: lease_until.map(at),
            response: None,
            created_at: at(0),
            expires_at: at(1_000),
            read_at: at(0),
        }
    }
}
