//! `/console/endpoints/{id}`: one endpoint, why its deliveries wait, its health and attempts.
//!
//! With the parameter `event`, the page shows the attempts at the delivery of that event, each with
//! its request and response, which are masked. Neither secrets nor the path of the URL are shown.

use std::time::Duration;

use axum::extract::{Path, State};
use hapax::{
    Timestamp,
    admin::{
        EndpointDelivery, EndpointDeliveryFilter, EndpointHealth, EndpointStatus, Page as List,
        TenantEndpoint, WaitingDelivery, endpoint_object,
    },
    event::EventId,
    limits::ENDPOINT_BACKLOG_COUNTED,
};

use super::{ErrorPage, ROWS, Shown, endpoint_attempts, endpoints, overview::term};
use crate::{
    Console,
    fields::{path_of, url},
    filter::Qualifier,
    format::{
        about, badge, cell, code, content, counted, facts, none, nothing, number, open, pager_of,
        span, time,
    },
    guard::PageRequest,
    html::{Element, Html, el, link},
    layout::Page,
};

/// How long a delivery may be due before the page suggests that no relay sends it.
const LATE: Duration = Duration::from_mins(1);

/// The data of the two pages of an endpoint.
struct EndpointView {
    endpoint: TenantEndpoint,
    /// The attempts of the last day, and what waits.
    health: EndpointHealth,
    /// The first deliveries that wait, in the order in which they are due.
    waiting: Vec<WaitingDelivery>,
    now: Timestamp,
}

/// Shows one endpoint.
pub(crate) async fn show(
    State(console): State<Console>,
    page_request: PageRequest,
    Path(id): Path<String>,
) -> Shown {
    let (store, actor) = (console.store(), &page_request.caller().actor);
    let now = console.0.clock.now();
    let event = page_request.fields.get("event").map(str::parse::<EventId>);
    let event = event
        .transpose()
        .map_err(|_| ErrorPage::wrong("The parameter event is not a UUID."))?;
    // The store refuses the endpoint of a tenant that the actor may not see.
    let tenant = store.endpoint_tenant(actor, &id).await?;
    let endpoint = store.endpoint(actor, &tenant, &id).await?.endpoint;
    let since = endpoints::a_day_before(now);
    let view = EndpointView {
        health: store.endpoint_health(actor, &tenant, &id, since).await?,
        waiting: store.endpoint_waiting(actor, &tenant, &id, ROWS).await?,
        endpoint,
        now,
    };
    let failed = page_request.fields.get("failed").is_some();
    let filter = EndpointDeliveryFilter {
        failed: failed.then_some(true),
        event_id: event,
        since: None,
    };
    let before = page_request.fields.get("before");
    let attempts = store.endpoint_deliveries(actor, &tenant, &id, &filter, before, ROWS);
    let mut attempts = attempts.await?;
    for attempt in &mut attempts.items {
        console.queries().mask_exchange(attempt);
    }
    let body = match event {
        Some(event) => event_page(&page_request, &view, event, &attempts.items),
        None => endpoint_page(&console, &page_request, &view, &attempts, failed),
    };
    Ok(Page::new(format!("Endpoint {id}"), body))
}

