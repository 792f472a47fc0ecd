//! The statements that read new and late events of one segment.
//!
//! Each statement takes one snapshot and reads a bounded number of rows and bytes. Its first row
//! describes the server: the snapshot, the sequence and the history. The other rows are events.

use std::sync::Arc;

use hapax::{
    delivery::{SHARDS, Shards},
    keyring::Keyring,
    limits::READ_BYTES,
    outbox::OutboxEvent,
    store::{StoreError, until_unreadable},
};
use tokio_postgres::Row;

use super::{
    event::event,
    segment::{READ, READ_LATE, next_start, oldest, rotation, start},
};
use crate::{
    error::{corrupt, unavailable},
    frontier::{History, Late, Mark, Sight, Snapshot},
    postgres::Postgres,
    value::{Param, rows},
};

/// Rows that one statement searches for late events, or for the events of some shards. This takes
/// some tens of milliseconds.
pub(super) const SCAN: i64 = 50_000;

/// The columns whose bytes a statement counts.
const STORED_COLUMNS: [&str; 6] = [
    "type",
    "tenant",
    "aggregate_type",
    "aggregate_id",
    "payload",
    "headers",
];

/// The result of one statement.
#[expect(
    clippy::large_enum_variant,
    reason = "it is destructured at once, and the small variants are rare"
)]
pub(super) enum Step {
    /// Events, possibly none. The mark says how far the outbox is read after them.
    Read {
        events: Vec<Arc<OutboxEvent>>,
        /// The shards of the events.
        shards: Shards,
        mark: Mark,
        /// Whether everything that exists was read.
        is_end: bool,
    },
    /// Nothing was read: the mark belongs to another history than the database, whose history is
    /// given here.
    Other(History, String),
    /// Nothing was read: the sequence of events has this value, which is below ids already read.
    Low(i64, String),
}

impl Postgres {
    /// Takes a new snapshot and reads the events that are visible in it and beyond the mark.
    pub(super) async fn look(
        &self,
        mark: &Mark,
        shards: Option<&[i16]>,
        limit: usize,
    ) -> Result<Step, StoreError> {
        let open = mark.open();
        let params: [&dyn Param; 9] = [
            &mark.high,
            &mark.seen(),
            &open.xids,
            &open.floors,
            &open.beyond,
            &SCAN,
            &rows(limit),
            &rows(READ_BYTES),
            &shards,
        ];
        let found = self.ask(READ.at(mark.high), &params).await?;
        let (first, found) = found
            .split_first()
            .ok_or_else(|| corrupt("the query for new events returned no row"))?;
        let (sight, until, reach) = sight(first)?;
        let history: String = first.get("history");
        match mark.history(&history) {
            // Within one history a sequence never goes back, and a crash does not undo the id of a
            // committed event.
            History::Same if sight.last < mark.high => return Ok(Step::Low(sight.last, history)),
            History::Same => {}
            other => return Ok(Step::Other(other, history)),
        }
        let looked = |high, after| mark.looked(&sight, &history, high, after);
        let is_late = |row: &&Row| row.get::<_, i64>(0) <= mark.high;
        let (late_rows, new_rows) = found.split_at(found.iter().take_while(is_late).count());
        let mut late = DecodedEvents::of(late_rows, limit, self.keyring())?;
        let late_shards = shards_of(late_rows, &late);
        let incomplete = until.filter(|until| *until < mark.high);
        if late.is_cut || incomplete.is_some() {
            let after = late.last.filter(|_| late.is_cut).or(incomplete);
            return Ok(Step::Read {
                events: late.events,
                shards: late_shards,
                mark: looked(mark.high, after),
                is_end: false,
            });
        }
        let room = limit.saturating_sub(late.events.len());
        let new = match DecodedEvents::of(new_rows, room, self.keyring()) {
            Err(error) if late.events.is_empty() => return Err(error),
            Err(_) => DecodedEvents {
                is_cut: true,
                ..DecodedEvents::default()
            },
            Ok(new) => new,
        };
        let shards = late_shards.union(shards_of(new_rows, &new));
        late.events.extend(new.events);
        let (mut high, mut is_end) = (new.last.unwrap_or(mark.high), false);
        if !new.is_cut {
            // Nothing more of this turn is visible, up to the end of the search.
            high = reach.map_or(high, |reach| reach.max(high));
            let is_short = reach.is_some_and(|reach| reach > new.last.unwrap_or(mark.high));
            if late.events.is_empty() && !is_short {
                is_end = rotation(sight.last) <= rotation(high);
                if !is_end {
                    high = next_start(high, sight.last);
                }
            }
        }
        Ok(Step::Read {
            mark: looked(high, None),
            events: late.events,
            shards,
            is_end,
        })
    }

