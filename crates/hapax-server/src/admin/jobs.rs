//! `/admin/v1/jobs`, the requests that create jobs, and `/admin/v1/audit`.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use hapax::key::parse_header;
use hapax_postgres::{
    Postgres,
    admin::{
        Actor, AdminError, Filter,
        audit::{self as log, Acts},
        dead_letters, events,
        jobs::{self, Asked, Job, NotSeen, Seen},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Admin, Declare, Refusal,
    auth::Caller,
    list_query::{Many, wrong},
    problem::{Body, Path, Problem, Query},
    view::{EntryView, JobView, PageView},
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
pub(crate) enum Act {
    /// Make dead letters due again.
    ReplayDeadLetters,
    /// Discard dead letters permanently.
    DiscardDeadLetters,
    /// Deliver events again, whatever the outcome of their earlier deliveries was.
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
    before: Option<i64>,
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
    before: Option<i64>,
    /// Maximum number of entries.
    limit: Option<usize>,
}

/// Creates a job that replays the dead letters that match a filter.
///
/// With an `Idempotency-Key`, a repeated request does not create a second job.
#[utoipa::path(post, path = "/admin/v1/dead-letters/replay", tag = "dead letters",
    request_body = Many, params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Counted), (status = 202, body = JobView),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn replay_dead_letters(
    State(admin): State<Admin>,
    caller: Caller,
    headers: HeaderMap,
    Body(many): Body<Many>,
) -> Result<Response, Problem> {
    answer(&admin, &caller, &headers, &many, Act::ReplayDeadLetters).await
}

/// Creates a job that discards the dead letters that match a filter.
#[utoipa::path(post, path = "/admin/v1/dead-letters/discard", tag = "dead letters",
    request_body = Many, params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Counted), (status = 202, body = JobView),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn discard_dead_letters(
    State(admin): State<Admin>,
    caller: Caller,
    headers: HeaderMap,
    Body(many): Body<Many>,
) -> Result<Response, Problem> {
    answer(&admin, &caller, &headers, &many, Act::DiscardDeadLetters).await
}

/// Creates a job that delivers the events that match a filter to a destination again.
#[utoipa::path(post, path = "/admin/v1/events/replay", tag = "events",
    request_body = Many, params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = Counted), (status = 202, body = JobView),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn replay_events(
    State(admin): State<Admin>,
    caller: Caller,
    headers: HeaderMap,
    Body(many): Body<Many>,
) -> Result<Response, Problem> {
    answer(&admin, &caller, &headers, &many, Act::ReplayEvents).await
}

