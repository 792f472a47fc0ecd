//! Settings of idempotent operations, with their defaults.

use std::time::Duration;

use hapax::{
    Clock, Random, Stopwatch, Timestamp,
    idempotency::{OnExpired, OnFailure, OnStoreError},
    key::{IdempotencyKey, Tenant},
    limits,
    quota::Quota,
    request_log::RequestLog,
    trace::Traces,
};
use http::Method;
use tokio::time::Instant;

use crate::profile::{FingerprintMode, Profile};

/// The default value of `Retry-After`.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum length of a service's name in bytes. The name is part of the name of each operation,
/// together with the method and the route template.
const SERVICE_BYTES_MAX: usize = 64;

/// Longer than any request. Used if the end of a wait would overflow.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Returns `from + wait`, or a point far in the future if the sum overflows.
pub(crate) fn until(from: Instant, wait: Duration) -> Instant {
    from.checked_add(wait).unwrap_or(from + FOREVER)
}

/// A point in time by the wall clock and by the stopwatch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    wall: Timestamp,
    reading: Duration,
}

impl Moment {
    pub(crate) const fn new(wall: Timestamp, reading: Duration) -> Self {
        Self { wall, reading }
    }

    /// Returns the moment that is `wait` later by both clocks.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self {
            wall: self.wall.after(wait),
            reading: self.reading.saturating_add(wait),
        }
    }

    /// Whether this moment has passed by either clock. A single clock can miss time that has
    /// passed: the wall clock if it is set back, the stopwatch if it stops while the machine is
    /// suspended.
    pub(crate) fn is_past(self, now: Self) -> bool {
        self.reading <= now.reading || self.wall <= now.wall
    }
}

/// The settings of an [`crate::Idempotency`]. Some of them can be overridden per operation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The clock. It must be the clock of the store.
    pub clock: Clock,
    /// The stopwatch that measures how long a response may be replayed from memory. The store
    /// returns this duration, and changes of this machine's wall clock do not extend it. The
    /// default is the monotonic clock of the runtime.
    pub stopwatch: Stopwatch,
    /// The random numbers for generated keys and request ids.
    pub random: Random,
    /// How long a response is kept.
    pub retention: Duration,
    /// How long a duplicate waits for the first request before it is refused as in progress.
    pub wait: Duration,
    /// How long the key of a phased request stays with an owner that has died. A live owner renews
    /// its lease. The lease should be longer than any transaction.
    pub lease: Duration,
    /// The timeout of a handler. Its transaction is then rolled back.
    pub handler_max: Duration,
    /// The response to a request whose key has expired.
    pub on_expired: OnExpired,
    /// Policy for requests while the store is unavailable.
    pub on_store_error: OnStoreError,
    /// Policy for the key if the handler fails.
    pub on_failure: OnFailure,
    /// The protocol that clients speak: statuses, codes and header names of responses, and what is
    /// demanded of keys.
    pub profile: Profile,
    /// How bodies are compared. If absent, the profile decides.
    pub fingerprint: Option<FingerprintMode>,
    /// The maximum that one tenant may have stored. By default it is unlimited. A service that
    /// sets a quota must call [`Idempotency::count_usage`](crate::Idempotency::count_usage)
    /// periodically.
    pub quota: Quota,
    /// The size of the replay cache in bytes; 0 disables it.
    pub cache_bytes: u64,
    /// The maximum size in bytes of all request bodies that are in files of the temporary folder at
    /// the same time, because they are too long for memory. A body for which there is no space is
    /// refused with 503.
    pub body_file_bytes: u64,
    /// The tenant of every request, for a service that has only one. Authentication then need not
    /// set a tenant.
    pub tenant: Option<Tenant>,
    /// The service's name, for services that share a database and have routes with the same
    /// template. It is the prefix of each operation (`billing:POST /orders`), so that each service
    /// has its own keys. Without names, the services share keys. Keys that were stored under
    /// another name, or without a name, are not found. The name has 1 to 64 letters, digits, `-`,
    /// `.` and `_`.
    pub service: Option<String>,
    /// Whether requests are traced. An incoming `traceparent` is passed on in any case.
    pub traces: Traces,
    /// Which requests are logged, one line each.
    pub log: RequestLog,
}

impl Settings {
    /// Creates settings with the defaults.
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
            fingerprint: None,
            quota: Quota::default(),
            cache_bytes: limits::REPLAY_CACHE_BYTES,
            body_file_bytes: limits::BODY_FILE_BYTES,
            tenant: None,
            service: None,
            traces: Traces::off(),
            log: RequestLog::default(),
        }
    }

    /// Generates a key that clients of this profile may send.
    pub(crate) fn mint_key(&self, profile: Profile) -> IdempotencyKey {
        if profile.needs_uuid_v7() {
            IdempotencyKey::mint_v7(self.clock.now(), &self.random)
        } else {
            IdempotencyKey::mint(&self.random)
        }
    }

    /// Returns the current moment.
    pub(crate) fn moment(&self) -> Moment {
        Moment::new(self.clock.now(), self.stopwatch.reading())
    }
}

/// Returns the name of the operation on a route, prefixed with the name of the service.
///
/// # Panics
/// Panics if the service's name is not valid.
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
