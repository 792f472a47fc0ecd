//! `/admin/v1/stalled` and `/admin/v1/overview`: stalled work with its cause, and figures.

use axum::{Json, extract::State};
use hapax_postgres::admin::{
    overview::{self, Count, CountKind, DestinationFigures, Overview},
    stalled::{self, Cause, Stalled, What},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Admin,
    auth::Caller,
    problem::Problem,
    view::{PageView, moment},
};

/// Something that is stalled.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct StalledView {
    /// What is stalled: `partition`, `order_key`, `event_type`, `sagas` or `outbox`.
    pub(crate) what: &'static str,
    /// What is stalled, in words.
    pub(crate) name: String,
    /// The partition of a destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partition: Option<String>,
    /// The aggregate type of the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// The aggregate id of the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// The type of the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_type: Option<String>,
    /// The name of the sagas' definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) saga: Option<String>,
    /// The version of the sagas' definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u32>,
    /// The cause: `paused`, `disabled`, `unowned`, `owner_silent`, `waits_for_retry`,
    /// `not_settling`, `behind_dead_letter`, `declined`, `needs_attention`, `nobody_knows` or
    /// `held_back`.
    pub(crate) cause: &'static str,
    /// The cause, in words.
    pub(crate) detail: String,
    /// The time since which it is stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// The approximate number of events, deliveries or sagas that wait for it.
    pub(crate) waiting: u64,
    /// The position of the event that blocks the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<i64>,
    /// When the blocking event is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_at: Option<String>,
    /// The node that owns it, or owned it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

/// Figures about the whole system.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OverviewView {
    /// The time of the figures.
    pub(crate) at: String,
    /// The length of the recent window in milliseconds.
    pub(crate) window_ms: u64,
    /// Events committed in the window.
    pub(crate) committed: CountView,
    /// Deliveries completed in the window.
    pub(crate) delivered: CountView,
    /// Attempts that failed in the window.
    pub(crate) failed: CountView,
    /// The figures of each destination.
    pub(crate) destinations: Vec<FiguresView>,
    /// Keys claimed in the window, by their current state.
    pub(crate) keys: Vec<ByState>,
    /// The estimated number of stored keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys_stored: Option<CountView>,
    /// Sagas by state.
    pub(crate) sagas: Vec<ByState>,
}

/// The figures of one destination.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FiguresView {
    /// The name of the destination.
    pub(crate) name: String,
    /// Events that are not settled.
    pub(crate) backlog: CountView,
    /// The age of the oldest of them in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lag_ms: Option<u64>,
    /// Parked deliveries.
    pub(crate) parked: CountView,
    /// Dead letters.
    pub(crate) dead: CountView,
    /// Deliveries completed in the window.
    pub(crate) delivered: CountView,
    /// Attempts that failed in the window.
    pub(crate) failed: CountView,
}

/// The count of one state.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ByState {
    /// The state.
    pub(crate) state: &'static str,
    /// The count.
    pub(crate) count: CountView,
}

/// A count.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct CountView {
    /// The number.
    pub(crate) number: u64,
    /// `exact`; `at_least` if counting stopped at a limit; `about` if it is an estimate.
    pub(crate) kind: &'static str,
}

/// Lists stalled work with its cause, worst first.
#[utoipa::path(get, path = "/admin/v1/stalled", tag = "overview",
    responses((status = 200, body = PageView<StalledView>)))]
pub(super) async fn stalled(
    State(admin): State<Admin>,
    caller: Caller,
) -> Result<Json<PageView<StalledView>>, Problem> {
    let found = stalled::stalled(admin.store(), &caller.actor).await?;
    let mut items: Vec<StalledView> = found.into_iter().map(StalledView::from).collect();
    if caller.actor.tenant.is_none() {
        // The database does not know which destinations are paused by a configuration file.
        for name in admin.0.declare.paused_by_file() {
            let is_told = |it: &StalledView| it.cause == "paused" && it.is_of(name);
            if !items.iter().any(is_told) {
                items.push(StalledView::from(Stalled {
                    what: What::Partition(name.to_owned()),
                    cause: Cause::Paused { by: None },
                    since: None,
                    waiting: 0,
                }));
            }
        }
    }
    Ok(Json(PageView { items, next: None }))
}

