//! Liveness, readiness and metrics.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, store::StoreError};
use hapax_http::{Json, Query, problem::Problem};
use http::{HeaderValue, StatusCode, header};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::{sync::Mutex, time::timeout};

use super::Shop;
use crate::{
    database::{Database, params, query},
    members::NoQuery,
    relay_handle::RelayState,
};

/// How long a result of the store probe is reused: a probe costs a commit, and any client may ask.
const FRESH: Duration = Duration::from_secs(1);

/// The time limit of a store probe.
const READY: Duration = Duration::from_secs(2);

/// The time and result of the last store probe.
#[derive(Debug, Default)]
pub(crate) struct Probe(Mutex<Option<(Timestamp, bool)>>);

#[derive(Debug, Serialize)]
struct Alive {
    status: &'static str,
}

#[derive(Debug, Serialize)]
struct Readiness {
    status: &'static str,
    store: &'static str,
    relay: &'static str,
}

/// `GET /healthz`: responds while the process serves requests.
pub(super) async fn alive(Query(NoQuery {}): Query<NoQuery>) -> Response {
    Json(Alive { status: "ok" }).into_response()
}

/// `GET /readyz`: reports whether the store can be written and the relay delivers.
pub(super) async fn ready<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, Problem> {
    // A load balancer needs a response in time more than an exact one.
    let writable = timeout(READY, shop.probe.ask(&shop)).await.unwrap_or(false);
    let (relay, carries) = match shop.relay_handle.state() {
        RelayState::Running => ("running", true),
        RelayState::Standby => ("standby", true),
        // A namesake does not disturb deliveries, so both instances stay ready.
        RelayState::Namesake => ("namesake", true),
        RelayState::Absent => ("off", !shop.relays),
        RelayState::Fenced => ("fenced", false),
    };
    let ready = writable && carries;
    let readiness = Readiness {
        status: if ready { "ready" } else { "unavailable" },
        store: if writable { "writable" } else { "unavailable" },
        relay,
    };
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok((status, Json(readiness)).into_response())
}

/// `GET /metrics`, in the text format of Prometheus.
pub(super) async fn metrics(
    State(handle): State<PrometheusHandle>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], handle.render()).into_response()
}

impl Probe {
    async fn ask<D: Database>(&self, shop: &Shop<D>) -> bool {
        let mut last = self.0.lock().await;
        let now = shop.ids.now();
        match *last {
            Some((asked_at, writable)) if now.since(asked_at) < FRESH => writable,
            _ => {
                let asked_at = params![now.as_millis()];
                let written = shop.store.execute(query::PROBE_WRITE, asked_at);
                let writable = written.await.inspect_err(complain).is_ok();
                *last = Some((now, writable));
                writable
            }
        }
    }
}

fn complain(error: &StoreError) {
    tracing::error!(error = error.error_chain(), "cannot write to the store");
}
