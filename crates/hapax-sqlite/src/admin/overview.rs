//! Overview figures: recent commits and deliveries, backlogs and dead letters.
//!
//! The cost does not grow with the size of the database: everything is counted along an index up to
//! a bound. Beyond it, a number is an estimate or a lower limit, and marked as such.

use std::{
    collections::{BTreeMap, HashSet},
    ops::ControlFlow,
};

use async_trait::async_trait;
use hapax::{
    Timestamp,
    admin::{
        Activity, Actor, AdminError, Count, CountKind, KeyState, Overview, OverviewAdmin,
        PartitionStatus, Stalled, StateCount,
    },
    delivery::Backlog,
    saga::State,
};
use rusqlite::params;

use super::{
    declared::moment,
    events::{before, id_at},
    handle::SqliteAdmin,
    partitions::partitions,
    stalled,
    view::View,
};
use crate::{delivery, query};

/// Keys that are counted. If there are more, their number is estimated.
const KEYS: i64 = 10_000;

#[async_trait]
impl OverviewAdmin for SqliteAdmin {
    async fn overview(&self, actor: &Actor) -> Result<Overview, AdminError> {
        let actor = actor.clone();
        self.read(move |view| of_partitions(view, &actor, &partitions(view, &actor)?))
            .await
    }

    async fn stalled(&self, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
        let actor = actor.clone();
        self.read(move |view| stalled::of_partitions(view, &actor, &partitions(view, &actor)?))
            .await
    }

    async fn overview_and_stalled(
        &self,
        actor: &Actor,
    ) -> Result<(Overview, Vec<Stalled>), AdminError> {
        let actor = actor.clone();
        let both = move |view: &View<'_>| -> Result<(Overview, Vec<Stalled>), AdminError> {
            let partitions = partitions(view, &actor)?;
            let overview = of_partitions(view, &actor, &partitions)?;
            let stalled = stalled::of_partitions(view, &actor, &partitions)?;
            Ok((overview, stalled))
        };
        self.read(both).await
    }

    async fn partition_backlog(&self, partition: &str) -> Result<Backlog, AdminError> {
        let partition = partition.to_owned();
        self.read(move |view| view.with(|conn| delivery::backlog(conn, &partition, view.now)))
            .await
    }
}

fn of_partitions(
    view: &View<'_>,
    actor: &Actor,
    partitions: &[PartitionStatus],
) -> Result<Overview, AdminError> {
    let since = before(view.now, Activity::WINDOW);
    let known: HashSet<&str> = partitions.iter().map(|it| it.name.as_str()).collect();
    let mut activity = Activity {
        committed: committed(view, actor, since)?,
        ..Activity::default()
    };
    arrived(view, &known, since, &mut activity)?;
    tried(view, &known, since, &mut activity)?;
    claimed(view, actor, since, &mut activity)?;
    let sagas = sagas(view, actor)?;
    let keys_stored = match actor.tenant {
        None => keys_stored(view)?,
        Some(_) => None,
    };
    Ok(Overview::of(
        view.now,
        partitions,
        activity,
        sagas,
        keys_stored,
    ))
}

/// Counts the committed events of the actor.
fn committed(view: &View<'_>, actor: &Actor, since: Timestamp) -> Result<Count, AdminError> {
    let tenant = actor.tenant();
    let (mut number, mut looked, mut first) = (0, 0, 0_i64);
    let params = [id_at(view, since)?, Activity::ROWS];
    view.visit(query!("admin/committed"), params, |row| {
        looked += 1;
        first = row.get("id")?;
        let is_own = match tenant {
            None => true,
            Some(own) => row.get_ref("tenant")?.as_str_or_null()? == Some(own),
        };
        number += u64::from(is_own);
        Ok(ControlFlow::Continue(()))
    })?;
    // The time of the first event, not the earliest time: one slow transaction would make the
    // period too long.
    let sql = query!("delivery/written_at");
    let first = view.first(sql, [first], |row| row.get(0).map(Timestamp::from_millis))?;
    Ok(Count::estimated(number, looked, first, view.now))
}

