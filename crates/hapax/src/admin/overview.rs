//! Overview figures: recent commits and deliveries, backlogs and dead letters.
//!
//! Their cost does not grow with the size of the database: everything is counted up to a bound.
//! Beyond it, a number is an estimate or a lower limit, and marked as such.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::Serialize;

use super::{Actor, AdminError, KeyState, PartitionStatus, Stalled, destination_of};
use crate::{clock::Timestamp, delivery::Backlog, json};

/// Queries for what a store does as a whole.
#[async_trait]
pub trait OverviewAdmin: Send + Sync {
    /// Reads the figures. An actor of a tenant sees its own events, keys and sagas, and the
    /// destinations that receive only its events.
    async fn overview(&self, actor: &Actor) -> Result<Overview, AdminError>;

    /// Lists what is stalled and why, the most severe first. An actor of a tenant sees its own
    /// destinations and sagas.
    ///
    /// The store does not know whether a configuration file pauses a destination:
    /// [`DestinationIndex::stalled`](super::DestinationIndex::stalled) adds that.
    async fn stalled(&self, actor: &Actor) -> Result<Vec<Stalled>, AdminError>;

    /// Reads the figures and the list of what is stalled at once.
    async fn overview_and_stalled(
        &self,
        actor: &Actor,
    ) -> Result<(Overview, Vec<Stalled>), AdminError>;

    /// The backlog of a partition.
    async fn partition_backlog(&self, partition: &str) -> Result<Backlog, AdminError>;
}

/// Figures about the whole store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overview {
    /// When the figures were read, by the database's clock.
    pub at: Timestamp,
    /// The length of the recent window in milliseconds.
    #[serde(rename = "window_ms", serialize_with = "json::millis")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub window: Duration,
    /// Events committed in the window.
    pub committed: Count,
    /// Deliveries completed in the window.
    pub delivered: Count,
    /// Attempts that failed in the window.
    pub failed: Count,
    /// The figures of each destination, by name.
    pub destinations: Vec<DestinationFigures>,
    /// Keys claimed in the window, by their current state.
    pub keys: Vec<StateCount>,
    /// The estimated number of stored keys. There is none for a single tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_stored: Option<Count>,
    /// Sagas by state.
    pub sagas: Vec<StateCount>,
}

/// The events of the recent window, as a store reads it for the overview.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Events committed.
    pub committed: Count,
    /// Deliveries completed, by partition.
    pub delivered: BTreeMap<String, Count>,
    /// Attempts that failed, by partition.
    pub failed: BTreeMap<String, Count>,
    /// Keys claimed, by their current state.
    pub keys: BTreeMap<KeyState, Count>,
}

impl Activity {
    /// The length of the recent window.
    pub const WINDOW: Duration = Duration::from_mins(1);
    /// Rows of each kind that are read, so that a page takes some tens of milliseconds however busy
    /// the database is. If there are more in the window, the number is estimated from the rate of
    /// these rows, with an error of a few per cent.
    pub const ROWS: i64 = 2_000;
}

impl Overview {
    /// The figures of these partitions, which are sorted by name.
    pub fn of(
        at: Timestamp,
        partitions: &[PartitionStatus],
        activity: Activity,
        sagas: Vec<StateCount>,
        keys_stored: Option<Count>,
    ) -> Self {
        let destinations = destinations(partitions, &activity);
        let sum = |of: fn(&DestinationFigures) -> Count| {
            let mut sum = Count::default();
            for figures in &destinations {
                sum.add(of(figures));
            }
            sum
        };
        let (delivered, failed) = (sum(|it| it.delivered), sum(|it| it.failed));
        let state = |(state, count): (KeyState, Count)| StateCount {
            state: state.as_str(),
            count,
        };
        Self {
            at,
            window: Activity::WINDOW,
            committed: activity.committed,
            delivered,
            failed,
            destinations,
            keys: activity.keys.into_iter().map(state).collect(),
            keys_stored,
            sagas,
        }
    }
}

fn destinations(partitions: &[PartitionStatus], activity: &Activity) -> Vec<DestinationFigures> {
    let of = |counts: &BTreeMap<String, Count>, partition: &str| {
        counts.get(partition).copied().unwrap_or_default()
    };
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
            partition.add_to(figures);
            figures
                .delivered
                .add(of(&activity.delivered, &partition.name));
            figures.failed.add(of(&activity.failed, &partition.name));
        }
    }
    destinations
}

