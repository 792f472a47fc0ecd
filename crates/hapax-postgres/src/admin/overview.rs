//! Overview figures: recent commits and deliveries, backlogs and dead letters.
//!
//! The cost does not grow with the size of the database: everything is counted along an index up to
//! a bound. Beyond it, a number is an estimate or a lower limit, and marked as such.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use futures_util::future::try_join;
use hapax::{
    Timestamp,
    admin::{
        Actor, AdminError, Count, CountKind, DestinationFigures, KeyState, Overview, OverviewAdmin,
        Stalled, StateCount, destination_of,
    },
    delivery::Backlog,
    saga::State,
    store::Settlements as _,
};

use super::{
    declared::moment,
    events,
    partitions::{self, PartitionNow},
    stalled,
};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// The length of the recent period.
const WINDOW: Duration = Duration::from_mins(1);
/// Rows of each kind that are read, so that a page takes some tens of milliseconds however busy the
/// database is. If there are more in the recent period, the number is estimated from the rate of
/// these rows, with an error of a few per cent.
const ROWS: i64 = 2_000;

#[async_trait]
impl OverviewAdmin for Postgres {
    async fn overview(&self, actor: &Actor) -> Result<Overview, AdminError> {
        let partitions = partitions::partitions(self, actor).await?;
        of_partitions(self, actor, &partitions).await
    }

    async fn stalled(&self, actor: &Actor) -> Result<Vec<Stalled>, AdminError> {
        let partitions = partitions::partitions(self, actor).await?;
        stalled::of_partitions(self, actor, &partitions).await
    }

    async fn overview_and_stalled(
        &self,
        actor: &Actor,
    ) -> Result<(Overview, Vec<Stalled>), AdminError> {
        let partitions = partitions::partitions(self, actor).await?;
        // The two queries are independent of each other.
        let figures = of_partitions(self, actor, &partitions);
        try_join(figures, stalled::of_partitions(self, actor, &partitions)).await
    }

    async fn partition_backlog(&self, partition: &str) -> Result<Backlog, AdminError> {
        Ok(self.backlog(&text(partition)).await?)
    }
}

async fn of_partitions(
    store: &Postgres,
    actor: &Actor,
    partitions: &[PartitionNow],
) -> Result<Overview, AdminError> {
    let at = store.now().0;
    let lately = Lately::read(store, actor, at, partitions).await?;
    let (sagas, keys_stored) = stored(store, actor).await?;
    let mut destinations: Vec<DestinationFigures> = Vec::new();
    for partition in partitions {
        let name = destination_of(&partition.name);
        if destinations.last().is_none_or(|last| last.name != name) {
            destinations.push(DestinationFigures {
                name: name.to_owned(),
                ..DestinationFigures::default()
            });
        }
        if let Some(figures) = destinations.last_mut() {
            add(figures, partition);
            figures
                .delivered
                .add(of_partition(&lately.delivered, &partition.name));
            figures
                .failed
                .add(of_partition(&lately.failed, &partition.name));
        }
    }
    let sum = |of: fn(&DestinationFigures) -> Count| {
        let mut sum = Count::default();
        for figures in &destinations {
            sum.add(of(figures));
        }
        sum
    };
    let (delivered, failed) = (sum(|it| it.delivered), sum(|it| it.failed));
    Ok(Overview {
        at,
        window: WINDOW,
        committed: lately.committed,
        delivered,
        failed,
        destinations,
        keys: lately
            .keys
            .into_iter()
            .map(|(state, count)| StateCount {
                state: state.as_str(),
                count,
            })
            .collect(),
        keys_stored,
        sagas,
    })
}

/// A number counted in `looked` rows, which is exact if these are fewer than `bound`.
fn counted(number: u64, looked: i64, bound: i64) -> Count {
    let kind = if looked < bound {
        CountKind::Exact
    } else {
        CountKind::AtLeast
    };
    Count { number, kind }
}

