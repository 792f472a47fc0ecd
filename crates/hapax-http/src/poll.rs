//! Polling endpoints over HTTP, for customers who cannot be called.
//!
//! ```text
//! GET  /poll/{endpoint}?cursor=&limit=&wait=   {"data":[...],"cursor":"...","has_more":true}
//! POST /poll/{endpoint}/commit                 {"cursor":"...","seek":false}
//! POST /poll/{endpoint}/seek                   {"to":"now"}
//! GET  /events/{id}?position=                  {"id":"...","type":"...","data":{...}}
//! ```
//!
//! The last one is for receivers of thin webhooks. An event of another tenant is not found, like one that
//! does not exist.
//!
//! Every request has a bearer token of its endpoint. A request without a valid one is refused with 401,
//! and does not learn whether the endpoint exists. Errors are problems.
//!
//! ```
//! use axum::Router;
//! use hapax::{Clock, Random, poll::{PollSettings, Polling}};
//! use hapax_sqlite::Sqlite;
//!
//! fn door(store: Sqlite, clock: Clock, random: Random) -> Router {
//!     let polling = Polling::new(store.clone(), &store.notifier(), clock, &PollSettings::default());
//!     hapax_http::poll::router(polling, random)
//! }
//! # let _ = door;
//! ```

use std::time::Duration;

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use hapax::{
    Random,
    delivery::Start,
    limits::{POLLING_CURSOR_BYTES, POLLING_EVENTS, POLLING_EVENTS_MAX, POLLING_WAIT},
    poll::{Caller, PollError, PollRequest, PollStore, Polling, event_to_json},
    telemetry,
};
use http::{HeaderMap, HeaderValue, header};
use metrics::counter;
use serde::{Deserialize, Serialize};

use crate::{
    extract::{Json, Path, Query},
    problem::{
        AUTH_INVALID, POLLING_BEHIND, POLLING_GONE, POLLING_INCOMPARABLE, Problem, RATE_LIMIT,
        UNAVAILABLE, method_not_allowed, not_found,
    },
    request_id::RequestIds,
    settings::RETRY_AFTER,
};

/// Maximum size of a request body in bytes: a cursor, and the JSON around it.
const BODY_BYTES_MAX: usize = POLLING_CURSOR_BYTES + 1_024;

/// The parameters of a request for a page.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    cursor: Option<String>,
    limit: Option<usize>,
    /// Seconds.
    wait: Option<u64>,
}

/// The parameters of a request for one event.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    /// The position of the event, as the link contains it.
    position: Option<i64>,
}

/// A cursor to be committed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitBody {
    cursor: String,
    /// Whether the position may be moved back.
    #[serde(default)]
    seek: bool,
}

/// Body of a seek: the position to move to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeekBody {
    to: Start,
}

/// The committed cursor.
#[derive(Debug, Serialize)]
struct Committed {
    cursor: String,
}

/// The routes, for a listener that serves nothing else: with request ids, and with problems for every
/// other path.
pub fn router<S: PollStore>(polling: Polling<S>, random: Random) -> Router {
    routes(polling)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(RequestIds::new(random))
}

/// The routes alone, for a service that merges them with others.
pub fn routes<S: PollStore>(polling: Polling<S>) -> Router {
    Router::new()
        .route("/poll/{endpoint}", get(poll::<S>))
        .route("/poll/{endpoint}/commit", post(commit::<S>))
        .route("/poll/{endpoint}/seek", post(seek::<S>))
        .route("/events/{id}", get(event::<S>))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(polling)
}

async fn poll<S: PollStore>(
    State(polling): State<Polling<S>>,
    Path(endpoint): Path<String>,
    headers: HeaderMap,
    query: Result<Query<PageQuery>, Problem>,
) -> Response {
    let answer = async {
        let caller = authenticate(&polling, &endpoint, &headers).await?;
        let Query(query) = query?;
        let request = PollRequest {
            cursor: query.cursor.as_deref().filter(|it| !it.is_empty()),
            limit: limit(query.limit)?,
            wait: wait(query.wait)?,
        };
        Ok::<_, Problem>(polling.poll(&caller, request).await?)
    };
    let page = answer.await;
    let outcome = match &page {
        Ok(page) if page.events.is_empty() => "empty",
        Ok(_) => "events",
        Err(problem) => failure(problem),
    };
    count("poll", outcome);
    match page {
        Ok(page) => json(page.to_json()),
        Err(problem) => problem.into_response(),
    }
}

async fn event<S: PollStore>(
    State(polling): State<Polling<S>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    query: Result<Query<EventQuery>, Problem>,
) -> Response {
    let answer = async {
        let token = bearer(&headers).ok_or_else(unauthorized)?;
        // A position that is none is that of no event.
        let position = query.ok().and_then(|Query(query)| query.position);
        let found = polling.fetch(token, id.parse().ok(), position).await?;
        Ok::<_, Problem>(event_to_json(&found.event))
    };
    match answer.await {
        Ok(body) => {
            count("fetch", "done");
            json(body)
        }
        Err(problem) => {
            count("fetch", failure(&problem));
            problem.into_response()
        }
    }
}

