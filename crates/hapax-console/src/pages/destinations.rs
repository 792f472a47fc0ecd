//! `/console/destinations`: destinations, their states and actions.

use axum::extract::{Path, State};
use hapax::admin::{Destination, DestinationFigures};

use super::{
    Shown,
    events::list_of,
    overview::{term, why_of},
    query::{Known, ListQuery},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{Table, badge, cell, code, content, count, facts, none, open, span, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    sample::Look,
};

const STATES: [&str; 4] = ["active", "paused", "disabled", "removing"];

static KNOWN: Known = Known {
    qualifiers: &[Qualifier::Dest, Qualifier::State],
    words: Some("a part of a name"),
};

/// Lists destinations by name.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let states = query.states(&STATES, |it| it);
    let mut body = Html::default();
    if query.is_right() {
        let actor = &page_request.caller().actor;
        let places = console.index().list(actor).await?;
        let look = console.0.samples.look(&console, actor).await?;
        let heads = &[
            "Destination",
            "State",
            "#Lag",
            "#Backlog",
            "#Parked",
            "#Dead",
            "Declared in",
        ];
        let mut table = Table::new("Destinations", heads);
        let dest = query.filter.one(Qualifier::Dest);
        let fits = |it: &&Destination| {
            (states.is_empty() || states.contains(&it.state))
                && dest.is_none_or(|dest| it.name == dest)
                && query
                    .filter
                    .words
                    .iter()
                    .all(|word| it.name.contains(word.as_str()))
        };
        for it in places.iter().filter(fits) {
            let [lag, backlog, parked, dead] = figures(figures_of(&look, &it.name));
            table.row([
                cell(open(&path_of("/console/destinations", &it.name), &it.name)),
                cell(badge(it.state)),
                lag,
                backlog,
                parked,
                dead,
                cell(it.declared_in),
            ]);
        }
        body = list_of(table, false, "destination");
    }
    Ok(Page::new("Destinations", body).filtered(query.into_box()))
}

/// Shows one destination.
pub(crate) async fn show(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(name): Path<String>,
) -> Shown {
    let actor = &page_request.caller().actor;
    let place = console.index().get(actor, &name).await?;
    let look = console.0.samples.look(&console, actor).await?;
    let now = console.0.clock.now();
    let [lag, backlog, parked, dead] = figures(figures_of(&look, &name));
    let changed = match (&place.changed_by, place.changed_at) {
        (Some(by), Some(at)) => Html::default().add(format!("by {by} ")).add(time(at, now)),
        _ => Html::default(),
    };
    let text = |text: Option<&String>| text.map_or_else(Html::default, cell);
    let known = facts([
        ("State", cell(badge(place.state))),
        ("Paused by", text(place.paused_by.as_ref())),
        ("Reason", text(place.reason.as_ref())),
        ("Lag", lag),
        ("Backlog", backlog),
        ("Parked", parked),
        ("Dead", dead),
        ("Declared in", cell(place.declared_in)),
        ("Changed", changed),
        ("Parts", code(Some(&place.partitions.join(", ")))),
    ]);
    let spec = place.spec.as_ref().map(|spec| {
        let (queries, spec) = (console.queries(), spec.to_string());
        let shown = queries.shown(Some("application/json"), spec.as_bytes());
        Html::default()
            .add(el("h2").add("Declaration"))
            .add(content("Declaration", &shown))
    });
    let breaker = look.breakers.contains(&name).then(|| {
        let said =
            "The receiver failed too often in a row: the breaker is open, and deliveries pause.";
        el("p").class("problem").add(said)
    });
    let q = term(Qualifier::Dest, &name);
    let links = el("ul")
        .class("links")
        .add(el("li").add(open(
            &url("/console/deliveries", &[("q", &q)]),
            "Its deliveries",
        )))
        .add(el("li").add(open(
            &url("/console/dead-letters", &[("q", &q)]),
            "Its dead letters",
        )));
    let body = Html::default()
        .add(why_of(&look, &name))
        .add(breaker)
        .add(page_request.acts().then(|| acts(&place)))
        .add(known)
        .add(links)
        .add(spec);
    Ok(Page::new(format!("Destination {name}"), body))
}

fn acts(place: &Destination) -> Element {
    let to = |act| url("/console/act", &[("act", act), ("dest", &place.name)]);
    let button = |act, name: &str| link(&to(act), name).class("button");
    let acts = el("p").class("acts");
    match place.state {
        // A removal that was cancelled can be requested again.
        "removing" => acts.add(button("remove", "Remove")),
        "paused" | "disabled" => acts
            .add(button("resume", "Resume"))
            .add(button("remove", "Remove")),
        _ => acts
            .add(button("pause", "Pause"))
            .add(button("remove", "Remove")),
    }
}

fn figures_of<'a>(look: &'a Look, name: &str) -> Option<&'a DestinationFigures> {
    look.overview.destinations.iter().find(|it| it.name == name)
}

fn figures(found: Option<&DestinationFigures>) -> [Html; 4] {
    let Some(it) = found else {
        return [none(), none(), none(), none()];
    };
    [
        it.lag.map_or_else(none, |lag| cell(span(lag))),
        cell(count(it.backlog)),
        cell(count(it.parked)),
        cell(count(it.dead)),
    ]
}
