//! Token buckets by name: a rate limit for each endpoint or tenant, in the memory of one process.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Number of buckets from which on full ones are removed.
const KEPT: usize = 1_024;

/// The buckets. One that is full is the same as none.
#[derive(Debug)]
pub struct Buckets {
    /// The time in which a bucket gains one request.
    interval: Duration,
    /// The time in which an empty bucket becomes full.
    refill: Duration,
    /// When the bucket of each name is full again.
    full_at: Mutex<HashMap<String, Instant>>,
}

impl Buckets {
    /// Creates buckets that gain `per_second` requests in a second and hold `burst` of them.
    pub fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self {
            interval,
            refill: interval * burst.get(),
            full_at: Mutex::default(),
        }
    }

    /// Takes `count` requests out of the bucket of a name.
    ///
    /// # Errors
    /// If the bucket does not contain them, returns how long that takes.
    pub fn take(&self, name: &str, count: u32) -> Result<(), Duration> {
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= KEPT && !full_at.contains_key(name) {
            full_at.retain(|_, at| *at > now);
        }
        let at = full_at.get(name).copied().unwrap_or(now).max(now);
        let then = at + self.interval * count;
        let wait = then.saturating_duration_since(now + self.refill);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        full_at.insert(name.to_owned(), then);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_has_its_burst_and_then_its_rate() {
        let two = NonZeroU32::new(2).unwrap();
        let buckets = Buckets::new(two, two);
        assert_eq!([buckets.take("a", 1), buckets.take("a", 1)], [Ok(()); 2]);
        assert_eq!(buckets.take("a", 1), Err(Duration::from_millis(500)));
        assert_eq!(buckets.take("b", 2), Ok(()), "each name has a bucket");
        advance(Duration::from_millis(500)).await;
        assert_eq!(buckets.take("a", 1), Ok(()));
        assert!(buckets.take("a", 1).is_err());
        advance(Duration::from_mins(1)).await;
        assert_eq!(buckets.take("a", 2), Ok(()));
        assert!(
            buckets.take("a", 1).is_err(),
            "a pause fills it, and no more"
        );
    }
}
