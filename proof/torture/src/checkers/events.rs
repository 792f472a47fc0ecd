//! Events checker: every effect has one event at every destination, and no event lacks an effect.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Received},
    clients::Kind,
    deployment::{REJECTING_TYPES, Store, UNRESOLVED},
};

/// Destination whose receiver rejects some events permanently.
const REJECTING: &str = "rejecting";

/// Subject of an event: its type and the id of the row.
type Subject = (String, String);

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let stored_rows = Expected {
        subjects: expected(artifacts),
        forfeited: artifacts.forfeited(),
    };
    let mut found = received("hook", &artifacts.hook, &stored_rows);
    if artifacts.store == Store::Postgres {
        for (name, ledger) in [("feed", &artifacts.feed), ("stream", &artifacts.stream)] {
            found.extend(received(name, ledger, &stored_rows));
            found.extend(order(ledger));
        }
        found.extend(remote_database(artifacts, &stored_rows));
    }
    found.extend(contents(artifacts));
    found.extend(demo(artifacts));
    found.extend(mails(artifacts));
    found.extend(rejecting(artifacts));
    let unfinished = artifacts.rows("unfinished").iter();
    let unfinished =
        unfinished.filter(|row| row["destination"] != REJECTING || row["state"] != "dead");
    // The destination whose name does not resolve receives nothing; it must not affect the others.
    let is_unresolved = |row: &Value| text(&row["destination"]).starts_with(UNRESOLVED);
    let unfinished = unfinished.filter(|row| !is_unresolved(row));
    found.extend(unfinished.map(|row| violated(6, format!("a delivery is dead or stuck: {row}"))));
    found
}

/// Subjects that every destination must receive.
struct Expected {
    subjects: BTreeSet<Subject>,
    /// Orders that a restore removed: their events were delivered, and their rows are gone.
    forfeited: HashSet<String>,
}

/// The events that belong to the stored rows.
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

fn subject(content: &Value) -> Subject {
    let kind = text(&content["type"]);
    let mut of = text(&content["data"][member(&kind)]);
    if kind == "order.updated" {
        of = format!("{of}/{}", content["data"]["version"]);
    }
    (kind, of)
}