/// Lists jobs, newest first.
#[utoipa::path(get, path = "/admin/v1/jobs", tag = "jobs", params(AskJobs),
    responses((status = 200, body = PageView<JobView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<AskJobs>,
) -> Result<Json<PageView<JobView>>, Problem> {
    let (destination, state) = (ask.destination.as_deref(), ask.state.as_deref());
    let limit = ask.limit.unwrap_or(50);
    let page = jobs::list(
        admin.store(),
        &caller.actor,
        destination,
        state,
        ask.before,
        limit,
    )
    .await?;
    Ok(Json(PageView::of(page, JobView::from, |next| {
        next.to_string()
    })))
}

/// Shows one job and its progress.
#[utoipa::path(get, path = "/admin/v1/jobs/{id}", tag = "jobs",
    params(("id" = i64, Path)),
    responses((status = 200, body = JobView), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<Admin>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Result<Json<JobView>, Problem> {
    Ok(Json(
        jobs::get(admin.store(), &caller.actor, id).await?.into(),
    ))
}

/// Cancels a job. What it has done is not reverted.
#[utoipa::path(post, path = "/admin/v1/jobs/{id}/cancel", tag = "jobs",
    params(("id" = i64, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn cancel(
    State(admin): State<Admin>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Result<StatusCode, Problem> {
    jobs::cancel(admin.store(), &caller.actor, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the audit log, newest entries first.
#[utoipa::path(get, path = "/admin/v1/audit", tag = "audit", params(AskActs),
    responses((status = 200, body = PageView<EntryView>), (status = 400, body = Problem)))]
pub(super) async fn audit(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<AskActs>,
) -> Result<Json<PageView<EntryView>>, Problem> {
    let acts = Acts {
        actor: ask.actor,
        action: ask.action,
        object: ask.object,
    };
    let limit = ask.limit.unwrap_or(50);
    let page = log::list(admin.store(), &caller.actor, &acts, ask.before, limit).await?;
    Ok(Json(PageView::of(page, EntryView::from, |next| {
        next.to_string()
    })))
}

async fn answer(
    admin: &Admin,
    caller: &Caller,
    headers: &HeaderMap,
    many: &Many,
    act: Act,
) -> Result<Response, Problem> {
    let store = admin.store();
    if many.dry_run {
        let counted = count(store, &admin.0.declare, &caller.actor, many, act).await?;
        return Ok(Json(counted).into_response());
    }
    let request_key = request_key(headers)?;
    let job = begin(
        store,
        &admin.0.declare,
        &caller.actor,
        many,
        act,
        request_key,
    )
    .await?;
    Ok((StatusCode::ACCEPTED, Json(JobView::from(job))).into_response())
}

/// The `Idempotency-Key` of a request that creates a job, parsed like any other one.
fn request_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::member(NAME, "is given twice"));
    }
    let key = parse_header(value.as_bytes());
    let key = key.map_err(|error| Problem::member(NAME, &format!("cannot be read: {error}")))?;
    Ok(Some(key.into_owned()))
}

/// Counts what a job would process, and takes the snapshot for it.
pub(crate) async fn count(
    store: &Postgres,
    declare: &Declare,
    actor: &Actor,
    many: &Many,
    act: Act,
) -> Result<Counted, Refusal> {
    let (filter, _) = filter(declare, actor, many, act).await?;
    let seen = Seen::now(store).await.map_err(AdminError::from)?;
    let count = match act {
        Act::ReplayEvents => events::count(store, actor, &filter).await?,
        _ => dead_letters::count(store, actor, &many.destination, &filter, &seen).await?,
    };
    let seen = seen.to_string();
    Ok(Counted { count, seen })
}

/// Creates the job.
pub(crate) async fn begin(
    store: &Postgres,
    declare: &Declare,
    actor: &Actor,
    many: &Many,
    act: Act,
    request_key: Option<String>,
) -> Result<Job, Refusal> {
    let (filter, partitions) = filter(declare, actor, many, act).await?;
    let wrong = |error: NotSeen| wrong("seen", &error.to_string());
    let seen = many.seen.as_deref().map(str::parse).transpose();
    let asked = Asked {
        per_second: many.per_second,
        request_key,
        seen: seen.map_err(wrong)?,
    };
    let name = many.destination.as_str();
    let job = match act {
        Act::ReplayDeadLetters => {
            jobs::replay_dead_letters(store, actor, name, &filter, &asked).await
        }
        Act::DiscardDeadLetters => {
            let reason = many.reason.as_deref().unwrap_or_default();
            jobs::discard_dead_letters(store, actor, name, &filter, reason, &asked).await
        }
        Act::ReplayEvents => {
            jobs::replay_events(store, actor, name, &filter, partitions, &asked).await
        }
    };
    Ok(job?)
}

/// The filter of a job and, for events, the number of partitions of its destination.
async fn filter(
    declare: &Declare,
    actor: &Actor,
    many: &Many,
    act: Act,
) -> Result<(Filter, Option<u8>), Refusal> {
    let ask = &many.filter;
    let paged = ask.destination.is_some() || ask.state.is_some() || ask.before.is_some();
    if paged || ask.limit.is_some() {
        let problem =
            "must not have destination, state, before or limit: a job is about all matches";
        return Err(wrong("filter", problem).into());
    }
    let filter = ask.filter()?;
    if act != Act::ReplayEvents {
        return Ok((filter, None));
    }
    ask.check_of_events()?;
    let book = declare.book();
    Ok(book.offered(actor, &many.destination, filter).await?)
}
