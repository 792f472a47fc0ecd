//! Absent destinations, which retention waits for only for a limited time.
//!
//! A destination is absent while relays are running and none of them owns or knows it. After it has
//! been absent for as long as events are kept, events are deleted even if it has not read them. The
//! PostgreSQL store has the same rule. A destination that is disabled or paused is not absent.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row, params};

use crate::query;

const HOUR_MS: i64 = 3_600 * 1_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// How far retention may delete events.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    /// The lowest frontier of the destinations that retention waits for. If there are none, it is 0,
    /// or the highest position if events are polled, because retention waits for no consumer.
    pub(crate) frontier: i64,
    /// The destinations that retention no longer waits for.
    pub(crate) gone: Vec<String>,
    /// Changes to store: a destination with its absence, or `None` if the absence has ended.
    notes: Vec<(String, Option<Absence>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Absence {
    epoch: i64,
    written_at: i64,
    since: i64,
    noted_at: i64,
}

struct PartitionRow {
    partition: String,
    epoch: i64,
    written_at: i64,
    frontier: i64,
    is_held: bool,
    is_disabled: bool,
    absence: Option<Absence>,
}

impl Absences {
    /// Finds the destinations that are absent at `now`. `known` lists the destinations that relays
    /// of this process know. A destination that has been absent for `age` milliseconds is gone.
    pub(crate) fn look(
        conn: &Connection,
        known: &BTreeSet<String>,
        now: i64,
        age: i64,
    ) -> rusqlite::Result<Self> {
        let living = now.saturating_sub(DAY_MS);
        let mut places = conn.prepare_cached(query!("delivery/absences"))?;
        let places = places.query_map([living], place)?;
        let places: Vec<PartitionRow> = places.collect::<Result<_, _>>()?;
        let mut known = known.clone();
        // If no relay is running at all, no destination counts as absent.
        let relays_run = !known.is_empty() || places.iter().any(|place| place.is_held);
        let mut nodes = conn.prepare_cached(query!("delivery/known"))?;
        let mut rows = nodes.query([living])?;
        while let Some(row) = rows.next()? {
            let names: String = row.get(0)?;
            known.extend(names.lines().map(str::to_owned));
        }
        let (mut absences, mut waited_for) = (Self::default(), Vec::new());
        for place in places {
            let name = place.partition.split('/').next().unwrap_or_default();
            let is_absent = relays_run && !place.is_held && !known.contains(name);
            let noted = is_absent.then(|| place.absent(now));
            let is_gone = noted.is_some_and(|it| it.since <= now.saturating_sub(age));
            if noted != place.absence {
                absences.notes.push((place.partition.clone(), noted));
            }
            if is_gone && !place.is_disabled {
                absences.gone.push(place.partition);
            } else {
                waited_for.push(place.frontier);
            }
        }
        absences.frontier = match waited_for.into_iter().min() {
            Some(lowest) => lowest,
            None if has_polling(conn)? => i64::MAX,
            None => 0,
        };
        Ok(absences)
    }

    /// Stores the absences that have changed.
    pub(crate) fn note(&self, conn: &Connection) -> rusqlite::Result<()> {
        for (partition, absence) in &self.notes {
            let Some(absence) = absence else {
                let mut back = conn.prepare_cached(query!("delivery/note_back"))?;
                back.execute([partition])?;
                continue;
            };
            let Absence {
                epoch,
                written_at,
                since,
                noted_at,
            } = absence;
            let mut note = conn.prepare_cached(query!("delivery/note_absent"))?;
            note.execute(params![partition, epoch, written_at, since, noted_at])?;
        }
        Ok(())
    }

    /// Whether any absence has changed.
    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }
}

impl PartitionRow {
    /// Returns the absence as of now. The noted absence goes on, unless a relay has owned the
    /// destination since, or retention has not run for a day.
    fn absent(&self, now: i64) -> Absence {
        let goes_on = |old: &Absence| {
            (old.epoch, old.written_at) == (self.epoch, self.written_at)
                && old.since <= now
                && old.noted_at > now.saturating_sub(DAY_MS)
        };
        match self.absence.filter(goes_on) {
            Some(old) if (now.saturating_sub(HOUR_MS)..=now).contains(&old.noted_at) => old,
            Some(old) => Absence {
                noted_at: now,
                ..old
            },
            None => Absence {
                epoch: self.epoch,
                written_at: self.written_at,
                since: now,
                noted_at: now,
            },
        }
    }
}

/// Whether there is a polling endpoint.
fn has_polling(conn: &Connection) -> rusqlite::Result<bool> {
    let mut has_any = conn.prepare_cached(query!("poll/has_any"))?;
    has_any.query_row([], |row| row.get(0))
}

fn place(row: &Row<'_>) -> rusqlite::Result<PartitionRow> {
    let epoch: Option<i64> = row.get("absent_epoch")?;
    let absence = match epoch {
        None => None,
        Some(epoch) => Some(Absence {
            epoch,
            written_at: row.get("absent_written_at")?,
            since: row.get("since")?,
            noted_at: row.get("noted_at")?,
        }),
    };
    Ok(PartitionRow {
        partition: row.get("destination")?,
        epoch: row.get("epoch")?,
        written_at: row.get("written_at")?,
        frontier: row.get("frontier")?,
        is_held: row.get("is_held")?,
        is_disabled: row.get("is_disabled")?,
        absence,
    })
}