fn received(name: &str, received: &Received, expected: &Expected) -> Vec<Violation> {
    let mut by_subject: HashMap<Subject, Vec<&str>> = HashMap::new();
    for (id, content) in &received.contents {
        by_subject.entry(subject(content)).or_default().push(id);
    }
    let mut found = compared(name, &by_subject, expected);
    for unverified in &received.unverified {
        found.push(violated(
            6,
            format!("{name} received a request with an invalid signature: {unverified}"),
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
            0 => found.push(violated(6, format!("{subject:?} never arrived at {name}"))),
            1 => {}
            events => found.push(violated(
                5,
                format!("{subject:?} has {events} events at {name}"),
            )),
        }
    }
    let unexpected = by_subject
        .iter()
        .filter(|(it, _)| !expected.subjects.contains(*it) && !expected.forfeited.contains(&it.1));
    for (subject, ids) in unexpected {
        let what = format!("{name} received {subject:?}, which does not exist ({ids:?})");
        found.push(violated(5, what));
    }
    found
}

/// Events whose data differs from the response that acknowledged their effect.
fn contents(artifacts: &Artifacts) -> Vec<Violation> {
    let contents = artifacts.hook.contents.values();
    let contents: HashMap<_, _> = contents.map(|it| (subject(it), &it["data"])).collect();
    let mut found = Vec::new();
    for record in &artifacts.operations {
        let kind = match record.operation.kind {
            Kind::Order => "order.created",
            Kind::Update => "order.updated",
            Kind::Payment => "payment.succeeded",
            Kind::Refund => "refund.succeeded",
            Kind::Signup => "user.signed_up",
            _ => continue,
        };
        let Some(outcome) = record.acknowledged() else {
            continue;
        };
        let mut of = text(&outcome["id"]);
        if record.operation.kind == Kind::Update {
            of = format!("{of}/{}", outcome["version"]);
        }
        let data = contents
            .get(&(kind.to_owned(), of))
            .and_then(|it| it.as_object());
        let mut data = data.into_iter().flatten();
        if data.any(|(name, value)| name != member(kind) && outcome[name] != *value) {
            let what = format!(
                "the event of {} differs from its response {outcome}",
                record.name()
            );
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
    let hook: BTreeSet<_> = artifacts.hook.contents.keys().cloned().collect();
    let all: BTreeSet<_> = hook.iter().chain(seen.keys()).collect();
    let wrong = all.into_iter().filter_map(|id| {
        let effects = seen.get(id).copied().flatten().unwrap_or_default();
        let is_sound = effects == 1 && hook.contains(id);
        let what = format!("event {id} had {effects} effects at the demo's receiver");
        (!is_sound).then(|| violated(if effects > 1 { 8 } else { 6 }, what))
    });
    wrong.collect()
}

/// Rows that the PostgreSQL sink wrote to the other database: each event once, in order.
fn remote_database(artifacts: &Artifacts, expected: &Expected) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut by_subject: HashMap<Subject, Vec<&str>> = HashMap::new();
    let (mut ids, mut last) = (BTreeMap::<&str, usize>::new(), HashMap::<&str, u64>::new());
    for row in artifacts.rows("remote") {
        let id = row["event_id"].as_str().unwrap_or_default();
        let times = ids.entry(id).or_default();
        *times += 1;
        if *times > 1 {
            found.push(violated(
                8,
                format!("event {id} had {times} effects in the remote database"),
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
                format!("{order}: {sequence} came after {highest} in the remote database"),
            ));
        }
        *highest = sequence.max(*highest);
    }
    found.extend(compared("the remote database", &by_subject, expected));
    found
}

/// First deliveries of one order must arrive in the order of its versions.
fn order(received: &Received) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: HashMap<&str, u64> = HashMap::new();
    for arrival in received.arrivals.iter().filter(|it| it.is_effect) {
        let Some(content) = received.contents.get(&arrival.id) else {
            continue;
        };
        let (Some(version), Some(id)) = (
            content["data"]["version"].as_u64(),
            content["data"]["id"].as_str(),
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

/// Events that the rejecting receiver never accepted must be dead letters with all their attempts.
fn rejecting(artifacts: &Artifacts) -> Vec<Violation> {
    if artifacts.store == Store::Sqlite {
        return Vec::new();
    }
    let dead: HashMap<&str, u64> = artifacts
        .rows("unfinished")
        .iter()
        .filter(|row| row["destination"] == REJECTING)
        .filter_map(|row| Some((row["event_id"].as_str()?, row["attempts"].as_u64()?)))
        .collect();
    let is_offered = |content: &Value| REJECTING_TYPES.iter().any(|kind| content["type"] == *kind);
    let contents = artifacts.feed.contents.iter();
    let offered = contents.filter(|(_, content)| is_offered(content));
    let forfeited = artifacts.forfeited();
    let offered = offered.filter(|(_, content)| !forfeited.contains(&subject(content).1));
    let mut found = Vec::new();
    for (id, _) in offered {
        let is_accepted = artifacts.feed.accepted.contains(id);
        match dead.get(id.as_str()) {
            None if !is_accepted => {
                found.push(violated(
                    6,
                    format!("{id} is neither delivered to {REJECTING} nor dead"),
                ));
            }
            Some(0) => found.push(violated(
                6,
                format!("{id} is dead at {REJECTING} without an attempt"),
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
    // A mail that was temporarily rejected has not been accepted.
    let accepted = artifacts
        .mails
        .iter()
        .filter(|mail| mail["mode"] != "temporary failure");
    let mut mailed: BTreeSet<_> = accepted.filter_map(to).collect();
    let mut found = Vec::new();
    for row in artifacts.rows("users") {
        let email = text(&row["email"]);
        if !mailed.remove(&email) {
            found.push(violated(6, format!("{email} got no mail")));
        }
    }
    found.extend(
        mailed
            .into_iter()
            .map(|it| violated(6, format!("{it} got a mail without a sign-up"))),
    );
    found
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
