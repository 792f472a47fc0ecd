//! `/admin/v1/stalled` and `/admin/v1/overview`: stalled work with its cause, and figures.

use axum::extract::State;
use hapax::admin::{Overview, Page, Stalled};
use hapax_http::{Json, Problem};

use super::{AdminApi, auth::Caller};

/// Lists stalled work with its cause, worst first.
#[utoipa::path(get, path = "/admin/v1/stalled", tag = "overview",
    responses((status = 200, body = Page<Stalled>)))]
pub(super) async fn stalled(
    State(admin): State<AdminApi>,
    caller: Caller,
) -> Result<Json<Page<Stalled>>, Problem> {
    let items = admin.index().stalled(&caller.actor).await?;
    Ok(Json(Page::last(items)))
}

/// Returns a few figures whose cost does not depend on the amount of stored data.
#[utoipa::path(get, path = "/admin/v1/overview", tag = "overview",
    responses((status = 200, body = Overview)))]
pub(super) async fn overview(
    State(admin): State<AdminApi>,
    caller: Caller,
) -> Result<Json<Overview>, Problem> {
    Ok(Json(admin.store().overview(&caller.actor).await?))
}
