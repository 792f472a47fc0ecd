//! `/admin/v1/destinations`: declared, changed, paused, resumed, removed.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hapax_postgres::operate::destinations;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    Admin,
    door::Caller,
    problem::{Body, Path, Problem},
    view::{DestinationView, JobView, PageView},
};

/// A new destination.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// Its name: 1 to 64 of A-Z a-z 0-9 _ - .
    name: String,
    /// What it is, as in the configuration file.
    #[schema(value_type = crate::destination::Spec)]
    spec: Value,
}

/// A changed destination.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// The version that was seen; another one is a conflict.
    version: i64,
    /// What it is now. A secret that is `***` stays what it was, if the sink does.
    #[schema(value_type = crate::destination::Spec)]
    spec: Value,
}

/// Lists every destination.
#[utoipa::path(get, path = "/admin/v1/destinations", tag = "destinations",
    responses((status = 200, body = PageView<DestinationView>), (status = 401, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
) -> Result<Json<PageView<DestinationView>>, Problem> {
    let items = admin.0.declare.list(&caller.actor).await?;
    Ok(Json(PageView { items, next: None }))
}

/// Shows one destination, and how far it is.
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

/// Declares a destination; every relay carries to it within two seconds.
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

/// Changes a destination, if it is still at the version that was seen.
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

/// Removes a destination: its parked deliveries and its dead letters are deleted by a job.
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

/// Has a destination offer nothing; paused twice, it is paused.
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

/// Has a paused or disabled destination go on.
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
