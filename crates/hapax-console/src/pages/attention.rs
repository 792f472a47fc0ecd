//! What needs attention: everything that is stalled, failing, paused or given up, each with a link
//! to its cause.

use hapax::{
    Timestamp,
    admin::{
        Cause, Destination, DestinationFigures, DisabledEndpoint, Job, Stalled, StalledItem,
        WaitingEndpoint, destination_of,
    },
    limits::ENDPOINT_STATUS_COUNTED,
    saga::State,
};

use super::overview::term;
use crate::{
    fields::{path_of, url},
    filter::Qualifier,
    format::{about, badge, cell, count, counted, nothing, number, open, span},
    html::{Element, Html, el},
    sample::LiveFigures,
};

/// Everything that needs attention, or a sentence that there is nothing.
pub(super) fn all(look: &LiveFigures) -> Html {
    let stalled = look.stalled.iter().map(|it| stalled(it, look.at));
    let breakers = look.breakers.iter().map(|name| breaker(name));
    let destinations = look.overview.destinations.iter();
    let dead = destinations.clone().filter_map(dead_letters);
    let failing = destinations.filter_map(|it| failing(it, look));
    let stopped = look.places.iter().filter_map(|it| stopped(it, look));
    let disabled = look.endpoints.newest_disabled.iter();
    let disabled = disabled.map(|it| disabled_endpoint(it, look.at));
    let growing = look.growing.iter().map(growing_endpoint);
    let jobs = look.waiting_jobs.iter().map(|it| job(it, look.at));
    let lines: Vec<Element> = stalled
        .chain(breakers)
        .chain(dead)
        .chain(sagas(look))
        .chain(stopped)
        .chain(disabled)
        .chain(more_disabled(look))
        .chain(growing)
        .chain(jobs)
        .chain(failing)
        .collect();
    if lines.is_empty() {
        let said = "Nothing is blocked: events are delivered, and no dead letter, saga or job waits \
                    for an operator.";
        return cell(nothing(said));
    }
    cell(el("ul").class("why").all(lines))
}

/// The lines about one destination.
pub(super) fn of_destination(look: &LiveFigures, destination: &str) -> Option<Element> {
    let own = |it: &&Stalled| it.what.destination() == Some(destination);
    let own = look.stalled.iter().filter(own);
    let is_open = look.breakers.iter().any(|it| it == destination);
    let figures = look.figures(destination);
    let lines: Vec<Element> = own
        .map(|it| stalled(it, look.at))
        .chain(is_open.then(|| breaker(destination)))
        .chain(figures.and_then(dead_letters))
        .chain(figures.and_then(|it| failing(it, look)))
        .collect();
    (!lines.is_empty()).then(|| el("ul").class("why").all(lines))
}

fn line(to: &str, state: &str, what: &str, said: String) -> Element {
    let inside = Html::default()
        .add(badge(state))
        .add(el("span").class("what").add(what))
        .add(el("span").class("because").add(said));
    el("li").add(open(to, inside))
}

fn breaker(destination: &str) -> Element {
    let said = "The receiver failed too often in a row: the breaker is open, and one event every \
                10 s probes whether it works again.";
    let to = path_of("/console/destinations", destination);
    line(&to, "breaker_open", destination, said.to_owned())
}

fn dead_letters(it: &DestinationFigures) -> Option<Element> {
    let to = url(
        "/console/dead-letters",
        &[("q", &term(Qualifier::Dest, &it.name))],
    );
    let noun = if it.dead.number == 1 {
        "dead letter is"
    } else {
        "dead letters are"
    };
    let said = format!(
        "{} {noun} not delivered any more: replay or discard.",
        count(it.dead)
    );
    (it.dead.number > 0).then(|| line(&to, "dead_letters", &it.name, said))
}

/// Failed attempts of the last minute, unless something else is said about the destination.
fn failing(it: &DestinationFigures, look: &LiveFigures) -> Option<Element> {
    let is_said = |known: &Stalled| known.what.destination() == Some(it.name.as_str());
    if it.failed.number == 0 || look.stalled.iter().any(is_said) || look.breakers.contains(&it.name)
    {
        return None;
    }
    let state = if it.delivered.number == 0 {
        "failing"
    } else {
        "retrying"
    };
    let failed = count(it.failed);
    let attempts = if it.failed.number == 1 {
        "attempt"
    } else {
        "attempts"
    };
    let said = format!(
        "{failed} {attempts} failed in the last {}, {} succeeded.",
        about(look.overview.window),
        count(it.delivered)
    );
    let q = format!("{} state:retrying", term(Qualifier::Dest, &it.name));
    let to = url("/console/deliveries", &[("q", &q)]);
    Some(line(&to, state, &it.name, said))
}

/// Sagas that need attention, if the store has not listed them with their reason.
fn sagas(look: &LiveFigures) -> Option<Element> {
    let asks = State::NeedsAttention.as_str();
    let is_listed = |it: &Stalled| matches!(it.cause, Cause::NeedsAttention);
    let found = look.overview.sagas.iter().find(|it| it.state == asks)?;
    if found.count.number == 0 || look.stalled.iter().any(is_listed) {
        return None;
    }
    let to = url("/console/sagas", &[("q", &format!("state:{asks}"))]);
    let noun = if found.count.number == 1 {
        "saga needs"
    } else {
        "sagas need"
    };
    let said = format!("{} {noun} a person's decision.", count(found.count));
    Some(line(&to, asks, "sagas", said))
}

