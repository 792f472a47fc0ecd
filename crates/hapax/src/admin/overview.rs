//! Overview figures: recent commits and deliveries, backlogs and dead letters.
//!
//! Their cost does not grow with the size of the database: everything is counted up to a bound.
//! Beyond it, a number is an estimate or a lower limit, and marked as such.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use super::{Actor, AdminError, Stalled};
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

/// The figures of one destination, over all its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DestinationFigures {
    /// The name of the destination.
    pub name: String,
    /// Events that are not settled.
    pub backlog: Count,
    /// The age of the oldest of them in milliseconds.
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
