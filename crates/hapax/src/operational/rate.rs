//! Rate limit of events about exhausted deliveries: a token bucket for each receiver and one for the
//! process, and the number of deliveries that were left out.
//!
//! The counts are in memory: a process that dies, or a transaction that fails, loses those that were
//! not reported yet. The metric `hapax_operational_events_omitted_total` counts them too.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::clock::Timestamp;

/// A bucket: how many events may come at once, and the time in which it gains one.
#[derive(Clone, Copy, Debug)]
struct Bound {
    burst: u32,
    interval: Duration,
}

/// Events about one receiver: enough to see what fails, and ten per minute while it keeps failing.
const EACH: Bound = Bound {
    burst: 10,
    interval: Duration::from_secs(6),
};
/// Events of a process, if thousands of receivers fail at the same time.
const ALL: Bound = Bound {
    burst: 100,
    interval: Duration::from_millis(100),
};
/// Number of receivers from which on those are forgotten whose buckets are full.
const KEPT: usize = 10_000;

impl Bound {
    /// The time of a bucket, which is not after that of an empty one: the clock may have been set back.
    fn at(self, full_at: Timestamp, now: Timestamp) -> Timestamp {
        full_at.max(now).min(now.after(self.interval * self.burst))
    }

    /// How many events a bucket contains that is full at a time.
    fn room(self, full_at: Timestamp, now: Timestamp) -> usize {
        let empty = now.after(self.interval * self.burst);
        let left = empty.since(self.at(full_at, now)).as_millis();
        usize::try_from(left / self.interval.as_millis().max(1)).unwrap_or(usize::MAX)
    }

    /// When a bucket is full of which `count` events are taken.
    fn without(self, full_at: Timestamp, now: Timestamp, count: usize) -> Timestamp {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let taken = self.interval.saturating_mul(count);
        self.at(full_at, now).after(taken)
    }
}

/// How many occurrences of one receiver are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// How many of them, from the first on, have an event.
    pub(super) granted: usize,
    /// How many have none, among these and before; the last event reports them. Zero if none is
    /// granted.
    pub(super) omitted: u64,
}

/// The buckets.
#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    all: Timestamp,
    receivers: HashMap<String, Bucket>,
}

#[derive(Debug, Default)]
struct Bucket {
    full_at: Timestamp,
    /// Occurrences without an event since the last one.
    omitted: u64,
}

impl Rate {
    /// Takes up to `count` events of a receiver.
    pub(super) fn take(&self, receiver: &str, count: usize, now: Timestamp) -> Share {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = &mut *buckets;
        if buckets.receivers.len() >= KEPT && !buckets.receivers.contains_key(receiver) {
            buckets.receivers.retain(|_, it| it.full_at > now);
            if buckets.receivers.len() >= KEPT {
                buckets.receivers.clear();
            }
        }
        let bucket = buckets.receivers.entry(receiver.to_owned()).or_default();
        let room = EACH
            .room(bucket.full_at, now)
            .min(ALL.room(buckets.all, now));
        let granted = count.min(room);
        let left_out = u64::try_from(count - granted).unwrap_or(u64::MAX);
        bucket.omitted = bucket.omitted.saturating_add(left_out);
        bucket.full_at = EACH.without(bucket.full_at, now, granted);
        buckets.all = ALL.without(buckets.all, now, granted);
        let omitted = if granted == 0 {
            0
        } else {
            std::mem::take(&mut bucket.omitted)
        };
        Share { granted, omitted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    fn share(granted: usize, omitted: u64) -> Share {
        Share { granted, omitted }
    }

    #[test]
    fn what_is_left_out_is_counted_in_the_next_event_of_the_same_receiver() {
        let rate = Rate::default();
        assert_eq!(rate.take("a", 4, START), share(4, 0));
        assert_eq!(rate.take("a", 10, START), share(6, 4));
        assert_eq!(rate.take("a", 5, START), share(0, 0));
        assert_eq!(rate.take("b", 1, START), share(1, 0));
        let later = START.after(EACH.interval);
        assert_eq!(rate.take("a", 2, later), share(1, 6));
        assert_eq!(rate.take("a", 1, later.after(EACH.interval)), share(1, 0));
    }

    #[test]
    fn all_receivers_together_have_a_bound() {
        let rate = Rate::default();
        let granted: usize = (0..1_000)
            .map(|number| rate.take(&number.to_string(), 1, START).granted)
            .sum();
        assert_eq!(granted, 100);
        let later = START.after(ALL.interval * 2);
        assert_eq!(rate.take("x", 5, later), share(2, 3));
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing_for_long() {
        let rate = Rate::default();
        let ahead = START.after(Duration::from_hours(1));
        assert_eq!(rate.take("a", 10, ahead), share(10, 0));
        assert_eq!(rate.take("a", 1, START), share(0, 0));
        assert_eq!(rate.take("a", 1, START.after(EACH.interval)), share(1, 1));
    }

    #[test]
    fn the_number_of_receivers_in_memory_is_bounded() {
        let rate = Rate::default();
        for number in 0..3 * KEPT {
            rate.take(&number.to_string(), 1, START);
        }
        let buckets = rate.0.lock().unwrap();
        assert!(
            buckets.receivers.len() <= KEPT,
            "{}",
            buckets.receivers.len()
        );
    }
}
