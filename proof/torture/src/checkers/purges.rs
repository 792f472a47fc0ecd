//! Purges checker: after a key was deleted or has expired, it counts as unused. No shop replays the
//! old response, and all shops return the same new one.

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, OperatorRecord, Step},
    clients::{Kind, body},
};

/// How soon every shop has to know of a purge, in nanoseconds.
const NOTIFIED: u64 = 1_000_000_000;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for record in artifacts
        .operator_records
        .iter()
        .filter(|it| !it.is_forfeited())
    {
        found.extend(replays(record));
        found.extend(effects(record, artifacts));
    }
    found
}

/// Responses from before a purge that are still replayed, and shops whose responses differ.
fn replays(record: &OperatorRecord) -> Vec<Violation> {
    let mut found = Vec::new();
    let (mut before, mut now): (Vec<String>, Option<(&str, String)>) = (Vec::new(), None);
    let mut purged = None;
    for step in &record.steps {
        let (node, at, response) = match step {
            Step::Purged(at) => {
                before.extend(now.take().map(|(_, id)| id));
                purged = Some(*at);
                continue;
            }
            Step::Requested { node, at, response } if !response.is_null() => {
                (node.as_str(), *at, response)
            }
            _ => continue,
        };
        let Some(id) = id(response) else {
            let what = format!("{} got the response {response} from {node}", record.name());
            found.push(violated(2, what));
            continue;
        };
        // Shops may learn of the purge a moment later.
        if purged.is_some_and(|purged| at < purged + NOTIFIED) && before.contains(&id) {
            continue;
        }
        if before.contains(&id) {
            let what = format!(
                "{node} still replayed {id} for {}, long after its key was deleted",
                record.name()
            );
            found.push(violated(3, what));
        }
        match &now {
            None => now = Some((node, id)),
            Some((_, first)) if *first == id => {}
            Some((other, first)) => {
                let what = format!(
                    "{}: {other} responded with {first}, and {node} with {id}",
                    record.name()
                );
                found.push(violated(3, what));
            }
        }
    }
    found
}

/// At most one effect, and one more for each time that the key was deleted or had expired.
fn effects(record: &OperatorRecord, artifacts: &Artifacts) -> Vec<Violation> {
    let is_acknowledged = record.responses().any(|(_, _, it)| id(it).is_some());
    let most = 1 + record.purges();
    let (counts, of) = if record.operation.kind == Kind::Payment {
        let amount = &record.operation.body["amount"];
        let of_it = |row: &&Value| row["amount"] == *amount;
        let charged = artifacts.paid("charge").into_iter().filter(|it| of_it(it));
        let stored = artifacts.rows("charges").iter().filter(of_it);
        (vec![charged.count(), stored.count()], 11)
    } else {
        let note = &record.operation.body["note"];
        let orders = artifacts.rows("orders").iter();
        (vec![orders.filter(|row| row["note"] == *note).count()], 1)
    };
    let mut found = Vec::new();
    for count in counts {
        let name = record.name();
        if count > most {
            let what = format!("{name} has {count} effects, and at most {most} are explained");
            found.push(violated(of, what));
        }
        if is_acknowledged && count == 0 {
            found.push(violated(
                2,
                format!("{name} was acknowledged and does not exist"),
            ));
        }
    }
    found
}

/// Name of the created resource, as the response gives it.
fn id(response: &Value) -> Option<String> {
    body(response)["id"].as_str().map(str::to_owned)
}
