//! The events by which a settlement is known to be of what the database holds.
//!
//! A database that is set back between a read and its settlement may hold the checkpoint that its
//! owner knows, and have given the ids again that were read. Then only the events themselves tell:
//! an event that stands under its id was committed in this history, and no id below it is given
//! again.

use hapax::delivery::Settlement;

use crate::{outbox::SEEN, value::Param};

/// The last events of a settlement's reads that lie in one segment.
pub(super) struct Seen<'a> {
    sql: &'static str,
    ids: Vec<i64>,
    event_ids: Vec<&'a [u8]>,
}

impl<'a> Seen<'a> {
    /// Those of a settlement, segment by segment: nearly always there is one at most.
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

    /// The statements that ask for them.
    pub(super) fn sql(all: &[Self]) -> Vec<&'static str> {
        all.iter().map(|seen| seen.sql).collect()
    }

    pub(super) fn params<'b>(
        &'b self,
        part: &'b &'b str,
        settlement: &'b Settlement,
    ) -> [&'b dyn Param; 5] {
        [
            &self.ids,
            &self.event_ids,
            part,
            &settlement.epoch,
            &settlement.number,
        ]
    }
}
