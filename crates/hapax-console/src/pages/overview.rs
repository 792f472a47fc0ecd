//! `/console`: overview. Stalled work with its cause comes first, and each line links to the cause.

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{Cause, Count, DestinationFigures, Stalled, StalledItem, StateCount, destination_of},
};

use super::Shown;
use crate::{
    Console,
    chart::{Chart, lines},
    fields::{path_of, url},
    filter::{Filter, Qualifier},
    format::{Table, badge, cell, count, none, nothing, number, open, span},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    sample::{Look, Sample, float},
};

/// Shows the overview.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let actor = &page_request.caller().actor;
    let look = console.0.samples.look(&console, actor).await?;
    let titles = [
        "Why is it not moving?",
        "Figures",
        "Destinations",
        "Keys and sagas",
    ];
    let sections = parts(&look)
        .into_iter()
        .zip(titles)
        .map(|((id, html), title)| {
            let label = format!("{id}-title");
            el("section")
                .attr("aria-labelledby", &label)
                .add(el("h2").attr("id", &label).add(title))
                .add(el("div").attr("id", id).attr("data-live", id).add(html))
        });
    Ok(Page::new("Overview", Html::all(sections)))
}

/// The parts of the page that change, by element id.
pub(crate) fn parts(look: &Look) -> [(&'static str, Html); 4] {
    [
        ("why", why(look)),
        ("figures", figures(look)),
        ("places", places(look)),
        ("counts", counts(look)),
    ]
}

fn why(look: &Look) -> Html {
    let breakers = look.breakers.iter().map(|name| {
        let to = path_of("/console/destinations", name);
        let said =
            "The receiver failed too often in a row: the breaker is open, and deliveries pause.";
        line(&to, "breaker", name, said.to_owned())
    });
    let stalled = look.stalled.iter().map(|it| stalled(it, look.at));
    let lines: Vec<Element> = stalled.chain(breakers).collect();
    if lines.is_empty() {
        return cell(nothing("Everything moves."));
    }
    cell(el("ul").class("why").all(lines))
}

/// The lines about one destination that is stalled.
pub(crate) fn why_of(look: &Look, destination: &str) -> Option<Element> {
    let own = |it: &&Stalled| it.what.destination() == Some(destination);
    let lines: Vec<Element> = look
        .stalled
        .iter()
        .filter(own)
        .map(|it| stalled(it, look.at))
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
        said = format!("{said}, since {}", span(now.since(since)));
    }
    if it.waiting > 0 {
        said = format!("{said}. {} wait", number(it.waiting));
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
            format!("{said}; tried again in {}", span(next_at.since(now)))
        }
        Cause::WaitsForRetry { .. } => format!("{said}; due now"),
        Cause::OwnerSilent {
            seen_at: Some(at), ..
        } => format!("{said} (seen {} ago)", span(now.since(*at))),
        _ => said,
    }
}

