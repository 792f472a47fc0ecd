//! Marks as the cursors of polling endpoints: which of two is further, and what a purge may have
//! taken from one.

use std::cmp::Ordering;

use super::{Mark, Snapshot};

/// Number of bits of an id below its rotation.
const ROTATION_BITS: u32 = 36;

impl Mark {
    /// Which of two marks is further: the one that has read higher, or, if both have read as high,
    /// the one whose snapshot shows what the other's shows and more.
    ///
    /// `None` if both have read as high, and each may have read a late event that the other has not.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        if self.high != other.high {
            return Some(self.high.cmp(&other.high));
        }
        if self == other {
            return Some(Ordering::Equal);
        }
        match (self.is_within(other), other.is_within(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }

    /// Whether everything that this mark has read up to `high` was read by `other` too, which has
    /// read as high.
    fn is_within(&self, other: &Self) -> bool {
        let (Some(seen), Some(theirs)) = (&self.seen, &other.seen) else {
            // A mark without a snapshot is one that has read nothing yet.
            return self.seen.is_none();
        };
        let complete = other.late.as_ref().map_or(theirs, |late| &late.before);
        if seen.is_within(complete) {
            return true;
        }
        // Both are reading the same late events.
        let (Some(late), true) = (&self.late, seen.text == theirs.text) else {
            return false;
        };
        match &other.late {
            None => true,
            Some(other) => late.before.text == other.before.text && late.after <= other.after,
        }
    }

    /// The snapshot in which late events of this mark were not visible, and an id below which none of
    /// them can be; `None` if no event can be late.
    ///
    /// A mark that has never read does not know that id. Then the start of the rotation before its
    /// own is taken: a transaction is not open for longer than a rotation lasts.
    pub(crate) fn unread_below(&self) -> Option<(&str, i64)> {
        let (before, floor) = match (&self.late, &self.seen) {
            (Some(late), _) => (&late.before, late.floor.max(late.after)),
            (None, Some(seen)) => {
                let floors = seen.running.iter().map(|xid| self.floors.of(*xid));
                (seen, floors.filter(|floor| *floor < self.high).min()?)
            }
            (None, None) => return None,
        };
        let earlier = ((self.high >> ROTATION_BITS) - 1) << ROTATION_BITS;
        let floor = if floor == 0 { earlier } else { floor };
        Some((&*before.text, floor))
    }
}

impl Snapshot {
    /// Whether every transaction that this snapshot shows is shown by a later one.
    fn is_within(&self, later: &Self) -> bool {
        let is_hidden = |xid: &u64| *xid >= self.xmax || self.running.contains(xid);
        self.xmax <= later.xmax && later.running.iter().all(is_hidden)
    }
}

#[cfg(test)]
mod tests {
    use hapax::delivery::Frontier;

    use super::*;

    fn mark(high: i64, text: &str) -> Mark {
        Mark::of(&Frontier {
            high,
            snapshot: Some(text.into()),
        })
        .unwrap()
    }

    #[track_caller]
    fn check(one: &Mark, other: &Mark, expected: Option<Ordering>) {
        assert_eq!(one.compare(other), expected);
        assert_eq!(other.compare(one), expected.map(Ordering::reverse));
    }

    #[test]
    fn a_mark_that_has_read_higher_is_further() {
        let (low, high) = (mark(5, "9:9: 0 h = - - 0@0"), mark(6, "7:7: 0 h = - - 0@0"));
        check(&low, &high, Some(Ordering::Less));
        check(&low, &low.clone(), Some(Ordering::Equal));
    }

    #[test]
    fn of_two_marks_as_high_the_one_whose_snapshot_shows_more_is_further() {
        let early = mark(5, "7:9:7,8 0 h = - - 0@0");
        let late = mark(5, "8:9:8 0 h = - - 0@0");
        let latest = mark(5, "12:12: 0 h = - - 0@0");
        check(&early, &late, Some(Ordering::Less));
        check(&late, &latest, Some(Ordering::Less));
        check(&early, &latest, Some(Ordering::Less));
    }

    #[test]
    fn marks_that_read_the_same_late_events_are_compared_by_how_far_they_are() {
        let before = mark(9, "7:9:7 0 h = - - 0@0");
        let some = mark(9, "7:9:7 0 h 12:12: 3 - 0@0");
        let more = mark(9, "7:9:7 0 h 12:12: 5 - 0@0");
        let all = mark(9, "12:12: 0 h = - - 0@0");
        check(&before, &some, Some(Ordering::Less));
        check(&some, &more, Some(Ordering::Less));
        check(&more, &all, Some(Ordering::Less));
        // It was read after the first of them, and does not know the late events that they have read.
        let between = mark(9, "7:10:7 0 h = - - 0@0");
        check(&between, &some, None);
    }

    #[test]
    fn what_a_purge_can_take_are_events_of_transactions_that_were_open() {
        let none = mark(9, "12:12: 0 h = - - 0@0,7@5");
        assert_eq!(none.unread_below(), None);
        let open = mark(9, "7:12:7,9 0 h = - - 0@0,7@5,9@8");
        assert_eq!(open.unread_below(), Some(("7:12:7,9", 5)));
        let high = 3 << ROTATION_BITS | 7;
        let unknown = mark(high, "7:12:7 0 h = - - 0@0");
        assert_eq!(unknown.unread_below(), Some(("7:12:7", 2 << ROTATION_BITS)));
        let late = mark(9, "7:9:7 4 h 12:12: 6 - 0@0");
        assert_eq!(late.unread_below(), Some(("7:9:7", 6)));
    }
}
