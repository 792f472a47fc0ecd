//! Bugs that are planted on purpose, to show that a test would catch them.
//!
//! A test that has never failed proves little. Each [`Bug`] is a mistake that somebody might have
//! made, at the line where they would have made it: `if seeded::has(Bug::NoFence) { ... }`. Only a
//! build with `--cfg hapax_seeded` has them, and each only where it is [planted](plant); in any
//! other build [`has`] is a constant, and the mistakes are compiled and left out.
//!
//! Of the builds that have them, one atomic is the memory of what is planted: the library's only
//! global, for a bug is nobody's to pass in.

#[cfg(hapax_seeded)]
use std::sync::atomic::{AtomicU64, Ordering};

/// What somebody might have written instead, and the invariant that it breaks.
///
/// The numbers are those of `docs/explanation/seeded-bugs.md`. Where nothing is said, a bug is in
/// both stores or in neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A claim looks for the key and then runs, with no lock and no unique row in between: two at
    /// once both run (1). Atomic and single-shot requests.
    CheckThenInsert,
    /// The answer is stored in a second transaction, behind the commit of the rows (1, 2). Atomic
    /// and single-shot requests.
    AnswerOutside,
    /// The events are written in a second transaction, behind the commit of the rows (5).
    OutboxOutside,
    /// An event is written at once in a transaction of its own, whatever becomes of its request
    /// (5, 6).
    PublishBeforeCommit,
    /// Nobody compares what is asked with what was asked under the key before (4).
    NoFingerprint,
    /// Retention counts from the wrong end, and deletes keys that still stand (1, 3).
    PurgeLiveKey,
    /// What an owner writes who has lost the part, or the key, is taken all the same (10).
    NoFence,
    /// A lease ends long before the work that it stands for, and a key's is not renewed (7, 10).
    ShortLease,
    /// The relay writes an event down as delivered, and then offers it (6).
    MarkSentBeforeSend,
    /// The outbox is read on from the highest id, as if ids were drawn in the order of commits
    /// (6). PostgreSQL.
    FrontierById,
    /// The oldest running transaction is taken for one that is over: `<=` for `<` (6). PostgreSQL.
    FrontierOffByOne,
    /// The inbox row is committed before the effect, in a transaction of its own (8).
    InboxOutside,
    /// A message is acknowledged while its transaction is still to be committed (2, 8).
    AckBeforeCommit,
    /// Every attempt calls the foreign system under a new key (11).
    ProviderKeyPerAttempt,
    /// A call whose outcome nobody knows is taken for one that did nothing (11).
    TimeoutIsFailure,
    /// A saga turns round while nobody knows whether a step of it happened (11).
    RefundOnUnknown,
    /// What has to be undone, and under which key, is written down behind the call (11).
    CompensationAfterCall,
    /// Whoever asks to be left alone for a while is not (12).
    RetryAfterIgnored,
    /// A webhook's redirect is followed, wherever it leads (6).
    RedirectFollowed,
    /// An event that is out of attempts is dropped (6).
    DroppedWhenExhausted,
    /// An event that failed does not hold up those behind it in its key (9).
    OrderByLuck,
    /// A replay is written anew from what the stored answer says (3).
    ReplayReserialised,
    /// Retries are not counted against any budget (12).
    NoRetryBudget,
}

/// Why nothing was planted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlantError {
    /// The build knows no bugs: what is run on it would prove nothing.
    #[error("this build has no seeded bugs: build with --cfg hapax_seeded to plant {0:?}")]
    NotSeeded(String),
    /// There is no bug of this name.
    #[error("there is no seeded bug {0:?}")]
    Unknown(String),
}

impl Bug {
    /// All of them.
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

    /// Its name, such as `no-fence`.
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

    /// The bug of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }
}

/// Whether this process has a bug.
#[cfg(not(hapax_seeded))]
#[inline]
pub const fn has(_: Bug) -> bool {
    false
}

/// Whether this process has a bug.
#[cfg(hapax_seeded)]
pub fn has(bug: Bug) -> bool {
    #[cfg(test)]
    tests::plant_what_is_asked_for();
    PLANTED.load(Ordering::Relaxed) & bit(bug) != 0
}

/// Gives this process the bug `name`, for as long as it runs.
///
/// # Errors
/// Fails when there is no such bug, and in a build that has none.
#[cfg(not(hapax_seeded))]
pub fn plant(name: &str) -> Result<Bug, PlantError> {
    Err(PlantError::NotSeeded(name.to_owned()))
}

/// Gives this process the bug `name`, for as long as it runs.
///
/// # Errors
/// Fails when there is no such bug.
#[cfg(hapax_seeded)]
pub fn plant(name: &str) -> Result<Bug, PlantError> {
    let bug = Bug::named(name).ok_or_else(|| PlantError::Unknown(name.to_owned()))?;
    PLANTED.fetch_or(bit(bug), Ordering::Relaxed);
    Ok(bug)
}

/// The bugs of this process, a bit each.
#[cfg(hapax_seeded)]
static PLANTED: AtomicU64 = AtomicU64::new(0);

#[cfg(hapax_seeded)]
const fn bit(bug: Bug) -> u64 {
    1 << bug as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit tests of this crate alone have no other way to be given a bug.
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
