//! The navigation: the pages, and the numbers of dead letters and of sagas that need attention.

use hapax::{admin::Count, saga::State};

use crate::{
    format::count,
    html::{Element, Html, el, link},
    sample::LiveFigures,
};

/// The pages: the key after `g` that opens it, the path, and the title.
const PLACES: [(&str, &str, &str); 16] = [
    ("o", "/console", "Overview"),
    ("e", "/console/events", "Events"),
    ("d", "/console/deliveries", "Deliveries"),
    ("l", DEAD, "Dead letters"),
    ("k", "/console/keys", "Keys"),
    ("i", "/console/inbox", "Inbox"),
    ("s", SAGAS, "Sagas"),
    ("u", "/console/unknown", "Unknown outcomes"),
    ("t", "/console/destinations", "Destinations"),
    ("w", "/console/endpoints", "Endpoints"),
    ("p", "/console/polling", "Polling endpoints"),
    ("y", CATALOGUE, "Event catalogue"),
    ("a", "/console/advanced", "Jobs and audit"),
    ("f", CONFIGURATION, "Configuration"),
    ("c", "/console/reference/cli", "Commands"),
    ("r", "/console/reference", "Reference"),
];
const DEAD: &str = "/console/dead-letters";
const SAGAS: &str = "/console/sagas";
const CATALOGUE: &str = "/console/catalogue";
const CONFIGURATION: &str = "/console/configuration";

/// The numbers beside the names of the pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tallies {
    /// Dead letters; `None` if unknown.
    pub(crate) dead: Option<Count>,
    /// Sagas that need attention; `None` if unknown.
    pub(crate) attention: Option<Count>,
    /// Whether the host has settings to show.
    pub(crate) has_settings: bool,
    /// Whether the host has an event catalogue.
    pub(crate) has_catalogue: bool,
}

impl Tallies {
    /// The numbers of a sample.
    pub(crate) fn of(look: &LiveFigures) -> Self {
        let mut dead = Count::default();
        for it in &look.overview.destinations {
            dead.add(it.dead);
        }
        let sagas = look.overview.sagas.iter();
        let attention = sagas
            .filter(|it| it.state == State::NeedsAttention.as_str())
            .map(|it| it.count)
            .next();
        Self {
            dead: Some(dead),
            attention,
            has_settings: false,
            has_catalogue: false,
        }
    }

    /// The parts of the navigation that change, by element id.
    pub(crate) fn parts(&self) -> [(&'static str, Html); 2] {
        [
            ("nav-dead", number(self.dead)),
            ("nav-attention", number(self.attention)),
        ]
    }
}

/// The pages that this console has.
pub(crate) fn places(
    tallies: &Tallies,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let (has_settings, has_catalogue) = (tallies.has_settings, tallies.has_catalogue);
    let is_there = move |path: &str| match path {
        CONFIGURATION => has_settings,
        CATALOGUE => has_catalogue,
        _ => true,
    };
    let places = PLACES.into_iter();
    places.filter(move |(_, path, _)| is_there(path))
}

/// Renders the navigation of the page at `here`.
pub(crate) fn pages(here: &str, tallies: &Tallies) -> Element {
    let [dead, attention] = tallies.parts();
    let tally = |path: &str| match path {
        DEAD => Some(&dead),
        SAGAS => Some(&attention),
        _ => None,
    };
    let items = places(tallies).map(|(key, path, name)| {
        let tally = tally(path)
            .map(|(id, number)| el("span").class("tally").attr("data-live", id).add(number));
        let anchor = link(path, name).attr("data-key", key);
        let anchor = if is_at(here, path) {
            anchor.attr("aria-current", "page")
        } else {
            anchor
        };
        let hint = el("kbd")
            .attr("aria-hidden", "true")
            .add(format!("g {key}"));
        el("li").add(anchor.add(tally).add(hint))
    });
    el("nav")
        .attr("aria-label", "Pages")
        .add(el("ul").all(items))
}

/// Whether the page at `here` belongs to the entry with this path.
fn is_at(here: &str, path: &str) -> bool {
    let deeper = here.strip_prefix(path);
    let inside = deeper.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        "/console" => here == path,
        "/console/reference" => inside && here != "/console/reference/cli",
        _ => inside,
    }
}

/// A number, unless it is zero or unknown.
fn number(tally: Option<Count>) -> Html {
    let tally = tally.filter(|it| it.number > 0);
    tally.map_or_else(Html::default, |it| Html::default().add(count(it)))
}
