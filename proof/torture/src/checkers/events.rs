//! Events checker: every effect has one event at every destination, and no event lacks an effect.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Received},
    clients::Kind,
    deployment::{LOST, PICKED, Store},
};

/// Destination whose receiver refuses some events permanently.
const PICKY: &str = "picky";

/// Subject of an event: its type and the id of the row.
type Subject = (String, String);

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let stored_rows = Expected {
        subjects: expected(artifacts),
        forfeited: artifacts.forfeited(),
    };
    let mut found = received("hook", &artifacts.hook, &stored_rows);
    if artifacts.store == Store::Postgres {
        for (name, taken) in [("feed", &artifacts.feed), ("stream", &artifacts.stream)] {
            found.extend(received(name, taken, &stored_rows));
            found.extend(order(taken));
        }
        found.extend(far(artifacts, &stored_rows));
    }
    found.extend(told(artifacts));
    found.extend(demo(artifacts));
    found.extend(mails(artifacts));
    found.extend(picky(artifacts));
    let unfinished = artifacts.rows("unfinished").iter();
    let unfinished = unfinished.filter(|row| row["destination"] != PICKY || row["state"] != "dead");
    // The destination whose name does not resolve receives nothing; it must not affect the others.
    let is_lost = |row: &Value| text(&row["destination"]).starts_with(LOST);
    let unfinished = unfinished.filter(|row| !is_lost(row));
    found.extend(unfinished.map(|row| violated(6, format!("a delivery is dead or stuck: {row}"))));
    found
}

/// Subjects that every destination must receive.
struct Expected {
    subjects: BTreeSet<Subject>,
    /// Orders that a restore removed: their events were delivered, and their rows are gone.
    forfeited: HashSet<String>,
}

/// The events that the rows ask for.
fn expected(artifacts: &Artifacts) -> BTreeSet<Subject> {
    let mut expected = BTreeSet::new();
    let mut expect = |kind: &str, of: String| expected.insert((kind.to_owned(), of));
    for row in artifacts.rows("orders") {
        let id = text(&row["id"]);
        for version in 2..=row["version"].as_u64().unwrap_or_default() {
            expect("order.updated", format!("{id}/{version}"));
        }
        expect("order.created", id);
    }
    for (table, kind) in [
        ("charges", "payment.succeeded"),
        ("refunds", "refund.succeeded"),
        ("users", "user.signed_up"),
        ("uploads", "file.uploaded"),
        ("notes", "note.written"),
    ] {
        for row in artifacts.rows(table) {
            expect(kind, text(&row["id"]));
        }
    }
    for row in artifacts.rows("sagas") {
        match row["state"].as_str() {
            Some("completed") => expect("checkout.completed", text(&row["id"])),
            Some("failed") => expect("checkout.failed", text(&row["id"])),
            _ => false,
        };
    }
    expected
}

/// The member of an event's data that holds the id of the row.
fn member(kind: &str) -> &'static str {
    match kind {
        "payment.succeeded" => "charge_id",
        "refund.succeeded" => "refund_id",
        "user.signed_up" => "user_id",
        "file.uploaded" => "upload_id",
        "checkout.completed" | "checkout.failed" => "checkout_id",
        _ => "id",
    }
}

fn subject(said: &Value) -> Subject {
    let kind = text(&said["type"]);
    let mut of = text(&said["data"][member(&kind)]);
    if kind == "order.updated" {
        of = format!("{of}/{}", said["data"]["version"]);
    }
    (kind, of)
}

fn received(name: &str, received: &Received, expected: &Expected) -> Vec<Violation> {
    let mut by_subject: HashMap<Subject, Vec<&str>> = HashMap::new();
    for (id, said) in &received.said {
        by_subject.entry(subject(said)).or_default().push(id);
    }
    let mut found = compared(name, &by_subject, expected);
    for refused in &received.refused {
        found.push(violated(
            6,
            format!("{name} was sent what it cannot verify: {refused}"),
        ));
    }
    let mut shas: HashMap<&str, &str> = HashMap::new();
    for arrival in &received.arrivals {
        let first = shas.entry(&arrival.id).or_insert(&arrival.sha);
        if *first != arrival.sha {
            found.push(violated(6, format!("{name}: event {} changed", arrival.id)));
        }
    }
    found
}

fn compared(
    name: &str,
    by_subject: &HashMap<Subject, Vec<&str>>,
    expected: &Expected,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for subject in &expected.subjects {
        match by_subject.get(subject).map_or(0, Vec::len) {
            0 => found.push(violated(6, format!("{subject:?} never came to {name}"))),
            1 => {}
            events => found.push(violated(
                5,
                format!("{subject:?} is {events} events at {name}"),
            )),
        }
    }
    let strange = by_subject
        .iter()
        .filter(|(it, _)| !expected.subjects.contains(*it) && !expected.forfeited.contains(&it.1));
    for (subject, ids) in strange {
        let what = format!("{name} received {subject:?}, which does not exist ({ids:?})");
        found.push(violated(5, what));
    }
    found
}

