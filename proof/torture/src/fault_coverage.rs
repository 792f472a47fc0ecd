//! Fault coverage: which faults took effect. A run in which none did proves nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    artifacts::{Artifacts, Attempt, Fault, OperationRecord},
    checkers::{causes, retries},
    clients::Kind,
    conflict::Conflict,
    deployment::{BROKER, Store},
    nemesis::failpoints,
};

/// The targets of kills: the name in the log of the nemesis, and that in the report.
const TARGETS: [(&str, &str); 4] = [
    ("Clients", "clients"),
    ("Shop", "a shop"),
    ("Relay", "a relay"),
    ("Remote", "a remote process"),
];

/// How often each fault and each of its effects was observed.
pub(crate) type Coverage = BTreeMap<String, usize>;

/// Counts them; those that were never observed have the count 0.
pub(crate) fn coverage(artifacts: &Artifacts) -> Coverage {
    let mut coverage = match artifacts.run["gates"].as_array() {
        Some(gates) => gates
            .iter()
            .filter_map(|it| Some((it.as_str()?.to_owned(), 0)))
            .collect(),
        None => gates(artifacts.store),
    };
    if artifacts.run["previous"] == true {
        coverage.insert("fault: release change".to_owned(), 0);
    }
    for fault in artifacts.faults.iter().filter(|it| it.took_effect) {
        count_fault(&mut coverage, fault);
    }
    for record in &artifacts.operations {
        count_operation(&mut coverage, record, &artifacts.faults);
    }
    for (kind, name) in [
        (Kind::Market, "messages of a second source"),
        (Kind::Notice, "messages about refunds of the shop"),
    ] {
        let messages = artifacts.of(kind);
        let messages = messages.filter(|it| it.acknowledged().is_some()).count();
        count(&mut coverage, name, messages);
    }
    let has_counted = |sample: &&Value| sample["disk"]["fenced"].is_u64();
    let samples = artifacts.sizes.iter().filter(has_counted).count();
    // Without a server there are no checkpoints.
    if samples > 0 {
        count(&mut coverage, "samples of the checkpoint log", samples);
    }
    // Without a server there is no SQL-contract client.
    let notes = artifacts.notes.values().filter(|it| *it == "ok").count();
    if notes > 0 {
        count(&mut coverage, "notes of the SQL-contract client", notes);
    }
    for conflict in &artifacts.conflicts {
        count_conflict(&mut coverage, conflict);
    }
    count(&mut coverage, "keys purged", purged(artifacts));
    count(&mut coverage, "retries of a budget", retries(artifacts));
    for (cause, times) in causes(artifacts) {
        if cause.starts_with("kill") {
            count(&mut coverage, "duplicates after a kill", times);
        }
        count(&mut coverage, format!("duplicates: {cause}"), times);
    }
    for row in artifacts.rows("takeovers") {
        let times = row["epochs"].as_u64().unwrap_or_default();
        count(
            &mut coverage,
            "takeovers",
            usize::try_from(times).unwrap_or_default(),
        );
    }
    coverage
}

/// Counts a fault that took effect, by its kind and by its target.
fn count_fault(coverage: &mut Coverage, fault: &Fault) {
    count(coverage, format!("fault: {}", fault.kind), 1);
    let hits = |target: &str| usize::from(fault.injection.contains(&format!("({target}(")));
    if fault.kind.starts_with("kill") {
        for (target, name) in TARGETS {
            count(coverage, format!("kill of {name}"), hits(target));
        }
        let is_broker = fault.injection.contains(BROKER);
        count(coverage, "kill of the broker", usize::from(is_broker));
    }
    if fault.kind == "duplicate node" {
        count(coverage, "duplicate node of a shop", hits("Shop"));
        count(coverage, "duplicate node of a relay", hits("Relay"));
    }
    if fault.kind.starts_with("commit") && fault.injection.contains("RelayDatabase") {
        count(coverage, "lost commits of relays", 1);
    }
    if fault.kind == "failpoint" {
        let failpoint = fault.failpoint().split(':').next().unwrap_or_default();
        count(coverage, format!("failpoint: {failpoint}"), 1);
    }
}

