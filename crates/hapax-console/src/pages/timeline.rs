//! `/console/timeline`: one request, from its key to its effects, in chronological order.

use std::collections::HashMap;

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{
        Content, DeliveryStatus, Emitted, EndpointTrace, KeyRecord, KeyState, Timeline, Trace,
        UnknownOutcome,
    },
};

use super::{ErrorPage, Shown, endpoint_trace, event_trace, unknown};
use crate::{
    Console,
    fields::{path_of, url},
    format::{badge, cell, code, content, facts, open, open_name, size, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    queries::Queries,
    table::Table,
};

/// Number of events whose deliveries to endpoints are shown. The page of an event always shows them.
const ENDPOINT_EVENTS: usize = 20;

/// The deliveries of events to endpoints, by position.
type Endpoints = HashMap<i64, Vec<EndpointTrace>>;

/// Shows the timeline of a key or of an event.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let (queries, actor) = (console.queries(), &page_request.caller().actor);
    let fields = &page_request.fields;
    let found = match (fields.get("event"), fields.get("key")) {
        (Some(id), _) => queries.timeline_of_event(actor, id).await?,
        (None, Some(key)) => {
            let (tenant, operation) = (fields.get("tenant"), fields.get("operation"));
            queries
                .timeline_of_key(actor, tenant, operation, key)
                .await?
        }
        _ => {
            return Err(ErrorPage::wrong(
                "The parameter event or key is missing: it names the request.",
            ));
        }
    };
    let mut endpoints = Endpoints::new();
    for emitted in found.events.iter().take(ENDPOINT_EVENTS) {
        let event = &emitted.event;
        let traces = endpoint_trace::of(&console, actor, &event.event).await?;
        endpoints.insert(event.position, traces);
    }
    let now = console.0.clock.now();
    let title = match &found.key {
        Some(key) => format!("Request {}", key.summary.operation),
        None => "Request without a key".to_owned(),
    };
    let body = body(queries, &page_request, &found, &endpoints, now);
    Ok(Page::new(title, body))
}

fn body(
    queries: &Queries,
    page_request: &PageRequest,
    found: &Timeline,
    endpoints: &Endpoints,
    now: Timestamp,
) -> Html {
    let key = found
        .key
        .as_ref()
        .map(|key| key_step(queries, page_request, key, now));
    let transaction = commit(found).map(|said| step("Transaction", cell(said)));
    let events = found
        .events
        .iter()
        .map(|emitted| event_step(queries, page_request, emitted, endpoints, now));
    let sagas = found.sagas.iter().map(|look| {
        let saga = &look.saga;
        let inside = Html::default()
            .add(open(&path_of("/console/sagas", &saga.id), &saga.id))
            .add(" ")
            .add(badge(saga.status.state.as_str()))
            .add(format!(
                " {} version {}, started ",
                saga.kind.name, saga.kind.version
            ))
            .add(time(saga.created_at, now));
        step("Saga", inside)
    });
    let list = el("ol")
        .class("timeline")
        .add(key)
        .add(transaction)
        .all(events)
        .all(sagas);
    let partly = (!found.is_whole).then(|| {
        let said = "There may be more events: the search ended at its limit, before it had read \
                    all events of that time.";
        el("p").class("problem").add(said)
    });
    Html::default().add(partly).add(list)
}

fn step(name: &str, inside: Html) -> Element {
    el("li").add(el("h2").add(name)).add(inside)
}

fn key_step(
    queries: &Queries,
    page_request: &PageRequest,
    key: &KeyRecord,
    now: Timestamp,
) -> Element {
    let it = &key.summary;
    let moments = facts([
        ("Key", code(Some(&it.key))),
        (
            "Short hash",
            cell(el("code").add(format!("#{}", it.short_hash))),
        ),
        ("Operation", code(Some(&it.operation))),
        ("Tenant", code(Some(&it.tenant))),
        ("State", cell(badge(it.state.as_str()))),
        ("Claimed", cell(time(it.created_at, now))),
        (
            "Completed",
            it.completed_at
                .map_or_else(Html::default, |at| cell(time(at, now))),
        ),
        (
            "Held until",
            it.lease_until
                .map_or_else(Html::default, |at| cell(time(at, now))),
        ),
        (
            "Held by",
            key.owner
                .as_deref()
                .map_or_else(Html::default, |owner| code(Some(owner))),
        ),
        (
            "Recovery point",
            it.recovery_point
                .as_deref()
                .map_or_else(Html::default, |at| code(Some(at))),
        ),
        (
            "Resource",
            it.resource_id
                .as_deref()
                .map_or_else(Html::default, |id| code(Some(id))),
        ),
        ("Expires", cell(time(it.expires_at, now))),
        ("Epoch", cell(it.epoch)),
        (
            "Fingerprint",
            cell(el("code").class("break").add(&it.fingerprint)),
        ),
    ]);
    let acts = (page_request.acts() && it.state != KeyState::InProgress).then(|| {
        let fields = [
            ("act", "purge-key"),
            ("tenant", it.tenant.as_str()),
            ("operation", &it.operation),
            ("key", &it.key),
            ("version", &key.version),
        ];
        let to = link(&url("/console/act", &fields), "Purge this key").class("button");
        el("p").class("acts").add(to)
    });
    let unknown = UnknownOutcome::of(it.clone(), now);
    let unknown = unknown.map(|it| {
        let to = link(&unknown::path_of(&it), "Its outcome is unknown").class("button");
        el("p").class("acts").add(to)
    });
    let data = key.recovery_data.as_ref();
    let data = data.map(|data| phase_data(queries, data));
    let status = it.status.zip(key.body.as_ref());
    let answer = status.map(|(status, body)| answer(queries, key, status, body));
    step(
        "Key",
        cell(moments).add(data).add(answer).add(unknown).add(acts),
    )
}

