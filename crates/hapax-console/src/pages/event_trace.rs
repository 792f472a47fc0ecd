//! Deliveries of an event: its state and its attempts at every destination.

use hapax::{
    Timestamp,
    admin::{DeliveryStatus, Trace},
    delivery::Attempt,
};

use crate::{
    fields::{path_of, url},
    format::{Table, badge, cell, code, content, none, nothing, open, span, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    queries::Queries,
};

/// The deliveries to all destinations.
pub(crate) fn every(
    queries: &Queries,
    page_request: &PageRequest,
    traces: &[Trace],
    position: i64,
    now: Timestamp,
) -> Html {
    if traces.is_empty() {
        return cell(nothing("It is not known at any destination."));
    }
    Html::all(
        traces
            .iter()
            .map(|trace| one(queries, page_request, trace, position, now)),
    )
}

fn one(
    queries: &Queries,
    page_request: &PageRequest,
    trace: &Trace,
    position: i64,
    now: Timestamp,
) -> Element {
    let head = el("h3")
        .add(link(
            &path_of("/console/destinations", &trace.destination),
            &trace.partition,
        ))
        .add(" ")
        .add(badge(trace.status.as_str()));
    let attempts =
        (!trace.log.is_empty()).then(|| attempts(queries, &trace.log, &trace.partition, now));
    let acts = (page_request.acts() && trace.status == DeliveryStatus::Dead)
        .then(|| dead_acts(&trace.partition, position));
    let edited = trace.edited.as_ref().map(|it| {
        let shown = queries.shown(Some(it.content_type()), it.bytes());
        Html::default()
            .add(el("p").add("The payload for this destination was edited:"))
            .add(content("Edited payload", &shown))
    });
    el("section")
        .class("way")
        .add(head)
        .add(el("p").class("because").add(because(trace, now)))
        .add(edited)
        .add(acts)
        .add(attempts)
}

/// The state in words.
fn because(trace: &Trace, now: Timestamp) -> Html {
    let error = || {
        let error = trace.last_error.as_deref();
        error.map(|error| format!(" Last error: {error}"))
    };
    let said = match trace.status {
        DeliveryStatus::Unread => "Not read by the relay yet.".to_owned(),
        DeliveryStatus::Passed => {
            "Read, but no attempt is recorded: not routed here, in flight, or deleted.".to_owned()
        }
        DeliveryStatus::Delivered => "Delivered.".to_owned(),
        DeliveryStatus::Scheduled | DeliveryStatus::Retrying => {
            let next = trace.next_at.map(|at| {
                if at > now {
                    format!("due in {}", span(at.since(now)))
                } else {
                    format!("due since {}", span(now.since(at)))
                }
            });
            let next = next.unwrap_or_else(|| "due".to_owned());
            let attempts = trace.attempts;
            format!("After {attempts} attempts, {next}.")
        }
        DeliveryStatus::Blocked => "Blocked by an earlier event with its key.".to_owned(),
        DeliveryStatus::Dead => format!("Dead after {} attempts.", trace.attempts),
        DeliveryStatus::Discarded => {
            let reason = trace.reason.as_deref().unwrap_or("no reason is known");
            format!("Discarded: {reason}.")
        }
    };
    let behind = trace.behind.map(|behind| {
        let to = path_of("/console/events", &behind.to_string());
        Html::default()
            .add(" It waits for ")
            .add(open(&to, format!("event {behind}")))
            .add(".")
    });
    Html::default().add(said).add(error()).add(behind)
}

fn attempts(queries: &Queries, log: &[Attempt], partition: &str, now: Timestamp) -> Table {
    let caption = format!("Attempts at {partition}");
    let heads = &[
        "#No", "Began", "#Took", "Outcome", "#Status", "Error", "Response",
    ];
    let mut table = Table::new(caption, heads);
    for attempt in log {
        let head = queries.head(&attempt.response_head);
        table.row([
            cell(attempt.number),
            cell(time(attempt.started_at, now)),
            cell(span(attempt.duration)),
            cell(badge(attempt.outcome.as_str())),
            attempt.status.map_or_else(none, |it| cell(u32::from(it))),
            code(attempt.error.as_deref()),
            code(Some(&head)),
        ]);
    }
    table
}

/// The actions on a dead letter.
pub(crate) fn dead_acts(partition: &str, position: i64) -> Element {
    let position = position.to_string();
    let to = |act| {
        let fields = [
            ("act", act),
            ("partition", partition),
            ("position", &position),
        ];
        url("/console/act", &fields)
    };
    el("p")
        .class("acts")
        .add(link(&to("replay"), "Replay").class("button"))
        .add(link(&to("edit"), "Edit and replay").class("button"))
        .add(link(&to("discard"), "Discard").class("button"))
}

/// The forms that deliver an event to a destination again.
pub(crate) fn offer_again(event: &str, traces: &[Trace]) -> Element {
    let mut names: Vec<&str> = traces.iter().map(|it| it.destination.as_str()).collect();
    names.dedup();
    let offers = names.into_iter().map(|name| {
        let q = format!("id:{event}");
        let fields = [("act", "replay-events"), ("dest", name), ("q", &q)];
        link(
            &url("/console/act", &fields),
            format!("Deliver to {name} again"),
        )
        .class("button")
    });
    el("p").class("acts").all(offers)
}
