//! `/console/catalogue`: the event types of the catalogue, each with its schema and examples.
//!
//! Operators of all tenants see every type. An operator of a tenant sees the types that the public page
//! shows: those whose flags are enabled.

use axum::extract::{Path, State};
use hapax::{
    admin::{Actor, AdminError},
    catalogue::{Catalogue, EventType},
    relay::Pattern,
};

use super::{
    Shown,
    list::Listing,
    overview::term,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console, catalogue,
    fields::{path_of, url},
    filter::Qualifier,
    format::{cell, none, open, open_name},
    guard::PageRequest,
    html::{Html, el},
    layout::Page,
    table::Table,
};

/// The path of the list.
const LIST: &str = "/console/catalogue";

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[Qualifier::Type],
    words: Some("a part of a type"),
    state: "",
};

static TYPES: Listing = Listing {
    one: "event type",
    empty: "The catalogue has no event types.",
};

/// Lists the event types.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let (catalogue, types) = visible(&console, &page_request.caller().actor)?;
    let query = ListQuery::of(&page_request, &KNOWN);
    let mut body = Html::default();
    if query.is_right() {
        let pattern = query.filter.one(Qualifier::Type).map(Pattern::new);
        let words = &query.filter.words;
        let fits = |it: &&EventType| {
            pattern.as_ref().is_none_or(|one| one.matches(&it.kind))
                && words.iter().all(|word| it.kind.contains(word.as_str()))
        };
        let mut table = Table::new("Event types", &["Type", "Marks", "#Versions", "Meaning"]);
        for it in types.into_iter().filter(fits) {
            table.row(row(it));
        }
        let said = format!("{}, version {}", catalogue.title(), catalogue.version());
        let is_all = query.text.trim().is_empty();
        body = cell(el("p").class("soft").add(said)).add(TYPES.table(table, is_all, false));
    }
    Ok(Page::new("Event catalogue", body).filtered(query.into_box()))
}

fn row(it: &EventType) -> [Html; 4] {
    let marks = catalogue::marks(it);
    let meaning = it.description.lines().next().unwrap_or_default();
    [
        cell(open_name(&path_of(LIST, &it.kind), &it.kind)),
        if marks.is_empty() { none() } else { marks },
        cell(it.versions.len() as u64),
        cell(meaning),
    ]
}

/// Shows one event type.
pub(crate) async fn show(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(kind): Path<String>,
) -> Shown {
    let (catalogue, types) = visible(&console, &page_request.caller().actor)?;
    let found = types.into_iter().find(|it| it.kind == kind);
    let Some(it) = found else {
        let what = format!("event type {} in the catalogue", kind.escape_debug());
        return Err(AdminError::not_found(what).into());
    };
    let q = term(Qualifier::Type, &it.kind);
    let events = open(&url("/console/events", &[("q", &q)]), "Events of this type");
    let links = el("ul").class("links").add(el("li").add(events));
    let versions = it.versions.iter().rev();
    let versions = versions.map(|version| catalogue::described(catalogue, it, version));
    let body = Html::default()
        .add(catalogue::prose(&it.description))
        .add(catalogue::marks(it))
        .add(links)
        .add(el("h2").add("Payload"))
        .add(Html::all(versions));
    Ok(Page::new(format!("Event type {}", it.kind), body))
}

/// The page of an event type, if the actor may see it.
pub(crate) fn page_of(console: &Console, actor: &Actor, kind: &str) -> Option<String> {
    let (_, types) = visible(console, actor).ok()?;
    let is_known = types.iter().any(|it| it.kind == kind);
    is_known.then(|| path_of(LIST, kind))
}

/// The catalogue, and the types that the actor may see.
fn visible<'a>(
    console: &'a Console,
    actor: &Actor,
) -> Result<(&'a Catalogue, Vec<&'a EventType>), AdminError> {
    let configured = console.0.catalogue.as_ref();
    let missing = || AdminError::not_found("catalogue in the configuration of this process");
    let (catalogue, flags) = configured.ok_or_else(missing)?;
    let types = match actor.tenant {
        Some(_) => catalogue.visible(flags),
        None => catalogue.types().iter().collect(),
    };
    Ok((catalogue, types))
}
