//! Checker of keys: a key runs once, and all requests with the key get the same response.

use super::Violation;
use crate::kill::{
    answer::Answer,
    evidence::Evidence,
    journal::{Attempt, Intent, Operation},
};

pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    for (intent, attempts) in evidence.history.intents.iter().zip(evidence.attempts()) {
        let answers: Vec<&Answer> = attempts.into_iter().filter_map(Attempt::answer).collect();
        found.extend(unexpected(intent, &answers));
        let lasting: Vec<&Answer> = answers
            .into_iter()
            .filter(|answer| !answer.is_passing())
            .collect();
        found.extend(judge(intent, &lasting));
    }
    let altered = evidence
        .history
        .attempts
        .iter()
        .filter(|attempt| attempt.altered);
    found.extend(altered.filter_map(|attempt| {
        let intent = &evidence.history.intents[attempt.intent];
        let answer = attempt.answer().filter(|answer| !answer.is_passing())?;
        let mismatch = answer.json()["code"]
            .as_str()
            .is_some_and(|code| code.ends_with("payload_mismatch"));
        (answer.status != 409 || !mismatch).then(|| Violation::MismatchTaken {
            tenant: intent.tenant,
            key: intent.key.clone(),
            status: answer.status,
        })
    }));
    found
}

/// Finds responses that a kill cannot cause: a killed shop sends no response.
fn unexpected(intent: &Intent, answers: &[&Answer]) -> Option<Violation> {
    let expected = |answer: &&&Answer| match (intent.operation, answer.status) {
        (Operation::Message, 200) | (_, 201 | 503 | 504) => true,
        (Operation::Refund, 409) => {
            answer.is_passing() || answer.json()["code"] == "CONFLICT.refund.exceeds_charge"
        }
        (_, 409) => answer.is_passing(),
        _ => false,
    };
    let odd = answers.iter().find(|answer| !expected(answer))?;
    Some(Violation::UnexpectedAnswer {
        tenant: intent.tenant,
        key: intent.key.clone(),
        status: odd.status,
        body: String::from_utf8_lossy(&odd.body).into_owned(),
    })
}

fn judge(intent: &Intent, lasting: &[&Answer]) -> Vec<Violation> {
    let (tenant, key) = (intent.tenant, intent.key.clone());
    let Some((first, later)) = lasting.split_first() else {
        return vec![Violation::Unanswered { tenant, key }];
    };
    let mut found = Vec::new();
    let stored = first.stored();
    if let Some(other) = later.iter().find(|answer| answer.stored() != stored) {
        let (first, later) = (format!("{stored:?}"), format!("{:?}", other.stored()));
        found.push(Violation::ReplayDiffers {
            tenant,
            key: key.clone(),
            first,
            later,
        });
    }
    let ran = |answer: &&&Answer| answer.header("idempotency-status") == Some("stored");
    let times = lasting.iter().filter(ran).count();
    if times > 1 {
        found.push(Violation::RanAgain { tenant, key, times });
    }
    found
}
