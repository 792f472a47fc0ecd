//! When the first event after a frontier became due, from a bounded sample of the events after it.

use hapax::Timestamp;

/// The first events after a frontier.
#[derive(Default)]
pub(crate) struct DueSample {
    size: i64,
    oldest: Option<i64>,
    written_at: Option<i64>,
}

impl DueSample {
    /// Adds an event that was written and became due at these times.
    pub(crate) fn add(&mut self, is_settled: bool, written_at: i64, due_at: i64) {
        self.size += 1;
        self.written_at = self.written_at.max(Some(written_at));
        if !is_settled {
            self.oldest = Some(self.oldest.map_or(due_at, |oldest| oldest.min(due_at)));
        }
    }

    /// Returns when the first event became due. If none of a full sample of `max` events is due, an
    /// event after them can be: it was written after the last of them, so that time is returned.
    pub(crate) fn oldest(&self, max: i64, now: Timestamp) -> Option<Timestamp> {
        let is_due = self.oldest.is_some_and(|oldest| oldest <= now.as_millis());
        let oldest = if is_due || self.size < max {
            self.oldest
        } else {
            self.written_at
        };
        oldest.map(Timestamp::from_millis)
    }
}
