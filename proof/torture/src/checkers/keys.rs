//! Keys checker: the request of a key runs once, every duplicate gets the same response, and the
//! key of one client never affects another.

use serde_json::Value;

use super::{Violation, violated};
use crate::{
    artifacts::{Artifacts, Attempt, Fault, Wished, body},
    clients::Kind,
};

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let mut found = Vec::new();
    let has_only_deaths = artifacts.faults.iter().all(is_end);
    for wished in &artifacts.operations {
        if has_only_deaths {
            found.extend(failed(wished));
        }
        found.extend(ran_again(wished));
        found.extend(differs(wished));
        found.extend(unexpected(wished));
        found.extend(wished.attempts.iter().filter_map(|it| mismatch(wished, it)));
    }
    found
}

fn ran_again(wished: &Wished) -> Option<Violation> {
    let ran = |attempt: &&Attempt| attempt.answer["came"] == "stored";
    let times = wished.asked().filter(ran).count();
    (times > 1).then(|| violated(1, format!("{} ran {times} times", wished.name())))
}

fn differs(wished: &Wished) -> Option<Violation> {
    let mut lasting = wished.asked().filter(|it| it.answer["lasting"] == true);
    let stored = |it: &Attempt| {
        let member = |name: &str| it.answer[name].clone();
        ["status", "headers", "body"].map(member)
    };
    let first = stored(lasting.next()?);
    let other = lasting.map(stored).find(|it| *it != first)?;
    let (name, first, other) = (
        wished.name(),
        Value::from(first.to_vec()),
        Value::from(other.to_vec()),
    );
    Some(violated(
        3,
        format!("{name} was answered {first} and then {other}"),
    ))
}

/// A final response that neither the operation nor any fault explains.
fn unexpected(wished: &Wished) -> Option<Violation> {
    let answer = &wished.lasting()?.answer;
    let status = answer["status"].as_u64().unwrap_or_default();
    let code = body(answer)["code"].as_str().unwrap_or_default().to_owned();
    let is_expected = match (wished.operation.kind, status) {
        (Kind::Update | Kind::Message | Kind::Market, 200)
        | (Kind::Order | Kind::Payment | Kind::Refund | Kind::Signup | Kind::Upload, 201)
        | (Kind::Checkout, 201 | 202) => true,
        (Kind::Refund, 409) => code == "CONFLICT.refund.exceeds_charge",
        (Kind::Checkout, 400..500) => {
            // If a provider never received the call, the final outcome is that nothing happened.
            let why = body(answer)["detail"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            wished.operation.body["address"]["country"] == "ZZ"
                || code == "CONFLICT.checkout.failed" && why.starts_with("absent: ")
        }
        _ => false,
    };
    let name = wished.name();
    // A message is identified by its source and its id: the same id from another source is another
    // message.
    let is_confused = wished.operation.kind == Kind::Market || code.starts_with("CONFLICT.inbox");
    let of = if is_confused { 8 } else { 2 };
    (!is_expected).then(|| violated(of, format!("{name} was answered {status} {code}")))
}

/// Whether a fault ends a process or the server, or only waits.
fn is_end(fault: &Fault) -> bool {
    fault.is_deadly() || matches!(fault.word.as_str(), "term" | "calm")
}

/// A response that a death cannot cause: a killed shop sends none, and one that is stopping or has
/// no server says so.
fn failed(wished: &Wished) -> Option<Violation> {
    let passing = wished.asked().filter(|it| it.answer["lasting"] == false);
    let mut statuses = passing.filter_map(|it| it.answer["status"].as_u64());
    let odd = statuses.find(|it| !matches!(it, 409 | 503 | 504))?;
    Some(violated(2, format!("{} was answered {odd}", wished.name())))
}

fn mismatch(wished: &Wished, attempt: &Attempt) -> Option<Violation> {
    if !attempt.is_altered || attempt.answer["lasting"] != true {
        return None;
    }
    let is_refused = attempt.answer["status"] == 409
        && body(&attempt.answer)["code"]
            .as_str()
            .is_some_and(|code| code.ends_with("payload_mismatch"));
    let (name, status) = (wished.name(), &attempt.answer["status"]);
    (!is_refused).then(|| {
        violated(
            4,
            format!("{name} was answered {status} for another request"),
        )
    })
}