/// The page about the endpoint. `failed` says that only failed attempts are listed.
fn endpoint_page(
    console: &Console,
    page_request: &PageRequest,
    view: &EndpointView,
    attempts: &List<EndpointDelivery>,
    failed: bool,
) -> Html {
    let page = own_path(view);
    let waits = (!view.waiting.is_empty()).then(|| {
        let listed = view.waiting.len() as u64;
        let is_part = view.health.waiting > listed;
        let first = number(listed);
        let said = format!("The first {first}, in the order in which they are due.");
        Html::default()
            .add(el("h2").add("Deliveries that wait"))
            .add(endpoint_attempts::waiting(&page, &view.waiting, view.now))
            .add(is_part.then(|| el("p").class("soft").add(said)))
    });
    let tried = endpoint_attempts::table(&page, &attempts.items, view.now);
    let tried = if tried.is_empty() {
        let said = if failed {
            "No failed attempt is in the log."
        } else {
            "No attempt is in the log. With record = \"failures\", a first attempt that succeeds is \
             not logged."
        };
        cell(nothing(said))
    } else {
        cell(tried)
    };
    let (other, name) = if failed {
        (page.clone(), "All attempts")
    } else {
        (url(&page, &[("failed", "1")]), "Only failed attempts")
    };
    let fields = [("failed", if failed { "1" } else { "" })];
    let before = page_request.fields.text("before");
    let next = attempts.next.as_deref();
    let pager = pager_of(&page, &fields, before, next, ["The newest", "Older"]);
    let why = explanation(&Condition::of(view));
    Html::default()
        .add(el("p").class("because").add(why))
        .add(page_request.acts().then(|| actions(console, view)))
        .add(health(view))
        .add(links(view))
        .add(waits)
        .add(el("h2").add("Attempts"))
        .add(el("p").add(link(&other, name)))
        .add(tried)
        .add(pager)
        .add(el("h2").add("Settings"))
        .add(settings(console, view))
}

/// The page about the delivery of one event.
fn event_page(
    page_request: &PageRequest,
    view: &EndpointView,
    event: EventId,
    attempts: &[EndpointDelivery],
) -> Html {
    let id = event.to_string();
    let state = attempts.first().map(|it| badge(&it.state));
    let next = attempts.first().and_then(|it| it.next_at);
    let head = el("p")
        .add("Event ")
        .add(el("code").class("break").add(&id))
        .add(" ")
        .add(state)
        .add(next.map(|at| cell(". Next attempt ").add(time(at, view.now))));
    let again = page_request.acts().then(|| {
        let fields = [
            ("act", "replay-endpoint-event"),
            ("tenant", view.endpoint.tenant.as_str()),
            ("endpoint", &view.endpoint.id),
            ("event", &id),
        ];
        let again = link(&url("/console/act", &fields), "Send it again").class("button");
        el("p").class("acts").add(again)
    });
    let none = attempts.is_empty().then(|| {
        let said = "No attempt at this event is in the log of this endpoint. With record = \
                    \"failures\", a first attempt that succeeds is not logged.";
        nothing(said)
    });
    let attempts = attempts
        .iter()
        .map(|it| endpoint_attempts::exchange(it, view.now));
    let links = el("p")
        .add(endpoint_attempts::event_link(&id))
        .add(", ")
        .add(link(&own_path(view), "the endpoint"));
    Html::default()
        .add(head)
        .add(again)
        .add(none)
        .add(Html::all(attempts))
        .add(links)
}

/// The path of the endpoint's page.
fn own_path(view: &EndpointView) -> String {
    path_of("/console/endpoints", &view.endpoint.id)
}

/// The facts that decide whether deliveries to the endpoint make progress.
struct Condition<'a> {
    /// The reason why it is disabled, and since when.
    disabled: Option<(&'a str, Option<Timestamp>)>,
    /// When a relay probes it, if it is disabled.
    probe_at: Option<Timestamp>,
    /// Why it is slowed.
    slowed: Option<&'a str>,
    /// The number of attempts that have failed since the last success.
    failures: u32,
    failing_since: Option<Timestamp>,
    /// The number of deliveries that wait, counted up to [`ENDPOINT_BACKLOG_COUNTED`].
    waiting: u64,
    /// The number of deliveries that have failed after their last attempt, counted up to the same
    /// bound.
    failed: u64,
    /// When the next attempt may begin: the delivery that is due first is due, and the pause of a
    /// slowed endpoint is over. `None` if nothing waits.
    first_at: Option<Timestamp>,
    now: Timestamp,
}

