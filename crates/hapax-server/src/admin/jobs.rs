//! `/admin/v1/jobs`, the requests that create jobs, and `/admin/v1/audit`.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use hapax::{
    admin::{
        Actor, AdminError, AuditEntry, AuditFilter, DestinationIndex, EventFilter, Job, JobFilter,
        JobOptions, Page,
    },
    key::parse_header,
};
use hapax_http::{Json, Path, Problem, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AdminApi,
    auth::Caller,
    list_query::{Many, PAGE},
};

/// The result of a dry run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Counted {
    /// The number of events or dead letters that match now.
    pub(crate) count: u64,
    /// A snapshot taken with the count. Sent as `seen`, it limits a job to what existed at that
    /// time.
    pub(crate) seen: String,
}

/// The operation of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobOperation {
    /// Make dead letters due again.
    ReplayDeadLetters,
    /// Discard dead letters permanently.
    DiscardDeadLetters,
    /// Deliver events again, regardless of the outcome of their earlier deliveries.
    ReplayEvents,
}

/// Filter of jobs, and the page.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AskJobs {
    /// Only jobs of this destination.
    destination: Option<String>,
    /// Only jobs in this state.
    state: Option<String>,
    /// Start of the page: `next` of the previous page.
    before: Option<String>,
    /// Maximum number of jobs.
    limit: Option<usize>,
}

/// Filter of the audit log, and the page.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AskActs {
    /// Only entries of this actor.
    actor: Option<String>,
    /// Only entries of this action, such as `pause`.
    action: Option<String>,
    /// Only entries about this object, such as `destination orders`.
    object: Option<String>,
    /// Start of the page: `next` of the previous page.
    before: Option<String>,
    /// Maximum number of entries.
    limit: Option<usize>,
}

/// Creates a job that replays the dead letters that match a filter.
///
/// With an `Idempotency-Key`, a repeated request does not create a second job.
#[utoipa::path(post, path = "/admin/v1/dead-letters/replay", tag = "dead letters",
    request_body = Many, params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Counted), (status = 202, body = Job),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn replay_dead_letters(
    State(admin): State<AdminApi>,
    caller: Caller,
    headers: HeaderMap,
    Json(many): Json<Many>,
) -> Result<Response, Problem> {
    answer(
        &admin,
        &caller,
        &headers,
        &many,
        JobOperation::ReplayDeadLetters,
    )
    .await
}

/// Creates a job that discards the dead letters that match a filter.
#[utoipa::path(post, path = "/admin/v1/dead-letters/discard", tag = "dead letters",
    request_body = Many, params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Counted), (status = 202, body = Job),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn discard_dead_letters(
    State(admin): State<AdminApi>,
    caller: Caller,
    headers: HeaderMap,
    Json(many): Json<Many>,
) -> Result<Response, Problem> {
    answer(
        &admin,
        &caller,
        &headers,
        &many,
        JobOperation::DiscardDeadLetters,
    )
    .await
}

/// Creates a job that delivers the events that match a filter to a destination again.
#[utoipa::path(post, path = "/admin/v1/events/replay", tag = "events",
    request_body = Many, params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Counted), (status = 202, body = Job),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn replay_events(
    State(admin): State<AdminApi>,
    caller: Caller,
    headers: HeaderMap,
    Json(many): Json<Many>,
) -> Result<Response, Problem> {
    answer(&admin, &caller, &headers, &many, JobOperation::ReplayEvents).await
}

