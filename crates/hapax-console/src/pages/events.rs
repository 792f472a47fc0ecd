//! `/console/events`: lists events, and shows one with its payload and its deliveries to all
//! destinations.

use axum::extract::{Path, State};
use hapax::{admin::EventSummary, key::Tenant};

use super::{
    ROWS, Shown, endpoint_trace, event_state, event_trace,
    list::Listing,
    page_of_type,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{cell, code, content, facts, open_name, size, time},
    guard::PageRequest,
    html::{Html, el, link},
    layout::Page,
    table::Table,
};

pub(crate) static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[
        Qualifier::Type,
        Qualifier::About,
        Qualifier::Tenant,
        Qualifier::Age,
        Qualifier::Id,
        Qualifier::Unread,
    ],
    words: None,
    state: "",
};

static EVENTS: Listing = Listing {
    one: "event",
    empty: "There are no events. An event appears here when a transaction that emits it is \
            committed, and stays until it is purged.",
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
        let page = match query.filter.one(Qualifier::Unread) {
            Some(name) => {
                let index = console.index();
                index.unread(actor, name, &filter, before, ROWS).await?
            }
            None => console.store().events(actor, &filter, before, ROWS).await?,
        };
        let states = event_state::of(&console, actor, &page.items).await?;
        let heads = &["Event", "State", "About", "Tenant", "Created", "#Size"];
        let table = Table::new("Events", heads);
        let row = |event: &EventSummary| {
            let to = path_of("/console/events", &event.position.to_string());
            let state = states.get(&event.position);
            [
                cell(open_name(&to, &event.kind)),
                state.map_or_else(Html::default, event_state::cell),
                about(event),
                code(event.tenant.as_deref()),
                cell(time(event.created_at, now)),
                cell(size(event.payload_bytes)),
            ]
        };
        body = EVENTS.listed(&page_request, &query.text, table, &page, row);
    }
    Ok(Page::new("Events", body).filtered(query.into_box()))
}

fn about(event: &EventSummary) -> Html {
    let of = event
        .aggregate_type
        .as_ref()
        .zip(event.aggregate_id.as_ref());
    code(of.map(|(kind, id)| format!("{kind}/{id}")).as_deref())
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
    let endpoints = endpoint_trace::of(&console, actor, event).await?;
    let shown = queries.shown(Some(event.payload.content_type()), event.payload.bytes());
    let own_id = event.id.to_string();
    let about = event.aggregate.as_ref();
    let about = about.map(|it| format!("{}/{}", it.kind, it.id));
    let kind = cell(el("code").add(&event.kind));
    let kind = match page_of_type(&console, actor, &event.kind) {
        Some(page) => cell(link(&page, kind)),
        None => kind,
    };
    let first = facts([
        ("Type", kind),
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
    let mut headers = Table::new("Headers", &["Header", "Value"]);
    for (name, value) in &event.headers {
        let value = if queries.hides(name) { "***" } else { value };
        headers.row([code(Some(name)), code(Some(value))]);
    }
    let headers = (!headers.is_empty()).then(|| cell(el("h2").add("Headers")).add(headers));
    let whole = link(
        &url("/console/timeline", &[("event", &own_id)]),
        "The whole request: key, transaction, events, inbox",
    );
    let again = if page_request.acts() {
        event_trace::offer_again(&console, actor, &own_id, &traces).await?
    } else {
        Html::default()
    };
    let body = Html::default()
        .add(el("h2").add("Deliveries to destinations"))
        .add(event_trace::every(
            queries,
            &page_request,
            &traces,
            found.position,
            now,
        ))
        .add(endpoint_trace::table(&endpoints, event, now))
        .add(again)
        .add(el("p").add(whole.attr("data-open", "")))
        .add(el("h2").add("Envelope"))
        .add(first)
        .add(el("h2").add("Payload"))
        .add(content("Payload", &shown))
        .add(headers);
    Ok(Page::new(format!("{} {own_id}", event.kind), body))
}
