//! Keys checker: the request of a key runs once, every duplicate gets the same response, and the
//! key of one client never affects another.

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Attempt, Fault, OperationRecord},
    clients::{Kind, body},
};

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    let has_only_kills = artifacts.faults.iter().all(is_kill_or_stop);
    for record in &artifacts.operations {
        if has_only_kills {
            found.extend(failed(record));
        }
        found.extend(ran_again(record));
        found.extend(differs(record));
        found.extend(unexpected(record));
        found.extend(record.attempts.iter().filter_map(|it| mismatch(record, it)));
    }
    found
}

fn ran_again(record: &OperationRecord) -> Option<Violation> {
    let ran = |attempt: &&Attempt| attempt.response["idempotency_status"] == "stored";
    let times = record.unaltered_attempts().filter(ran).count();
    (times > 1).then(|| violated(1, format!("{} ran {times} times", record.name())))
}

fn differs(record: &OperationRecord) -> Option<Violation> {
    let mut finals = record
        .unaltered_attempts()
        .filter(|it| it.response["final"] == true);
    let stored = |it: &Attempt| {
        let member = |name: &str| it.response[name].clone();
        ["status", "headers", "body"].map(member)
    };
    let first = stored(finals.next()?);
    let other = finals.map(stored).find(|it| *it != first)?;
    let (name, first, other) = (
        record.name(),
        Value::from(first.to_vec()),
        Value::from(other.to_vec()),
    );
    Some(violated(
        3,
        format!("{name} got the response {first} and then {other}"),
    ))
}

/// A final response that neither the operation nor any fault explains.
fn unexpected(record: &OperationRecord) -> Option<Violation> {
    let response = &record.final_attempt()?.response;
    let status = response["status"].as_u64().unwrap_or_default();
    let code = body(response)["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let is_expected = match (record.operation.kind, status) {
        (Kind::Update | Kind::Message | Kind::Market | Kind::Notice, 200)
        | (Kind::Order | Kind::Payment | Kind::Refund | Kind::Signup | Kind::Upload, 201)
        | (Kind::Checkout, 201 | 202) => true,
        (Kind::Refund, 409) => code == "CONFLICT.refund.exceeds_charge",
        (Kind::Checkout, 400..500) => {
            // If a provider never received the call, the final outcome is that nothing happened.
            let why = body(response)["detail"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            record.operation.body["address"]["country"] == "ZZ"
                || code == "CONFLICT.checkout.failed" && why.starts_with("absent: ")
        }
        _ => false,
    };
    let name = record.name();
    // A message is identified by its source and its id: the same id from another source is another
    // message.
    let is_confused = record.operation.kind == Kind::Market || code.starts_with("CONFLICT.inbox");
    let of = if is_confused { 8 } else { 2 };
    (!is_expected).then(|| violated(of, format!("{name} got the response {status} {code}")))
}

/// Whether a fault kills or stops a process or the server, or is a calm interval.
fn is_kill_or_stop(fault: &Fault) -> bool {
    fault.is_deadly() || matches!(fault.kind.as_str(), "term" | "calm")
}

/// A response that a kill cannot cause: a killed shop sends none, and a shop that is stopping, or whose
/// server is down, responds 503 or 504.
fn failed(record: &OperationRecord) -> Option<Violation> {
    let transient = record
        .unaltered_attempts()
        .filter(|it| it.response["final"] == false);
    let mut statuses = transient.filter_map(|it| it.response["status"].as_u64());
    let unexpected = statuses.find(|it| !matches!(it, 409 | 503 | 504))?;
    Some(violated(
        2,
        format!("{} got the response {unexpected}", record.name()),
    ))
}

fn mismatch(record: &OperationRecord, attempt: &Attempt) -> Option<Violation> {
    if !attempt.is_altered || attempt.response["final"] != true {
        return None;
    }
    let is_rejected = attempt.response["status"] == 409
        && body(&attempt.response)["code"]
            .as_str()
            .is_some_and(|code| code.ends_with("payload_mismatch"));
    let (name, status) = (record.name(), &attempt.response["status"]);
    (!is_rejected).then(|| {
        violated(
            4,
            format!("{name} got the response {status} to an altered request"),
        )
    })
}
