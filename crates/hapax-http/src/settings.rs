//! What a service may choose about the contract, and what it gets by default.

use std::time::Duration;

use hapax::{
    Clock, Random, Stopwatch, Timestamp,
    idempotency::{OnExpired, OnFailure, OnStoreError},
    key::Tenant,
    limits,
    quota::Quota,
    trace::Traces,
};
use http::{Method, StatusCode};
use tokio::time::Instant;

/// What a caller is asked to wait when nothing better is known.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes of a service's name: it shares an operation's with a route's template.
const SERVICE_BYTES_MAX: usize = 64;

/// Longer than any request; where a sum of times would be beyond time itself.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// The moment `wait` after `from`, however long that is.
pub(crate) fn until(from: Instant, wait: Duration) -> Instant {
    from.checked_add(wait).unwrap_or(from + FOREVER)
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    wall: Timestamp,
    reading: Duration,
}

impl Moment {
    pub(crate) const fn new(wall: Timestamp, reading: Duration) -> Self {
        Self { wall, reading }
    }

    /// The moment `wait` later by both clocks.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self {
            wall: self.wall.after(wait),
            reading: self.reading.saturating_add(wait),
        }
    }

    /// Whether `now` has come to this moment, by either clock: one that is set back does not
    /// show the time that has passed, nor does one that stands while the machine is suspended.
    pub(crate) fn is_past(self, now: Self) -> bool {
        self.reading <= now.reading || self.wall <= now.wall
    }
}

/// The settings of an [`crate::Idempotency`]; operations may differ in some of them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the time comes from; the same clock as the store's.
    pub clock: Clock,
    /// How the time is measured for which an answer may be replayed from memory: the store says
    /// for how long, and what is done to this machine's wall clock meanwhile does not count. By
    /// default the runtime's own.
    pub stopwatch: Stopwatch,
    /// Where keys and request ids come from.
    pub random: Random,
    /// How long an answer is remembered.
    pub retention: Duration,
    /// How long a duplicate waits for the first request before it is told to come again.
    pub wait: Duration,
    /// How long a phased request's key stays its owner's when the owner has died; a live one
    /// renews it. Give it more than a transaction may take.
    pub lease: Duration,
    /// How long a handler may take before it is rolled back.
    pub handler_max: Duration,
    /// What a request gets whose key has expired.
    pub on_expired: OnExpired,
    /// What a request gets while the store cannot be used.
    pub on_store_error: OnStoreError,
    /// What becomes of the key when the handler fails.
    pub on_failure: OnFailure,
    /// Which names and statuses the answers use.
    pub profile: Profile,
    /// How much one tenant may have stored; nothing is bounded by default. Whoever bounds it calls
    /// [`Idempotency::count_usage`](crate::Idempotency::count_usage) in turns.
    pub quota: Quota,
    /// Bytes of completed answers that are kept in memory; 0 keeps none.
    pub cache_bytes: u64,
    /// Bytes of request bodies that are in files of the temporary folder at once: bodies that are
    /// too long for the memory. One for which there is no room is told 503.
    pub body_file_bytes: u64,
    /// The tenant of every request, for a service that has only one; none is placed then.
    pub tenant: Option<Tenant>,
    /// The service's name, where several services with routes of the same template share a database:
    /// it stands before each operation (`billing:POST /orders`), so that the keys of one are not the
    /// other's. Without one, services share keys. Keys that were stored under another name, or under
    /// none, are not found. 1 to 64 letters, digits, `-`, `.` and `_`.
    pub service: Option<String>,
    /// Whether requests are traced; a `traceparent` that comes in travels on in any case.
    pub traces: Traces,
}

impl Settings {
    /// The defaults of the contract.
    pub fn new(clock: Clock, random: Random) -> Self {
        let start = Instant::now();
        Self {
            clock,
            stopwatch: Stopwatch::new(move || start.elapsed()),
            random,
            retention: limits::RETENTION,
            wait: limits::WAIT,
            lease: limits::LEASE,
            handler_max: limits::HANDLER,
            on_expired: OnExpired::default(),
            on_store_error: OnStoreError::default(),
            on_failure: OnFailure::default(),
            profile: Profile::default(),
            quota: Quota::default(),
            cache_bytes: limits::REPLAY_CACHE_BYTES,
            body_file_bytes: limits::BODY_FILE_BYTES,
            tenant: None,
            service: None,
            traces: Traces::off(),
        }
    }

    /// Now.
    pub(crate) fn moment(&self) -> Moment {
        Moment::new(self.clock.now(), self.stopwatch.reading())
    }
}

/// The name of the operation on a route, with that of the service before it.
///
/// # Panics
/// When the service's name is not one.
pub(crate) fn operation_name(service: Option<&str>, method: &Method, template: &str) -> String {
    let Some(service) = service else {
        return format!("{method} {template}");
    };
    let may_stand = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    assert!(
        (1..=SERVICE_BYTES_MAX).contains(&service.len()) && service.chars().all(may_stand),
        "a service's name is 1 to 64 letters, digits, '-', '.' and '_', not {service:?}"
    );
    format!("{service}:{method} {template}")
}

/// Whose names and statuses the answers use; the semantics are always the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// A mismatch is 409.
    #[default]
    Hapax,
    /// A mismatch is 422, as the IETF draft says.
    Ietf,
    /// A mismatch is 400 and a replay says `Idempotent-Replayed: true`, as at Stripe.
    Stripe,
}

impl Profile {
    /// The status of a mismatch.
    pub(crate) const fn mismatch(self) -> StatusCode {
        match self {
            Self::Hapax => StatusCode::CONFLICT,
            Self::Ietf => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Stripe => StatusCode::BAD_REQUEST,
        }
    }
}