/// A number counted in the latest `looked` rows of the recent period, the oldest of which is from
/// `since`. If there are more rows, the number is extrapolated at the rate since then.
fn estimated(number: u64, looked: i64, since: Option<Timestamp>, at: Timestamp) -> Count {
    let Some(since) = since.filter(|_| looked >= ROWS) else {
        return counted(number, looked, ROWS);
    };
    let span = at.since(since).max(Duration::from_millis(1)).min(WINDOW);
    let estimate = u128::from(number) * WINDOW.as_millis() / span.as_millis();
    Count {
        number: u64::try_from(estimate).unwrap_or(u64::MAX),
        kind: CountKind::About,
    }
}

/// Adds a partition to the figures of its destination.
fn add(figures: &mut DestinationFigures, partition: &PartitionNow) {
    let unread = if partition.looked < partitions::EVENTS {
        counted(partition.unread, partition.looked, partitions::EVENTS)
    } else {
        Count {
            number: partition.unread.max(partition.about),
            kind: CountKind::About,
        }
    };
    figures.backlog.add(unread);
    let bound = partitions::DELIVERIES;
    let up_to = |number: u64| counted(number, i64::try_from(number).unwrap_or(bound), bound);
    figures.parked.add(up_to(partition.parked));
    figures.dead.add(up_to(partition.dead));
    let oldest = [partition.oldest_unread, partition.oldest_parked];
    let oldest = oldest.into_iter().flatten().min();
    let lag = oldest.map(|oldest| partition.at.since(oldest));
    figures.lag = figures.lag.max(lag);
}

/// What happened in the recent period.
struct Lately {
    committed: Count,
    delivered: BTreeMap<String, Count>,
    failed: BTreeMap<String, Count>,
    keys: Vec<(KeyState, Count)>,
}

impl Lately {
    async fn read(
        store: &Postgres,
        actor: &Actor,
        at: Timestamp,
        partitions: &[PartitionNow],
    ) -> Result<Self, AdminError> {
        let since = Timestamp::from_millis(at.as_millis() - events::millis(WINDOW));
        let first = events::id_at(store, Moment(since)).await?;
        let names: Vec<&str> = partitions
            .iter()
            .map(|partition| partition.name.as_str())
            .collect();
        let (since, tenant) = (Moment(since), actor.tenant());
        let params: [&dyn Param; 5] = [&since, &ROWS, &tenant, &first, &names];
        let found = store.ask(query!("admin/lately"), &params).await?;
        let mut lately = Self {
            committed: Count::default(),
            delivered: BTreeMap::new(),
            failed: BTreeMap::new(),
            keys: Vec::new(),
        };
        for row in &found {
            let (what, name): (&str, String) = (row.get(0), row.get(1));
            let number = row
                .get::<_, Option<i64>>("number")
                .unwrap_or(0)
                .unsigned_abs();
            let count = estimated(number, row.get("looked"), moment(row, "since"), at);
            match what {
                "committed" => lately.committed = count,
                "delivered" => lately.delivered.entry(name).or_default().add(count),
                "failed" => lately.failed.entry(name).or_default().add(count),
                _ => lately
                    .keys
                    .extend(KeyState::named(&name).map(|state| (state, count))),
            }
        }
        lately.keys.sort_by_key(|(state, _)| *state);
        Ok(lately)
    }
}

fn of_partition(counts: &BTreeMap<String, Count>, partition: &str) -> Count {
    counts.get(partition).copied().unwrap_or_default()
}

/// Sagas by state, and the estimated number of keys, which is not available for a single tenant.
async fn stored(
    store: &Postgres,
    actor: &Actor,
) -> Result<(Vec<StateCount>, Option<Count>), AdminError> {
    let states: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
    let tenant = actor.tenant();
    let params: [&dyn Param; 3] = [&ROWS, &tenant, &states];
    let found = store.ask(query!("admin/stored"), &params).await?;
    let (mut sagas, mut keys) = (Vec::new(), None);
    for row in &found {
        let number: i64 = row.get(1);
        match State::named(row.get(0)) {
            Some(state) => {
                let count = counted(number.unsigned_abs(), row.get("looked"), ROWS);
                let state = state.as_str();
                sagas.push(StateCount { state, count });
            }
            None if number >= 0 && tenant.is_none() => {
                keys = Some(Count {
                    number: number.unsigned_abs(),
                    kind: CountKind::About,
                });
            }
            None => {}
        }
    }
    Ok((sagas, keys))
}
