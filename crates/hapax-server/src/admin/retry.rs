//! `/admin/v1/deliveries/{partition}/{position}/retry`: makes a delivery due now, instead of when
//! its next attempt is due.

use axum::{extract::State, http::StatusCode};
use hapax_http::{Path, Problem};

use super::{AdminApi, auth::Caller};

/// Makes one delivery due now that waits for its next attempt. Its attempts still count.
#[utoipa::path(post, path = "/admin/v1/deliveries/{partition}/{position}/retry",
    tag = "deliveries",
    params(("partition" = String, Path), ("position" = i64, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn retry(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path((partition, position)): Path<(String, i64)>,
) -> Result<StatusCode, Problem> {
    let store = admin.store();
    let retried = store.retry_delivery_now(&caller.actor, &partition, position);
    retried.await?;
    Ok(StatusCode::NO_CONTENT)
}
