//! Deliveries of an event: its state and its attempts at every destination.

use hapax::{
    Timestamp,
    admin::{Actor, AdminError, DeliveryStatus, EventFilter, Trace},
    delivery::Attempt,
};

use crate::{
    Console,
    fields::{path_of, url},
    format::{badge, cell, code, content, counted, none, nothing, open, span, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    queries::Queries,
    table::Table,
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
        return cell(nothing(
            "No destination is known: no relay has opened one yet.",
        ));
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
    let acts = page_request.acts().then(|| acts(trace, position)).flatten();
    let edited = trace.edited.as_ref().map(|it| {
        let shown = queries.shown(Some(it.content_type()), it.bytes());
        Html::default()
            .add(el("p").add("The payload for this destination was edited:"))
            .add(content("Edited payload", &shown))
    });
    el("section")
        .class("delivery")
        .add(head)
        .add(el("p").class("because").add(because(trace, now)))
        .add(edited)
        .add(acts)
        .add(attempts)
}

/// The state in words.
fn because(trace: &Trace, now: Timestamp) -> Html {
    let is_delivered = trace.status == DeliveryStatus::Delivered;
    let error = trace.last_error.as_deref().filter(|_| !is_delivered);
    let error = error.map(|error| format!(" Last error: {error}"));
    let said = match trace.status {
        DeliveryStatus::Unread => "Not read by the relay yet.".to_owned(),
        DeliveryStatus::Passed => {
            "No attempt is recorded: this destination does not take the event, its attempt is \
             running, or its log was deleted."
                .to_owned()
        }
        DeliveryStatus::Delivered => "Delivered.".to_owned(),
        DeliveryStatus::Scheduled | DeliveryStatus::Retrying => {
            let next = trace.next_at.map(|at| {
                if at > now {
                    format!("is due in {}", span(at.since(now)))
                } else {
                    format!("has been due for {}", span(now.since(at)))
                }
            });
            let next = next.unwrap_or_else(|| "is due".to_owned());
            let attempts = counted(trace.attempts.into(), "attempt", "attempts");
            format!("{attempts} so far; the next one {next}.")
        }
        DeliveryStatus::Blocked => "Blocked by an earlier event with its key.".to_owned(),
        DeliveryStatus::Dead => {
            let attempts = counted(trace.attempts.into(), "attempt", "attempts");
            format!("Given up after {attempts}.")
        }
        DeliveryStatus::Discarded => {
            let reason = trace.reason.as_deref().unwrap_or("no reason is recorded");
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
    Html::default().add(said).add(error).add(behind)
}

/// A table of attempts.
pub(crate) fn attempts(
    queries: &Queries,
    log: &[Attempt],
    partition: &str,
    now: Timestamp,
) -> Table {
    let caption = format!("Attempts at {partition}");
    let heads = &[
        "#Attempt",
        "Started",
        "#Duration",
        "Outcome",
        "#Status",
        "Error",
        "Response",
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

/// The actions on a delivery that is dead or waits for its next attempt.
fn acts(trace: &Trace, position: i64) -> Option<Element> {
    let position = position.to_string();
    let button = |act, name: &str| {
        let fields = [
            ("act", act),
            ("partition", trace.partition.as_str()),
            ("position", &position),
        ];
        link(&url("/console/act", &fields), name).class("button")
    };
    let acts = el("p").class("acts");
    match trace.status {
        DeliveryStatus::Dead => Some(
            acts.add(button("replay", "Replay"))
                .add(button("edit", "Edit and replay"))
                .add(button("discard", "Discard")),
        ),
        DeliveryStatus::Retrying => Some(acts.add(button("retry", "Retry now"))),
        _ => None,
    }
}

/// The forms that deliver an event again to the destinations that are done with it. A destination
/// whose declaration is not known here is named, because the form would be refused.
pub(crate) async fn offer_again(
    console: &Console,
    actor: &Actor,
    event: &str,
    traces: &[Trace],
) -> Result<Html, AdminError> {
    let is_done = |it: &&Trace| {
        matches!(
            it.status,
            DeliveryStatus::Delivered | DeliveryStatus::Passed | DeliveryStatus::Discarded
        )
    };
    let mut done: Vec<&Trace> = traces.iter().filter(is_done).collect();
    done.dedup_by(|one, other| one.destination == other.destination);
    let (mut offers, mut unknown) = (Vec::new(), Vec::new());
    for trace in done {
        let name = trace.destination.as_str();
        let offered = console.index().offered(actor, name, EventFilter::default());
        match offered.await {
            Ok(_) => offers.push(offer(event, trace)),
            Err(AdminError::Conflict { .. }) => unknown.push(name),
            Err(AdminError::Store(error)) => return Err(error.into()),
            // A destination of another tenant.
            Err(_) => {}
        }
    }
    let offers = (!offers.is_empty()).then(|| el("p").class("acts").all(offers));
    let unknown = (!unknown.is_empty()).then(|| {
        let names = unknown.join(", ");
        let said = format!(
            "This console cannot deliver it to {names} again: which events these destinations \
             receive is declared in their service, and this console has no access to that."
        );
        el("p").class("soft").add(said)
    });
    Ok(Html::default().add(offers).add(unknown))
}

fn offer(event: &str, trace: &Trace) -> Element {
    let (q, destination) = (format!("id:{event}"), trace.destination.as_str());
    let fields = [("act", "replay-events"), ("dest", destination), ("q", &q)];
    let name = match trace.status {
        DeliveryStatus::Passed => format!("Deliver to {destination}"),
        _ => format!("Deliver to {destination} again"),
    };
    link(&url("/console/act", &fields), name).class("button")
}