    /// Continues to read late events.
    pub(super) async fn catch_up(
        &self,
        mark: &Mark,
        late: &Late,
        shards: Option<&[i16]>,
        limit: usize,
    ) -> Result<Step, StoreError> {
        let from = late.after.max(oldest(mark.high));
        let bound = start(rotation(from) + 1).min(mark.high);
        let before = &*late.before.text;
        let params: [&dyn Param; 8] = [
            &from,
            &bound,
            &before,
            &mark.seen(),
            &rows(limit),
            &rows(READ_BYTES),
            &shards,
            &SCAN,
        ];
        let found = self.ask(READ_LATE.at(from), &params).await?;
        let (first, found) = found
            .split_first()
            .ok_or_else(|| corrupt("the query for late events returned no row"))?;
        let (until, history): (i64, String) = (first.get("id"), first.get("history"));
        match mark.history(&history) {
            History::Same => {}
            other => return Ok(Step::Other(other, history)),
        }
        let late_rows = found;
        let found = DecodedEvents::of(late_rows, limit, self.keyring())?;
        let after = match found.last {
            Some(last) if found.is_cut => Some(last),
            _ => Some(until).filter(|until| *until < mark.high),
        };
        Ok(Step::Read {
            shards: shards_of(late_rows, &found),
            events: found.events,
            mark: mark.clone().caught_up(after),
            is_end: false,
        })
    }
}

/// The shards as a parameter: null selects all of them.
pub(super) fn shards(shards: Shards) -> Option<Vec<i16>> {
    (!shards.is_all()).then(|| shards.iter().map(i16::from).collect())
}

/// The shards of the events that were read from these rows.
fn shards_of(rows: &[Row], found: &DecodedEvents) -> Shards {
    let read = rows.iter().take(found.events.len());
    read.fold(Shards::NONE, |shards, row| {
        match u8::try_from(row.get::<_, i16>(1)) {
            Ok(shard) if shard < SHARDS => shards.with(shard),
            // Only a reader of all shards has the event.
            _ => Shards::ALL,
        }
    })
}

/// Events read from rows, up to a bound or up to the first one that cannot be read.
#[derive(Default)]
pub(super) struct DecodedEvents {
    pub(super) events: Vec<Arc<OutboxEvent>>,
    pub(super) last: Option<i64>,
    /// Whether there may be more.
    pub(super) is_cut: bool,
}

impl DecodedEvents {
    pub(super) fn of(found: &[Row], limit: usize, keyring: &Keyring) -> Result<Self, StoreError> {
        let events = found.iter().map(|row| event(row, keyring));
        let events = until_unreadable(events.collect())?;
        // Bytes are counted as the statement counts them: the stored size of the columns, not the
        // size of the decoded event. If the two sums differed, a read that the statement cut short
        // would be taken for a complete one, and the remaining events would be skipped.
        let stored = |row: &Row| {
            let texts = STORED_COLUMNS.map(|column| row.get::<_, Option<&str>>(column));
            texts
                .map(|text| text.map_or(0, str::len))
                .iter()
                .sum::<usize>()
        };
        let bytes: usize = found.iter().map(stored).sum();
        Ok(Self {
            last: events.last().map(|event| event.position),
            is_cut: found.len() >= limit || events.len() < found.len() || bytes > READ_BYTES,
            events,
        })
    }
}

/// Reads the first row: the state of the server, the id up to which late events were searched, and
/// the id up to which events of some shards were searched.
fn sight(row: &Row) -> Result<(Sight, Option<i64>, Option<i64>), StoreError> {
    let text: &str = row.get("snapshot");
    let snapshot = Snapshot::parse(text);
    let (written, flushed): (Option<i64>, Option<i64>) = (row.get("written"), row.get("flushed"));
    let Some((written, flushed)) = written.zip(flushed) else {
        // The snapshots of a standby do not show which transactions are writing.
        return Err(unavailable("the outbox cannot be read on a standby"));
    };
    let sight = Sight {
        snapshot: snapshot.ok_or_else(|| corrupt(format!("snapshot {text:?}")))?,
        age: row.get("age"),
        last: row.get("last"),
        written,
        flushed,
    };
    Ok((sight, row.get("late_until"), row.get("shards_until")))
}
