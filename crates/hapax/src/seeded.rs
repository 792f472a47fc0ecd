//! Seeded bugs: mistakes that can be switched on to show that a test detects them.
//!
//! A test that has never failed proves little. Each [`Bug`] is a plausible mistake, at the line
//! where it would be made: `if seeded::has(Bug::NoFence) { ... }`. Only a build with
//! `--cfg hapax_seeded` contains the bugs, and a bug has an effect only in a process in which it
//! was [planted](plant). In any other build [`has`] is a constant, and the compiler removes the
//! mistakes.
//!
//! In a build with bugs, an atomic integer holds the planted ones. It is the only global of the
//! library, because no caller should have to pass a bug.

#[cfg(hapax_seeded)]
use std::sync::atomic::{AtomicU64, Ordering};

/// A seeded bug: the mistake, and in parentheses the invariants that it breaks.
///
/// The numbers are those of `docs/explanation/seeded-bugs.md`. Unless stated otherwise, a bug
/// affects both stores, or neither of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A claim looks for the key and then runs the request, without a lock or a unique row in
    /// between, so that two concurrent requests both run (1). Atomic and single-shot requests.
    CheckThenInsert,
    /// The response is stored in a second transaction, after the commit of the rows (1, 2). Atomic
    /// and single-shot requests.
    AnswerOutside,
    /// The events are written in a second transaction, after the commit of the rows (5).
    OutboxOutside,
    /// An event is written at once in a separate transaction, even if its request is rolled back
    /// (5, 6).
    PublishBeforeCommit,
    /// The request is not compared with the first request that used the key (4).
    NoFingerprint,
    /// Retention is computed from the wrong time, so that keys that are still valid are deleted (1,
    /// 3).
    PurgeLiveKey,
    /// Writes of an owner that has lost the partition or the key are accepted (10).
    NoFence,
    /// A lease ends long before the work does, and the lease of a key is not renewed (7, 10).
    ShortLease,
    /// The relay records an event as delivered before it offers it (6).
    MarkSentBeforeSend,
    /// The outbox is read from the highest id, as if ids were assigned in commit order (6).
    /// PostgreSQL only.
    FrontierById,
    /// The oldest running transaction is considered finished: `<=` instead of `<` (6). PostgreSQL
    /// only.
    FrontierOffByOne,
    /// The inbox row is committed before the effect, in a separate transaction (8).
    InboxOutside,
    /// A message is acknowledged before its transaction is committed (2, 8).
    AckBeforeCommit,
    /// Every attempt calls the remote system under a new key (11).
    ProviderKeyPerAttempt,
    /// A call with an unknown outcome is treated as one that did nothing (11).
    TimeoutIsFailure,
    /// A saga starts to compensate while the outcome of a step is unknown (11).
    RefundOnUnknown,
    /// The intent of a compensation and its key are recorded after the call instead of before it
    /// (11).
    CompensationAfterCall,
    /// A `Retry-After` of the receiver is ignored (12).
    RetryAfterIgnored,
    /// A webhook's redirect is followed to any address (6).
    RedirectFollowed,
    /// An event without remaining attempts is dropped (6).
    DroppedWhenExhausted,
    /// An event that failed does not block later events of its order key (9).
    OrderByLuck,
    /// A replay is serialized again from the stored response (3).
    ReplayReserialised,
    /// Retries are not counted against any budget (12).
    NoRetryBudget,
}

/// Why no bug was planted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlantError {
    /// The build contains no bugs, so that a test with it would prove nothing.
    #[error("this build has no seeded bugs: build with --cfg hapax_seeded to plant {0:?}")]
    NotSeeded(String),
    /// There is no bug of this name.
    #[error("there is no seeded bug {0:?}")]
    Unknown(String),
}

impl Bug {
    /// All bugs.
    pub const ALL: [Self; 23] = [
        Self::CheckThenInsert,
        Self::AnswerOutside,
        Self::OutboxOutside,
        Self::PublishBeforeCommit,
        Self::NoFingerprint,
        Self::PurgeLiveKey,
        Self::NoFence,
        Self::ShortLease,
        Self::MarkSentBeforeSend,
        Self::FrontierById,
        Self::FrontierOffByOne,
        Self::InboxOutside,
        Self::AckBeforeCommit,
        Self::ProviderKeyPerAttempt,
        Self::TimeoutIsFailure,
        Self::RefundOnUnknown,
        Self::CompensationAfterCall,
        Self::RetryAfterIgnored,
        Self::RedirectFollowed,
        Self::DroppedWhenExhausted,
        Self::OrderByLuck,
        Self::ReplayReserialised,
        Self::NoRetryBudget,
    ];

