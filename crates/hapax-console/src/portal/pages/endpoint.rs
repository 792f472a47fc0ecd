//! `/portal/endpoints/{id}`: one endpoint with its health, its settings, and what can be done.

use std::time::Duration;

use axum::extract::{Path, State};
use hapax::{
    Timestamp,
    admin::{EndpointHealth, EndpointStatus, TenantEndpoint},
    sink::PayloadMode,
};

use super::{
    deliveries_path, endpoint_path,
    list::{p95, rate},
};
use crate::{
    format::{badge, cell, code, facts, number, time},
    html::{Element, Html, choice, el, link},
    layout::Page,
    portal::{
        Portal,
        form::{EndpointForm, buttons},
        guard::PortalRequest,
        layout::{form, hidden, part, submit},
        refusal::{Refusal, Shown},
    },
};

/// How far back the health of an endpoint looks.
const DAY: Duration = Duration::from_hours(24);

/// A day before a time.
pub(super) fn a_day_before(now: Timestamp) -> Timestamp {
    let day = i64::try_from(DAY.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(day))
}

/// Shows an endpoint.
pub(super) async fn show(
    State(portal): State<Portal>,
    Path(id): Path<String>,
    page_request: PortalRequest,
) -> Shown {
    let (store, actor) = (portal.store(), page_request.claims().actor());
    let tenant = page_request.tenant();
    let endpoint = store.endpoint(&actor, tenant, &id).await?.endpoint;
    let known = &portal.0.event_types.names;
    let read = EndpointForm::of(&endpoint, known);
    page(&portal, &page_request, &endpoint, &read, Html::default()).await
}

/// The page of an endpoint, with a form that may have other values, and what is said about them.
pub(super) async fn page(
    portal: &Portal,
    page_request: &PortalRequest,
    endpoint: &TenantEndpoint,
    read: &EndpointForm,
    said: Html,
) -> Result<Page, Refusal> {
    let (store, actor) = (portal.store(), page_request.claims().actor());
    let now = portal.0.clock.now();
    let since = a_day_before(now);
    let health = store.endpoint_health(&actor, page_request.tenant(), &endpoint.id, since);
    let health = health.await?;
    let deliveries = link(&deliveries_path(&endpoint.id), "Deliveries").class("button");
    let body = Html::default()
        .add(about(endpoint, now))
        .add(el("p").class("soft").add(explanation(endpoint, now)))
        .add(el("p").class("acts").add(deliveries))
        .add(part("health", "Health", health_facts(&health, now)));
    let body = if page_request.may_write() {
        body.add(settings(portal, page_request, endpoint, read, said))
            .add(actions(page_request, endpoint, now))
    } else {
        body.add(part("settings", "Settings", setting_facts(endpoint)))
    };
    Ok(Page::new("Endpoint", body))
}

fn about(endpoint: &TenantEndpoint, now: Timestamp) -> Element {
    let url = el("span").class("break").add(&endpoint.url);
    let reason = endpoint.disabled_reason.as_deref();
    let reason = reason.or(endpoint.slowed_reason.as_deref());
    let disabled = endpoint.disabled_at.map(|at| cell(time(at, now)));
    facts([
        ("URL", cell(url)),
        ("Id", code(Some(&endpoint.id))),
        ("State", cell(badge(endpoint.state.as_str()))),
        ("Reason", reason.map(cell).unwrap_or_default()),
        ("Disabled", disabled.unwrap_or_default()),
        ("Created", cell(time(endpoint.created_at, now))),
        ("Changed", cell(time(endpoint.changed_at, now))),
    ])
}

/// What the state means for the customer, and what happens next.
fn explanation(endpoint: &TenantEndpoint, now: Timestamp) -> Html {
    match (endpoint.state, endpoint.next_probe_at) {
        (EndpointStatus::Enabled, _) => cell("Events are sent to the endpoint."),
        (EndpointStatus::Slowed, _) => {
            let said = "The last attempts have failed. Events are sent one at a time, with pauses of up \
                        to a minute, until your server accepts one.";
            let next = endpoint.slowed_until.filter(|until| *until > now);
            let next = next.map(|at| cell(" The next attempt is ").add(time(at, now)).add("."));
            cell(said).add(next)
        }
        (EndpointStatus::Disabled, Some(at)) => {
            cell("No events are sent. One event is tried again ")
                .add(time(at, now))
                .add(": if your server accepts it, the endpoint is enabled.")
        }
        (EndpointStatus::Disabled, None) => {
            cell("No events are sent until the endpoint is enabled.")
        }
    }
}