/// Events whose data is not in the response that acknowledged their effect.
fn told(artifacts: &Artifacts) -> Vec<Violation> {
    let said = artifacts.hook.said.values();
    let said: HashMap<_, _> = said.map(|said| (subject(said), &said["data"])).collect();
    let mut found = Vec::new();
    for wished in &artifacts.operations {
        let kind = match wished.operation.kind {
            Kind::Order => "order.created",
            Kind::Update => "order.updated",
            Kind::Payment => "payment.succeeded",
            Kind::Refund => "refund.succeeded",
            Kind::Signup => "user.signed_up",
            _ => continue,
        };
        let Some(outcome) = wished.granted() else {
            continue;
        };
        let mut of = text(&outcome["id"]);
        if wished.operation.kind == Kind::Update {
            of = format!("{of}/{}", outcome["version"]);
        }
        let data = said
            .get(&(kind.to_owned(), of))
            .and_then(|it| it.as_object());
        let mut data = data.into_iter().flatten();
        if data.any(|(name, value)| name != member(kind) && outcome[name] != *value) {
            let what = format!("the event of {} does not say {outcome}", wished.name());
            found.push(violated(6, what));
        }
    }
    found
}

/// The demo's receiver has each event of the first receiver, with one effect.
fn demo(artifacts: &Artifacts) -> Vec<Violation> {
    let Some(seen) = artifacts.listed["demo"].as_array() else {
        return Vec::new();
    };
    let effects = |row: &Value| (text(&row["event_id"]), row["effects"].as_u64());
    let seen: BTreeMap<_, _> = seen.iter().map(effects).collect();
    let hook: BTreeSet<_> = artifacts.hook.said.keys().cloned().collect();
    let all: BTreeSet<_> = hook.iter().chain(seen.keys()).collect();
    let odd = all.into_iter().filter_map(|id| {
        let effects = seen.get(id).copied().flatten().unwrap_or_default();
        let is_sound = effects == 1 && hook.contains(id);
        let what = format!("event {id} had {effects} effects at the demo's receiver");
        (!is_sound).then(|| violated(if effects > 1 { 8 } else { 6 }, what))
    });
    odd.collect()
}

/// Rows that the PostgreSQL sink wrote to the other database: each event once, in order.
fn far(artifacts: &Artifacts, expected: &Expected) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut by_subject: HashMap<Subject, Vec<&str>> = HashMap::new();
    let (mut ids, mut last) = (BTreeMap::<&str, usize>::new(), HashMap::<&str, u64>::new());
    for row in artifacts.rows("far") {
        let id = row["event_id"].as_str().unwrap_or_default();
        let times = ids.entry(id).or_default();
        *times += 1;
        if *times > 1 {
            found.push(violated(
                8,
                format!("event {id} had {times} effects in the far database"),
            ));
            continue;
        }
        by_subject.entry(subject(row)).or_default().push(id);
        let (Some(order), Some(sequence)) =
            (row["aggregate_id"].as_str(), row["sequence"].as_u64())
        else {
            continue;
        };
        let highest = last.entry(order).or_default();
        if sequence < *highest {
            found.push(violated(
                9,
                format!("{order}: {sequence} came after {highest} in the far database"),
            ));
        }
        *highest = sequence.max(*highest);
    }
    found.extend(compared("the far database", &by_subject, expected));
    found
}

/// First deliveries of one order come in the order of its versions.
fn order(received: &Received) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: HashMap<&str, u64> = HashMap::new();
    for arrival in received.arrivals.iter().filter(|it| it.is_effect) {
        let Some(said) = received.said.get(&arrival.id) else {
            continue;
        };
        let (Some(version), Some(id)) = (
            said["data"]["version"].as_u64(),
            said["data"]["id"].as_str(),
        ) else {
            continue;
        };
        let highest = last.entry(id).or_default();
        if version < *highest {
            found.push(violated(
                9,
                format!("{id}: version {version} came after {highest}"),
            ));
        }
        *highest = version.max(*highest);
    }
    found
}

/// Events that the refusing receiver never accepted must be dead letters with all their attempts.
fn picky(artifacts: &Artifacts) -> Vec<Violation> {
    if artifacts.store == Store::Sqlite {
        return Vec::new();
    }
    let dead: HashMap<&str, u64> = artifacts
        .rows("unfinished")
        .iter()
        .filter(|row| row["destination"] == PICKY)
        .filter_map(|row| Some((row["event_id"].as_str()?, row["attempts"].as_u64()?)))
        .collect();
    let theirs = |said: &Value| PICKED.iter().any(|kind| said["type"] == *kind);
    let said = artifacts.feed.said.iter().filter(|(_, said)| theirs(said));
    let forfeited = artifacts.forfeited();
    let said = said.filter(|(_, said)| !forfeited.contains(&subject(said).1));
    let mut found = Vec::new();
    for (id, _) in said {
        let is_taken = artifacts.feed.picked.contains(id);
        match dead.get(id.as_str()) {
            None if !is_taken => {
                found.push(violated(
                    6,
                    format!("{id} is neither delivered to {PICKY} nor dead"),
                ));
            }
            Some(0) => found.push(violated(
                6,
                format!("{id} is dead at {PICKY} without an attempt"),
            )),
            _ => {}
        }
    }
    found
}

/// Every sign-up has exactly one mail, and there are no other mails.
fn mails(artifacts: &Artifacts) -> Vec<Violation> {
    let to = |mail: &Value| {
        mail["to"]
            .as_array()
            .and_then(|to| to[0].as_str().map(str::to_owned))
    };
    // One that was turned away has not come.
    let taken = artifacts
        .mails
        .iter()
        .filter(|mail| mail["mood"] != "later");
    let mut mailed: BTreeSet<_> = taken.filter_map(to).collect();
    let mut found = Vec::new();
    for row in artifacts.rows("users") {
        let email = text(&row["email"]);
        if !mailed.remove(&email) {
            found.push(violated(6, format!("{email} was never mailed")));
        }
    }
    found.extend(
        mailed
            .into_iter()
            .map(|it| violated(6, format!("{it} was mailed and never signed up"))),
    );
    found
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