impl<'a> Condition<'a> {
    fn of(view: &'a EndpointView) -> Self {
        let endpoint = &view.endpoint;
        let reason = endpoint.disabled_reason.as_deref();
        Self {
            disabled: reason.map(|reason| (reason, endpoint.disabled_at)),
            probe_at: endpoint.next_probe_at,
            slowed: endpoint.slowed_reason.as_deref(),
            failures: endpoint.failures,
            failing_since: endpoint.failing_since,
            waiting: view.health.waiting,
            failed: view.health.failed,
            first_at: view.waiting.first().map(|delivery| {
                let paused = endpoint.slowed_until;
                paused.map_or(delivery.next_at, |until| until.max(delivery.next_at))
            }),
            now: view.now,
        }
    }
}

/// Why deliveries to the endpoint wait, or that none does, in one sentence.
///
/// The most specific reason is given: disabled, nothing waits, slowed, failing, late.
fn explanation(condition: &Condition<'_>) -> String {
    let now = condition.now;
    let waits = bounded(condition.waiting, "delivery waits", "deliveries wait");
    if let Some((reason, at)) = condition.disabled {
        let ago = at.map(|at| format!(" {} ago", about(now.since(at))));
        let ago = ago.unwrap_or_default();
        return format!(
            "It was disabled{ago}: {reason}; {waits} for it, and events that the relay reads \
             meanwhile are not queued. {}",
            probe(condition.probe_at, now)
        );
    }
    let Some(first_at) = condition.first_at else {
        return match condition.failed {
            0 => "Nothing waits for it.".to_owned(),
            failed => format!(
                "Nothing waits for it, and {} after the last attempt: send them again if they are \
                 still needed.",
                bounded(failed, "delivery failed", "deliveries failed")
            ),
        };
    };
    let due = now.since(first_at);
    let next = if first_at > now {
        format!("the next attempt is in {}", span(first_at.since(now)))
    } else {
        format!("the first one has been due for {}", span(due))
    };
    if let Some(reason) = condition.slowed {
        return format!("{waits}, because it is slowed: {reason}; {next}.");
    }
    if condition.failures > 0 {
        let failures = counted(condition.failures.into(), "attempt has", "attempts have");
        let since = condition.failing_since.map(|at| about(now.since(at)));
        let since = since.map(|time| format!(" for {time}")).unwrap_or_default();
        return format!(
            "{waits}, because the last {failures} failed{since}; the relay sends one delivery at a \
             time, and {next}."
        );
    }
    if due >= LATE {
        return format!(
            "{waits}, and {next} although its last attempt succeeded: check that a relay with the \
             sink endpoints runs and keeps up."
        );
    }
    format!("{waits}, and {next}.")
}

/// A number of deliveries with its noun.
fn bounded(count: u64, one: &str, many: &str) -> String {
    format!("{}{}", at_least(count), counted(count, one, many))
}

/// The sign before a number of deliveries. The store counts up to a bound, so there may be more.
fn at_least(count: u64) -> &'static str {
    if count >= ENDPOINT_BACKLOG_COUNTED as u64 {
        "≥ "
    } else {
        ""
    }
}

/// What a relay does about a disabled endpoint.
fn probe(at: Option<Timestamp>, now: Timestamp) -> String {
    match at {
        None => "No relay probes it: an operator or its tenant has to enable it.".to_owned(),
        Some(at) if at <= now => {
            "A probe is due: if it succeeds, the endpoint is enabled.".to_owned()
        }
        Some(at) => format!(
            "A relay probes it in {}, and enables it if it accepts the event.",
            span(at.since(now))
        ),
    }
}