/// Lists jobs, newest first.
#[utoipa::path(get, path = "/admin/v1/jobs", tag = "jobs", params(AskJobs),
    responses((status = 200, body = Page<Job>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskJobs>,
) -> Result<Json<Page<Job>>, Problem> {
    let filter = JobFilter {
        destination: ask.destination,
        state: ask.state,
    };
    let (before, limit) = (ask.before.as_deref(), ask.limit.unwrap_or(PAGE));
    let page = admin.store().jobs(&caller.actor, &filter, before, limit);
    Ok(Json(page.await?))
}

/// Shows one job and its progress.
#[utoipa::path(get, path = "/admin/v1/jobs/{id}", tag = "jobs",
    params(("id" = i64, Path)),
    responses((status = 200, body = Job), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Result<Json<Job>, Problem> {
    Ok(Json(admin.store().job(&caller.actor, id).await?))
}

/// Cancels a job. What it has done is not reverted.
#[utoipa::path(post, path = "/admin/v1/jobs/{id}/cancel", tag = "jobs",
    params(("id" = i64, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn cancel(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Result<StatusCode, Problem> {
    admin.store().cancel_job(&caller.actor, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the audit log, newest entries first.
#[utoipa::path(get, path = "/admin/v1/audit", tag = "audit", params(AskActs),
    responses((status = 200, body = Page<AuditEntry>), (status = 400, body = Problem)))]
pub(super) async fn audit(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskActs>,
) -> Result<Json<Page<AuditEntry>>, Problem> {
    let filter = AuditFilter {
        actor: ask.actor,
        action: ask.action,
        object: ask.object,
    };
    let (before, limit) = (ask.before.as_deref(), ask.limit.unwrap_or(PAGE));
    let page = admin
        .store()
        .audit_log(&caller.actor, &filter, before, limit);
    Ok(Json(page.await?))
}

async fn answer(
    admin: &AdminApi,
    caller: &Caller,
    headers: &HeaderMap,
    many: &Many,
    act: JobOperation,
) -> Result<Response, Problem> {
    let (index, actor) = (admin.index(), &caller.actor);
    if many.dry_run {
        let counted = count(index, actor, many, act).await?;
        return Ok(Json(counted).into_response());
    }
    let request_key = request_key(headers)?;
    let job = begin(index, actor, many, act, request_key).await?;
    Ok((StatusCode::ACCEPTED, Json(job)).into_response())
}

/// The `Idempotency-Key` of a request that creates a job, parsed like any other one.
fn request_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::invalid(NAME, format!("{NAME} is given twice")));
    }
    let key = parse_header(value.as_bytes());
    let refused = |error| Problem::invalid(NAME, format!("{NAME} cannot be read: {error}"));
    let key = key.map_err(refused)?;
    Ok(Some(key.into_owned()))
}

/// Counts what a job would process, and takes the snapshot for it.
pub(crate) async fn count(
    index: &DestinationIndex,
    actor: &Actor,
    many: &Many,
    act: JobOperation,
) -> Result<Counted, AdminError> {
    let (filter, _) = filter(index, actor, many, act).await?;
    let store = index.store();
    let (name, seen) = (&many.destination, store.seen().await?);
    let count = match act {
        JobOperation::ReplayEvents => store.count_events(actor, &filter).await?,
        _ => {
            store
                .count_dead_letters(actor, name, &filter, &seen)
                .await?
        }
    };
    Ok(Counted { count, seen })
}

/// Creates the job.
pub(crate) async fn begin(
    index: &DestinationIndex,
    actor: &Actor,
    many: &Many,
    act: JobOperation,
    request_key: Option<String>,
) -> Result<Job, AdminError> {
    let (filter, partitions) = filter(index, actor, many, act).await?;
    let options = JobOptions {
        per_second: many.per_second,
        request_key,
        seen: many.seen.clone(),
    };
    let (store, name) = (index.store(), many.destination.as_str());
    let discard = match act {
        JobOperation::ReplayDeadLetters => None,
        JobOperation::DiscardDeadLetters => Some(many.reason.as_deref().unwrap_or_default()),
        JobOperation::ReplayEvents => {
            let begun = store.start_event_job(actor, name, &filter, partitions, &options);
            return begun.await;
        }
    };
    let begun = store.start_dead_letter_job(actor, name, &filter, discard, &options);
    begun.await
}

/// The filter of a job and, for events, the number of partitions of its destination.
async fn filter(
    index: &DestinationIndex,
    actor: &Actor,
    many: &Many,
    act: JobOperation,
) -> Result<(EventFilter, Option<u8>), AdminError> {
    let ask = &many.filter;
    let paged = ask.destination.is_some() || ask.state.is_some() || ask.before.is_some();
    if paged || ask.limit.is_some() {
        let problem =
            "must not have destination, state, before or limit: a job is about all matches";
        return Err(AdminError::invalid("filter", problem));
    }
    if act != JobOperation::ReplayEvents {
        return Ok((ask.filter()?, None));
    }
    index
        .offered(actor, &many.destination, ask.of_events()?)
        .await
}
