//! `/portal/deliveries/{endpoint}/{event}`: the attempts at one event, with request and response.

use axum::extract::{Path, State};
use hapax::{
    Timestamp,
    admin::{EndpointDelivery, EndpointDeliveryFilter},
};

use super::{deliveries_path, endpoint_path};
use crate::{
    format::{badge, cell, code, facts, span, time},
    html::{Element, Html, el, link},
    layout::Page,
    pages::ROWS,
    portal::{
        Portal,
        guard::PortalRequest,
        layout::{form, hidden, submit},
        refusal::{Refusal, Shown},
    },
};

/// Shows the attempts, the newest first.
pub(super) async fn show(
    State(portal): State<Portal>,
    Path((endpoint, event)): Path<(String, String)>,
    page_request: PortalRequest,
) -> Shown {
    let (store, actor) = (portal.store(), page_request.claims().actor());
    let filter = EndpointDeliveryFilter {
        event_id: Some(event.parse().map_err(|_| Refusal::not_found())?),
        ..EndpointDeliveryFilter::default()
    };
    let tenant = page_request.tenant();
    let found = store.endpoint_deliveries(&actor, tenant, &endpoint, &filter, None, ROWS);
    let mut attempts = found.await?.items;
    let Some(newest) = attempts.first() else {
        return Err(Refusal::not_found());
    };
    let now = portal.0.clock.now();
    let next = newest.next_at.map(|at| cell(time(at, now)));
    let about = facts([
        ("Event", code(Some(&newest.kind))),
        ("Event id", code(Some(&newest.event_id))),
        ("State", cell(badge(&newest.state))),
        ("Next attempt", next.unwrap_or_default()),
    ]);
    let replay = page_request.may_write().then(|| {
        form(
            &page_request,
            &format!("{}/replay", endpoint_path(&endpoint)),
        )
        .add(hidden("event_id", &newest.event_id))
        .add(submit("Replay"))
    });
    for attempt in &mut attempts {
        attempt.mask(&portal.0.mask);
    }
    let parts = attempts.iter().map(|it| attempt(it, now));
    let back = link(&deliveries_path(&endpoint), "All deliveries").class("button");
    let body = Html::default()
        .add(about)
        .add(replay)
        .add(Html::all(parts))
        .add(el("p").class("acts").add(back));
    Ok(Page::new("Delivery", body))
}

fn attempt(it: &EndpointDelivery, now: Timestamp) -> Element {
    el("section")
        .class("delivery")
        .add(el("h2").add(format!("Attempt {}", it.attempt)))
        .add(outcome_facts(it, now))
        .add(exchange(it))
}

/// How an attempt ended.
pub(super) fn outcome_facts(it: &EndpointDelivery, now: Timestamp) -> Element {
    let status = it.status.map(|status| cell(u32::from(status)));
    facts([
        ("Outcome", cell(badge(it.outcome.as_str()))),
        ("Status", status.unwrap_or_default()),
        (
            "Error",
            it.error
                .as_deref()
                .map(|it| cell(cause(it)))
                .unwrap_or_default(),
        ),
        ("Started", cell(time(it.started_at, now))),
        ("Duration", cell(span(it.duration))),
    ])
}

/// The error without the name that the relay gives to it.
fn cause(error: &str) -> &str {
    match error.split_once(": ") {
        Some((kind, cause)) if kind.starts_with("sink ") => cause,
        _ => error,
    }
}

/// The request and the response of an attempt.
pub(super) fn exchange(it: &EndpointDelivery) -> Html {
    let headers = it.request_headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let headers = Some(headers.join("\n")).filter(|it| !it.is_empty());
    let number = it.attempt;
    let text = |title: &str, text: Option<&str>| {
        let label = format!("{title} of attempt {number}");
        Html::default()
            .add(el("h3").add(title))
            .add(content(&label, text))
    };
    Html::default()
        .add(text("Request headers", headers.as_deref()))
        .add(text("Request body", it.request_body.as_deref()))
        .add(text("Response", it.response.as_deref()))
}

/// A text as it was sent. It is absent if it is empty, or longer than what is recorded and not readable
/// in part.
fn content(label: &str, text: Option<&str>) -> Element {
    let Some(text) = text else {
        let said = "Empty, or too long to be shown.";
        return el("p").class("soft").add(said);
    };
    // A scrolling region has to be reachable by keyboard.
    el("pre")
        .attr("tabindex", "0")
        .attr("role", "region")
        .attr("aria-label", label)
        .add(el("code").add(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customers_read_the_cause_of_an_error() {
        let error = "sink is unavailable: endpoint responded with 500: broken";
        assert_eq!(cause(error), "endpoint responded with 500: broken");
        assert_eq!(cause("a test: failed"), "a test: failed");
    }
}
