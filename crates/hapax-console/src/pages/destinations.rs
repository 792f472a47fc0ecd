//! `/console/destinations`: destinations, their states and actions.

use axum::extract::{Path, State};
use hapax::admin::{
    Cause, Destination, DestinationFigures, Stalled, StalledItem, destination_object,
};

use super::{
    Shown, attention,
    list::Listing,
    overview::term,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{badge, cell, code, content, count, facts, none, open, open_name, span, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    sample::LiveFigures,
    table::{Table, column_of},
};

/// The states that [`state_of`] returns.
const STATES: [&str; 14] = [
    "active",
    "paused",
    "disabled",
    "removing",
    "not_opened",
    "unowned",
    "owner_silent",
    "not_settling",
    "breaker_open",
    "failing",
    "retrying",
    "partly_blocked",
    "held_back",
    "stalled",
];

const HEADS: &[&str] = &[
    "Destination",
    "State",
    "#Lag",
    "#Backlog",
    "#Parked",
    "#Dead",
    "Declared in",
];

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[Qualifier::Dest, Qualifier::State],
    words: Some("a part of a name"),
    state: "paused",
};

static DESTINATIONS: Listing = Listing {
    one: "destination",
    empty: "There are no destinations. A destination appears here when it is declared in the \
            configuration or created at run time, and when a relay delivers to it.",
};

/// Lists destinations.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let states = query.states(&STATES, |it| it);
    let mut body = Html::default();
    if query.is_right() {
        let actor = &page_request.caller().actor;
        let look = console.0.samples.look(&console, actor).await?;
        // The sample may be older than a change that was just made.
        let places = console.index().list(actor).await?;
        let dest = query.filter.one(Qualifier::Dest);
        let fits = |(it, state): &(Destination, &'static str)| {
            (states.is_empty() || states.contains(state))
                && dest.is_none_or(|dest| it.name == dest)
                && query
                    .filter
                    .words
                    .iter()
                    .all(|word| it.name.contains(word.as_str()))
        };
        let with_state = |it: Destination| {
            let state = state_of(&it, &look);
            (it, state)
        };
        let places = places.into_iter().map(with_state).filter(fits);
        let mut places: Vec<_> = places.collect();
        let by = sort(&mut places, &look, page_request.fields.text("sort"));
        let table = Table::new("Destinations", HEADS);
        let mut table = table.sorted(&page_request.path, &query.text, &by);
        for (it, state) in &places {
            table.row(row(it, state, &look));
        }
        let is_all = query.text.trim().is_empty();
        body = DESTINATIONS.table(table, is_all, false);
    }
    Ok(Page::new("Destinations", body).filtered(query.into_box()))
}

fn row(it: &Destination, state: &str, look: &LiveFigures) -> [Html; 7] {
    let [lag, backlog, parked, dead] = figures(look.figures(&it.name));
    let to = path_of("/console/destinations", &it.name);
    [
        cell(open_name(&to, &it.name)),
        cell(badge(state)),
        lag,
        backlog,
        parked,
        dead,
        cell(it.declared_in),
    ]
}

/// Sorts by a column and returns its name: numbers with the highest first, texts in their order.
fn sort(places: &mut [(Destination, &'static str)], look: &LiveFigures, by: &str) -> String {
    let figures = |it: &Destination| look.figures(&it.name).cloned().unwrap_or_default();
    let known = HEADS.iter().map(|head| column_of(head));
    let by = known
        .into_iter()
        .find(|column| column == by)
        .unwrap_or_else(|| column_of(HEADS[0]));
    match by.as_str() {
        "state" => places.sort_by_key(|(_, state)| *state),
        "lag" => places.sort_by_key(|(it, _)| std::cmp::Reverse(figures(it).lag)),
        "backlog" => places.sort_by_key(|(it, _)| std::cmp::Reverse(figures(it).backlog.number)),
        "parked" => places.sort_by_key(|(it, _)| std::cmp::Reverse(figures(it).parked.number)),
        "dead" => places.sort_by_key(|(it, _)| std::cmp::Reverse(figures(it).dead.number)),
        "declared-in" => places.sort_by_key(|(it, _)| it.declared_in),
        _ => places.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name)),
    }
    by
}

