//! Is it alive, is it of use, and what has it done.

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
    carriage::Standing,
    database::{Database, params, query},
    members::NoQuery,
};

/// How long an answer about the store stays good: asking costs a commit, and anybody may ask.
const FRESH: Duration = Duration::from_secs(1);

/// How long the store may take to show that it can be written.
const READY: Duration = Duration::from_secs(2);

/// When the store was last asked, and whether it could be written.
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

/// `GET /healthz`: it answers, so it is alive.
pub(super) async fn alive(Query(NoQuery {}): Query<NoQuery>) -> Response {
    Json(Alive { status: "ok" }).into_response()
}

/// `GET /readyz`: whether the store takes a write and the relay carries.
pub(super) async fn ready<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, Problem> {
    // A balancer that waits learns less than one that is told.
    let writable = timeout(READY, shop.probe.ask(&shop)).await.unwrap_or(false);
    let (relay, carries) = match shop.carriage.standing() {
        Standing::Running => ("running", true),
        Standing::Standby => ("standby", true),
        // It harms no delivery, so it is no reason to take requests away from either of them.
        Standing::Namesake => ("namesake", true),
        Standing::Absent => ("off", !shop.relays),
        Standing::Fenced => ("fenced", false),
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

/// `GET /metrics`, as Prometheus reads it.
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
    tracing::error!(error = error.error_chain(), "the store cannot be written");
}
