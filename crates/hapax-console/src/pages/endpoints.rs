//! `/console/endpoints`: the endpoints of tenants, with their states and health.

use std::time::Duration;

use axum::extract::State;
use hapax::{
    Timestamp,
    admin::{
        AdminError, Count, CountKind, EndpointFilter, EndpointHealth, EndpointStatus,
        ListedEndpoint, Page as List,
    },
    key::Tenant,
    limits::ENDPOINT_STATUS_COUNTED,
};

use super::{
    ROWS, Shown,
    list::Listing,
    query::{ListQuery, PageQualifiers},
};
use crate::{
    Console,
    fields::path_of,
    filter::Qualifier,
    format::{badge, cell, code, count, name, none, open_name, span, time},
    guard::PageRequest,
    html::Html,
    layout::Page,
    table::Table,
};

/// How far back the health of an endpoint looks.
pub(crate) const WINDOW: Duration = Duration::from_hours(24);

static KNOWN: PageQualifiers = PageQualifiers {
    qualifiers: &[Qualifier::Tenant, Qualifier::State],
    words: Some("a part of an id or of a description"),
    state: "disabled",
};

static ENDPOINTS: Listing = Listing {
    one: "endpoint",
    empty: "There are no endpoints. An endpoint appears here when one is created for a tenant, with \
            the CLI or with the admin API.",
};

/// Lists endpoints.
pub(crate) async fn list(State(console): State<Console>, page_request: PageRequest) -> Shown {
    let mut query = ListQuery::of(&page_request, &KNOWN);
    let state = query.state(&EndpointStatus::ALL, |it| it.as_str());
    let tenant = query.tenant();
    let mut body = Html::default();
    if query.is_right() {
        let words = query.filter.words.join(" ");
        let filter = EndpointFilter {
            tenant: tenant.as_ref().map(Tenant::as_str).map(str::to_owned),
            state,
            text: (!words.is_empty()).then_some(words),
        };
        let (actor, after) = (
            &page_request.caller().actor,
            page_request.fields.get("before"),
        );
        let now = console.0.clock.now();
        let since = a_day_before(now);
        let found = console
            .store()
            .endpoint_statuses(actor, &filter, since, after, ROWS);
        let page = match found.await {
            // The endpoints of another tenant.
            Err(AdminError::NotFound { .. }) => List::last(Vec::new()),
            found => found?,
        };
        let mut table = Table::new("Endpoints, with the attempts of the last day", HEADS);
        for it in &page.items {
            table.row(row(it, now));
        }
        body = ENDPOINTS.named(&page_request, &query.text, table, page.next.as_deref());
    }
    Ok(Page::new("Endpoints", body).filtered(query.into_box()))
}

const HEADS: &[&str] = &[
    "Endpoint", "Tenant", "State", "Host", "#Success", "#p95", "#Waiting", "#Failed", "Reason",
];

fn row(it: &ListedEndpoint, now: Timestamp) -> [Html; 9] {
    let to = path_of("/console/endpoints", &it.id);
    let counted = |number| {
        let is_exact = number < ENDPOINT_STATUS_COUNTED as u64;
        let kind = if is_exact {
            CountKind::Exact
        } else {
            CountKind::AtLeast
        };
        cell(count(Count { number, kind }))
    };
    let health = &it.health;
    [
        cell(open_name(&to, &it.id)),
        code(Some(&it.tenant)),
        cell(badge(it.state().as_str())),
        code(Some(host(&it.url))),
        success(health),
        p95(health),
        counted(health.waiting),
        counted(health.failed),
        reason(it, now),
    ]
}

/// Why the endpoint is disabled or slowed, and when it is probed.
fn reason(it: &ListedEndpoint, now: Timestamp) -> Html {
    let why = it
        .disabled_reason
        .as_deref()
        .or(it.slowed_reason.as_deref());
    let probed = it
        .next_probe_at
        .map(|at| cell(", probed ").add(time(at, now)));
    why.map_or_else(none, |why| cell(name(why)).add(probed))
}

/// The part of the attempts that succeeded. It is rounded down, so that 100 % means all of them.
pub(crate) fn success(health: &EndpointHealth) -> Html {
    let tenths = (health.delivered * 1_000).checked_div(health.attempts);
    let said = |tenths: u64| match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} %"),
        (whole, tenth) => format!("{whole}.{tenth} %"),
    };
    tenths.map_or_else(none, |tenths| cell(said(tenths)))
}

/// The duration within which 95 % of the attempts ended.
pub(crate) fn p95(health: &EndpointHealth) -> Html {
    let p95 = health.p95_ms.map(Duration::from_millis);
    p95.map_or_else(none, |p95| cell(span(p95)))
}

/// The host of a URL. Paths and queries of webhooks contain secrets.
pub(crate) fn host(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.rsplit('@').next().unwrap_or_default()
}

/// The time a day before another one.
pub(crate) fn a_day_before(now: Timestamp) -> Timestamp {
    before(now, WINDOW)
}

/// The time that is this long before another one.
pub(crate) fn before(now: Timestamp, age: Duration) -> Timestamp {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(age))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_rate_is_rounded_down() {
        let said = |delivered, attempts| {
            let health = EndpointHealth {
                attempts,
                delivered,
                ..EndpointHealth::default()
            };
            success(&health).into_string()
        };
        assert_eq!(said(200, 200), "100 %");
        assert_eq!(said(1_999, 2_000), "99.9 %");
        assert_eq!(said(3, 4), "75 %");
        assert!(said(0, 0).contains('–'));
    }

    #[test]
    fn of_a_url_only_the_host_is_shown() {
        for (url, shown) in [
            ("https://a.example/hooks/secret", "a.example"),
            ("https://a.example:8443?key=secret", "a.example:8443"),
            ("https://user:secret@a.example/", "a.example"),
            ("https://a.example#secret", "a.example"),
        ] {
            assert_eq!(host(url), shown);
        }
    }
}
