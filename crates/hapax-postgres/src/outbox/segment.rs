//! Segments of the outbox: eight tables that are written, read and emptied one after the other.
//!
//! The bits of an event id above the lowest 36 are its turn, and the turn determines the segment.
//! Each statement names the table of one segment, so that it does not plan for the others.

use std::{array, sync::LazyLock};

use crate::query;

/// Number of segments.
const SEGMENTS: i64 = 8;
/// Number of bits of an id below its turn.
const ROTATION_BITS: u32 = 36;

/// A statement with one text for each segment.
pub(crate) struct Segmented(LazyLock<[&'static str; 8]>);

/// Reads new and late events from a frontier on.
pub(crate) static READ: Segmented = Segmented(LazyLock::new(|| each(query!("outbox/read"))));
/// Continues to read late events.
pub(crate) static READ_LATE: Segmented =
    Segmented(LazyLock::new(|| each(query!("outbox/read_late"))));
/// Searches events beyond those of some tenants.
pub(crate) static READ_PAST: Segmented =
    Segmented(LazyLock::new(|| each(query!("outbox/read_past"))));
/// Checks whether events that were read still exist.
pub(crate) static SEEN: Segmented = Segmented(LazyLock::new(|| each(query!("outbox/seen"))));

impl Segmented {
    /// The statement for the segment that contains `id`.
    pub(crate) fn at(&self, id: i64) -> &'static str {
        let segment = rotation(id).rem_euclid(SEGMENTS);
        self.0[usize::try_from(segment).expect("a segment is 0 to 7")]
    }
}

/// The turn of an id.
pub(crate) fn rotation(id: i64) -> i64 {
    id >> ROTATION_BITS
}

/// The highest number below all ids of a turn. No event has it as its id.
pub(crate) fn start(rotation: i64) -> i64 {
    rotation << ROTATION_BITS
}

/// The start of the earliest turn that the segments can still contain when the last id is `last`.
pub(crate) fn oldest(last: i64) -> i64 {
    start(rotation(last) - SEGMENTS + 1)
}

/// The start of the next turn after that of `id` that the segments can contain when the last id is
/// `last`.
pub(crate) fn next_start(id: i64, last: i64) -> i64 {
    start(rotation(id) + 1).max(oldest(last))
}

/// The texts are built once per process and never freed: a prepared statement is found by its text.
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
    fn the_next_turn_is_no_earlier_than_what_the_segments_hold() {
        assert_eq!(next_start(7, start(1) + 3), start(1));
        assert_eq!(next_start(start(4) + 9, start(6)), start(5));
        assert_eq!(next_start(0, start(20) + 1), start(13));
    }
}
