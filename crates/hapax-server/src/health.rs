//! HTTP endpoints of the relay and of the gateway for monitoring: `/metrics`, `/healthz`, `/readyz`.
//!
//! `/healthz` reports that the process is alive. `/readyz` reports that the relay is working: the
//! database accepts writes, and the relay is not stopping. The response also contains the state of every
//! destination, but a failing destination does not make the relay unready, because a restart would
//! not repair the receiver. Neither does another process with the same node name, because it takes
//! nothing from this relay.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::future::BoxFuture;
use hapax::relay::{Destination, RelayHandle};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Instant, timeout},
};

use crate::database::DatabaseState;

/// How long the database may take to respond before the relay is reported as not ready.
const ANSWER: Duration = Duration::from_secs(2);
/// How long the state of the database is reused: on SQLite, asking for it costs a commit.
const FRESH: Duration = Duration::from_secs(1);
/// The media type of Prometheus text.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The health of the relay.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<Inner>);

struct Inner {
    ask: Ask,
    /// When the database was asked last, and its state.
    asked: AsyncMutex<Option<(Instant, DatabaseState)>>,
    metrics: PrometheusHandle,
    shown: Mutex<Shown>,
}

/// Asks for the state of the database.
type Ask = Box<dyn Fn() -> BoxFuture<'static, DatabaseState> + Send + Sync>;

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Shown {
    draining: bool,
    destinations: BTreeMap<String, &'static str>,
    namesakes: usize,
}

#[derive(Debug, Serialize)]
struct Ready {
    status: &'static str,
    destinations: BTreeMap<String, &'static str>,
    /// The number of other live processes with this relay's node name.
    #[serde(skip_serializing_if = "Option::is_none")]
    namesakes: Option<usize>,
}

impl Health {
    /// The health of a relay. `ask` asks for the state of its database.
    pub(crate) fn new(
        ask: impl Fn() -> BoxFuture<'static, DatabaseState> + Send + Sync + 'static,
        metrics: PrometheusHandle,
    ) -> Self {
        let shown = Mutex::default();
        Self(Arc::new(Inner {
            ask: Box::new(ask),
            asked: AsyncMutex::default(),
            metrics,
            shown,
        }))
    }

    /// Updates the state of every destination.
    pub(crate) fn shows(&self, destinations: &[Destination], handle: &RelayHandle) {
        let state = |it: &Destination| {
            let state = match handle.stopped(&it.name) {
                None => "delivering",
                // A paused destination may also have partitions that other relays own; the pause is
                // what counts.
                Some(_) if it.paused => "paused",
                Some(reason) => reason,
            };
            (it.name.clone(), state)
        };
        let mut shown = self.shown();
        shown.destinations = destinations.iter().map(state).collect();
        shown.namesakes = handle.namesakes();
    }

    /// Records that the relay is draining.
    pub(crate) fn drains(&self) {
        self.shown().draining = true;
    }

    /// The routes.
    pub(crate) fn router(&self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(self.clone())
    }

    /// The state of the database, at most [`FRESH`] old.
    async fn database(&self) -> DatabaseState {
        let mut asked = self.0.asked.lock().await;
        match *asked {
            Some((at, state)) if at.elapsed() < FRESH => state,
            _ => {
                let at = Instant::now();
                let state = (self.0.ask)().await;
                *asked = Some((at, state));
                state
            }
        }
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn metrics(State(health): State<Health>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS)], health.0.metrics.render()).into_response()
}

async fn ready(State(health): State<Health>) -> Response {
    let asked = timeout(ANSWER, health.database()).await;
    let database = asked.unwrap_or(DatabaseState::Silent);
    let shown = health.shown();
    let (code, status) = match (shown.draining, database) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, DatabaseState::Silent) => {
            (StatusCode::SERVICE_UNAVAILABLE, "database does not respond")
        }
        (false, DatabaseState::ReadOnly) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "database accepts no writes",
        ),
        (false, DatabaseState::Writable) => (StatusCode::OK, "ready"),
    };
    let destinations = shown.destinations.clone();
    let namesakes = (shown.namesakes > 0).then_some(shown.namesakes);
    (
        code,
        Json(Ready {
            status,
            destinations,
            namesakes,
        }),
    )
        .into_response()
}
