//! `/admin/v1/portal-links`: links that open the customer portal.
//!
//! The response has the only copy of a link. The audit log has a line without the token.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, admin::AdminError};
use hapax_console::portal::{LinkRequest, PortalLink};
use hapax_http::{Json, Problem};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AdminApi, auth::Caller, endpoints::tenant_of};
use crate::config::NO_PORTAL;

/// A new link to the customer portal.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PortalLinkCreate {
    /// The tenant that the link opens; that of the token if absent.
    tenant: Option<String>,
    /// `write` (the default) or `read`.
    rights: Option<String>,
    /// How long the link and its session are valid, such as `15m`: 1m to 24h, an hour if absent.
    expires_in: Option<String>,
    /// The name of the user, which the pages show.
    name: Option<String>,
}

/// A link to the customer portal.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct PortalLinkCreated {
    /// The URL. It opens the portal, so it must not be logged.
    url: String,
    /// When the link and the session that it opens end.
    expires_at: Timestamp,
}

impl From<PortalLink> for PortalLinkCreated {
    fn from(link: PortalLink) -> Self {
        let PortalLink { url, expires_at } = link;
        Self { url, expires_at }
    }
}

/// Makes a link that opens the customer portal for a tenant.
#[utoipa::path(post, path = "/admin/v1/portal-links", tag = "endpoints",
    request_body = PortalLinkCreate,
    responses((status = 201, body = PortalLinkCreated), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn create(
    State(admin): State<AdminApi>,
    caller: Caller,
    Json(body): Json<PortalLinkCreate>,
) -> Result<Response, Problem> {
    let tenant = tenant_of(&caller.actor, body.tenant)?;
    let (rights, expires_in) = (body.rights.as_deref(), body.expires_in.as_deref());
    let request = LinkRequest::read(tenant, rights, expires_in, body.name)?;
    let links = admin.0.portal.as_ref();
    let links = links.ok_or_else(|| AdminError::conflict(NO_PORTAL))?;
    let link = links.create(admin.store(), &caller.actor, request).await?;
    let created = PortalLinkCreated::from(link);
    Ok((StatusCode::CREATED, Json(created)).into_response())
}