/// Counts the deliveries that succeeded at the first attempt.
fn arrived(
    view: &View<'_>,
    known: &HashSet<&str>,
    since: Timestamp,
    activity: &mut Activity,
) -> Result<(), AdminError> {
    let params = [since.as_millis(), Activity::ROWS];
    let found = view.list(query!("admin/arrived"), params, |row| {
        let arrived: (String, u64) = (
            row.get("partition")?,
            count(&row.get::<_, String>("positions")?),
        );
        Ok((arrived, moment(row, "started_at")?))
    })?;
    let looked = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let first = found.last().map(|(_, started_at)| *started_at);
    let mut numbers = BTreeMap::new();
    for ((partition, number), _) in found {
        *numbers.entry(partition).or_insert(0) += number;
    }
    for (partition, number) in numbers {
        if known.contains(partition.as_str()) {
            let count = Count::estimated(number, looked, first, view.now);
            activity.delivered.entry(partition).or_default().add(count);
        }
    }
    Ok(())
}

/// Counts the positions of a set in its text.
fn count(positions: &str) -> u64 {
    let run = |run: &str| match run.split_once('-') {
        None => 1,
        Some((first, last)) => {
            let ends = first.parse::<u64>().ok().zip(last.parse::<u64>().ok());
            ends.map_or(0, |(first, last)| last.saturating_sub(first) + 1)
        }
    };
    positions.split(',').map(run).sum()
}

/// Counts the recorded attempts.
fn tried(
    view: &View<'_>,
    known: &HashSet<&str>,
    since: Timestamp,
    activity: &mut Activity,
) -> Result<(), AdminError> {
    let params = [since.as_millis(), Activity::ROWS];
    let found = view.list(query!("admin/tried"), params, |row| {
        let (destination, is_delivered): (String, bool) =
            (row.get("destination")?, row.get("is_delivered")?);
        let (is_counted, number): (bool, i64) = (row.get("is_counted")?, row.get("number")?);
        Ok((
            destination,
            is_delivered,
            is_counted,
            number,
            moment(row, "since")?,
        ))
    })?;
    let looked = found.iter().map(|(.., number, _)| number).sum();
    let first = found.iter().map(|(.., since)| *since).min();
    for (destination, is_delivered, is_counted, number, _) in found {
        if is_counted && known.contains(destination.as_str()) {
            let counts = if is_delivered {
                &mut activity.delivered
            } else {
                &mut activity.failed
            };
            let count = Count::estimated(number.unsigned_abs(), looked, first, view.now);
            counts.entry(destination).or_default().add(count);
        }
    }
    Ok(())
}

/// Counts the claimed keys of the actor, by state.
fn claimed(
    view: &View<'_>,
    actor: &Actor,
    since: Timestamp,
    activity: &mut Activity,
) -> Result<(), AdminError> {
    let params = params![since.as_millis(), Activity::ROWS, actor.tenant()];
    let found = view.list(query!("admin/claimed"), params, |row| {
        let (state, looked): (String, i64) = (row.get("state")?, row.get("looked")?);
        Ok((
            state,
            looked,
            row.get::<_, i64>("number")?,
            moment(row, "since")?,
        ))
    })?;
    let looked = found.iter().map(|(_, looked, ..)| looked).sum();
    let first = found.iter().map(|(.., since)| *since).min();
    for (state, _, number, _) in found {
        let count = Count::estimated(number.unsigned_abs(), looked, first, view.now);
        let state = KeyState::named(&state);
        activity.keys.extend(state.map(|state| (state, count)));
    }
    Ok(())
}

/// Counts the sagas of the actor, by state.
fn sagas(view: &View<'_>, actor: &Actor) -> Result<Vec<StateCount>, AdminError> {
    let mut sagas = Vec::new();
    for state in State::ALL {
        let state = state.as_str();
        let params = params![state, Activity::ROWS, actor.tenant()];
        let found = view.first(query!("admin/stored"), params, |row| {
            let counted: (i64, i64) = (row.get("number")?, row.get("looked")?);
            Ok(counted)
        })?;
        let (number, looked) = found.unwrap_or_default();
        let count = Count::counted(number.unsigned_abs(), looked, Activity::ROWS);
        sagas.push(StateCount { state, count });
    }
    Ok(sagas)
}

/// The number of stored keys.
fn keys_stored(view: &View<'_>) -> Result<Option<Count>, AdminError> {
    view.first(query!("admin/keys_stored"), [KEYS], |row| {
        let counted: i64 = row.get("counted")?;
        if counted < KEYS {
            let number = counted.unsigned_abs();
            return Ok(Count::counted(number, counted, KEYS));
        }
        let about: Option<i64> = row.get("about")?;
        Ok(Count {
            number: about.unwrap_or(counted).max(counted).unsigned_abs(),
            kind: CountKind::About,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_in_their_text() {
        assert_eq!(count("7"), 1);
        assert_eq!(count("5-9,12"), 6);
        assert_eq!(count("1,3-4,9223372036854775807"), 4);
    }
}
