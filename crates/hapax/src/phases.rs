//! Requests that commit in several transactions, because they call foreign systems in between.
//!
//! The first transaction commits the key `in_progress`, with a lease and an epoch: an
//! [`Ownership`]. Each phase commits rows, events and a recovery point, and the last one the
//! answer; all of them only while the epoch is still the owner's. When an owner dies its lease
//! lapses, and whoever takes the key over goes on at the recovery point.
//!
//! A foreign system must see one intent however often a step is tried: [`Ownership::provider_key`]
//! depends on the key's row and the step, and never on the attempt.

use std::time::Duration;

use bytes::Bytes;
use uuid::Builder;

use crate::{
    clock::Timestamp,
    idempotency::{Claim, KeyRecord, KeyState, Known, judge},
    key::{Fingerprint, FingerprintBuilder, Scope},
    limits::RECOVERY_POINT_BYTES_MAX,
    seeded::{self, Bug},
};

/// The version of the format of provider keys: a change would charge twice.
const PROVIDER_KEY_VERSION: u8 = 1;

/// What a request asks of the key table when its key is to outlive its first transaction.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which key, for which payload.
    pub claim: Claim,
    /// How long the key stays its owner's unless it is renewed.
    pub lease: Duration,
    /// The request itself, so that it can be resumed without the client; kept until it is answered.
    pub request: Option<Bytes>,
}

/// What came of an [`Entry`].
#[derive(Clone, Debug)]
pub enum Entered {
    /// The key is ours, and that is committed.
    Owned(Ownership),
    /// The key was taken.
    Known(Known),
}

/// A key in the hands of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Which key.
    pub scope: Scope,
    /// What was asked under it.
    pub fingerprint: Fingerprint,
    /// Which owner this is: every later one has a higher number.
    pub epoch: i64,
    /// When the key was first entered; with the epoch it tells this row from any later one.
    pub created_at: Timestamp,
    /// The name of the last phase that was committed.
    pub recovery_point: Option<String>,
    /// Whether somebody else had the key before and did not finish.
    pub resumed: bool,
    /// How long the answer will stand.
    pub retention: Duration,
}

impl Ownership {
    /// The key to send to a foreign system with the step `step`: the same for every attempt.
    ///
    /// It is 36 characters long and reads as a UUID (version 8). Another tenant, operation, key,
    /// payload, step, or the same key used anew after it expired make another one.
    pub fn provider_key(&self, step: &str) -> String {
        let scope = &self.scope;
        let mut hash = FingerprintBuilder::new(PROVIDER_KEY_VERSION)
            .part(scope.tenant.as_str().as_bytes())
            .part(scope.operation.as_str().as_bytes())
            .part(scope.key.as_str().as_bytes())
            .part(self.fingerprint.as_bytes())
            .part(&self.created_at.as_millis().to_be_bytes())
            .part(step.as_bytes());
        if seeded::has(Bug::ProviderKeyPerAttempt) {
            hash = hash.part(&self.epoch.to_be_bytes());
        }
        let hash = hash.finish();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }
}

/// A key whose owner died, in new hands, with the request that is to be resumed.
#[derive(Clone, Debug)]
pub struct TakenOver {
    /// The key.
    pub ownership: Ownership,
    /// The request as it was kept.
    pub request: Bytes,
}

/// Which keys are to be taken over, and on what terms.
#[derive(Clone, Copy, Debug)]
pub struct Lapsed {
    /// How long the new owner has a key unless it renews it.
    pub lease: Duration,
    /// How long a key has to be nobody's: the client's own retry comes first.
    ///
    /// It doubles with every owner that a key has had, [`GRACE_DOUBLINGS`](crate::limits::GRACE_DOUBLINGS)
    /// times at most, so that a request that always fails is tried less and less often.
    pub grace: Duration,
    /// The most keys to take.
    pub limit: usize,
}

/// What an entry finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing that stands: it begins anew.
    New,
    /// Its own request, which nobody works on: it goes on where that stopped.
    Resume,
    /// A key that is taken.
    Known(Known),
}

/// Judges an entry against the row that holds its key.
///
/// A mismatch is told first. A key in progress is free once its lease has lapsed, to the last
/// moment of which it is its owner's.
pub fn judge_entry(record: Option<KeyRecord>, claim: &Claim, now: Timestamp) -> Found {
    let Some(record) = record else {
        return Found::New;
    };
    let is_free = record.lease_until.is_none_or(|until| until <= now);
    let in_progress = record.state == KeyState::InProgress;
    match judge(record, claim, now) {
        None => Found::New,
        Some(Known::InProgress) if in_progress && is_free => Found::Resume,
        Some(known) => Found::Known(known),
    }
}

/// Takes `name` as the name of a phase.
///
/// # Errors
/// Fails when it is empty or longer than [`RECOVERY_POINT_BYTES_MAX`].
pub fn check_name(name: &str) -> Result<(), PhaseNameError> {
    match name.len() {
        1..=RECOVERY_POINT_BYTES_MAX => Ok(()),
        bytes => Err(PhaseNameError { bytes }),
    }
}

/// A phase's name that is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a phase's name has 1 to {RECOVERY_POINT_BYTES_MAX} bytes, not {bytes}")]
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
        let told = |now, print| judge_entry(Some(running.clone()), &claim(print), at(now));
        assert_eq!(told(499, 1), Found::Known(Known::InProgress));
        assert_eq!(told(500, 1), Found::Resume);
        assert_eq!(
            told(9_999, 1),
            Found::Resume,
            "a key in progress never expires"
        );
        assert_eq!(told(499, 2), Found::Known(Known::Mismatch));
        assert_eq!(told(500, 2), Found::Known(Known::Mismatch));
        let given_back = record(KeyState::InProgress, None);
        assert_eq!(
            judge_entry(Some(given_back), &claim(1), at(0)),
            Found::Resume
        );
    }

    #[test]
    fn a_key_that_stands_for_nothing_is_entered_anew() {
        assert_eq!(judge_entry(None, &claim(1), at(0)), Found::New);
        let expired = record(KeyState::Completed, None);
        assert_eq!(
            judge_entry(Some(expired.clone()), &claim(2), at(1_000)),
            Found::New
        );
        let mut gone = claim(2);
        gone.on_expired = OnExpired::Gone;
        assert_eq!(
            judge_entry(Some(expired), &gone, at(1_000)),
            Found::Known(Known::Gone)
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
            answer: None,
            created_at: at(0),
            expires_at: at(1_000),
            read_at: at(0),
        }
    }
}
