//! `/portal`: the endpoints of the tenant with their health.

use std::collections::HashMap;

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{Count, CountKind, EndpointFilter, EndpointHealth, TenantEndpoint},
    limits::ENDPOINT_STATUS_COUNTED,
};

use super::{NEW, endpoint::a_day_before, endpoint_path};
use crate::{
    fields::url,
    format::{badge, cell, code, count, none, nothing, open, time},
    html::{Element, Html, el, link},
    layout::Page,
    portal::{BASE, Portal, guard::PortalRequest, limits::PORTAL_ENDPOINTS, refusal::Shown},
    table::Table,
};

/// Lists the endpoints by id. The health is that of the newest attempts, which costs the same for an endpoint
/// with many of them.
pub(super) async fn show(State(portal): State<Portal>, page_request: PortalRequest) -> Shown {
    let (store, actor) = (portal.store(), page_request.claims().actor());
    let now = portal.0.clock.now();
    let (tenant, since) = (page_request.tenant(), a_day_before(now));
    let after = page_request.fields.get("after");
    let filter = EndpointFilter {
        tenant: Some(tenant.to_owned()),
        ..EndpointFilter::default()
    };
    let found = store.endpoints(&actor, &filter, after, PORTAL_ENDPOINTS);
    let found = found.await?;
    let statuses = store.endpoint_statuses(&actor, &filter, since, after, PORTAL_ENDPOINTS);
    let statuses = statuses.await?.items.into_iter();
    let health: HashMap<String, EndpointHealth> = statuses.map(|it| (it.id, it.health)).collect();
    let heads = &[
        "Endpoint",
        "Events",
        "State",
        "#Success rate",
        "#p95",
        "#Waiting",
    ];
    let mut table = Table::new("Endpoints", heads);
    for endpoint in &found.items {
        // One that was created between the two reads has no attempts.
        let health = health.get(&endpoint.id).copied().unwrap_or_default();
        table.row(row(endpoint, &health, now));
    }
    let add = page_request.may_write().then(|| {
        el("p")
            .class("acts")
            .add(link(NEW, "Add endpoint").class("button"))
    });
    let list = if table.is_empty() {
        Html::default().add(nothing("There are no endpoints."))
    } else {
        Html::default().add(table)
    };
    let next = found.next.as_deref().map(next_page);
    let note = el("p")
        .class("soft")
        .add("Success rate and p95 are those of the newest attempts of the last day.");
    let body = Html::default().add(add).add(list).add(next).add(note);
    Ok(Page::new("Endpoints", body))
}

fn next_page(after: &str) -> Element {
    let to = url(BASE, &[("after", after)]);
    el("nav")
        .class("pager")
        .attr("aria-label", "Pages of the list")
        .add(link(&to, "More").attr("rel", "next").class("next"))
}

fn row(endpoint: &TenantEndpoint, health: &EndpointHealth, now: Timestamp) -> [Html; 6] {
    let description = &endpoint.description;
    let description = (!description.is_empty()).then(|| el("div").class("soft").add(description));
    let name = el("span").class("break").add(&endpoint.url);
    let name = open(&endpoint_path(&endpoint.id), name);
    [
        Html::default().add(name).add(description),
        code(Some(&endpoint.types.join(" "))),
        state(endpoint, now),
        rate(health),
        p95(health),
        cell(count(waiting(health))),
    ]
}

/// The number of deliveries that wait, which are counted up to a bound.
fn waiting(health: &EndpointHealth) -> Count {
    let is_exact = health.waiting < ENDPOINT_STATUS_COUNTED as u64;
    let kind = if is_exact {
        CountKind::Exact
    } else {
        CountKind::AtLeast
    };
    Count {
        number: health.waiting,
        kind,
    }
}

/// The state of an endpoint, and when a disabled one is tried again.
fn state(endpoint: &TenantEndpoint, now: Timestamp) -> Html {
    let probed = endpoint.next_probe_at.map(|at| {
        el("div")
            .class("soft")
            .add("tried again ")
            .add(time(at, now))
    });
    cell(badge(endpoint.state.as_str())).add(probed)
}

/// The part of the attempts that succeeded.
pub(super) fn rate(health: &EndpointHealth) -> Html {
    let rate = health.success_rate;
    rate.map_or_else(none, |rate| cell(format!("{:.1} %", rate * 100.0)))
}

/// The duration within which 95 % of the attempts ended.
pub(super) fn p95(health: &EndpointHealth) -> Html {
    let millis = health.p95_ms;
    millis.map_or_else(none, |millis| cell(format!("{millis} ms")))
}
