//! Delivering events to a destination again: the confirmation page with their number.

use hapax::{
    Timestamp,
    admin::{Actor, Count, CountKind, DeliveryStatus, EventFilter},
};

use super::{Plan, run};
use crate::{
    Console,
    fields::url,
    format,
    html::{el, link},
    pages::ErrorPage,
};

/// The confirmation page for a destination and a filter. It estimates the number of events, unless
/// the exact number is asked for.
pub(super) async fn plan(
    console: &Console,
    actor: &Actor,
    (dest, q): (&str, &str),
    counts: bool,
    at: Timestamp,
) -> Result<Plan, ErrorPage> {
    let filter = run::events(q, at)?;
    if let Some(id) = filter.event_id {
        is_done(console, actor, dest, &id.to_string()).await?;
    }
    let seen = console.store().seen().await?;
    let (filter, _) = console.index().offered(actor, dest, filter).await?;
    let count = number_of(console, actor, &filter, counts).await?;
    let events = if count.number == 1 {
        "event matches"
    } else {
        "events match"
    };
    let says = format!(
        "{} {events} {q}. They will be delivered to {dest} again under the same ids, including \
         those that were delivered before. Events that wait for {dest} anyway are not changed.",
        format::count(count)
    );
    let back = url("/console/events", &[("q", q)]);
    let mut plan = Plan::new("Deliver events again", says, "Deliver them", back);
    if count.kind != CountKind::Exact {
        let fields = [
            ("act", "replay-events"),
            ("dest", dest),
            ("q", q),
            ("count", "exact"),
        ];
        let to = link(&url("/console/act", &fields), "Count them exactly");
        let note = el("p")
            .class("soft")
            .add("The number is an estimate from the newest events and the range of ids. ")
            .add(to)
            .add(", which reads all events of that time.");
        plan.more = plan.more.add(note);
    }
    Ok(plan.looked_at("seen", &seen))
}

/// How many events match: an estimate that takes some milliseconds, or the exact number.
async fn number_of(
    console: &Console,
    actor: &Actor,
    filter: &EventFilter,
    counts: bool,
) -> Result<Count, ErrorPage> {
    if !counts {
        return Ok(console.store().estimate_events(actor, filter).await?);
    }
    let number = console.store().count_events(actor, filter).await?;
    let kind = CountKind::Exact;
    Ok(Count { number, kind })
}

/// Refuses to deliver an event again that a destination is not done with: the job would leave it
/// unchanged.
async fn is_done(console: &Console, actor: &Actor, dest: &str, id: &str) -> Result<(), ErrorPage> {
    let queries = console.queries();
    // An event that is not near the time in its id is found by the job all the same.
    let Ok(found) = queries.event(actor, id).await else {
        return Ok(());
    };
    let traces = queries.traces(actor, found.position).await?;
    let own = traces.iter().find(|it| it.destination == dest);
    let why = match own.map(|it| it.status) {
        Some(DeliveryStatus::Unread) => "the relay has not read it yet and will deliver it",
        Some(DeliveryStatus::Scheduled) => "it is scheduled there and will be delivered",
        Some(DeliveryStatus::Retrying) => {
            "it waits for its next attempt there: retry it now on its page"
        }
        Some(DeliveryStatus::Blocked) => "an earlier event with its key blocks it there",
        _ => return Ok(()),
    };
    let why = format!("event {id} is not delivered to {dest} again: {why}");
    Err(ErrorPage::late(&why))
}