/// Returns a few figures whose cost does not depend on the amount of stored data.
#[utoipa::path(get, path = "/admin/v1/overview", tag = "overview",
    responses((status = 200, body = OverviewView)))]
pub(super) async fn overview(
    State(admin): State<Admin>,
    caller: Caller,
) -> Result<Json<OverviewView>, Problem> {
    let found = overview::overview(admin.store(), &caller.actor).await?;
    Ok(Json(found.into()))
}

impl StalledView {
    fn is_of(&self, destination: &str) -> bool {
        let partition = self.partition.as_deref().unwrap_or_default();
        hapax_postgres::admin::destination_of(partition) == destination
    }
}

impl From<Stalled> for StalledView {
    fn from(it: Stalled) -> Self {
        let mut view = Self {
            name: it.what.to_string(),
            cause: it.cause.as_str(),
            detail: it.cause.to_string(),
            since: it.since.map(moment),
            waiting: it.waiting,
            ..Self::default()
        };
        match it.what {
            What::Partition(partition) => {
                (view.what, view.partition) = ("partition", Some(partition));
            }
            What::OrderKey {
                partition,
                aggregate_type,
                aggregate_id,
            } => {
                (view.what, view.partition) = ("order_key", Some(partition));
                view.aggregate_type = Some(aggregate_type);
                view.aggregate_id = Some(aggregate_id);
            }
            What::EventType { partition, kind } => {
                (view.what, view.partition, view.event_type) =
                    ("event_type", Some(partition), Some(kind));
            }
            What::Sagas { name, version } => {
                (view.what, view.saga, view.version) = ("sagas", Some(name), Some(version));
            }
            What::Outbox => view.what = "outbox",
        }
        match it.cause {
            Cause::Unowned { last } => view.node = last,
            Cause::OwnerSilent { node, .. } => view.node = Some(node),
            Cause::WaitsForRetry {
                position, next_at, ..
            } => {
                (view.position, view.next_at) = (Some(position), Some(moment(next_at)));
            }
            Cause::BehindDeadLetter { position, .. } | Cause::Declined { position, .. } => {
                view.position = Some(position);
            }
            _ => {}
        }
        view
    }
}

impl From<Overview> for OverviewView {
    fn from(it: Overview) -> Self {
        let of = |state, count: Count| ByState {
            state,
            count: count.into(),
        };
        let keys = it
            .keys
            .into_iter()
            .map(|(state, count)| of(state.as_str(), count));
        let sagas = it
            .sagas
            .into_iter()
            .map(|(state, count)| of(state.as_str(), count));
        Self {
            at: moment(it.at),
            window_ms: millis(it.window),
            committed: it.committed.into(),
            delivered: it.delivered.into(),
            failed: it.failed.into(),
            destinations: it.destinations.into_iter().map(FiguresView::from).collect(),
            keys: keys.collect(),
            keys_stored: it.keys_stored.map(CountView::from),
            sagas: sagas.collect(),
        }
    }
}

impl From<DestinationFigures> for FiguresView {
    fn from(it: DestinationFigures) -> Self {
        Self {
            name: it.name,
            backlog: it.backlog.into(),
            lag_ms: it.lag.map(millis),
            parked: it.parked.into(),
            dead: it.dead.into(),
            delivered: it.delivered.into(),
            failed: it.failed.into(),
        }
    }
}

impl From<Count> for CountView {
    fn from(it: Count) -> Self {
        Self {
            number: it.number,
            kind: match it.kind {
                CountKind::Exact => "exact",
                CountKind::AtLeast => "at_least",
                CountKind::About => "about",
            },
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
