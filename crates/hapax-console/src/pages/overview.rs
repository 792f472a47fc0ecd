//! `/console`: overview. What needs attention comes first, and each line links to the cause.

use axum::extract::State;
use hapax::admin::{Count, DestinationFigures, StateCount};

use super::{
    Shown, attention,
    charts::{self, Range},
    destinations::state_of,
};
use crate::{
    Console,
    chart::lines,
    fields::{path_of, url},
    filter::{Filter, Qualifier},
    format::{badge, cell, count, none, nothing, open_name, span},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    sample::{LiveFigures, float},
    table::Table,
};

/// Shows the overview.
pub(crate) async fn show(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let actor = &page_request.caller().actor;
    let look = console.0.samples.look(&console, actor).await?;
    let range = Range::of(&page_request.fields);
    let titles = [
        "Needs attention",
        "Figures",
        "Destinations",
        "Keys and sagas",
    ];
    let sections = parts(&look, range)
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
pub(crate) fn parts(look: &LiveFigures, range: Range) -> [(&'static str, Html); 4] {
    [
        ("why", attention::all(look)),
        ("figures", charts::all(look, range)),
        ("places", places(look)),
        ("counts", counts(look)),
    ]
}

fn places(look: &LiveFigures) -> Html {
    let heads = &[
        "Destination",
        "State",
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

fn place(it: &DestinationFigures, look: &LiveFigures) -> [Html; 9] {
    let name = open_name(&path_of("/console/destinations", &it.name), &it.name);
    let declared = look.places.iter().find(|place| place.name == it.name);
    let state = declared.map_or_else(none, |place| cell(badge(state_of(place, look))));
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
        state,
        it.lag.map_or_else(none, |lag| cell(span(lag))),
        cell(count(it.backlog)),
        linked(it.parked, "/console/deliveries"),
        linked(it.dead, "/console/dead-letters"),
        cell(count(it.delivered)),
        cell(count(it.failed)),
        cell(el("span").class("spark").add(chart)),
    ]
}

fn counts(look: &LiveFigures) -> Html {
    let figures = |nouns: [&'static str; 2], path: &'static str| {
        move |it: &StateCount| {
            let q = format!("state:{}", it.state);
            figure_of(&url(path, &[("q", &q)]), it.state, it.count, nouns)
        }
    };
    let keys = look.overview.keys.iter();
    let keys = keys.map(figures(["key", "keys"], "/console/keys"));
    let sagas = look.overview.sagas.iter();
    let sagas = sagas.map(figures(["saga", "sagas"], "/console/sagas"));
    let stored = look.overview.keys_stored;
    let nouns = ["key", "keys"];
    let stored = stored.map(|stored| figure_of("/console/keys", "stored", stored, nouns));
    cell(el("ul").class("counts").add(stored).all(keys).all(sagas))
}

/// A number of keys or sagas in a state, in words. `nouns` are the singular and the plural.
fn figure_of(to: &str, state: &str, figure: Count, nouns: [&str; 2]) -> Element {
    let is_one = figure.number == 1;
    let noun = nouns[usize::from(!is_one)];
    let state = match state {
        "needs_attention" if is_one => "needs attention".to_owned(),
        "needs_attention" => "need attention".to_owned(),
        state => state.replace('_', " "),
    };
    let inside = Html::default()
        .add(el("strong").add(count(figure)))
        .add(format!(" {noun} {state}"));
    el("li").add(link(to, inside))
}

/// A term in the filter language.
pub(crate) fn term(qualifier: Qualifier, value: &str) -> String {
    Filter::default().and(qualifier, value).to_string()
}