    /// The name of the bug, such as `no-fence`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CheckThenInsert => "check-then-insert",
            Self::AnswerOutside => "answer-outside",
            Self::OutboxOutside => "outbox-outside",
            Self::PublishBeforeCommit => "publish-before-commit",
            Self::NoFingerprint => "no-fingerprint",
            Self::PurgeLiveKey => "purge-live-key",
            Self::NoFence => "no-fence",
            Self::ShortLease => "short-lease",
            Self::MarkSentBeforeSend => "mark-sent-before-send",
            Self::FrontierById => "frontier-by-id",
            Self::FrontierOffByOne => "frontier-off-by-one",
            Self::InboxOutside => "inbox-outside",
            Self::AckBeforeCommit => "ack-before-commit",
            Self::ProviderKeyPerAttempt => "provider-key-per-attempt",
            Self::TimeoutIsFailure => "timeout-is-failure",
            Self::RefundOnUnknown => "refund-on-unknown",
            Self::CompensationAfterCall => "compensation-after-call",
            Self::RetryAfterIgnored => "retry-after-ignored",
            Self::RedirectFollowed => "redirect-followed",
            Self::DroppedWhenExhausted => "dropped-when-exhausted",
            Self::OrderByLuck => "order-by-luck",
            Self::ReplayReserialised => "replay-reserialised",
            Self::NoRetryBudget => "no-retry-budget",
        }
    }

    /// The bug with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }
}

/// Whether the bug is planted in this process.
#[cfg(not(hapax_seeded))]
#[inline]
pub const fn has(_: Bug) -> bool {
    false
}

/// Whether the bug is planted in this process.
#[cfg(hapax_seeded)]
pub fn has(bug: Bug) -> bool {
    #[cfg(test)]
    tests::plant_what_is_asked_for();
    PLANTED.load(Ordering::Relaxed) & bit(bug) != 0
}

/// Plants the bug `name` in this process, until it ends.
///
/// # Errors
/// Fails if there is no such bug, or if the build contains no bugs.
#[cfg(not(hapax_seeded))]
pub fn plant(name: &str) -> Result<Bug, PlantError> {
    Err(PlantError::NotSeeded(name.to_owned()))
}

/// Plants the bug `name` in this process, until it ends.
///
/// # Errors
/// Fails if there is no such bug.
#[cfg(hapax_seeded)]
pub fn plant(name: &str) -> Result<Bug, PlantError> {
    let bug = Bug::named(name).ok_or_else(|| PlantError::Unknown(name.to_owned()))?;
    PLANTED.fetch_or(bit(bug), Ordering::Relaxed);
    Ok(bug)
}

/// The planted bugs, one bit each.
#[cfg(hapax_seeded)]
static PLANTED: AtomicU64 = AtomicU64::new(0);

#[cfg(hapax_seeded)]
const fn bit(bug: Bug) -> u64 {
    1 << bug as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plants the bug of `HAPAX_SEEDED`. The unit tests of this crate have no other way to plant
    /// one.
    #[cfg(hapax_seeded)]
    pub(super) fn plant_what_is_asked_for() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            if let Some(name) = std::env::var_os("HAPAX_SEEDED") {
                plant(&name.to_string_lossy()).unwrap();
            }
        });
    }

    #[test]
    fn every_bug_has_a_name_of_its_own_and_is_found_by_it() {
        for (place, bug) in Bug::ALL.into_iter().enumerate() {
            assert_eq!(bug as usize, place, "{bug:?}");
            assert_eq!(Bug::named(bug.name()), Some(bug));
        }
        assert_eq!(Bug::named("no such bug"), None);
    }

    #[cfg(not(hapax_seeded))]
    #[test]
    fn a_sound_build_has_no_bug_and_refuses_to_be_given_one() {
        let refused = plant("no-fence").unwrap_err();
        assert!(refused.to_string().contains("--cfg hapax_seeded"));
        assert!(!Bug::ALL.into_iter().any(has));
    }
}
