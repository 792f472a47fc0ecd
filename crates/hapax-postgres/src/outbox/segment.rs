//! The ring that events lie in: eight segments, one after the other written, read and emptied.
//!
//! An id carries its turn above the lowest 36 bits, and a turn its segment. What is read of one
//! segment is read of its own table, so that no statement concerns itself with the others.

use std::{array, sync::LazyLock};

use crate::query;

/// How many segments the ring has.
const SEGMENTS: i64 = 8;
/// Bits of an id below those of its turn.
const TURN_BITS: u32 = 36;

/// A statement, once for each segment.
pub(crate) struct Segmented(LazyLock<[&'static str; 8]>);

/// Reads on from a frontier.
pub(crate) static READ: Segmented = Segmented(LazyLock::new(|| each(query!("outbox/read"))));
/// Reads on through what is late.
pub(crate) static READ_LATE: Segmented =
    Segmented(LazyLock::new(|| each(query!("outbox/read_late"))));
/// Looks past a crowd.
pub(crate) static READ_PAST: Segmented =
    Segmented(LazyLock::new(|| each(query!("outbox/read_past"))));
/// Asks whether events that were read still stand.
pub(crate) static SEEN: Segmented = Segmented(LazyLock::new(|| each(query!("outbox/seen"))));

impl Segmented {
    /// The statement for the segment that `id` is in.
    pub(crate) fn at(&self, id: i64) -> &'static str {
        let segment = turn(id).rem_euclid(SEGMENTS);
        self.0[usize::try_from(segment).expect("a segment is 0 to 7")]
    }
}

/// The turn that an id was drawn in.
pub(crate) fn turn(id: i64) -> i64 {
    id >> TURN_BITS
}

/// The id that every id of a turn is above, and which nobody has.
pub(crate) fn start(turn: i64) -> i64 {
    turn << TURN_BITS
}

/// The start of the first turn that the ring can still hold when `last` was drawn.
pub(crate) fn oldest(last: i64) -> i64 {
    start(turn(last) - SEGMENTS + 1)
}

/// The start of the next turn after `id`'s that the ring can hold when `last` was drawn.
pub(crate) fn next_start(id: i64, last: i64) -> i64 {
    start(turn(id) + 1).max(oldest(last))
}

/// The texts are made once for a process and kept: a prepared statement is found by its text.
fn each(sql: &'static str) -> [&'static str; 8] {
    array::from_fn(|segment| {
        let name = format!("outbox_event_{segment}");
        &*sql.replace("outbox_event_0", &name).leak()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_names_the_segment_of_its_id_and_no_other() {
        for (id, segment) in [
            (0, 0),
            (5, 0),
            (start(3) + 1, 3),
            (start(8) - 1, 7),
            (start(17), 1),
        ] {
            for statement in [&READ, &READ_LATE, &READ_PAST, &SEEN] {
                let sql = statement.at(id);
                let names = sql.matches("outbox_event_").count();
                let ours = sql.matches(&format!("outbox_event_{segment}\n")).count()
                    + sql.matches(&format!("outbox_event_{segment} ")).count()
                    + sql.matches("outbox_event_id").count();
                assert_eq!(names, ours, "{id}: {sql}");
            }
        }
    }

    #[test]
    fn the_next_turn_is_no_earlier_than_what_the_ring_holds() {
        assert_eq!(next_start(7, start(1) + 3), start(1));
        assert_eq!(next_start(start(4) + 9, start(6)), start(5));
        assert_eq!(next_start(0, start(20) + 1), start(13));
    }
}