fn figures(look: &Look) -> Html {
    let kept = &look.kept;
    let of = |value: fn(&Sample) -> Option<f64>| kept.iter().map(value).collect::<Vec<_>>();
    let since = {
        let first = kept.first().map_or(look.at, Sample::at);
        span(look.at.since(first))
    };
    let seconds = |value: f64| span(std::time::Duration::from_secs_f64(value.clamp(0.0, 1e9)));
    let chart = |title: &'static str,
                 note: &'static str,
                 lines: Vec<Vec<Option<f64>>>,
                 say: &dyn Fn(f64) -> String| {
        let most = lines
            .iter()
            .flatten()
            .flatten()
            .copied()
            .fold(0.0, f64::max);
        let now = lines
            .first()
            .and_then(|line| line.last().copied().flatten());
        Chart {
            title,
            note,
            now: now.map_or_else(|| "unknown".to_owned(), say),
            most: if now.is_none() && most <= 0.0 {
                "unknown".to_owned()
            } else {
                say(most)
            },
            since: since.clone(),
            lines,
        }
        .draw()
    };
    let rate = |value: f64| format!("{value:.1}/s");
    let percent = |value: f64| format!("{:.1} %", value * 100.0);
    let charts = el("div")
        .class("charts")
        .add(chart(
            "Lag",
            "the oldest undelivered event",
            vec![of(|it| Some(it.lag))],
            &seconds,
        ))
        .add(chart(
            "Throughput",
            "delivered; dashed: committed",
            vec![of(|it| Some(it.delivered)), of(|it| Some(it.committed))],
            &rate,
        ))
        .add(chart(
            "Reuse",
            "requests replayed from the store",
            vec![of(|it| it.reuse)],
            &percent,
        ))
        .add(chart(
            "409",
            "requests refused with a conflict",
            vec![of(|it| it.conflicts)],
            &percent,
        ));
    let counts = kept.last().is_some_and(Sample::counts_requests);
    let note = (!counts).then(|| {
        let said = "Reuse and 409 are counted where requests are served: this process serves none, \
                    so look at the metrics of the service.";
        el("p").class("soft").add(said)
    });
    cell(charts).add(note)
}

fn places(look: &Look) -> Html {
    let heads = &[
        "Destination",
        "#Lag",
        "#Backlog",
        "#Parked",
        "#Dead",
        "#Delivered",
        "#Failed",
        "Failures",
    ];
    let window = span(look.overview.window);
    let caption = format!("Destinations; delivered and failed in the last {window}");
    let mut table = Table::new(caption, heads);
    for it in &look.overview.destinations {
        table.row(place(it, look));
    }
    if table.is_empty() {
        return cell(nothing("No relay has opened a destination yet."));
    }
    let said = format!("Delivered and failed: in the last {window}.");
    cell(table).add(el("p").class("soft").add(said))
}

fn place(it: &DestinationFigures, look: &Look) -> [Html; 8] {
    let name = open(&path_of("/console/destinations", &it.name), &it.name);
    let q = term(Qualifier::Dest, &it.name);
    let linked = |figure: Count, path: &str| {
        if figure.number == 0 {
            cell("0")
        } else {
            cell(link(&url(path, &[("q", &q)]), count(figure)))
        }
    };
    let failures: Vec<_> = look
        .kept
        .iter()
        .map(|kept| kept.failed.get(&it.name).copied())
        .collect();
    let now = float(it.failed.number);
    let chart = lines(&format!("Failures at {}: {now} now", it.name), &[failures]);
    [
        cell(name),
        it.lag.map_or_else(none, |lag| cell(span(lag))),
        cell(count(it.backlog)),
        linked(it.parked, "/console/deliveries"),
        linked(it.dead, "/console/dead-letters"),
        cell(count(it.delivered)),
        cell(count(it.failed)),
        cell(el("span").class("spark").add(chart)),
    ]
}

fn counts(look: &Look) -> Html {
    let figures = |counts: &'static str, path: &'static str| {
        move |it: &StateCount| {
            let q = format!("state:{}", it.state);
            figure_of(&url(path, &[("q", &q)]), it.state, it.count, counts)
        }
    };
    let keys = look.overview.keys.iter();
    let keys = keys.map(figures("keys", "/console/keys"));
    let sagas = look.overview.sagas.iter();
    let sagas = sagas.map(figures("sagas", "/console/sagas"));
    let stored = look.overview.keys_stored;
    let stored = stored.map(|stored| figure_of("/console/keys", "stored", stored, "keys"));
    cell(el("ul").class("counts").add(stored).all(keys).all(sagas))
}

fn figure_of(to: &str, state: &str, figure: Count, what: &str) -> Element {
    let inside = Html::default()
        .add(el("strong").add(count(figure)))
        .add(format!(" {what} {}", state.replace('_', " ")));
    el("li").add(link(to, inside))
}

/// A term in the filter language.
pub(crate) fn term(qualifier: Qualifier, value: &str) -> String {
    Filter::default().and(qualifier, value).to_string()
}
