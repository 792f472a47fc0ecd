//! `/admin/v1/destinations`: lists, creates, changes, pauses, resumes and removes destinations.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hapax_postgres::admin::destinations;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    Admin,
    auth::Caller,
    problem::{Body, Path, Problem},
    view::{DestinationView, JobView, PageView},
};

/// A new destination.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// The name: 1 to 64 characters of A-Z a-z 0-9 _ - .
    name: String,
    /// The declaration, as in the configuration file.
    #[schema(value_type = crate::destination::Spec)]
    spec: Value,
}

/// A change of a destination.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// The version that the change is based on. If the destination is at another version by now,
    /// the response is 409.
    version: i64,
    /// The new declaration. A secret that is given as `***` keeps its value if the rest of the sink
    /// is unchanged.
    #[schema(value_type = crate::destination::Spec)]
    spec: Value,
}

/// Lists all destinations.
#[utoipa::path(get, path = "/admin/v1/destinations", tag = "destinations",
    responses((status = 200, body = PageView<DestinationView>), (status = 401, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
) -> Result<Json<PageView<DestinationView>>, Problem> {
    let items = admin.0.declare.list(&caller.actor).await?;
    Ok(Json(PageView { items, next: None }))
}

/// Shows one destination and its progress.
#[utoipa::path(get, path = "/admin/v1/destinations/{name}", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 200, body = DestinationView), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<Admin>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<DestinationView>, Problem> {
    Ok(Json(admin.0.declare.show(&caller.actor, &name).await?))
}

/// Creates a destination. Every relay delivers to it within two seconds.
#[utoipa::path(post, path = "/admin/v1/destinations", tag = "destinations",
    request_body = Create,
    responses((status = 201, body = DestinationView), (status = 400, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn create(
    State(admin): State<Admin>,
    caller: Caller,
    Body(body): Body<Create>,
) -> Result<Response, Problem> {
    let made = admin
        .0
        .declare
        .create(&caller.actor, &body.name, &body.spec)
        .await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// Changes a destination if it is still at the given version.
#[utoipa::path(put, path = "/admin/v1/destinations/{name}", tag = "destinations",
    params(("name" = String, Path)), request_body = Change,
    responses((status = 200, body = DestinationView), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn change(
    State(admin): State<Admin>,
    caller: Caller,
    Path(name): Path<String>,
    Body(body): Body<Change>,
) -> Result<Json<DestinationView>, Problem> {
    let declare = &admin.0.declare;
    Ok(Json(
        declare
            .change(&caller.actor, &name, body.version, &body.spec)
            .await?,
    ))
}

/// Removes a destination. A job deletes its parked deliveries and dead letters.
#[utoipa::path(delete, path = "/admin/v1/destinations/{name}", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 202, body = JobView), (status = 404, body = Problem)))]
pub(super) async fn remove(
    State(admin): State<Admin>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let job = destinations::remove(admin.store(), &caller.actor, &name).await?;
    Ok((StatusCode::ACCEPTED, Json(JobView::from(job))).into_response())
}

/// Pauses a destination. Pausing a paused destination has no effect.
#[utoipa::path(post, path = "/admin/v1/destinations/{name}/pause", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(super) async fn pause(
    State(admin): State<Admin>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    destinations::pause(admin.store(), &caller.actor, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resumes a paused or disabled destination.
#[utoipa::path(post, path = "/admin/v1/destinations/{name}/resume", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn resume(
    State(admin): State<Admin>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    admin.0.declare.book().resume(&caller.actor, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