/// The figures of one destination, over all its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DestinationFigures {
    /// The name of the destination.
    pub name: String,
    /// Events that are not settled.
    pub backlog: Count,
    /// How long the first of them has been due, in milliseconds.
    #[serde(
        rename = "lag_ms",
        skip_serializing_if = "Option::is_none",
        serialize_with = "json::some_millis"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub lag: Option<Duration>,
    /// Parked deliveries.
    pub parked: Count,
    /// Dead letters.
    pub dead: Count,
    /// Deliveries completed in the window.
    pub delivered: Count,
    /// Attempts that failed in the window.
    pub failed: Count,
}

/// The count of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateCount {
    /// The state.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: &'static str,
    /// The count.
    pub count: Count,
}

/// A number and its precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Count {
    /// The number.
    pub number: u64,
    /// Whether it is exact.
    pub kind: CountKind,
}

impl Count {
    /// An estimate, if `number` of the `looked` newest rows match and there are about `all` rows. It is
    /// exact if fewer rows were read than `bound`.
    pub fn of_sample(number: u64, looked: u64, bound: u64, all: u64) -> Self {
        if looked < bound {
            let kind = CountKind::Exact;
            return Self { number, kind };
        }
        if number == 0 {
            // Older rows may match.
            let kind = CountKind::AtLeast;
            return Self { number, kind };
        }
        let all = u128::from(number) * u128::from(all) / u128::from(looked.max(1));
        Self {
            number: u64::try_from(all).unwrap_or(u64::MAX).max(number),
            kind: CountKind::About,
        }
    }

    /// A number counted in `looked` rows, which is exact if these are fewer than `bound`.
    pub fn counted(number: u64, looked: i64, bound: i64) -> Self {
        let kind = if looked < bound {
            CountKind::Exact
        } else {
            CountKind::AtLeast
        };
        Self { number, kind }
    }

    /// A number counted in the latest `looked` rows of the [window](Activity::WINDOW), the oldest of
    /// which is from `since`. If there are more rows, the number is extrapolated at the rate since
    /// then.
    pub fn estimated(number: u64, looked: i64, since: Option<Timestamp>, at: Timestamp) -> Self {
        let Some(since) = since.filter(|_| looked >= Activity::ROWS) else {
            return Self::counted(number, looked, Activity::ROWS);
        };
        let window = Activity::WINDOW;
        let span = at.since(since).max(Duration::from_millis(1)).min(window);
        let estimate = u128::from(number) * window.as_millis() / span.as_millis();
        Self {
            number: u64::try_from(estimate).unwrap_or(u64::MAX),
            kind: CountKind::About,
        }
    }

    /// Adds another number. The sum is as precise as the less precise of the two.
    pub fn add(&mut self, other: Self) {
        self.number = self.number.saturating_add(other.number);
        self.kind = self.kind.max(other.kind);
    }
}

/// The precision of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CountKind {
    /// It was counted.
    #[default]
    Exact,
    /// It was counted up to a bound: there are at least that many.
    AtLeast,
    /// It was estimated.
    About,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_exact_if_everything_was_read_and_never_says_that_there_are_none() {
        let of = |number, kind| Count { number, kind };
        let estimated = |looked, number, all| Count::of_sample(number, looked, 10_000, all);
        assert_eq!(estimated(9_999, 7, 12_000), of(7, CountKind::Exact));
        assert_eq!(estimated(10_000, 0, 1_000_000), of(0, CountKind::AtLeast));
        let third = estimated(10_000, 3_300, 10_000_000);
        assert_eq!(third, of(3_300_000, CountKind::About));
        assert_eq!(estimated(10_000, 10_000, 50), of(10_000, CountKind::About));
    }

    #[test]
    fn a_number_is_extrapolated_if_more_happened_than_was_read() {
        let at = Timestamp::from_millis(100_000);
        let since = Some(Timestamp::from_millis(90_000));
        let few = Count::estimated(5, 10, since, at);
        assert_eq!((few.number, few.kind), (5, CountKind::Exact));
        let many = Count::estimated(1_000, Activity::ROWS, since, at);
        assert_eq!((many.number, many.kind), (6_000, CountKind::About));
        let unknown = Count::estimated(1_000, Activity::ROWS, None, at);
        assert_eq!((unknown.number, unknown.kind), (1_000, CountKind::AtLeast));
    }
}
