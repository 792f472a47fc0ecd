//! `/admin/v1/destinations`: lists, creates, changes, pauses, resumes and removes destinations.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hapax::admin::{Destination, Job, Page};
use hapax_http::{Json, Path, Problem, extract::from_json};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{AdminApi, auth::Caller};
use crate::destination::DistinctNames;

/// A new destination.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// The name: 1 to 64 characters of A-Z a-z 0-9 _ - .
    name: String,
    /// The declaration, as in the configuration file.
    #[schema(value_type = crate::destination::Spec)]
    spec: Box<RawValue>,
}

/// A change of a destination.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// The version that the change is based on. If the destination is at another version by now,
    /// the response is 409.
    version: i64,
    /// The new declaration. A secret that is given as `***` keeps its value, unless a setting changes
    /// that decides where it is sent, such as a URL.
    #[schema(value_type = crate::destination::Spec)]
    spec: Box<RawValue>,
}

/// A declaration in which no member appears twice.
fn read(spec: &RawValue) -> Result<Value, Problem> {
    let json = spec.get().as_bytes();
    from_json::<DistinctNames>(json)?;
    from_json(json)
}

/// Lists all destinations.
#[utoipa::path(get, path = "/admin/v1/destinations", tag = "destinations",
    responses((status = 200, body = Page<Destination>), (status = 401, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
) -> Result<Json<Page<Destination>>, Problem> {
    let items = admin.index().list(&caller.actor).await?;
    Ok(Json(Page::last(items)))
}

/// Shows one destination and its progress.
#[utoipa::path(get, path = "/admin/v1/destinations/{name}", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 200, body = Destination), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Destination>, Problem> {
    Ok(Json(admin.index().get_counted(&caller.actor, &name).await?))
}

/// Creates a destination. Every relay delivers to it within two seconds.
#[utoipa::path(post, path = "/admin/v1/destinations", tag = "destinations",
    request_body = Create,
    responses((status = 201, body = Destination), (status = 400, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn create(
    State(admin): State<AdminApi>,
    caller: Caller,
    Json(body): Json<Create>,
) -> Result<Response, Problem> {
    let (declare, spec) = (&admin.0.declare, read(&body.spec)?);
    let made = declare.create(&caller.actor, &body.name, &spec).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// Changes a destination if it is still at the given version.
#[utoipa::path(put, path = "/admin/v1/destinations/{name}", tag = "destinations",
    params(("name" = String, Path)), request_body = Change,
    responses((status = 200, body = Destination), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn change(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
    Json(body): Json<Change>,
) -> Result<Json<Destination>, Problem> {
    let (declare, spec) = (&admin.0.declare, read(&body.spec)?);
    let changed = declare.change(&caller.actor, &name, body.version, &spec);
    Ok(Json(changed.await?))
}

/// Removes a destination. A job deletes its parked deliveries and dead letters.
#[utoipa::path(delete, path = "/admin/v1/destinations/{name}", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 202, body = Job), (status = 404, body = Problem)))]
pub(super) async fn remove(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let removed = admin.store().remove_destination(&caller.actor, &name);
    Ok((StatusCode::ACCEPTED, Json(removed.await?)).into_response())
}

/// Pauses a destination. Pausing a paused destination has no effect.
#[utoipa::path(post, path = "/admin/v1/destinations/{name}/pause", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(super) async fn pause(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let paused = admin.store().pause_destination(&caller.actor, &name);
    paused.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resumes a paused or disabled destination.
#[utoipa::path(post, path = "/admin/v1/destinations/{name}/resume", tag = "destinations",
    params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn resume(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    admin.index().resume(&caller.actor, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
