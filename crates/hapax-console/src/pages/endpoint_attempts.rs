//! Attempts at an endpoint: the list of the newest ones, and the request and the response of each.

use hapax::{
    Timestamp,
    admin::{EndpointDelivery, WaitingDelivery},
};

use crate::{
    fields::{path_of, url},
    format::{badge, cell, code, name, none, open, span, time},
    html::{Element, Html, el, link},
    table::Table,
};

/// A table of attempts. Each event links to the attempts at its delivery.
pub(crate) fn table(page: &str, attempts: &[EndpointDelivery], now: Timestamp) -> Table {
    let heads = &[
        "Event",
        "Delivery",
        "#Attempt",
        "Started",
        "#Duration",
        "Outcome",
        "#Status",
        "Error",
    ];
    let mut table = Table::new("Attempts", heads);
    for it in attempts {
        let to = url(page, &[("event", &it.event_id)]);
        table.row([
            cell(open(&to, name(&it.kind))),
            cell(badge(&it.state)),
            cell(it.attempt),
            cell(time(it.started_at, now)),
            cell(span(it.duration)),
            cell(badge(it.outcome.as_str())),
            it.status.map_or_else(none, |it| cell(u32::from(it))),
            code(it.error.as_deref()),
        ]);
    }
    table
}

/// A table of deliveries that wait.
pub(crate) fn waiting(page: &str, deliveries: &[WaitingDelivery], now: Timestamp) -> Table {
    let heads = &["Event", "#Attempts", "Due", "Queued", "Last error"];
    let mut table = Table::new("Deliveries that wait", heads);
    for it in deliveries {
        let to = url(page, &[("event", &it.event_id)]);
        table.row([
            cell(open(&to, name(&it.kind))),
            cell(it.attempts),
            cell(time(it.next_at, now)),
            cell(time(it.created_at, now)),
            code(it.last_error.as_deref()),
        ]);
    }
    table
}

/// One attempt with its request and its response, which are already masked.
pub(crate) fn exchange(it: &EndpointDelivery, now: Timestamp) -> Element {
    let number = it.attempt;
    let head = el("h3")
        .add(format!("Attempt {number} "))
        .add(badge(it.outcome.as_str()));
    let status = it.status.map(|status| format!(" Status {status}."));
    let error = it.error.as_ref().map(|error| format!(" Error: {error}"));
    let said = el("p")
        .class("because")
        .add("Started ")
        .add(time(it.started_at, now))
        .add(format!(", took {}.", span(it.duration)))
        .add(status)
        .add(error);
    let mut headers = Table::new(
        format!("Headers of the request of attempt {number}"),
        &["Header", "Value"],
    );
    for (header, value) in &it.request_headers {
        headers.row([code(Some(header)), code(Some(value))]);
    }
    let headers = (!headers.is_empty()).then_some(headers);
    el("section")
        .class("delivery")
        .add(head)
        .add(said)
        .add(headers)
        .add(excerpt("Request", number, it.request_body.as_deref()))
        .add(excerpt("Response", number, it.response.as_deref()))
}

/// The link from an attempt to its event.
pub(crate) fn event_link(event: &str) -> Element {
    link(&path_of("/console/events", event), "The event").attr("data-open", "")
}

/// The beginning of a body.
fn excerpt(label: &str, number: u32, body: Option<&str>) -> Html {
    let Some(body) = body else {
        let said =
            format!("{label}: no body is stored, or it is incomplete JSON, which is not shown.");
        return cell(el("p").class("soft").add(said));
    };
    // A scrolling region has to be reachable by keyboard.
    let text = el("pre")
        .attr("tabindex", "0")
        .attr("role", "region")
        .attr("aria-label", format!("{label} of attempt {number}"))
        .add(el("code").add(body));
    cell(el("p").class("soft").add(label)).add(text)
}
