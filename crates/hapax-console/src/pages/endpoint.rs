//! `/console/endpoints/{id}`: one endpoint, why it does not move, its health and attempts.
//!
//! With `event`, the page shows the attempts at the delivery of that event, each with its request and
//! response. Neither secrets nor the path of the URL are shown.

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

use super::{ROWS, Shown, ErrorPage, endpoint_attempts, endpoints, overview::term};
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

/// How long a delivery may be due before the page says that no relay sends it.
const LATE_SECS: u64 = 60;

/// The contents of the page of an endpoint.
struct EndpointView {
    endpoint: TenantEndpoint,
    health: EndpointHealth,
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
    let tenant = store.endpoint_tenant(actor, &id).await?;
    let endpoint = store.endpoint(actor, &tenant, &id).await?.endpoint;
    let since = endpoints::a_day_before(now);
    let look = EndpointView {
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
        Some(event) => of_event(&page_request, &look, event, &attempts.items),
        None => whole(&console, &page_request, &look, &attempts, failed),
    };
    Ok(Page::new(format!("Endpoint {id}"), body))
}

/// The page about the endpoint.
fn whole(
    console: &Console,
    page_request: &PageRequest,
    look: &EndpointView,
    attempts: &List<EndpointDelivery>,
    failed: bool,
) -> Html {
    let page = page_of(look);
    let waits = (!look.waiting.is_empty()).then(|| {
        let first = number(look.waiting.len() as u64);
        let said = format!("The first {first}, in the order in which they are due.");
        let is_part = look.health.waiting > look.waiting.len() as u64;
        Html::default()
            .add(el("h2").add("Deliveries that wait"))
            .add(endpoint_attempts::waiting(&page, &look.waiting, look.now))
            .add(is_part.then(|| el("p").class("soft").add(said)))
    });
    let tried = endpoint_attempts::table(&page, &attempts.items, look.now);
    let tried = if tried.is_empty() {
        let said = "No attempt is in the log. With record = \"failures\", a first attempt that \
                    succeeds is not logged.";
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
    Html::default()
        .add(el("p").class("because").add(why(&EndpointState::of(look))))
        .add(page_request.acts().then(|| acts(console, look)))
        .add(health(look))
        .add(links(look))
        .add(waits)
        .add(el("h2").add("Attempts"))
        .add(el("p").add(link(&other, name)))
        .add(tried)
        .add(pager)
        .add(el("h2").add("Settings"))
        .add(settings(console, look))
}

/// The page about the delivery of one event.
fn of_event(
    page_request: &PageRequest,
    look: &EndpointView,
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
        .add(next.map(|at| cell(". Next attempt ").add(time(at, look.now))));
    let again = page_request.acts().then(|| {
        let fields = [
            ("act", "replay-endpoint-event"),
            ("tenant", look.endpoint.tenant.as_str()),
            ("endpoint", &look.endpoint.id),
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
        .map(|it| endpoint_attempts::exchange(it, look.now));
    let links = el("p")
        .add(endpoint_attempts::event_link(&id))
        .add(", ")
        .add(link(&page_of(look), "the endpoint"));
    Html::default()
        .add(head)
        .add(again)
        .add(none)
        .add(Html::all(attempts))
        .add(links)
}

fn page_of(look: &EndpointView) -> String {
    path_of("/console/endpoints", &look.endpoint.id)
}

/// The state of the endpoint, and the reasons for it.
struct EndpointState<'a> {
    disabled: Option<(&'a str, Option<Timestamp>)>,
    /// When a relay probes it, if it is disabled.
    probe_at: Option<Timestamp>,
    /// Why it is slowed.
    slowed: Option<&'a str>,
    failures: u32,
    failing_since: Option<Timestamp>,
    waiting: u64,
    failed: u64,
    /// When the next attempt may begin: the delivery that is due first is due, and no pause lasts.
    first_at: Option<Timestamp>,
    now: Timestamp,
}

impl<'a> EndpointState<'a> {
    fn of(look: &'a EndpointView) -> Self {
        let endpoint = &look.endpoint;
        let reason = endpoint.disabled_reason.as_deref();
        Self {
            disabled: reason.map(|reason| (reason, endpoint.disabled_at)),
            probe_at: endpoint.next_probe_at,
            slowed: endpoint.slowed_reason.as_deref(),
            failures: endpoint.failures,
            failing_since: endpoint.failing_since,
            waiting: look.health.waiting,
            failed: look.health.failed,
            first_at: look.waiting.first().map(|it| {
                let paused = endpoint.slowed_until;
                paused.map_or(it.next_at, |until| until.max(it.next_at))
            }),
            now: look.now,
        }
    }
}

/// Why the endpoint does not move, or that nothing is wrong with it, in one sentence.
fn why(it: &EndpointState<'_>) -> String {
    let now = it.now;
    let waits = counted(it.waiting, "delivery waits", "deliveries wait");
    if let Some((reason, at)) = it.disabled {
        let ago = at.map(|at| format!(" {} ago", about(now.since(at))));
        let ago = ago.unwrap_or_default();
        return format!(
            "It was disabled{ago}: {reason}; {waits} for it, and events that the relay reads \
             meanwhile are not queued. {}",
            probe(it.probe_at, now)
        );
    }
    let Some(first_at) = it.first_at else {
        return match it.failed {
            0 => "Nothing waits for it.".to_owned(),
            failed => format!(
                "Nothing waits for it, and {} after the last attempt: send them again if they are \
                 still needed.",
                counted(failed, "delivery failed", "deliveries failed")
            ),
        };
    };
    let due = now.since(first_at);
    let next = if first_at > now {
        format!("the next attempt is in {}", span(first_at.since(now)))
    } else {
        format!("the first one has been due for {}", span(due))
    };
    if let Some(reason) = it.slowed {
        return format!("{waits}, because it is slowed: {reason}; {next}.");
    }
    if it.failures > 0 {
        let failures = counted(it.failures.into(), "attempt has", "attempts have");
        let since = it.failing_since.map(|at| about(now.since(at)));
        let since = since.map(|it| format!(" for {it}")).unwrap_or_default();
        return format!(
            "{waits}, because the last {failures} failed{since}; the relay sends one delivery at a \
             time, and {next}."
        );
    }
    if due.as_secs() >= LATE_SECS {
        return format!(
            "{waits}, and {next} although its last attempt succeeded: check that a relay with the \
             sink endpoints runs and keeps up."
        );
    }
    format!("{waits}, and {next}.")
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

fn acts(console: &Console, look: &EndpointView) -> Element {
    let endpoint = &look.endpoint;
    let button = |act: &str, name: &str| {
        let fields = [
            ("act", act),
            ("tenant", endpoint.tenant.as_str()),
            ("endpoint", &endpoint.id),
        ];
        link(&url("/console/act", &fields), name).class("button")
    };
    let tests = console.0.endpoints.is_some();
    let trial = format!("{}/try", page_of(look));
    let trial = link(&trial, "Try filter and mapping").class("button");
    let switch = if endpoint.enabled {
        button("disable-endpoint", "Disable")
    } else {
        button("enable-endpoint", "Enable")
    };
    el("p")
        .class("acts")
        .add(tests.then(|| button("test-endpoint", "Send a test event")))
        .add((look.health.failed > 0).then(|| button("replay-endpoint", "Send failed again")))
        .add(button("replay-missing", "Send what it never got"))
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

fn health(look: &EndpointView) -> Element {
    let (endpoint, it, now) = (&look.endpoint, &look.health, look.now);
    let bounded = |count: u64| {
        let is_bound = count >= ENDPOINT_BACKLOG_COUNTED as u64;
        cell(if is_bound { "≥ " } else { "" }).add(number(count))
    };
    let waiting = bounded(it.waiting);
    let waiting = match it.waiting_since {
        Some(at) => waiting.add(", the oldest was queued ").add(time(at, now)),
        None => waiting,
    };
    let attempts = counted(it.attempts, "attempt", "attempts");
    let success = endpoints::success(it).add(format!(" of {attempts} in the last day"));
    facts([
        ("State", state(endpoint, now)),
        ("Success", if it.attempts > 0 { success } else { none() }),
        ("p95", endpoints::p95(it)),
        ("Waiting", waiting),
        ("Failed", bounded(it.failed)),
    ])
}

fn links(look: &EndpointView) -> Element {
    let (tenant, object) = (&look.endpoint.tenant, endpoint_object(&look.endpoint.id));
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
fn settings(console: &Console, look: &EndpointView) -> Html {
    let (it, now) = (&look.endpoint, look.now);
    let by = |by: &str, at| cell(format!("by {by} ")).add(time(at, now));
    let text = |text: &str| {
        if text.is_empty() {
            Html::default()
        } else {
            cell(text)
        }
    };
    let host = cell(code(Some(endpoints::host(&it.url))))
        .add(" The path is not shown: hapax endpoints show prints it.");
    let headers = it.headers.join(", ");
    let known = facts([
        ("Tenant", code(Some(&it.tenant))),
        ("Host", host),
        ("Description", text(&it.description)),
        ("Types", code(Some(&it.types.join(", ")))),
        ("Headers", text(&headers)),
        ("Payload", cell(it.payload.as_str())),
        (
            "Previous secrets sign until",
            it.previous_secret_until
                .map_or_else(Html::default, |at| cell(time(at, now))),
        ),
        ("Created", by(&it.created_by, it.created_at)),
        ("Changed", by(&it.changed_by, it.changed_at)),
        ("Version", cell(it.version)),
    ]);
    let json = |name: &'static str, text: &String| {
        let queries = console.queries();
        let shown = queries.shown(Some("application/json"), text.as_bytes());
        cell(el("h3").add(name)).add(content(name, &shown))
    };
    let filter = it.filter.as_ref().map(|text| json("Filter", text));
    let mapping = it.mapping.as_ref().map(|text| json("Mapping", text));
    cell(known).add(filter).add(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An enabled endpoint with this number of failures, and deliveries that are due in some seconds.
    fn endpoint_state(failures: u32, due: &[i64], failed: u64) -> EndpointState<'static> {
        let now = Timestamp::from_millis(1_000_000_000);
        let at = |seconds: &i64| Timestamp::from_millis(now.as_millis() + seconds * 1_000);
        EndpointState {
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
    fn a_sentence_says_why_an_endpoint_does_not_move() {
        assert_eq!(why(&endpoint_state(0, &[], 0)), "Nothing waits for it.");
        assert_eq!(
            why(&endpoint_state(0, &[], 2)),
            "Nothing waits for it, and 2 deliveries failed after the last attempt: send them again \
             if they are still needed."
        );
        assert_eq!(
            why(&endpoint_state(0, &[5], 0)),
            "1 delivery waits, and the next attempt is in 5.0 s."
        );
        assert_eq!(
            why(&endpoint_state(7, &[30, 60], 0)),
            "2 deliveries wait, because the last 7 attempts have failed for 24 h; the relay sends \
             one delivery at a time, and the next attempt is in 30 s."
        );
        let late = why(&endpoint_state(0, &[-90], 0));
        assert!(late.contains("due for 1 min 30 s"), "{late}");
        assert!(late.contains("check that a relay"), "{late}");
        let disabled = EndpointState {
            disabled: Some(("410", None)),
            ..endpoint_state(0, &[5], 0)
        };
        let said = why(&disabled);
        let expected = "It was disabled: 410; 1 delivery waits";
        assert!(said.starts_with(expected), "{said}");
        assert!(said.contains("has to enable it"), "{said}");
        let now = disabled.now;
        let probed = |seconds: i64| {
            let probe_at = Some(Timestamp::from_millis(now.as_millis() + seconds * 1_000));
            why(&EndpointState {
                disabled: Some(("410", None)),
                probe_at,
                ..endpoint_state(0, &[5], 0)
            })
        };
        assert!(
            probed(300).contains("probes it in 5 min"),
            "{}",
            probed(300)
        );
        assert!(probed(-1).contains("A probe is due"), "{}", probed(-1));
        let slowed = EndpointState {
            slowed: Some("5 attempts in a row have failed: status 503"),
            ..endpoint_state(5, &[8], 0)
        };
        assert_eq!(
            why(&slowed),
            "1 delivery waits, because it is slowed: 5 attempts in a row have failed: status 503; the \
             next attempt is in 8.0 s."
        );
    }
}
