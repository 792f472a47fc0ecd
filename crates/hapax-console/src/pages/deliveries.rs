//! `/console/deliveries` and `/console/dead-letters`: deliveries that failed at the first attempt,
//! and dead letters.

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{Delivery, DeliveryFilter, DeliveryStatus, EventFilter},
};

use super::{
    ROWS, Shown,
    list::Listing,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{badge, cell, code, name, open_name, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
    table::Table,
};

static DELIVERIES: PageQualifiers = PageQualifiers {
    qualifiers: &[
        Qualifier::State,
        Qualifier::Dest,
        Qualifier::Type,
        Qualifier::Attempt,
        Qualifier::Age,
        Qualifier::About,
        Qualifier::Tenant,
        Qualifier::Id,
        Qualifier::Error,
    ],
    words: Some("searched in the last error"),
    state: "retrying",
};

pub(crate) static DEAD: PageQualifiers = PageQualifiers {
    qualifiers: &[
        Qualifier::Dest,
        Qualifier::Type,
        Qualifier::Attempt,
        Qualifier::Age,
        Qualifier::About,
        Qualifier::Tenant,
        Qualifier::Id,
        Qualifier::Error,
    ],
    words: Some("searched in the last error"),
    state: "",
};

/// A list of deliveries, and the actions on those that are selected.
struct Kind {
    listing: Listing,
    /// The state in which a delivery can be selected.
    state: DeliveryStatus,
    /// The actions on the selected ones, with the labels of their buttons.
    acts: &'static [(&'static str, &'static str)],
}

static PARKED: Kind = Kind {
    listing: Listing {
        one: "delivery",
        empty: "No delivery has failed or waits. A delivery appears here when its first attempt \
                fails, when an earlier event blocks it, or when its event is scheduled for later.",
    },
    state: DeliveryStatus::Retrying,
    acts: &[("retry-selected", "Retry selected now")],
};

static LETTERS: Kind = Kind {
    listing: Listing {
        one: "dead letter",
        empty: "There are no dead letters. A delivery becomes one when its last attempt has \
                failed, or when the receiver rejects its event permanently.",
    },
    state: DeliveryStatus::Dead,
    acts: &[
        ("replay-selected", "Replay selected"),
        ("discard-selected", "Discard selected"),
    ],
};

/// Lists deliveries.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &DELIVERIES);
    let states = query.states(&DeliveryStatus::STORED, |it| it.as_str());
    let (body, _) = rows(&console, &page_request, &mut query, states, &PARKED).await?;
    let note = el("p").class("soft").add(
        "An event that arrived at the first attempt is not listed here: its own page shows that \
         attempt.",
    );
    let page = Page::new("Deliveries", body.add(note));
    Ok(page.filtered(query.into_box()))
}

/// Lists dead letters.
pub(crate) async fn dead(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &DEAD);
    let states = vec![DeliveryStatus::Dead];
    let (body, has_matches) = rows(&console, &page_request, &mut query, states, &LETTERS).await?;
    let acts = (page_request.acts() && has_matches).then(|| many(&query));
    let page = Page::new("Dead letters", Html::default().add(acts).add(body));
    Ok(page.filtered(query.into_box()))
}

/// The bulk operations for everything that matches the filter: for one destination, as a job.
fn many(query: &ListQuery) -> Element {
    let Some(dest) = query.filter.one(Qualifier::Dest) else {
        let said = "Select dead letters to replay or discard them, or add dest: to the filter to \
                    replay or discard all matches at once.";
        return el("p").class("soft").add(said);
    };
    let q = query.filter.to_string();
    let to = |act| url("/console/act", &[("act", act), ("dest", dest), ("q", &q)]);
    el("p")
        .class("acts")
        .add(link(&to("replay-dead"), "Replay all matches").class("button"))
        .add(link(&to("discard-dead"), "Discard all matches").class("button"))
}

/// A page of the list, and whether this page or a later one may have a row.
async fn rows(
    console: &Console,
    page_request: &PageRequest,
    query: &mut ListQuery,
    states: Vec<DeliveryStatus>,
    kind: &Kind,
) -> Result<(Html, bool), super::ErrorPage> {
    let now = console.0.clock.now();
    let events = filter_of(query, now);
    if !query.is_right() {
        return Ok((Html::default(), false));
    }
    let filter = DeliveryFilter {
        events,
        destination: query.filter.one(Qualifier::Dest).map(str::to_owned),
        states,
    };
    let (actor, before) = (
        &page_request.caller().actor,
        page_request.fields.get("before"),
    );
    let found = console.store().deliveries(actor, &filter, before, ROWS);
    let found = found.await?;
    let heads = &[
        "Event",
        "Destination",
        "State",
        "#Attempts",
        "Due or changed",
        "Last error",
        "About",
        "Tenant",
    ];
    let mut table = Table::new("Deliveries", heads);
    let is_selected = |it: &Delivery| it.state == kind.state.as_str();
    let has_boxes = page_request.acts() && found.items.iter().any(is_selected);
    for it in &found.items {
        let value = is_selected(it).then(|| format!("{} {}", it.partition, it.position));
        if has_boxes {
            let what = format!("{} at {}", it.kind, it.partition);
            table.boxed_row(value.as_deref(), &what, row(it, now));
        } else {
            table.row(row(it, now));
        }
    }
    let q = query.filter.to_string();
    let next = found.next.as_deref();
    let has_matches = !table.is_empty() || next.is_some();
    let list = kind.listing.paged(page_request, &q, table, next);
    let list = if has_boxes {
        cell(selection(kind, list))
    } else {
        list
    };
    Ok((list, has_matches))
}

/// The form with the actions on selected rows. The actions have a separate page that asks for a
/// reason, so it is opened like a link.
fn selection(kind: &Kind, list: Html) -> Element {
    let button = |(act, label): &(&'static str, &'static str)| {
        el("button")
            .attr("type", "submit")
            .attr("name", "act")
            .attr("value", act)
            .add(*label)
    };
    let count = el("span").class("soft").attr("id", "selected");
    let bar = el("p")
        .class("acts bulk")
        .all(kind.acts.iter().map(button))
        .add(count);
    el("form")
        .attr("method", "get")
        .attr("action", "/console/act")
        .attr("id", "selection")
        .add(bar)
        .add(list)
}

fn row(it: &Delivery, now: Timestamp) -> [Html; 8] {
    let of = it.aggregate_type.as_ref().zip(it.aggregate_id.as_ref());
    let about = of.map(|(kind, id)| format!("{kind}/{id}"));
    let waits = matches!(it.state.as_str(), "scheduled" | "retrying");
    let at = if waits { it.next_at } else { it.changed_at };
    let event = path_of("/console/events", &it.position.to_string());
    let destination = path_of("/console/destinations", &it.destination);
    [
        cell(open_name(&event, &it.kind)),
        cell(link(&destination, name(&it.partition))),
        cell(badge(&it.state)),
        cell(it.attempts),
        cell(time(at, now)),
        code(it.reason.as_deref().or(it.last_error.as_deref())),
        code(about.as_deref()),
        code(it.tenant.as_deref()),
    ]
}

/// The filter of deliveries. Bare words are searched in the error.
pub(crate) fn filter_of(query: &mut ListQuery, now: Timestamp) -> EventFilter {
    let mut filter = query.of_events(now);
    filter.error = query.one_or_words(Qualifier::Error);
    filter
}
