//! Fault coverage: which faults had an effect. A run in which no fault had one proves nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    artifacts::{Artifacts, Attempt, Fault, Wished},
    checkers::{causes, retries},
    clients::Kind,
    deployment::{BROKER, Store},
    nemesis::places,
};

/// How often each thing happened that the run is for.
pub(crate) type Bites = BTreeMap<String, usize>;

/// Counts them; those that never happened are there with 0.
pub(crate) fn bites(artifacts: &Artifacts) -> Bites {
    let mut bites = match artifacts.run["gates"].as_array() {
        Some(gates) => gates
            .iter()
            .filter_map(|it| Some((it.as_str()?.to_owned(), 0)))
            .collect(),
        None => gates(artifacts.store),
    };
    if artifacts.run["previous"] == true {
        bites.insert("blow: change over".to_owned(), 0);
    }
    for fault in artifacts.faults.iter().filter(|it| it.bit) {
        count_fault(&mut bites, fault);
    }
    for wished in &artifacts.operations {
        count_operation(&mut bites, wished, &artifacts.faults);
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
        if cause.starts_with("kill") {
            bite(&mut bites, "repeated because of a death", times);
        }
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
        let place = fault.place().split(':').next().unwrap_or_default();
        bite(bites, format!("place: {place}"), 1);
    }
}

/// Counts what happened to the requests of an operation.
fn count_operation(bites: &mut Bites, wished: &Wished, faults: &[Fault]) {
    let came = |word: &str| {
        wished
            .asked()
            .filter(|it| it.answer["came"] == word)
            .count()
    };
    bite(bites, "replays", came("replayed"));
    let lost = wished.asked().filter(|it| it.end == "info").count();
    bite(bites, "requests without an answer", lost);
    let is_cut_off = |it: &&Attempt| {
        let ended = it.ended.unwrap_or(it.began);
        let mut deaths = faults.iter().filter(|it| it.is_deadly());
        it.end == "info" && deaths.any(|death| it.began <= death.until && ended >= death.from)
    };
    let cut_off: Vec<_> = wished.asked().filter(is_cut_off).collect();
    bite(bites, "requests cut off by a death", cut_off.len());
    match wished.asked().find(|it| it.answer["came"] == "stored") {
        None if !cut_off.is_empty() && came("replayed") > 0 => {
            bite(bites, "requests cut off after their commit", 1);
        }
        Some(ran)
            if cut_off
                .iter()
                .any(|it| it.ended.is_some_and(|at| at <= ran.began)) =>
        {
            bite(bites, "requests cut off before their commit", 1);
        }
        _ => {}
    }
    let away = wished.asked().filter(|it| it.answer["status"] == 503);
    bite(bites, "responses without a server", away.count());
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
    if times > 0 {
        *bites.entry(name.into()).or_default() += times;
    }
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
    let faults = artifacts.faults.iter().filter(|it| it.bit);
    let times = |it: &Fault| 1 + usize::from(it.word == "kill again");
    faults.filter(|it| it.is_deadly()).map(times).sum()
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