/// The links to what an operator can do with the endpoint.
fn actions(console: &Console, view: &EndpointView) -> Element {
    let endpoint = &view.endpoint;
    let button = |act: &str, name: &str| {
        let fields = [
            ("act", act),
            ("tenant", endpoint.tenant.as_str()),
            ("endpoint", &endpoint.id),
        ];
        link(&url("/console/act", &fields), name).class("button")
    };
    let tests = console.0.endpoints.is_some();
    let trial = format!("{}/try", own_path(view));
    let trial = link(&trial, "Try filter and mapping").class("button");
    let switch = if endpoint.enabled {
        button("disable-endpoint", "Disable")
    } else {
        button("enable-endpoint", "Enable")
    };
    el("p")
        .class("acts")
        .add(tests.then(|| button("test-endpoint", "Send a test event")))
        .add((view.health.failed > 0).then(|| button("replay-endpoint", "Send failed again")))
        .add(button("replay-missing", "Send missing events"))
        .add(trial)
        .add(switch)
}

/// The state, with the reason and the next step of a relay.
fn state(endpoint: &TenantEndpoint, now: Timestamp) -> Html {
    let state = cell(badge(endpoint.state.as_str()));
    match (
        endpoint.state,
        endpoint.slowed_until,
        endpoint.next_probe_at,
    ) {
        (EndpointStatus::Slowed, Some(until), _) => state.add(" until ").add(time(until, now)),
        (EndpointStatus::Disabled, _, Some(at)) => {
            let probes = counted(endpoint.probes.into(), "probe has", "probes have");
            let probes = (endpoint.probes > 0).then(|| format!(", {probes} failed"));
            state.add(" probed ").add(time(at, now)).add(probes)
        }
        _ => state,
    }
}

/// The health as names and values.
fn health(view: &EndpointView) -> Element {
    let (endpoint, health, now) = (&view.endpoint, &view.health, view.now);
    let count = |count: u64| cell(at_least(count)).add(number(count));
    let waiting = count(health.waiting);
    let waiting = match health.waiting_since {
        Some(at) => waiting.add(", the oldest was queued ").add(time(at, now)),
        None => waiting,
    };
    let attempts = counted(health.attempts, "attempt", "attempts");
    let success = endpoints::success(health).add(format!(" of {attempts} in the last day"));
    let is_tried = health.attempts > 0;
    facts([
        ("State", state(endpoint, now)),
        ("Success", if is_tried { success } else { none() }),
        ("p95", endpoints::p95(health)),
        ("Waiting", waiting),
        ("Failed", count(health.failed)),
    ])
}

/// The links to pages that are filtered for this endpoint or its tenant.
fn links(view: &EndpointView) -> Element {
    let (tenant, object) = (&view.endpoint.tenant, endpoint_object(&view.endpoint.id));
    let of_tenant = term(Qualifier::Tenant, tenant);
    let item =
        |path: &str, q: &str, name: &'static str| el("li").add(open(&url(path, &[("q", q)]), name));
    el("ul")
        .class("links")
        .add(item("/console/events", &of_tenant, "Events of its tenant"))
        .add(item(
            "/console/endpoints",
            &of_tenant,
            "Endpoints of its tenant",
        ))
        .add(item(
            "/console/advanced",
            &term(Qualifier::Object, &object),
            "What operators did with it",
        ))
}

