//! `/portal/endpoints/{id}/deliveries`: the attempts at an endpoint, the newest first.

use axum::extract::{Path, State};
use hapax::{
    Timestamp,
    admin::{EndpointDelivery, EndpointDeliveryFilter},
};

use super::{deliveries_path, delivery_path, endpoint_path};
use crate::{
    fields::url,
    format::{badge, cell, code, none, nothing, open, span, time},
    html::{Element, Html, el, link},
    layout::Page,
    pages::ROWS,
    portal::{Portal, guard::PortalRequest, refusal::Shown},
    table::Table,
};

/// What is listed: the value of `state`, the label, and the filter.
const STATES: [(&str, &str, Option<bool>); 3] = [
    ("", "All", None),
    ("failed", "Failed", Some(true)),
    ("delivered", "Delivered", Some(false)),
];

/// Lists attempts.
pub(super) async fn list(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Shown {
    let (store, actor) = (portal.store(), page_request.claims().actor());
    let state = page_request.fields.text("state");
    let known = STATES.iter().find(|(value, ..)| *value == state);
    let filter = EndpointDeliveryFilter {
        failed: known.and_then(|(.., failed)| *failed),
        ..EndpointDeliveryFilter::default()
    };
    let (tenant, before) = (page_request.tenant(), page_request.fields.get("before"));
    let found = store.endpoint_deliveries(&actor, tenant, &id, &filter, before, ROWS);
    let found = found.await?;
    let now = portal.0.clock.now();
    let heads = &[
        "Event",
        "Event id",
        "Started",
        "Outcome",
        "#Status",
        "#Duration",
        "#Attempt",
    ];
    let mut table = Table::new("Attempts", heads);
    for it in &found.items {
        table.row(row(&id, it, now));
    }
    let list = if table.is_empty() {
        Html::default().add(nothing("There are no attempts."))
    } else {
        Html::default().add(table)
    };
    let path = deliveries_path(&id);
    let next = found.next.as_deref().map(|next| {
        let to = url(&path, &[("state", state), ("before", next)]);
        el("nav")
            .class("pager")
            .attr("aria-label", "Pages of the list")
            .add(link(&to, "Older").attr("rel", "next").class("next"))
    });
    let back = link(&endpoint_path(&id), "Back to the endpoint").class("button");
    let body = Html::default()
        .add(states(&path, state))
        .add(list)
        .add(next)
        .add(el("p").class("acts").add(back));
    Ok(Page::new("Deliveries", body))
}

fn states(path: &str, current: &str) -> Element {
    let item = |(value, label, _): &(&str, &str, Option<bool>)| {
        let to = url(path, &[("state", *value)]);
        if *value == current {
            link(&to, *label).attr("aria-current", "true")
        } else {
            link(&to, *label)
        }
    };
    el("nav")
        .class("ranges")
        .attr("aria-label", "State")
        .all(STATES.iter().map(item))
}

fn row(endpoint: &str, it: &EndpointDelivery, now: Timestamp) -> [Html; 7] {
    let status = it.status.map(|status| cell(u32::from(status)));
    let to = delivery_path(endpoint, &it.event_id);
    [
        cell(open(&to, el("span").add(&it.kind))),
        code(Some(&it.event_id)),
        cell(time(it.started_at, now)),
        cell(badge(it.outcome.as_str())),
        status.unwrap_or_else(none),
        cell(span(it.duration)),
        cell(it.attempt),
    ]
}
