//! Overview figures: recent commits and deliveries, backlogs and dead letters.
//!
//! The cost does not grow with the size of the database: everything is counted along an index up to
//! a bound. Beyond it, a number is an estimate or a lower limit, and marked as such.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::try_join;
use hapax::{Timestamp, saga::State};

use super::{
    Actor, AdminError,
    declared::moment,
    destination_of, events, keys,
    partitions::{self, PartitionNow},
    stalled::{self, Stalled},
};
use crate::{
    postgres::Postgres,
    query,
    value::{Moment, Param},
};

/// The overview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// When it was read, by the database's clock.
    pub at: Timestamp,
    /// The length of the recent period.
    pub window: Duration,
    /// Events committed in this period.
    pub committed: Count,
    /// Successful deliveries in this period.
    pub delivered: Count,
    /// Failed attempts in this period.
    pub failed: Count,
    /// The destinations, by name.
    pub destinations: Vec<DestinationFigures>,
    /// Keys claimed in this period, by their current state.
    pub keys: Vec<(keys::State, Count)>,
    /// The database's estimate of the number of stored keys. There is none for a single tenant.
    pub keys_stored: Option<Count>,
    /// Sagas, by state.
    pub sagas: Vec<(State, Count)>,
}

/// The figures of one destination, over all its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationFigures {
    /// The destination.
    pub name: String,
    /// Unsettled events.
    pub backlog: Count,
    /// The age of the oldest unsettled event.
    pub lag: Option<Duration>,
    /// Parked deliveries.
    pub parked: Count,
    /// Dead letters.
    pub dead: Count,
    /// Successful deliveries in the recent period.
    pub delivered: Count,
    /// Failed attempts in the recent period.
    pub failed: Count,
}

/// A number and its precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number.
    pub number: u64,
    /// Whether it is exact.
    pub kind: CountKind,
}

/// The precision of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountKind {
    /// It was counted.
    #[default]
    Exact,
    /// It was counted up to a bound: there are at least that many.
    AtLeast,
    /// It was estimated.
    About,
}

/// The length of the recent period.
const WINDOW: Duration = Duration::from_mins(1);
/// Rows of each kind that are read, so that a page takes some tens of milliseconds however busy the
/// database is. If there are more in the recent period, the number is estimated from the rate of
/// these rows, with an error of a few per cent.
const ROWS: i64 = 2_000;

/// Reads the figures with three short statements.
///
/// An actor of a tenant sees its own events, keys and sagas, and the destinations that receive only
/// its events.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn overview(store: &Postgres, actor: &Actor) -> Result<Overview, AdminError> {
    let partitions = partitions::partitions(store, actor).await?;
    of_partitions(store, actor, &partitions).await
}

/// Reads the figures and the list of what is stalled, with one query of the partitions.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn with_stalled(
    store: &Postgres,
    actor: &Actor,
) -> Result<(Overview, Vec<Stalled>), AdminError> {
    let partitions = partitions::partitions(store, actor).await?;
    // The two queries are independent of each other.
    let figures = of_partitions(store, actor, &partitions);
    try_join(figures, stalled::of_partitions(store, actor, &partitions)).await
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
            destinations.push(DestinationFigures::new(name));
        }
        if let Some(figures) = destinations.last_mut() {
            figures.add(partition);
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
        keys: lately.keys,
        keys_stored,
        sagas,
    })
}

impl Count {
    /// A number counted in `looked` rows, which is exact if these are fewer than `bound`.
    fn of(number: u64, looked: i64, bound: i64) -> Self {
        let kind = if looked < bound {
            CountKind::Exact
        } else {
            CountKind::AtLeast
        };
        Self { number, kind }
    }

    /// A number counted in the latest `looked` rows of the recent period, the oldest of which is
    /// from `since`. If there are more rows, the number is extrapolated at the rate since then.
    fn lately(number: u64, looked: i64, since: Option<Timestamp>, at: Timestamp) -> Self {
        let Some(since) = since.filter(|_| looked >= ROWS) else {
            return Self::of(number, looked, ROWS);
        };
        let span = at.since(since).max(Duration::from_millis(1)).min(WINDOW);
        let estimate = u128::from(number) * WINDOW.as_millis() / span.as_millis();
        Self {
            number: u64::try_from(estimate).unwrap_or(u64::MAX),
            kind: CountKind::About,
        }
    }

    /// Adds another number. The sum is as precise as the less precise of the two.
    fn add(&mut self, other: Self) {
        self.number = self.number.saturating_add(other.number);
        self.kind = self.kind.max(other.kind);
    }
}

impl DestinationFigures {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            backlog: Count::default(),
            lag: None,
            parked: Count::default(),
            dead: Count::default(),
            delivered: Count::default(),
            failed: Count::default(),
        }
    }

    fn add(&mut self, partition: &PartitionNow) {
        let unread = if partition.looked < partitions::EVENTS {
            Count::of(partition.unread, partition.looked, partitions::EVENTS)
        } else {
            Count {
                number: partition.unread.max(partition.about),
                kind: CountKind::About,
            }
        };
        self.backlog.add(unread);
        let bound = partitions::DELIVERIES;
        let counted =
            |number: u64| Count::of(number, i64::try_from(number).unwrap_or(bound), bound);
        self.parked.add(counted(partition.parked));
        self.dead.add(counted(partition.dead));
        let oldest = [partition.oldest_unread, partition.oldest_parked]
            .into_iter()
            .flatten()
            .min();
        self.lag = self
            .lag
            .max(oldest.map(|oldest| partition.at.since(oldest)));
    }
}

/// What happened in the recent period.
struct Lately {
    committed: Count,
    delivered: BTreeMap<String, Count>,
    failed: BTreeMap<String, Count>,
    keys: Vec<(keys::State, Count)>,
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
            let count = Count::lately(number, row.get("looked"), moment(row, "since"), at);
            match what {
                "committed" => lately.committed = count,
                "delivered" => lately.delivered.entry(name).or_default().add(count),
                "failed" => lately.failed.entry(name).or_default().add(count),
                _ => lately
                    .keys
                    .extend(keys::State::named(&name).map(|state| (state, count))),
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
) -> Result<(Vec<(State, Count)>, Option<Count>), AdminError> {
    let states: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
    let tenant = actor.tenant();
    let params: [&dyn Param; 3] = [&ROWS, &tenant, &states];
    let found = store.ask(query!("admin/stored"), &params).await?;
    let (mut sagas, mut keys) = (Vec::new(), None);
    for row in &found {
        let number: i64 = row.get(1);
        match State::named(row.get(0)) {
            Some(state) => {
                sagas.push((
                    state,
                    Count::of(number.unsigned_abs(), row.get("looked"), ROWS),
                ));
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