/// The settings, without secrets.
fn settings(console: &Console, view: &EndpointView) -> Html {
    let (endpoint, now) = (&view.endpoint, view.now);
    let by = |actor: &str, at| cell(format!("by {actor} ")).add(time(at, now));
    let host = cell(code(Some(endpoints::host(&endpoint.url))))
        .add(" The path is not shown: hapax endpoints show prints it.");
    // The store keeps the time after it has passed, and the secrets do not sign any more.
    let secrets_until = endpoint.previous_secret_until.filter(|until| *until > now);
    let known = facts([
        ("Tenant", code(Some(&endpoint.tenant))),
        ("Host", host),
        ("Description", cell(&endpoint.description)),
        ("Types", code(Some(&endpoint.types.join(", ")))),
        ("Headers", cell(endpoint.headers.join(", "))),
        ("Payload", cell(endpoint.payload.as_str())),
        (
            "Previous secrets sign until",
            cell(secrets_until.map(|until| time(until, now))),
        ),
        ("Created", by(&endpoint.created_by, endpoint.created_at)),
        ("Changed", by(&endpoint.changed_by, endpoint.changed_at)),
        ("Version", cell(endpoint.version)),
    ]);
    let json = |title: &'static str, text: &String| {
        let queries = console.queries();
        let shown = queries.shown(Some("application/json"), text.as_bytes());
        cell(el("h3").add(title)).add(content(title, &shown))
    };
    let filter = endpoint.filter.as_ref().map(|text| json("Filter", text));
    let mapping = endpoint.mapping.as_ref().map(|text| json("Mapping", text));
    cell(known).add(filter).add(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An enabled endpoint with this number of failures, and deliveries that are due in some seconds.
    fn condition(failures: u32, due: &[i64], failed: u64) -> Condition<'static> {
        let now = Timestamp::from_millis(1_000_000_000);
        let at = |seconds: &i64| Timestamp::from_millis(now.as_millis() + seconds * 1_000);
        Condition {
            disabled: None,
            probe_at: None,
            slowed: None,
            failures,
            failing_since: (failures > 0).then(|| endpoints::a_day_before(now)),
            waiting: due.len() as u64,
            failed,
            first_at: due.first().map(at),
            now,
        }
    }

    #[test]
    fn a_sentence_says_why_deliveries_to_an_endpoint_wait() {
        assert_eq!(explanation(&condition(0, &[], 0)), "Nothing waits for it.");
        assert_eq!(
            explanation(&condition(0, &[], 2)),
            "Nothing waits for it, and 2 deliveries failed after the last attempt: send them again \
             if they are still needed."
        );
        assert_eq!(
            explanation(&condition(0, &[5], 0)),
            "1 delivery waits, and the next attempt is in 5.0 s."
        );
        assert_eq!(
            explanation(&condition(7, &[30, 60], 0)),
            "2 deliveries wait, because the last 7 attempts have failed for 24 h; the relay sends \
             one delivery at a time, and the next attempt is in 30 s."
        );
        let late = explanation(&condition(0, &[-90], 0));
        assert!(late.contains("due for 1 min 30 s"), "{late}");
        assert!(late.contains("check that a relay"), "{late}");
        let disabled = Condition {
            disabled: Some(("410", None)),
            ..condition(0, &[5], 0)
        };
        let said = explanation(&disabled);
        let expected = "It was disabled: 410; 1 delivery waits";
        assert!(said.starts_with(expected), "{said}");
        assert!(said.contains("has to enable it"), "{said}");
        let now = disabled.now;
        let probed = |seconds: i64| {
            let probe_at = Some(Timestamp::from_millis(now.as_millis() + seconds * 1_000));
            explanation(&Condition {
                disabled: Some(("410", None)),
                probe_at,
                ..condition(0, &[5], 0)
            })
        };
        assert!(
            probed(300).contains("probes it in 5 min"),
            "{}",
            probed(300)
        );
        assert!(probed(-1).contains("A probe is due"), "{}", probed(-1));
        let slowed = Condition {
            slowed: Some("5 attempts in a row have failed: status 503"),
            ..condition(5, &[8], 0)
        };
        assert_eq!(
            explanation(&slowed),
            "1 delivery waits, because it is slowed: 5 attempts in a row have failed: status 503; the \
             next attempt is in 8.0 s."
        );
    }

    #[test]
    fn a_number_that_is_not_counted_to_its_end_is_marked() {
        let many = Condition {
            waiting: ENDPOINT_BACKLOG_COUNTED as u64,
            ..condition(0, &[5], 0)
        };
        let said = explanation(&many);
        assert!(
            said.starts_with("≥ 100\u{202f}000 deliveries wait, and"),
            "{said}"
        );
    }
}
