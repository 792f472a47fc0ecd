//! How the relay shows itself over HTTP: `/metrics`, `/healthz`, `/readyz`.
//!
//! `/healthz` says that the process lives, `/readyz` that it carries: its database answers and it
//! does not stop. What each destination does stands in the answer and does not make it unready,
//! for a far side that is down is not mended by ending the relay. Neither does another process of
//! its name, which takes nothing from it.

use std::{
    collections::BTreeMap,
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
use hapax::relay::{Destination, RelayHandle};
use hapax_postgres::Postgres;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::time::timeout;

/// How long the database may take to answer before the relay is not ready.
const ANSWER: Duration = Duration::from_secs(2);
/// The media type of Prometheus text.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is known about the relay's health.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Postgres,
    metrics: PrometheusHandle,
    shown: Mutex<Shown>,
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
    /// Other processes that live under this relay's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    namesakes: Option<usize>,
}

impl Health {
    /// The health of a relay over this store.
    pub(crate) fn new(store: Postgres, metrics: PrometheusHandle) -> Self {
        let shown = Mutex::default();
        Self(Arc::new(Inner {
            store,
            metrics,
            shown,
        }))
    }

    /// Notes what each destination does now.
    pub(crate) fn shows(&self, destinations: &[Destination], handle: &RelayHandle) {
        let state = |it: &Destination| {
            let state = match handle.stopped(&it.name) {
                None => "carrying",
                // Of its parts some would stand by: that is not why nothing moves.
                Some(_) if it.paused => "paused",
                Some(reason) => reason,
            };
            (it.name.clone(), state)
        };
        let mut shown = self.shown();
        shown.destinations = destinations.iter().map(state).collect();
        shown.namesakes = handle.namesakes();
    }

    /// Notes that the relay stops.
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

    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn metrics(State(health): State<Health>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS)], health.0.metrics.render()).into_response()
}

async fn ready(State(health): State<Health>) -> Response {
    let asked = timeout(ANSWER, health.0.store.read("SELECT 1", &[])).await;
    let answers = matches!(asked, Ok(Ok(_)));
    let shown = health.shown();
    let (code, status) = match (shown.draining, answers) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "database does not answer"),
        (false, true) => (StatusCode::OK, "carrying"),
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
