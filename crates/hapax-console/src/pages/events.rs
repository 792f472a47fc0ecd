//! `/console/events`: lists events, and shows one with its payload and its deliveries to all
//! destinations.

use axum::extract::{Path, State};
use hapax::{
    admin::{DeliveryStatus, EventSummary, Page as List},
    key::Tenant,
};

use super::{
    ROWS, Shown, event_trace,
    query::{Known, ListQuery},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{Table, cell, code, content, facts, none, nothing, open, pager, size, time},
    guard::PageRequest,
    html::{Html, el, link},
    layout::Page,
};

pub(crate) static KNOWN: Known = Known {
    qualifiers: &[
        Qualifier::Type,
        Qualifier::About,
        Qualifier::Tenant,
        Qualifier::Age,
        Qualifier::Id,
    ],
    words: None,
};

/// Lists events, newest first.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let now = console.0.clock.now();
    let filter = query.of_events(now);
    let mut body = Html::default();
    if query.is_right() {
        let before = page_request.fields.get("before");
        let actor = &page_request.caller().actor;
        let page = console.store().events(actor, &filter, before, ROWS).await?;
        let table = Table::new("Events", &["Event", "About", "Tenant", "Created", "#Size"]);
        let row = |event: &EventSummary| {
            let to = path_of("/console/events", &event.position.to_string());
            [
                cell(open(&to, &event.kind)),
                about(event),
                code(event.tenant.as_deref()),
                cell(time(event.created_at, now)),
                cell(size(event.payload_bytes)),
            ]
        };
        body = listed(&page_request, &query.text, "event", table, &page, row);
    }
    Ok(Page::new("Events", body).filtered(query.into_box()))
}

/// A page of a list as a table, with links to the other pages.
pub(crate) fn listed<T, const N: usize>(
    page_request: &PageRequest,
    q: &str,
    what: &str,
    mut table: Table,
    page: &List<T>,
    row: impl Fn(&T) -> [Html; N],
) -> Html {
    for it in &page.items {
        table.row(row(it));
    }
    let (before, next) = (page_request.fields.text("before"), page.next.as_deref());
    list_of(table, next.is_some(), what).add(pager(&page_request.path, q, before, next))
}

/// A table, or a note that it is empty.
pub(crate) fn list_of(table: Table, goes_on: bool, what: &str) -> Html {
    match (table.is_empty(), goes_on) {
        (false, _) => cell(table),
        (true, true) => cell(nothing(&format!(
            "No {what} among those searched so far matches: continue with older ones."
        ))),
        (true, false) => cell(nothing(&format!("No {what} matches."))),
    }
}

fn about(event: &EventSummary) -> Html {
    match (&event.aggregate_type, &event.aggregate_id) {
        (Some(kind), Some(id)) => cell(el("code").add(format!("{kind}/{id}"))),
        _ => none(),
    }
}

/// Shows one event.
pub(crate) async fn show(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(id): Path<String>,
) -> Shown {
    let (queries, actor, now) = (
        console.queries(),
        &page_request.caller().actor,
        console.0.clock.now(),
    );
    let found = queries.event(actor, &id).await?;
    let traces = queries.traces(actor, found.position).await?;
    let event = &found.event;
    let shown = queries.shown(Some(event.payload.content_type()), event.payload.bytes());
    let own_id = event.id.to_string();
    let about = event.aggregate.as_ref();
    let about = about.map(|it| format!("{}/{}", it.kind, it.id));
    let first = facts([
        ("Type", cell(el("code").add(&event.kind))),
        ("Id", cell(el("code").class("break").add(&own_id))),
        ("Position", cell(found.position)),
        ("Tenant", code(event.tenant.as_ref().map(Tenant::as_str))),
        ("About", code(about.as_deref())),
        ("Created", cell(time(event.created_at, now))),
        (
            "Not before",
            event
                .available_at
                .map_or_else(Html::default, |at| cell(time(at, now))),
        ),
    ]);
    let headers = event.headers.iter().map(|(name, value)| {
        let value = if queries.hides(name) { "***" } else { value };
        el("div")
            .add(el("dt").add(name))
            .add(el("dd").add(el("code").class("break").add(value)))
    });
    let headers = (!event.headers.is_empty()).then(|| {
        Html::default()
            .add(el("h2").add("Headers"))
            .add(el("dl").class("facts").all(headers))
    });
    let whole = link(
        &url("/console/timeline", &[("event", &own_id)]),
        "The whole request: key, transaction, events, inbox",
    );
    let again = traces.iter().any(|it| {
        matches!(
            it.status,
            DeliveryStatus::Delivered | DeliveryStatus::Passed | DeliveryStatus::Discarded
        )
    });
    let body = Html::default()
        .add(el("h2").add("Deliveries to destinations"))
        .add(event_trace::every(
            queries,
            &page_request,
            &traces,
            found.position,
            now,
        ))
        .add((page_request.acts() && again).then(|| event_trace::offer_again(&own_id, &traces)))
        .add(el("p").add(whole.attr("data-open", "")))
        .add(el("h2").add("Envelope"))
        .add(first)
        .add(el("h2").add("Payload"))
        .add(content("Payload", &shown))
        .add(headers);
    Ok(Page::new(format!("Event {}", found.position), body))
}