/// A response that no proxy stores.
fn json(body: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, body).into_response()
}

async fn commit<S: PollStore>(
    State(polling): State<Polling<S>>,
    Path(endpoint): Path<String>,
    headers: HeaderMap,
    body: Result<Json<CommitBody>, Problem>,
) -> Response {
    let answer = async {
        let caller = authenticate(&polling, &endpoint, &headers).await?;
        let Json(body) = body?;
        let committed = polling.commit(&caller, &body.cursor, body.seek).await?;
        Ok::<_, Problem>(committed)
    };
    moved("commit", answer.await)
}

async fn seek<S: PollStore>(
    State(polling): State<Polling<S>>,
    Path(endpoint): Path<String>,
    headers: HeaderMap,
    body: Result<Json<SeekBody>, Problem>,
) -> Response {
    let answer = async {
        let caller = authenticate(&polling, &endpoint, &headers).await?;
        let Json(body) = body?;
        let committed = polling.seek(&caller, body.to).await?;
        Ok::<_, Problem>(committed)
    };
    moved("seek", answer.await)
}

/// The response after the position was moved, or was not.
fn moved(operation: &'static str, moved: Result<String, Problem>) -> Response {
    match moved {
        Ok(cursor) => {
            count(operation, "done");
            Json(Committed { cursor }).into_response()
        }
        Err(problem) => {
            count(operation, failure(&problem));
            problem.into_response()
        }
    }
}

async fn authenticate<S: PollStore>(
    polling: &Polling<S>,
    endpoint: &str,
    headers: &HeaderMap,
) -> Result<Caller, Problem> {
    let token = bearer(headers).ok_or_else(unauthorized)?;
    Ok(polling.authenticate(endpoint, token).await?)
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

fn limit(given: Option<usize>) -> Result<usize, Problem> {
    match given {
        None => Ok(POLLING_EVENTS),
        Some(limit) if (1..=POLLING_EVENTS_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::invalid(
            "limit",
            format!("limit must be 1 to {POLLING_EVENTS_MAX}"),
        )),
    }
}

fn wait(given: Option<u64>) -> Result<Duration, Problem> {
    let wait = Duration::from_secs(given.unwrap_or_default());
    if wait <= POLLING_WAIT {
        return Ok(wait);
    }
    let most = POLLING_WAIT.as_secs();
    let detail = format!("wait must be a number of seconds, 0 to {most}");
    Err(Problem::invalid("wait", detail))
}

fn count(operation: &'static str, outcome: &'static str) {
    counter!(telemetry::POLLING_REQUESTS, "operation" => operation, "outcome" => outcome)
        .increment(1);
}

/// The outcome of a request that was not answered as it asked.
fn failure(problem: &Problem) -> &'static str {
    match problem.status_code().as_u16() {
        401 => "unauthorized",
        410 => "gone",
        429 => "limited",
        400..=499 => "refused",
        _ => "failed",
    }
}

/// The same for an endpoint that does not exist and for a token that is not valid.
fn unauthorized() -> Problem {
    Problem::new(AUTH_INVALID)
        .detail("send Authorization: Bearer and a valid token of this endpoint")
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

impl From<PollError> for Problem {
    fn from(error: PollError) -> Self {
        match error {
            PollError::Unauthorized => unauthorized(),
            PollError::NoEvent => Self::not_found(),
            PollError::Cursor(why) => Self::invalid("cursor", format!("cursor {why}")),
            PollError::Gone {
                is_set_back,
                cursor,
                oldest_at,
            } => {
                let detail = if is_set_back {
                    "the database was set back to an earlier state, which does not have this \
                     cursor: continue with the one in the member cursor"
                } else {
                    "events after this cursor were deleted, because their retention is over: \
                     continue with the one in the member cursor"
                };
                let gone = Self::new(POLLING_GONE)
                    .detail(detail)
                    .with("cursor", cursor);
                match oldest_at {
                    Some(at) => gone.with("oldest_at", at.to_string()),
                    None => gone,
                }
            }
            PollError::Behind { committed } => Self::new(POLLING_BEHIND)
                .detail("set seek to move the position back")
                .with("committed", committed),
            PollError::Incomparable { committed } => Self::new(POLLING_INCOMPARABLE)
                .detail(
                    "two consumers have read at the same time: poll from the committed cursor, or \
                     set seek",
                )
                .with("committed", committed),
            PollError::TooOften { retry_after } => Self::new(RATE_LIMIT)
                .detail("the endpoint is polled too often: wait for the time in Retry-After")
                .retry_after(retry_after),
            PollError::TooManyWaiting => Self::new(RATE_LIMIT)
                .detail("too many polls wait for events: send this one later, or without wait")
                .retry_after(RETRY_AFTER),
            PollError::CursorTooLong => Self::new(UNAVAILABLE)
                .detail("too many transactions are open in the database; try again")
                .retry_after(RETRY_AFTER),
            PollError::Store(error) => error.into(),
            other => Self::internal(other),
        }
    }
}
