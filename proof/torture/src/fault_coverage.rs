//! Fault coverage: which faults had an effect. A run in which no fault had one proves nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    artifacts::{Artifacts, Fault, Wished},
    checkers::{causes, retries},
    clients::Kind,
    deployment::{BROKER, Store},
    nemesis::places,
};

/// How often each thing happened that the run is for.
pub(crate) type Bites = BTreeMap<String, usize>;

/// Counts them; those that never happened are there with 0.
pub(crate) fn bites(artifacts: &Artifacts) -> Bites {
    let mut bites = gates(artifacts.store);
    if artifacts.run["previous"] == true {
        bites.insert("blow: change over".to_owned(), 0);
    }
    for fault in artifacts.faults.iter().filter(|it| it.bit) {
        count_fault(&mut bites, fault);
    }
    for wished in &artifacts.operations {
        count_operation(&mut bites, wished);
    }
    let market = artifacts.of(Kind::Market);
    let market = market.filter(|it| it.granted().is_some()).count();
    bite(&mut bites, "messages of a second source", market);
    let has_counted = |look: &&Value| look["disk"]["fenced"].is_u64();
    let looks = artifacts.sizes.iter().filter(has_counted).count();
    // Without a server there are no checkpoints.
    if looks > 0 {
        bite(&mut bites, "looks at the checkpoints", looks);
    }
    // Without a server there is no SQL-contract client.
    let notes = artifacts.notes.values().filter(|it| *it == "ok").count();
    if notes > 0 {
        bite(&mut bites, "notes of the neighbour", notes);
    }
    bite(&mut bites, "keys purged", purged(artifacts));
    bite(&mut bites, "retries of a budget", retries(artifacts));
    for (cause, times) in causes(artifacts) {
        bite(&mut bites, format!("repeated: {cause}"), times);
    }
    for row in artifacts.rows("takeovers") {
        let times = row["epochs"].as_u64().unwrap_or_default();
        bite(
            &mut bites,
            "takeovers",
            usize::try_from(times).unwrap_or_default(),
        );
    }
    bites
}

/// Counts a fault that bit, under its name and under what it hit.
fn count_fault(bites: &mut Bites, fault: &Fault) {
    bite(bites, format!("blow: {}", fault.word), 1);
    for role in ["Clients", "Shop", "Relay", "Far"] {
        if fault.word.starts_with("kill") && fault.how.contains(&format!("({role}(")) {
            bite(bites, format!("kill of {role}"), 1);
        }
    }
    if fault.word == "double" {
        for role in ["Shop", "Relay"] {
            let is_theirs = fault.how.contains(&format!("({role}("));
            bite(
                bites,
                format!("namesakes of {role}"),
                usize::from(is_theirs),
            );
        }
    }
    if fault.word.starts_with("kill") && fault.how.contains(BROKER) {
        bite(bites, "kill of the broker", 1);
    }
    if fault.word.starts_with("commit") && fault.how.contains("RelayRows") {
        bite(bites, "commits of relays in doubt", 1);
    }
    if fault.word == "place" {
        let place = place(fault).split(':').next().unwrap_or_default();
        bite(bites, format!("place: {place}"), 1);
    }
}

/// Counts what happened to the requests of an operation.
fn count_operation(bites: &mut Bites, wished: &Wished) {
    let came = |word: &str| {
        wished
            .asked()
            .filter(|it| it.answer["came"] == word)
            .count()
    };
    bite(bites, "replays", came("replayed"));
    let lost = wished.asked().filter(|it| it.end == "info").count();
    bite(bites, "requests without an answer", lost);
    if lost > 0 && came("stored") == 0 && came("replayed") > 0 {
        bite(bites, "commits whose answer was lost", 1);
    }
    let refused = wished
        .attempts
        .iter()
        .filter(|it| it.is_altered && it.answer["status"] == 409);
    bite(bites, "mismatches", refused.count());
    let mut spans: Vec<_> = wished
        .asked()
        .map(|it| (it.began, it.ended.unwrap_or(it.began)))
        .collect();
    spans.sort_unstable();
    let races = spans.windows(2).filter(|it| it[1].0 < it[0].1).count();
    bite(bites, "races for a key", races);
}

fn bite(bites: &mut Bites, name: impl Into<String>, times: usize) {
    *bites.entry(name.into()).or_default() += times;
}

/// At least so many keys had expired before the end.
fn purged(artifacts: &Artifacts) -> usize {
    let stored = artifacts.operations.iter().filter(|it| {
        // What is consumed has a message for a key, and an inbox.
        !matches!(it.operation.kind, Kind::Message | Kind::Market)
            && it.asked().any(|it| it.answer["came"] == "stored")
    });
    let left = artifacts.rows("keys").iter();
    let left = left.filter_map(|row| row["count"].as_u64()).sum::<u64>();
    stored
        .count()
        .saturating_sub(usize::try_from(left).unwrap_or(usize::MAX))
}

/// Events that never happened although the run exists to cause them.
pub(crate) fn missing(bites: &Bites) -> Vec<&str> {
    let never = bites.iter().filter(|(_, times)| **times == 0);
    never.map(|(name, _)| name.as_str()).collect()
}

/// Every kill of a run.
pub(crate) fn kills(artifacts: &Artifacts) -> usize {
    let kills = artifacts.faults.iter().filter(|it| it.bit);
    kills
        .map(|it| match it.word.as_str() {
            // A process that fails or is delayed at this failpoint continues.
            "place" => usize::from(place(it).split(':').count() == 2),
            "kill" | "kill in drain" | "crash" => 1,
            "kill again" => 2,
            _ => 0,
        })
        .sum()
}

/// Failpoint at which a process acted on itself: `name:nth`, with the action unless it is death.
fn place(fault: &Fault) -> &str {
    fault.how.split('"').nth(1).unwrap_or_default()
}

fn gates(store: Store) -> Bites {
    let always = [
        "blow: kill",
        "blow: kill again",
        "blow: kill in drain",
        "blow: pause",
        "blow: term",
        "blow: place",
        "blow: net",
        "blow: provider",
        "blow: full disk",
        "blow: clock",
        "blow: restore",
        "blow: flood of members",
        "blow: flood of brackets",
        "blow: flood of parts",
        "blow: flood of half requests to a shop",
        "kill of Clients",
        "kill of Shop",
        "kill of Far",
        "replays",
        "keys purged",
        "retries of a budget",
        "mismatches",
        "messages of a second source",
        "races for a key",
        "requests without an answer",
        "commits whose answer was lost",
        "repeated: receiver: lost",
        "repeated: kill",
    ];
    let on_a_server = [
        "blow: crash",
        "blow: terminate",
        "blow: crowd",
        "blow: lock",
        "blow: commit unheard",
        "blow: commit untold",
        "blow: replay",
        "blow: double",
        "namesakes of Shop",
        "namesakes of Relay",
        "blow: purge",
        "blow: hour",
        "blow: flood of half requests to relays",
        "blow: silence",
        "blow: gone",
        "kill of Relay",
        "kill of the broker",
        "takeovers",
        "looks at the checkpoints",
        "notes of the neighbour",
        "commits of relays in doubt",
        "repeated: pause",
        "repeated: replay",
    ];
    let mut gates: Bites = always.map(|it| (it.to_owned(), 0)).into();
    if store == Store::Postgres {
        gates.extend(on_a_server.map(|it| (it.to_owned(), 0)));
    }
    let places = places(store);
    gates.extend(places.into_iter().map(|it| (format!("place: {it}"), 0)));
    gates
}
