//! `/console/polling`: polling endpoints, how far they are, and the seek of one.

use axum::extract::{Path, State};
use hapax::{
    Timestamp,
    admin::{PollingEndpoint, PollingLag, polling_object},
};

use super::{ROWS, Shown, list::Listing, overview::term};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{cell, code, count, facts, none, number, open, open_name, span, time},
    guard::PageRequest,
    html::{Html, el, link},
    layout::Page,
    table::Table,
};

static POLLING: Listing = Listing {
    one: "polling endpoint",
    empty: "There are no polling endpoints. One appears here when it is created with hapax poll \
            create or with the admin API.",
};

const HEADS: &[&str] = &[
    "Polling endpoint",
    "Tenant",
    "#Position",
    "#Not committed",
    "#Oldest",
    "Committed",
    "Polled",
];

/// Lists polling endpoints.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let (store, actor) = (console.store(), &page_request.caller().actor);
    let now = console.0.clock.now();
    let after = page_request.fields.get("before");
    let page = store.polling_endpoints(actor, after, ROWS).await?;
    let mut table = Table::new("Polling endpoints", HEADS);
    for it in &page.items {
        let lag = store.polling_lag(actor, &it.name).await?;
        table.row(row(it, lag, now));
    }
    let body = POLLING.named(&page_request, "", table, page.next.as_deref());
    Ok(Page::new("Polling endpoints", body))
}

fn row(it: &PollingEndpoint, lag: PollingLag, now: Timestamp) -> [Html; 7] {
    let to = path_of("/console/polling", &it.name);
    [
        cell(open_name(&to, &it.name)),
        tenant(it),
        cell(it.position),
        cell(count(lag.events)),
        oldest(lag, now),
        moment(it.committed_at, now),
        moment(it.last_polled_at, now),
    ]
}

/// Shows one polling endpoint.
pub(crate) async fn show(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(name): Path<String>,
) -> Shown {
    let (store, actor) = (console.store(), &page_request.caller().actor);
    let now = console.0.clock.now();
    let it = store.polling_endpoint(actor, &name).await?;
    let lag = store.polling_lag(actor, &name).await?;
    let acts = page_request.acts().then(|| {
        let to = url("/console/act", &[("act", "seek"), ("polling", &name)]);
        let seek = link(&to, "Move the position").class("button");
        el("p").class("acts").add(seek)
    });
    let known = facts([
        ("Tenant", tenant(&it)),
        ("Types", code(Some(&it.types.join(", ")))),
        ("Committed position", cell(it.position)),
        ("Committed", moment(it.committed_at, now)),
        ("Not committed", cell(count(lag.events))),
        ("Oldest of them", oldest(lag, now)),
        ("Polled", moment(it.last_polled_at, now)),
        (
            "Previous tokens until",
            it.old_token_until
                .map_or_else(Html::default, |at| cell(time(at, now))),
        ),
        (
            "Created",
            cell(format!("by {} ", it.created_by)).add(time(it.created_at, now)),
        ),
    ]);
    let object = term(Qualifier::Object, &polling_object(&name));
    let audit = url("/console/advanced", &[("q", &object)]);
    let events = it.tenant.as_ref().map(|tenant| {
        let q = term(Qualifier::Tenant, tenant);
        el("li").add(open(
            &url("/console/events", &[("q", &q)]),
            "Events of its tenant",
        ))
    });
    let links = el("ul")
        .class("links")
        .add(events)
        .add(el("li").add(open(&audit, "What operators did with it")));
    let body = Html::default()
        .add(el("p").class("because").add(why(&it, lag, now)))
        .add(acts)
        .add(known)
        .add(links);
    Ok(Page::new(format!("Polling endpoint {name}"), body))
}

/// How far the consumer is, in one sentence.
fn why(it: &PollingEndpoint, lag: PollingLag, now: Timestamp) -> String {
    let Some(polled) = it.last_polled_at else {
        return "It was never polled.".to_owned();
    };
    let ago = span(now.since(polled));
    match (lag.events.number, lag.oldest_at) {
        (0, _) => format!("Its consumer has committed every event, and polled {ago} ago."),
        (events, oldest) => {
            let oldest = oldest.map_or_else(String::new, |at| {
                format!(", the oldest of which is {} old", span(now.since(at)))
            });
            let events = if events == 1 {
                "1 event".to_owned()
            } else {
                format!("{} events", number(events))
            };
            format!("Its consumer polled {ago} ago and has not committed {events}{oldest}.")
        }
    }
}

fn tenant(it: &PollingEndpoint) -> Html {
    it.tenant
        .as_ref()
        .map_or_else(|| cell("all tenants"), |tenant| code(Some(tenant)))
}

fn oldest(lag: PollingLag, now: Timestamp) -> Html {
    lag.oldest_at
        .map_or_else(none, |at| cell(span(now.since(at))))
}

fn moment(at: Option<Timestamp>, now: Timestamp) -> Html {
    at.map_or_else(|| cell("never"), |at| cell(time(at, now)))
}

#[cfg(test)]
mod tests {
    use hapax::admin::{Count, CountKind};

    use super::*;

    #[test]
    fn a_sentence_says_how_far_a_consumer_is() {
        let now = Timestamp::from_millis(100_000);
        let it = |polled: Option<i64>| PollingEndpoint {
            name: "acme".to_owned(),
            tenant: Some("acme".to_owned()),
            all_tenants: false,
            types: Vec::new(),
            created_at: now,
            created_by: "ops".to_owned(),
            position: 7,
            committed_at: None,
            last_polled_at: polled.map(Timestamp::from_millis),
            old_token_until: None,
        };
        let none = PollingLag::default();
        let some = PollingLag {
            events: Count {
                number: 3,
                kind: CountKind::Exact,
            },
            oldest_at: Some(Timestamp::from_millis(40_000)),
        };
        assert_eq!(why(&it(None), some, now), "It was never polled.");
        assert_eq!(
            why(&it(Some(80_000)), none, now),
            "Its consumer has committed every event, and polled 20 s ago."
        );
        assert_eq!(
            why(&it(Some(80_000)), some, now),
            "Its consumer polled 20 s ago and has not committed 3 events, the oldest of which is \
             1 min old."
        );
    }
}
