//! The signing secret of an endpoint: shown on demand, and replaced.
//!
//! Both are forms, so that no link and no other site can show a secret, and both write to the audit log.
//! Pages with a secret are not stored by browsers.

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use hapax::retry::parse_duration;

use super::{change::version_of, endpoint_path};
use crate::{
    html::{Html, el, link},
    layout::Page,
    portal::{Portal, guard::PortalRequest, refusal::Refusal},
};

/// Shows the signing secret.
pub(super) async fn reveal(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    let (actor, tenant) = (page_request.claims().actor(), page_request.tenant());
    let secret = portal.0.operations.reveal(&actor, tenant, &id).await?;
    let why = "Your server needs this secret to verify the signature of each request.";
    Ok(page("Signing secret", &id, &secret, why).into_response())
}

/// Replaces the signing secret if the endpoint is still at the version of the form, so that a form that
/// is sent twice replaces it once.
pub(super) async fn rotate(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    let (actor, tenant) = (page_request.claims().actor(), page_request.tenant());
    portal.store().endpoint(&actor, tenant, &id).await?;
    let version = version_of(&page_request)?;
    let wrong = |_| Refusal::wrong("overlap must be a duration such as 1d");
    let overlap = page_request.fields.get("overlap").unwrap_or("1d");
    let overlap = parse_duration(overlap).map_err(wrong)?;
    let operations = &portal.0.operations;
    let rotated = operations.rotate(&actor, tenant, &id, Some(version), overlap);
    let secret = rotated.await?.secret;
    let why = if overlap.is_zero() {
        "The old secret does not sign any more, and neither do earlier ones."
    } else {
        "Until the overlap ends, each request has a signature of the old secret too."
    };
    Ok(page("Secret rotated", &id, &secret, why).into_response())
}

fn page(title: &str, id: &str, secret: &str, why: &str) -> Page {
    let back = link(&endpoint_path(id), "Back to the endpoint").class("button");
    let body = Html::default()
        .add(shown_secret(secret, why))
        .add(el("p").class("acts").add(back));
    Page::new(title, body)
}

/// A secret, with what it is for.
pub(super) fn shown_secret(secret: &str, why: &str) -> Html {
    let secret = el("code").class("secret").attr("id", "secret").add(secret);
    Html::default()
        .add(el("h2").add("Signing secret"))
        .add(el("p").add(secret))
        .add(el("p").class("soft").add(why))
}
