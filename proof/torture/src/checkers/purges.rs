//! Purges checker: after a key was deleted or has expired, it counts as unused. No shop replays the
//! old response, and all shops return the same new one.

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Operated, Step, body},
    clients::Kind,
};

/// How soon every shop has to know, in nanoseconds.
const HEARD: u64 = 1_000_000_000;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for operated in artifacts.operated.iter().filter(|it| !it.is_forfeited()) {
        found.extend(remembered(operated));
        found.extend(effects(operated, artifacts));
    }
    found
}

/// An answer from before a purge, long after it, and nodes that do not say the same.
fn remembered(operated: &Operated) -> Vec<Violation> {
    let mut found = Vec::new();
    let (mut before, mut now): (Vec<String>, Option<(&str, String)>) = (Vec::new(), None);
    let mut purged = None;
    for step in &operated.steps {
        let (node, at, answer) = match step {
            Step::Purged(at) => {
                before.extend(now.take().map(|(_, id)| id));
                purged = Some(*at);
                continue;
            }
            Step::Asked { node, at, answer } if !answer.is_null() => (node.as_str(), *at, answer),
            _ => continue,
        };
        let Some(id) = id(answer) else {
            let what = format!("{} was answered {answer} by {node}", operated.name());
            found.push(violated(2, what));
            continue;
        };
        // Shops may hear of it a moment later.
        if purged.is_some_and(|purged| at < purged + HEARD) && before.contains(&id) {
            continue;
        }
        if before.contains(&id) {
            let what = format!(
                "{node} still answered {} with {id}, long after its key was gone",
                operated.name()
            );
            found.push(violated(3, what));
        }
        match &now {
            None => now = Some((node, id)),
            Some((_, first)) if *first == id => {}
            Some((other, first)) => {
                let what = format!(
                    "{other} answered {} with {first}, and {node} with {id}",
                    operated.name()
                );
                found.push(violated(3, what));
            }
        }
    }
    found
}

/// One effect, and one more for each time that the key was gone.
fn effects(operated: &Operated, artifacts: &Artifacts) -> Vec<Violation> {
    let is_granted = operated.answers().any(|(_, _, it)| id(it).is_some());
    let most = 1 + operated.purges();
    let (counts, of) = if operated.operation.kind == Kind::Payment {
        let amount = &operated.operation.body["amount"];
        let of_it = |row: &&Value| row["amount"] == *amount;
        let taken = artifacts.paid("charge").into_iter().filter(|it| of_it(it));
        let kept = artifacts.rows("charges").iter().filter(of_it);
        (vec![taken.count(), kept.count()], 11)
    } else {
        let note = &operated.operation.body["note"];
        let orders = artifacts.rows("orders").iter();
        (vec![orders.filter(|row| row["note"] == *note).count()], 1)
    };
    let mut found = Vec::new();
    for count in counts {
        let name = operated.name();
        if count > most {
            let what = format!("{name} has {count} effects, {most} at most are explained");
            found.push(violated(of, what));
        }
        if is_granted && count == 0 {
            found.push(violated(2, format!("{name} was granted and is not there")));
        }
    }
    found
}

/// Name of the created resource, as the response gives it.
fn id(answer: &Value) -> Option<String> {
    body(answer)["id"].as_str().map(str::to_owned)
}
