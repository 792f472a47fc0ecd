//! Sources of time and randomness, which are passed in.
//!
//! Nothing in Hapax reads the time of day or draws a random number by itself: a service passes
//! [`Clock::system`] and [`Random::system`], and a test passes its own. A [`Clock`] returns
//! wall-clock time, because leases, expiry times and schedules are compared with rows. A [`Stopwatch`] measures elapsed time and does not
//! depend on the wall clock. Waiting is done by the runtime.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde::{Serialize, Serializer};

/// A point in time, in milliseconds since the Unix epoch. As text it is in RFC 3339.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates the time `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Seconds since the Unix epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// The time after `wait`, at most the latest possible one.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A time far outside of what people use has no form in RFC 3339.
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let time: jiff::Timestamp = text.parse()?;
        Ok(Self(time.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        <String as utoipa::PartialSchema>::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Timestamp {}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since_epoch = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A source of wall-clock time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The wall clock of the operating system.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the library reads the time"
    )]
    pub fn system() -> Self {
        Self::new(SystemTime::now)
    }

    /// Creates a clock that calls `read`.
    pub fn new<T: Into<Timestamp>>(read: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || read().into()))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// A source of elapsed time, which never goes back when the wall clock is set.
#[derive(Clone)]
pub struct Stopwatch(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Stopwatch {
    /// Creates a stopwatch that calls `read` for the time since a fixed moment.
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The time since that moment. Only the difference of two readings is meaningful.
    pub fn reading(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stopwatch").field(&self.reading()).finish()
    }
}

/// A source of random numbers.
#[derive(Clone)]
pub struct Random(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Random {
    /// Random numbers for ids, keys and jitter: a keyed hash (`SipHash`) of a counter. The operating
    /// system provides the key, without which the numbers are unpredictable. Secrets are not made
    /// from them.
    pub fn system() -> Self {
        let (key, count) = (RandomState::new(), AtomicU64::new(0));
        Self::new(move || key.hash_one(count.fetch_add(1, Ordering::Relaxed)))
    }

    /// Creates a source that calls `draw` for 64 uniform random bits.
    pub fn new(draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(draw))
    }

    /// 64 uniform random bits.
    pub fn bits(&self) -> u64 {
        (self.0)()
    }

    /// A uniform random number in `0.0..1.0`.
    #[expect(clippy::cast_precision_loss, reason = "a double holds 53 bits")]
    pub fn unit(&self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// 16 uniform random bytes, for an identifier.
    pub(crate) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.bits().to_le_bytes());
        bytes[8..].copy_from_slice(&self.bits().to_le_bytes());
        bytes
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_from_its_text() {
        let time = Timestamp::from_millis(1_764_000_000_123);
        assert_eq!(time.to_string(), "2025-11-24T16:00:00.123Z");
        assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        assert!("tomorrow".parse::<Timestamp>().is_err());
        // A time that has no form in RFC 3339.
        let far = Timestamp::from_millis(i64::MAX);
        assert_eq!(far.to_string(), i64::MAX.to_string());
    }

    #[test]
    fn a_moment_before_another_is_no_time_after_it() {
        let early = Timestamp::from_millis(1_000);
        assert_eq!(
            early.since(early.after(Duration::from_secs(1))),
            Duration::ZERO
        );
        assert_eq!(
            early.after(Duration::from_secs(1)).since(early),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn the_system_clock_and_random_numbers_advance() {
        let clock = Clock::system();
        let earlier = clock.now();
        // 2025-01-01: a machine of the tests has its clock set.
        assert!(earlier > Timestamp::from_millis(1_735_689_600_000));
        assert!(clock.now() >= earlier);

        let (one, other) = (Random::system(), Random::system());
        let mut drawn: Vec<u64> = (0..1_000)
            .flat_map(|_| [one.bits(), other.bits()])
            .collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 2_000, "a number was drawn twice");
    }

    #[test]
    fn a_unit_stays_below_one() {
        assert!(Random::new(|| u64::MAX).unit() < 1.0);
        assert!(Random::new(|| 0).unit() == 0.0);
    }
}
