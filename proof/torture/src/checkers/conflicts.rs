//! Conflicts checker: another payload under the key of a request that runs is a mismatch, and does not disturb that
//! request.

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::Artifacts,
    conflict::{Conflict, Exchange},
};

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    for conflict in &artifacts.conflicts {
        found.extend(
            conflict
                .others
                .iter()
                .filter_map(|it| unexplained(conflict, it)),
        );
        found.extend(refused(conflict));
        found.extend(differs(conflict));
    }
    found
}

/// A response to the other payload that neither the promise nor a fault explains.
fn unexplained(conflict: &Conflict, other: &Exchange) -> Option<Violation> {
    // Without a response, or with the error of a fault, nothing is known of the other payload. If it was executed, the
    // checkers of effects find its amount.
    let status = other.response["status"].as_u64()?;
    // Until the first request commits, a run that has not claimed its key yet may have to wait for it.
    let may_wait = other.is_optimistic && other.is_in_progress();
    if status >= 500 || other.is_mismatch() || may_wait {
        return None;
    }
    let (name, node) = (conflict.name(), &other.node);
    let is_first = conflict
        .finals()
        .any(|it| it.response["body"] == other.response["body"]);
    let what = match status {
        200..300 if is_first => {
            format!("{name} ran, and another payload got its response from {node}")
        }
        200..300 => format!("{name} ran, and another payload was executed by {node}"),
        _ => {
            let code = other.code();
            format!("{name} ran, and another payload got {status} {code} from {node}")
        }
    };
    Some(violated(4, what))
}

/// A first request that was refused.
fn refused(conflict: &Conflict) -> Option<Violation> {
    let status = |it: &Exchange| it.response["status"].as_u64().unwrap_or_default();
    let refused = conflict
        .finals()
        .find(|it| !(200..300).contains(&status(it)))?;
    let (name, node) = (conflict.name(), &refused.node);
    let (status, code) = (status(refused), refused.code());
    let what =
        format!("{name} got {status} {code} from {node} after another payload under its key");
    Some(violated(2, what))
}

/// Responses to the first request that differ.
fn differs(conflict: &Conflict) -> Option<Violation> {
    let stored =
        |it: &Exchange| ["status", "headers", "body"].map(|name| it.response[name].clone());
    let mut finals = conflict.finals().map(stored);
    let first = finals.next()?;
    let other = finals.find(|it| *it != first)?;
    let (first, other) = (Value::from(first.to_vec()), Value::from(other.to_vec()));
    let name = conflict.name();
    let what = format!("{name} got the response {first} and then {other}, after another payload");
    Some(violated(3, what))
}
