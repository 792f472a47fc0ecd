//! Check that the events of a settlement exist in the database.
//!
//! If a database is set back between a read and its settlement, it may still contain the checkpoint
//! that the owner knows, and may have assigned the ids that were read to other events. Only the
//! events themselves can show this: if an event exists with its id, it was committed in this
//! history, and no lower id is assigned again.

use hapax::delivery::Settlement;

use crate::{outbox::SEEN, value::Param};

/// The last events of a settlement's reads that are in one segment.
pub(super) struct Seen<'a> {
    sql: &'static str,
    ids: Vec<i64>,
    event_ids: Vec<&'a [u8]>,
}

impl<'a> Seen<'a> {
    /// The events of a settlement by segment; nearly always at most one segment.
    pub(super) fn of(settlement: &'a Settlement) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (id, event_id) in &settlement.seen {
            let sql = SEEN.at(*id);
            let place = all.iter().position(|seen| seen.sql == sql);
            let place = place.unwrap_or_else(|| {
                all.push(Self {
                    sql,
                    ids: Vec::new(),
                    event_ids: Vec::new(),
                });
                all.len() - 1
            });
            all[place].ids.push(*id);
            all[place].event_ids.push(event_id.as_bytes());
        }
        all
    }

    /// The statements that check them.
    pub(super) fn sql(all: &[Self]) -> Vec<&'static str> {
        all.iter().map(|seen| seen.sql).collect()
    }

    pub(super) fn params<'b>(
        &'b self,
        partition: &'b &'b str,
        settlement: &'b Settlement,
    ) -> [&'b dyn Param; 5] {
        [
            &self.ids,
            &self.event_ids,
            partition,
            &settlement.epoch,
            &settlement.number,
        ]
    }
}
