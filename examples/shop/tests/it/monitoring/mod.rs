//! Tests of the alert rules and the dashboard with a real Prometheus that scrapes a shop under
//! load.
//!
//! All metrics and labels of all queries must exist: a test fails if a metric was renamed, a label
//! was removed, or a panel is empty. Metrics that the load cannot produce are listed with the
//! reason.

mod files;
mod prometheus;
mod traffic;

use std::{collections::BTreeSet, time::Duration};

use hapax::telemetry;
use hapax_testkit::wait::Patience;
use tokio::time::Instant;

use files::{ALERT_TESTS, ALERTS, GUIDE, Panel, names, repository};
use prometheus::{Prometheus, promtool};
use traffic::Traffic;

/// The maximum time until all panels show something.
const PATIENCE: Duration = Duration::from_mins(1);

/// Metrics that neither a shop on SQLite nor its client exports in this test, and the reason.
const UNSEEN: [(&str, &str); 17] = [
    (
        telemetry::IDEMPOTENCY_FENCED,
        "an owner has to be paused for longer than its lease",
    ),
    (
        telemetry::OUTBOX_SPILLED,
        "segments exist on PostgreSQL only, and are rotated within days",
    ),
    (
        telemetry::RELAY_SET_BACKS,
        "a backup has to be restored under a running relay",
    ),
    (
        telemetry::OUTBOX_PURGE_FAILURES,
        "purging in steps exists on PostgreSQL only, and fails with the database",
    ),
    (telemetry::SOURCE_MOVED, "the shop has no table source"),
    (telemetry::SOURCE_SET_ASIDE, "the shop has no table source"),
    (telemetry::FEED_UP, "the shop has no feed"),
    (telemetry::FEED_GAP, "the shop has no feed"),
    (telemetry::FEED_SET_ASIDE, "the shop has no feed"),
    (telemetry::GATEWAY_REQUESTS, "the shop has no gateway"),
    (telemetry::GATEWAY_REQUEST, "the shop has no gateway"),
    (telemetry::GATEWAY_UNKNOWN, "the shop has no gateway"),
    (
        telemetry::GATEWAY_UNKNOWN_WAITING,
        "the shop has no gateway",
    ),
    (telemetry::GATEWAY_RESUMED, "the shop has no gateway"),
    (telemetry::GATEWAY_RESENT, "the shop has no gateway"),
    (telemetry::GATEWAY_INSTANCE_UP, "the shop has no gateway"),
    (telemetry::GATEWAY_CONNECTIONS, "the shop has no gateway"),
];

/// Alerts that the load causes, and whether they fire at once or are pending.
const RAISED: [(&str, &str); 5] = [
    ("HapaxDeadLetters", "firing"),
    ("HapaxClientBudgetExhausted", "firing"),
    ("HapaxConflicts", "pending"),
    ("HapaxDeliveriesFail", "pending"),
    ("HapaxBreakerOpen", "pending"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_finds_what_it_asks_for_and_what_goes_wrong_raises_its_alerts_alone() {
    let traffic = Traffic::start().await;
    let prometheus = Prometheus::start(&traffic.targets()).await;
    let panels = files::panels();
    assert!(panels.len() > 20, "the dashboard has lost its panels");
    all_show(&panels, &prometheus).await;
    all_are_named_rightly(&panels, &prometheus).await;
    for (label, selector) in files::variables() {
        let values = prometheus.label_values(&label, Some(&selector)).await;
        assert!(!values.is_empty(), "the filter of {label} offers nothing");
    }
    alerts_are_raised(&prometheus).await;
}

/// Waits until the queries of all panels return something, except for those of unavailable metrics.
async fn all_show(panels: &[Panel], prometheus: &Prometheus) {
    let began = Instant::now();
    let patience = Patience::within(2 * PATIENCE);
    loop {
        let mut empty = Vec::new();
        for panel in panels.iter().filter(|panel| !is_unseen(&panel.query)) {
            if !prometheus
                .query(&panel.query)
                .await
                .iter()
                .any(|value| value.is_finite())
            {
                empty.push(panel);
            }
        }
        if empty.is_empty() {
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "these panels are empty: {empty:#?}"
        );
        patience.pause().await;
    }
}

/// Checks that every metric of every query is exported by a process.
async fn all_are_named_rightly(panels: &[Panel], prometheus: &Prometheus) {
    let exported = prometheus.label_values("__name__", None).await;
    let rules = prometheus.rules().await;
    for query in rules.iter().chain(panels.iter().map(|panel| &panel.query)) {
        prometheus.query(query).await;
        for name in names(query) {
            let found = exported.contains(&name) || is_unseen(&name);
            assert!(found, "no process exports {name}, which {query} uses");
        }
    }
    for (name, why) in UNSEEN {
        assert!(
            !exported.contains(name),
            "{name} is exported after all: {why}"
        );
    }
}

/// Waits for the alerts that the load causes. Any other alert is a false alarm.
async fn alerts_are_raised(prometheus: &Prometheus) {
    let wanted: BTreeSet<_> = RAISED
        .map(|(name, state)| (name.to_owned(), state.to_owned()))
        .into();
    let began = Instant::now();
    let patience = Patience::within(2 * PATIENCE);
    loop {
        // If a scrape has just failed, its target counts as down, and the alerts are not checked.
        if prometheus
            .query("min_over_time(up[5s])")
            .await
            .contains(&0.0)
        {
            patience.pause().await;
            continue;
        }
        let raised = prometheus.alerts().await;
        let others: Vec<_> = raised.difference(&wanted).collect();
        // An alert is pending before it fires.
        let strange = others
            .iter()
            .find(|(name, _)| !RAISED.iter().any(|(it, _)| it == name));
        assert!(strange.is_none(), "unexpected alert: {strange:?}");
        if raised == wanted {
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "wanted {wanted:?}, raised {raised:?}"
        );
        patience.pause().await;
    }
}

#[test]
fn promtool_accepts_the_rules_and_finds_every_one_tried() {
    promtool(&["check", "rules"], ALERTS);
    promtool(&["test", "rules"], ALERT_TESTS);
    let tried = files::tried();
    for alert in files::alerts() {
        let name = &alert.name;
        for fires in [true, false] {
            let word = if fires { "fires" } else { "stays silent" };
            assert!(
                tried.contains(&(name.clone(), fires)),
                "no case in which {name} {word}"
            );
        }
    }
}

#[test]
fn every_alert_says_how_grave_it_is_and_where_to_read_on() {
    let guide = repository(GUIDE);
    for alert in files::alerts() {
        let (name, runbook) = (&alert.name, &alert.runbook);
        assert!(
            ["page", "warning"].contains(&alert.severity.as_str()),
            "{name}"
        );
        assert!(
            guide.contains(&format!("\n### {name}\n")),
            "{GUIDE} has no section {name}"
        );
        let (page, anchor) = runbook.split_once('#').unwrap_or((runbook, ""));
        assert!(!repository(page).is_empty());
        assert!(
            anchor.is_empty() || anchor == name.to_lowercase(),
            "{name}: {runbook}"
        );
    }
}

fn is_unseen(query: &str) -> bool {
    UNSEEN.iter().any(|(name, _)| query.contains(name))
}