/// The record of the last phase for the next owner, masked.
fn phase_data(queries: &Queries, data: &Content) -> Html {
    let shown = queries.shown(data.content_type.as_deref(), &data.raw);
    Html::default()
        .add(el("h3").add("Data of the last phase"))
        .add(content("Data of the last phase", &shown))
}

/// The response that retries receive, masked.
fn answer(queries: &Queries, key: &KeyRecord, status: u16, body: &Content) -> Html {
    let shown = queries.shown(body.content_type.as_deref(), &body.raw);
    let mut headers = Table::new("Headers of the stored response", &["Header", "Value"]);
    for (name, value) in &key.headers {
        let value = if queries.hides(name) { "***" } else { value };
        headers.row([code(Some(name)), code(Some(value))]);
    }
    let size = size(key.summary.body_bytes);
    Html::default()
        .add(el("h3").add(format!("Response: {status}, {size}")))
        .add((!headers.is_empty()).then_some(headers))
        .add(content("Stored response", &shown))
}

/// The transaction that committed the response and the events.
fn commit(found: &Timeline) -> Option<String> {
    let first = found.events.iter().find(|it| it.is_of_answer);
    let number = first.or(found.events.first())?.transaction;
    let with = found
        .events
        .iter()
        .filter(|it| it.transaction == number)
        .count();
    let events = if with == 1 { "event" } else { "events" };
    Some(match first {
        Some(_) => {
            format!("Transaction {number} committed the response and {with} {events} together.")
        }
        None => format!("Transaction {number} committed {with} {events}."),
    })
}

fn event_step(
    queries: &Queries,
    page_request: &PageRequest,
    emitted: &Emitted,
    endpoints: &Endpoints,
    now: Timestamp,
) -> Element {
    let Emitted {
        event,
        transaction,
        is_of_answer,
        traces,
        taken,
    } = emitted;
    let (position, event) = (event.position, &event.event);
    let endpoints = endpoints.get(&position);
    let to = path_of("/console/events", &position.to_string());
    let later = (!is_of_answer).then(|| format!(", by transaction {transaction}"));
    let head = el("p")
        .add(open_name(&to, &event.kind))
        .add(format!(" at position {position}, "))
        .add(time(event.created_at, now))
        .add(later);
    let shown = queries.shown(Some(event.payload.content_type()), event.payload.bytes());
    let messages = taken.iter().map(|message| {
        let result = message.result.as_ref().map(|it| format!(": {it}"));
        el("p")
            .add("Accepted by ")
            .add(el("code").add(&message.consumer))
            .add(" ")
            .add(time(message.received_at, now))
            .add(result)
    });
    let is_delivered = |trace: &Trace| trace.status == DeliveryStatus::Delivered;
    let elsewhere = (taken.is_empty() && traces.iter().any(is_delivered)).then(|| {
        let said = "No inbox of this database has a message with the id of this event. A consumer \
                    may have it in its own database or under an id from its payload; then only the \
                    outcome of the delivery is known here.";
        el("p").class("soft").add(said)
    });
    let inside = cell(head)
        .add(
            el("details")
                .add(el("summary").add("Payload"))
                .add(content("Payload", &shown)),
        )
        .add(event_trace::every(
            queries,
            page_request,
            traces,
            position,
            now,
        ))
        .add(endpoints.map(|traces| endpoint_trace::table(traces, event, now)))
        .add(Html::all(messages))
        .add(elsewhere);
    step("Event", inside)
}
