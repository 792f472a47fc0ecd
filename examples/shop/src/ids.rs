//! Ids of rows: a prefix that names the type, and a UUID v7.
//!
//! Ids increase with time, so new rows go to the end of an index, and a list by id is a list by
//! age. An id is generated before the row is written, so a response can be built without a query.

use hapax::{Clock, Random, Timestamp};

/// Generates ids, from a clock and a source of randomness.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    clock: Clock,
    random: Random,
}

impl Ids {
    pub(crate) fn new(clock: Clock, random: Random) -> Self {
        Self { clock, random }
    }

    /// Returns a new id such as `ord_0190...`.
    pub(crate) fn mint(&self, prefix: &str) -> String {
        let mut tail = [0; 10];
        tail[..8].copy_from_slice(&self.random.bits().to_le_bytes());
        tail[8..].copy_from_slice(&self.random.bits().to_le_bytes()[..2]);
        let millis = u64::try_from(self.now().as_millis()).unwrap_or(0);
        let id = uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid();
        format!("{prefix}_{id}")
    }

    /// Returns the clock and the source of randomness.
    pub(crate) fn sources(&self) -> (Clock, Random) {
        (self.clock.clone(), self.random.clone())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Formats a time as in `2026-01-02T03:04:05.678Z`.
pub(crate) fn written(moment: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(moment.as_millis())
        .map(|time| format!("{time:.3}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_prefix_and_a_version_seven_uuid() {
        let clock = Clock::new(|| Timestamp::from_millis(1_645_557_742_000));
        let ids = Ids::new(clock, Random::new(|| u64::MAX));
        let id = ids.mint("ord");
        assert_eq!(id, "ord_017f22e2-79b0-7fff-bfff-ffffffffffff");
    }

    #[test]
    fn a_moment_is_written_in_utc_with_milliseconds() {
        let moment = Timestamp::from_millis(1_645_557_742_050);
        assert_eq!(written(moment), "2022-02-22T19:22:22.050Z");
    }
}
