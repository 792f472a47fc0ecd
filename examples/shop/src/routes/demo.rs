//! Routes of the demo's receiver: list its events, and set its mode.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use hapax_http::{Json, Query, problem::Problem};
use serde::{Deserialize, Serialize};

use crate::{
    demo::receiver::{Fault, Receiver, Seen},
    destinations::DEMO,
    members::NoQuery,
    relay_handle::RelayStatus,
};

/// The most events of a page, which all events of a demo usually fit into.
const LIMIT_MAX: u32 = 10_000;

/// The state of the demo's routes.
#[derive(Clone, Debug)]
pub(crate) struct Demo {
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) relay_handle: RelayStatus,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Listed {
    events: Vec<Seen>,
    next: Option<String>,
}

/// Returns the demo's routes.
pub(crate) fn routes(demo: Demo) -> Router {
    Router::new()
        .route("/demo/receiver", get(seen))
        .route("/demo/receiver/fault", post(misbehave))
        .with_state(demo)
}

async fn seen(State(demo): State<Demo>, Query(wanted): Query<Wanted>) -> Result<Response, Problem> {
    let limit = wanted.limit.unwrap_or(LIMIT_MAX);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("limit must be a whole number from 1 to {LIMIT_MAX}");
        return Err(Problem::invalid("limit", detail));
    }
    let after = wanted.after.unwrap_or_default();
    let mut events = demo.receiver.seen(after, i64::from(limit) + 1).await?;
    let more = events.len() > limit as usize;
    events.truncate(limit as usize);
    let next = events
        .last()
        .filter(|_| more)
        .map(|event| event.event_id.clone());
    Ok(Json(Listed { events, next }).into_response())
}

async fn misbehave(
    State(demo): State<Demo>,
    Query(NoQuery {}): Query<NoQuery>,
    Json(fault): Json<Fault>,
) -> Response {
    if demo.receiver.misbehave(fault) {
        // The receiver's 410 has disabled the destination, or is about to.
        demo.relay_handle.enable(DEMO);
    }
    Json(fault).into_response()
}