/// Counts what happened to the requests of an operation.
fn count_operation(coverage: &mut Coverage, record: &OperationRecord, faults: &[Fault]) {
    let with_status = |status: &str| {
        record
            .unaltered_attempts()
            .filter(|it| it.response["idempotency_status"] == status)
            .count()
    };
    count(coverage, "replays", with_status("replayed"));
    let lost = record
        .unaltered_attempts()
        .filter(|it| it.end == "info")
        .count();
    count(coverage, "requests without a response", lost);
    let is_interrupted = |it: &&Attempt| {
        let ended = it.ended.unwrap_or(it.began);
        let mut kills = faults.iter().filter(|it| it.is_deadly());
        it.end == "info" && kills.any(|kill| it.began <= kill.until && ended >= kill.from)
    };
    let interrupted: Vec<_> = record.unaltered_attempts().filter(is_interrupted).collect();
    count(
        coverage,
        "requests interrupted by a kill",
        interrupted.len(),
    );
    match record
        .unaltered_attempts()
        .find(|it| it.response["idempotency_status"] == "stored")
    {
        None if !interrupted.is_empty() && with_status("replayed") > 0 => {
            count(coverage, "requests interrupted after their commit", 1);
        }
        Some(ran)
            if interrupted
                .iter()
                .any(|it| it.ended.is_some_and(|at| at <= ran.began)) =>
        {
            count(coverage, "requests interrupted before their commit", 1);
        }
        _ => {}
    }
    let unavailable = record
        .unaltered_attempts()
        .filter(|it| it.response["status"] == 503);
    count(
        coverage,
        "responses while the server was down",
        unavailable.count(),
    );
    if lost > 0 && with_status("stored") == 0 && with_status("replayed") > 0 {
        count(coverage, "commits whose response was lost", 1);
    }
    let rejected = record
        .attempts
        .iter()
        .filter(|it| it.is_altered && it.response["status"] == 409);
    count(coverage, "mismatches", rejected.count());
    let mut spans: Vec<_> = record
        .unaltered_attempts()
        .map(|it| (it.began, it.ended.unwrap_or(it.began)))
        .collect();
    spans.sort_unstable();
    let races = spans.windows(2).filter(|it| it[1].0 < it[0].1).count();
    count(coverage, "races for a key", races);
}

/// Counts the requests with another payload that were refused while the first request ran.
fn count_conflict(coverage: &mut Coverage, conflict: &Conflict) {
    let held = conflict.held.name();
    for early in conflict.early() {
        let node = if early.node == conflict.first.node {
            "the same node"
        } else {
            "another node"
        };
        count(
            coverage,
            format!("conflicts with a running {held} on {node}"),
            1,
        );
    }
}

fn count(coverage: &mut Coverage, name: impl Into<String>, times: usize) {
    if times > 0 {
        *coverage.entry(name.into()).or_default() += times;
    }
}

/// The number of keys that must have been purged: those that were stored and are gone.
fn purged(artifacts: &Artifacts) -> usize {
    let stored = artifacts.operations.iter().filter(|it| {
        // Messages have an inbox row instead of a key.
        !matches!(
            it.operation.kind,
            Kind::Message | Kind::Market | Kind::Notice
        ) && it
            .unaltered_attempts()
            .any(|it| it.response["idempotency_status"] == "stored")
    });
    let left = artifacts.rows("keys").iter();
    let left = left.filter_map(|row| row["count"].as_u64()).sum::<u64>();
    stored
        .count()
        .saturating_sub(usize::try_from(left).unwrap_or(usize::MAX))
}

/// What was never observed although the run exists to cause it.
pub(crate) fn missing(coverage: &Coverage) -> Vec<&str> {
    let never = coverage.iter().filter(|(_, times)| **times == 0);
    never.map(|(name, _)| name.as_str()).collect()
}

/// Every kill of a run.
pub(crate) fn kills(artifacts: &Artifacts) -> usize {
    let faults = artifacts.faults.iter().filter(|it| it.took_effect);
    let times = |it: &Fault| 1 + usize::from(it.kind == "kill again");
    faults.filter(|it| it.is_deadly()).map(times).sum()
}

/// What every long run has to contain.
const ALWAYS: [&str; 31] = [
    "fault: kill",
    "fault: kill again",
    "fault: kill during drain",
    "fault: pause",
    "fault: term",
    "fault: failpoint",
    "fault: network",
    "fault: provider",
    "fault: full disk",
    "fault: clock",
    "fault: restore",
    "fault: early conflict",
    "conflicts with a running phase on the same node",
    "fault: flood of members",
    "fault: flood of brackets",
    "fault: flood of parts",
    "fault: flood of half requests to a shop",
    "kill of clients",
    "kill of a shop",
    "kill of a remote process",
    "replays",
    "keys purged",
    "retries of a budget",
    "mismatches",
    "messages of a second source",
    "messages about refunds of the shop",
    "races for a key",
    "requests without a response",
    "commits whose response was lost",
    "duplicates: receiver: response lost",
    "duplicates: kill",
];

/// What a long run on a server has to contain too.
const ON_A_SERVER: [&str; 27] = [
    "fault: crash",
    "fault: terminate",
    "fault: connection limit",
    "fault: lock",
    "fault: commit request lost",
    "fault: commit response lost",
    "fault: replay",
    "fault: duplicate node",
    "duplicate node of a shop",
    "duplicate node of a relay",
    "fault: purge",
    "fault: clock step",
    "conflicts with a running phase on another node",
    "conflicts with a running transaction on the same node",
    "conflicts with a running transaction on another node",
    "fault: flood of half requests to relays",
    "fault: silent name server",
    "fault: silence",
    "fault: receiver gone",
    "kill of a relay",
    "kill of the broker",
    "takeovers",
    "samples of the checkpoint log",
    "notes of the SQL-contract client",
    "lost commits of relays",
    "duplicates: pause",
    "duplicates: replay",
];

fn gates(store: Store) -> Coverage {
    let mut gates: Coverage = ALWAYS.map(|it| (it.to_owned(), 0)).into();
    if store == Store::Postgres {
        gates.extend(ON_A_SERVER.map(|it| (it.to_owned(), 0)));
    }
    let failpoints = failpoints(store);
    gates.extend(
        failpoints
            .into_iter()
            .map(|it| (format!("failpoint: {it}"), 0)),
    );
    gates
}
