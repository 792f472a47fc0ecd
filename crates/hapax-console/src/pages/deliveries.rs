//! `/console/deliveries` and `/console/dead-letters`: deliveries that failed at the first attempt,
//! and dead letters.

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{Delivery, DeliveryFilter, DeliveryStatus, EventFilter},
};

use super::{
    ROWS, Shown,
    events::listed,
    query::{Known, ListQuery},
};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{Table, badge, cell, code, open, time},
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
};

static DELIVERIES: Known = Known {
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
};

pub(crate) static DEAD: Known = Known {
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
};

/// Lists deliveries.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &DELIVERIES);
    let states = query.states(&DeliveryStatus::STORED, |it| it.as_str());
    let body = rows(&console, &page_request, &mut query, states).await?;
    let note = el("p").class("soft").add(
        "Deliveries that waited, failed or were scheduled. First offers that arrived have no row: \
         the event itself tells of them.",
    );
    let page = Page::new("Deliveries", body.add(note));
    Ok(page.filtered(query.into_box()))
}

/// Lists dead letters.
pub(crate) async fn dead(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &DEAD);
    let body = rows(
        &console,
        &page_request,
        &mut query,
        vec![DeliveryStatus::Dead],
    )
    .await?;
    let acts = (page_request.acts() && query.is_right()).then(|| many(&query));
    let page = Page::new("Dead letters", Html::default().add(acts).add(body));
    Ok(page.filtered(query.into_box()))
}

/// The bulk operations for everything that matches the filter: for one destination, as a job.
fn many(query: &ListQuery) -> Element {
    let Some(dest) = query.filter.one(Qualifier::Dest) else {
        let said = "Add dest: to the filter to replay or discard all matches at once.";
        return el("p").class("soft").add(said);
    };
    let q = query.filter.to_string();
    let to = |act| url("/console/act", &[("act", act), ("dest", dest), ("q", &q)]);
    el("p")
        .class("acts")
        .add(link(&to("replay-dead"), "Replay all matches").class("button"))
        .add(link(&to("discard-dead"), "Discard all matches").class("button"))
}

async fn rows(
    console: &Console,
    page_request: &PageRequest,
    query: &mut ListQuery,
    states: Vec<DeliveryStatus>,
) -> Result<Html, super::Trouble> {
    let now = console.0.clock.now();
    let events = filter_of(query, now);
    if !query.is_right() {
        return Ok(Html::default());
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
        "#Tries",
        "Due",
        "Last error",
        "About",
        "Tenant",
    ];
    let (table, q) = (Table::new("Deliveries", heads), query.filter.to_string());
    let row = |it: &Delivery| row(it, now);
    Ok(listed(page_request, &q, "delivery", table, &found, row))
}

fn row(it: &Delivery, now: Timestamp) -> [Html; 8] {
    let about = match (&it.aggregate_type, &it.aggregate_id) {
        (Some(kind), Some(id)) => Some(format!("{kind}/{id}")),
        _ => None,
    };
    let waits = matches!(it.state.as_str(), "scheduled" | "retrying");
    let at = if waits { it.next_at } else { it.changed_at };
    let to = path_of("/console/destinations", &it.destination);
    [
        cell(open(
            &path_of("/console/events", &it.position.to_string()),
            &it.kind,
        )),
        cell(link(&to, &it.partition)),
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