fn health_facts(health: &EndpointHealth, now: Timestamp) -> Html {
    let since = health.waiting_since.map(|at| cell(time(at, now)));
    let facts = facts([
        ("Attempts", cell(number(health.attempts))),
        ("Success rate", rate(health)),
        ("p95", p95(health)),
        ("Waiting", cell(number(health.waiting))),
        ("Waiting since", since.unwrap_or_default()),
        ("Failed", cell(number(health.failed))),
    ]);
    Html::default().add(facts)
}

fn setting_facts(endpoint: &TenantEndpoint) -> Html {
    let facts = facts([
        ("Description", cell(&endpoint.description)),
        ("Event types", code(Some(&endpoint.types.join(" ")))),
        ("Filter", code(endpoint.filter.as_deref())),
        ("Headers", code(Some(&endpoint.headers.join(" ")))),
        ("Requests contain", cell(payload(endpoint.payload))),
    ]);
    Html::default().add(facts)
}

fn payload(mode: PayloadMode) -> &'static str {
    match mode {
        PayloadMode::Full => "the whole event",
        PayloadMode::Thin => "the id of the event and a link",
    }
}

fn settings(
    portal: &Portal,
    page_request: &PortalRequest,
    endpoint: &TenantEndpoint,
    read: &EndpointForm,
    said: Html,
) -> Element {
    let known = &portal.0.event_types.names;
    let form = form(page_request, &endpoint_path(&endpoint.id))
        .add(hidden("version", &endpoint.version.to_string()))
        .add(read.fields(known, &endpoint.headers, portal.0.offers_thin))
        .add(buttons("save", "Save changes"));
    part("settings", "Settings", said.add(form))
}

/// The forms of everything else that can be done.
fn actions(page_request: &PortalRequest, endpoint: &TenantEndpoint, now: Timestamp) -> Html {
    let path = endpoint_path(&endpoint.id);
    let form = |action: &str| form(page_request, &format!("{path}/{action}"));
    let until = endpoint.previous_secret_until.filter(|until| *until > now);
    let until = until.map(|until| {
        el("p")
            .add("Requests are signed with earlier secrets too. The last of them ends ")
            .add(time(until, now))
            .add(".")
    });
    let secret = Html::default()
        .add(until)
        .add(form("reveal").add(submit("Show secret")))
        .add(
            form("rotate")
                .add(hidden("version", &endpoint.version.to_string()))
                .add(choice(
                    "overlap",
                    "The old secret signs too for",
                    &OVERLAPS,
                    "",
                ))
                .add(submit("Rotate secret")),
        );
    let test = form("test").add(submit("Send test event"));
    let replay = form("replay")
        .add(choice("since", "Failed since", &SINCE, ""))
        .add(submit("Replay failed deliveries"));
    let state = if endpoint.enabled {
        form("disable")
            .add(
                el("p")
                    .class("soft")
                    .add("A disabled endpoint receives no events."),
            )
            .add(submit("Disable endpoint"))
    } else {
        form("enable")
            .add(
                el("p")
                    .class("soft")
                    .add("Events that wait for the endpoint are sent."),
            )
            .add(submit("Enable endpoint"))
    };
    Html::default()
        .add(part("secret-part", "Signing secret", secret))
        .add(part("test", "Test event", Html::default().add(test)))
        .add(part("replay", "Replay", Html::default().add(replay)))
        .add(part("state", "State", Html::default().add(state)))
        .add(part("delete", "Delete", delete(form("delete"))))
}

fn delete(form: Element) -> Html {
    let confirm = el("input")
        .attr("type", "checkbox")
        .attr("name", "confirm")
        .attr("value", "yes")
        .flag("required", true);
    let label = el("label")
        .add(confirm)
        .add(" Delete the endpoint with its secrets and everything that waits for it");
    Html::default().add(form.add(label).add(submit("Delete endpoint")))
}

/// How long an old secret signs: the value and the label.
const OVERLAPS: [(&str, &str); 4] = [
    ("1d", "one day"),
    ("7d", "seven days"),
    ("1h", "one hour"),
    ("0s", "not at all, and neither do earlier ones"),
];
/// Since when failed deliveries are sent again.
const SINCE: [(&str, &str); 3] = [("1d", "one day"), ("7d", "seven days"), ("1h", "one hour")];
