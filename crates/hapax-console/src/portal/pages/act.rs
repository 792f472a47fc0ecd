//! Actions on an endpoint: enable, disable, delete, replay, and a test event.

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Redirect, Response},
};
use hapax::{
    Timestamp,
    admin::{EndpointDelivery, EndpointReplay},
    retry::parse_duration,
};

use super::{
    deliveries_path,
    delivery::{exchange, outcome_facts},
    done, endpoint_path,
};
use crate::{
    fields::url,
    html::{Html, el, link},
    layout::Page,
    portal::{
        BASE, Portal,
        guard::PortalRequest,
        refusal::{self, Refusal},
    },
};

/// The reason of a disabled endpoint.
const REASON: &str = "disabled in the portal";

/// Enables an endpoint: what waits for it is sent.
pub(super) async fn enable(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    set_disabled(&portal, &page_request, &id, None).await?;
    Ok(done(&endpoint_path(&id), "enabled"))
}

/// Disables an endpoint: it receives nothing.
pub(super) async fn disable(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    set_disabled(&portal, &page_request, &id, Some(REASON.to_owned())).await?;
    Ok(done(&endpoint_path(&id), "disabled"))
}

async fn set_disabled(
    portal: &Portal,
    page_request: &PortalRequest,
    id: &str,
    reason: Option<String>,
) -> Result<(), Refusal> {
    let (actor, tenant) = (page_request.claims().actor(), page_request.tenant());
    let operations = &portal.0.operations;
    operations.set_disabled(&actor, tenant, id, reason).await?;
    Ok(())
}

/// Deletes an endpoint with its secrets and its queue.
pub(super) async fn delete(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    let (store, actor) = (portal.store(), page_request.claims().actor());
    let tenant = page_request.tenant();
    store.endpoint(&actor, tenant, &id).await?;
    if page_request.fields.text("confirm") != "yes" {
        return Err(Refusal::wrong("confirm that the endpoint is deleted"));
    }
    store.delete_endpoint(&actor, tenant, &id).await?;
    Ok(done(BASE, "deleted"))
}

/// Sends deliveries again: that of one event, or those that have failed since a time.
pub(super) async fn replay(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    let (store, actor) = (portal.store(), page_request.claims().actor());
    let tenant = page_request.tenant();
    store.endpoint(&actor, tenant, &id).await?;
    let replay = match page_request.fields.get("event_id") {
        Some(event) => {
            let event = event.parse().map_err(|_| Refusal::not_found())?;
            EndpointReplay::Event(event)
        }
        None => EndpointReplay::FailedSince(since(&portal, &page_request)?),
    };
    let count = store.replay_endpoint(&actor, tenant, &id, &replay).await?;
    let to = deliveries_path(&id);
    let to = url(&to, &[("done", "replayed"), ("count", &count.to_string())]);
    Ok(Redirect::to(&to).into_response())
}

/// The time from which failed deliveries are sent again: so long ago as the form says.
fn since(portal: &Portal, page_request: &PortalRequest) -> Result<Timestamp, Refusal> {
    let wrong = |_| Refusal::wrong("since must be a duration such as 1d");
    let ago = parse_duration(page_request.fields.text("since")).map_err(wrong)?;
    let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    let now = portal.0.clock.now().as_millis();
    Ok(Timestamp::from_millis(now.saturating_sub(ago).max(0)))
}

/// Sends a test event, once, and shows what the endpoint responded.
pub(super) async fn test(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Result<Response, Refusal> {
    let (actor, tenant) = (page_request.claims().actor(), page_request.tenant());
    let Some(_place) = portal.0.test_places.take(tenant) else {
        return Ok(refusal::too_many(std::time::Duration::ZERO));
    };
    let mut tested = portal.0.operations.test(&actor, tenant, &id).await?;
    tested.mask(&portal.0.mask);
    Ok(tested_page(&portal, &id, &tested).into_response())
}

fn tested_page(portal: &Portal, id: &str, tested: &EndpointDelivery) -> Page {
    let said = if tested.error.is_none() {
        el("p")
            .class("told")
            .add("The endpoint accepted the test event.")
    } else {
        el("p")
            .class("problem")
            .add("The endpoint did not accept the test event.")
    };
    let back = link(&endpoint_path(id), "Back to the endpoint").class("button");
    let body = Html::default()
        .add(said.attr("role", "status"))
        .add(outcome_facts(tested, portal.0.clock.now()))
        .add(exchange(tested))
        .add(el("p").class("acts").add(back));
    Page::new("Test event", body)
}