/// The state of a destination for people: as it is declared, or what its deliveries say.
pub(super) fn state_of(place: &Destination, look: &LiveFigures) -> &'static str {
    if place.state != "active" {
        return place.state;
    }
    if look.breakers.contains(&place.name) {
        return "breaker_open";
    }
    let is_own = |it: &&Stalled| it.what.destination() == Some(place.name.as_str());
    let is_whole = |it: &&Stalled| matches!(it.what, StalledItem::Partition { .. });
    let mut own = look.stalled.iter().filter(is_own);
    if let Some(whole) = own.clone().find(is_whole) {
        return state_by(&whole.cause);
    }
    match look.figures(&place.name) {
        Some(it) if it.failed.number > 0 && it.delivered.number == 0 => "failing",
        Some(it) if it.failed.number > 0 => "retrying",
        _ if own.next().is_some() => "partly_blocked",
        _ if place.partitions.is_empty() => "not_opened",
        _ => "active",
    }
}

fn state_by(cause: &Cause) -> &'static str {
    match cause {
        Cause::Paused { .. } => "paused",
        Cause::Disabled { .. } => "disabled",
        Cause::Unowned { .. } => "unowned",
        Cause::OwnerSilent { .. } => "owner_silent",
        Cause::NotSettling => "not_settling",
        Cause::WaitsForRetry { .. } => "retrying",
        Cause::HeldBack { .. } => "held_back",
        Cause::BehindDeadLetter { .. } | Cause::Declined { .. } => "partly_blocked",
        _ => "stalled",
    }
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
    let [lag, backlog, parked, dead] = figures(look.figures(&name));
    let changed = match (&place.changed_by, place.changed_at) {
        (Some(by), Some(at)) => Html::default().add(format!("by {by} ")).add(time(at, now)),
        _ => Html::default(),
    };
    let text = |text: Option<&String>| text.map_or_else(Html::default, cell);
    let known = facts([
        ("State", cell(badge(state_of(&place, &look)))),
        ("Paused by", text(place.paused_by.as_ref())),
        ("Reason", text(place.reason.as_ref())),
        ("Lag", lag),
        ("Backlog", backlog),
        ("Parked", parked),
        ("Dead", dead),
        ("Declared in", cell(place.declared_in)),
        ("Changed", changed),
        ("Partitions", code(Some(&place.partitions.join(", ")))),
    ]);
    let spec = place.spec.as_ref().map(|spec| {
        let (queries, spec) = (console.queries(), spec.to_string());
        let shown = queries.shown(Some("application/json"), spec.as_bytes());
        Html::default()
            .add(el("h2").add("Declaration"))
            .add(content("Declaration", &shown))
    });
    let (q, object) = (term(Qualifier::Dest, &name), destination_object(&name));
    let links = el("ul")
        .class("links")
        .add(el("li").add(open(
            &url("/console/deliveries", &[("q", &q)]),
            "Its deliveries",
        )))
        .add(el("li").add(open(
            &url("/console/dead-letters", &[("q", &q)]),
            "Its dead letters",
        )))
        .add(el("li").add(open(
            &url("/console/events", &[("q", &term(Qualifier::Unread, &name))]),
            "Events that it has not read",
        )))
        .add(el("li").add(open(
            &url(
                "/console/advanced",
                &[("q", &term(Qualifier::Object, &object))],
            ),
            "What operators did with it",
        )));
    let body = Html::default()
        .add(attention::of_destination(&look, &name))
        .add(page_request.acts().then(|| acts(&console, &place)))
        .add(known)
        .add(links)
        .add(spec);
    Ok(Page::new(format!("Destination {name}"), body))
}

fn acts(console: &Console, place: &Destination) -> Element {
    let to = |act| url("/console/act", &[("act", act), ("dest", &place.name)]);
    let button = |act, name: &str| link(&to(act), name).class("button");
    let acts = el("p").class("acts");
    // A console beside a service cannot build the sinks that only the service declares.
    let is_known = console.0.test_events.is_some() && place.declared_in != "unknown";
    let test = is_known.then(|| button("test", "Send a test event"));
    match place.state {
        // A removal that was cancelled can be requested again.
        "removing" => acts.add(button("remove", "Remove")),
        "paused" | "disabled" => acts
            .add(test)
            .add(button("resume", "Resume"))
            .add(button("remove", "Remove")),
        _ => acts
            .add(test)
            .add(button("pause", "Pause"))
            .add(button("remove", "Remove")),
    }
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