/// A destination that is paused or disabled and that no relay has opened.
fn stopped(it: &Destination, look: &LiveFigures) -> Option<Element> {
    let is_said = |known: &Stalled| {
        let is_partition = matches!(known.what, StalledItem::Partition { .. });
        is_partition && known.what.destination() == Some(it.name.as_str())
    };
    if !matches!(it.state, "paused" | "disabled") || look.stalled.iter().any(is_said) {
        return None;
    }
    let by = it.paused_by.as_ref().map(|by| format!(" by {by}"));
    let why = it.reason.as_ref().map(|why| format!(": {why}"));
    let said = format!(
        "{}{}{}.",
        super::capital(it.state),
        by.unwrap_or_default(),
        why.unwrap_or_default()
    );
    let to = path_of("/console/destinations", &it.name);
    Some(line(&to, it.state, &it.name, said))
}

fn disabled_endpoint(it: &DisabledEndpoint, now: Timestamp) -> Element {
    let said = format!("Disabled: {} (for {}).", it.reason, about(now.since(it.at)));
    let what = format!("endpoint {} of {}", it.id, it.tenant);
    line(
        &path_of("/console/endpoints", &it.id),
        "disabled",
        &what,
        said,
    )
}

/// The disabled endpoints that are counted in one line.
fn more_disabled(look: &LiveFigures) -> Option<Element> {
    let listed = look.endpoints.newest_disabled.len() as u64;
    let more = look.endpoints.disabled.saturating_sub(listed);
    let to = url("/console/endpoints", &[("q", "state:disabled")]);
    let said = counted(more, "other endpoint is", "other endpoints are");
    let said = format!("{said} disabled.");
    (more > 0).then(|| line(&to, "disabled", "endpoints", said))
}

fn growing_endpoint(it: &WaitingEndpoint) -> Element {
    let waits = counted(it.waiting, "delivery waits", "deliveries wait");
    let said = if it.waiting >= ENDPOINT_STATUS_COUNTED as u64 {
        format!("At least {waits} for it.")
    } else {
        format!("{waits} for it, more than a minute ago.")
    };
    let what = format!("endpoint {} of {}", it.id, it.tenant);
    let to = path_of("/console/endpoints", &it.id);
    line(&to, "backlog_grows", &what, said)
}

fn job(it: &Job, now: Timestamp) -> Element {
    let total = it.total.map(|total| format!(" of {}", number(total)));
    let said = format!(
        "No relay has begun this job in {}: {}{} done.",
        about(now.since(it.created_at)),
        number(it.done),
        total.unwrap_or_default()
    );
    let what = format!(
        "job {}: {} at {}",
        it.id,
        it.kind.as_str().replace('_', " "),
        it.destination
    );
    let to = url("/console/advanced", &[("q", "state:waiting")]);
    line(&to, "job_waits", &what, said)
}

fn stalled(it: &Stalled, now: Timestamp) -> Element {
    let (what, place) = match &it.what {
        StalledItem::Partition { partition } => (
            partition.clone(),
            path_of("/console/destinations", destination_of(partition)),
        ),
        StalledItem::OrderKey {
            partition,
            aggregate_type,
            aggregate_id,
        } => (
            format!("{aggregate_type}/{aggregate_id} at {partition}"),
            path_of("/console/destinations", destination_of(partition)),
        ),
        StalledItem::EventType { partition, kind } => (
            format!("{kind} at {partition}"),
            path_of("/console/destinations", destination_of(partition)),
        ),
        StalledItem::Sagas { name, version } => {
            let q = term(Qualifier::Saga, name);
            (
                format!("sagas {name} version {version}"),
                url("/console/sagas", &[("q", &q)]),
            )
        }
        StalledItem::Outbox => (
            "the outbox".to_owned(),
            url("/console/reference/cli", &[("q", "doctor")]),
        ),
    };
    let mut said = because(&it.cause, now);
    if let Some(since) = it.since {
        said = format!("{said} (for {})", about(now.since(since)));
    }
    if it.waiting > 0 {
        let (one, many) = match it.what {
            StalledItem::Sagas { .. } => ("saga waits", "sagas wait"),
            _ => ("event waits", "events wait"),
        };
        said = format!("{said}. {}", counted(it.waiting, one, many));
    }
    let to = match &it.cause {
        Cause::WaitsForRetry { position, .. }
        | Cause::BehindDeadLetter { position, .. }
        | Cause::Declined { position, .. } => path_of("/console/events", &position.to_string()),
        Cause::NeedsAttention => match &it.what {
            StalledItem::Sagas { name, .. } => {
                let q = format!("state:needs_attention {}", term(Qualifier::Saga, name));
                url("/console/sagas", &[("q", &q)])
            }
            _ => place,
        },
        _ => place,
    };
    line(&to, it.cause.as_str(), &what, format!("{said}."))
}

/// A cause in words, with the time at which it ends by itself.
fn because(cause: &Cause, now: Timestamp) -> String {
    let said = super::capital(&cause.to_string());
    match cause {
        Cause::WaitsForRetry { next_at, .. } if *next_at > now => {
            format!("{said}; next attempt in {}", span(next_at.since(now)))
        }
        Cause::WaitsForRetry { .. } => format!("{said}; due now"),
        Cause::OwnerSilent {
            seen_at: Some(at), ..
        } => format!("{said} (last heartbeat {} ago)", about(now.since(*at))),
        _ => said,
    }
}
