//! Vectors of the client: its decision after an attempt, and what a response means for its journal.

use std::{sync::Arc, time::Duration};

use hapax::{
    Clock, Random, Timestamp,
    retry::{Backoff, Budget},
};
use hapax_testkit::vectors::Vectors;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Came, Missing, look};
use crate::{
    client::response::{self, Fate},
    operation::{Operation, Step},
    policy::{IDEMPOTENCY_STATUS, Policy, Seen, is_repeatable},
    shared::Shared,
    stopped::Stopped,
};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    policy: Limits,
    method: String,
    has_key: bool,
    attempt: u32,
    elapsed_ms: u64,
    random: f64,
    budget_exhausted: bool,
    now: i64,
    outcome: Outcome,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    base_ms: u64,
    cap_ms: u64,
    attempts_max: u32,
    total_ms: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Outcome {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    Failure(Failure),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Failure {
    NotSent,
    Lost,
    TimedOut,
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

#[test]
fn the_vectors_of_retry_decisions_hold() {
    let vectors: Vectors<Ended, Decision> = Vectors::load("retry-decisions.json");
    let results = vectors.inputs().map(decide).collect();
    vectors.check(results);
}

fn decide(ended: &Ended) -> Decision {
    let now = Timestamp::from_millis(ended.now * 1_000);
    let bits = bits(ended.random);
    let (clock, random) = (Clock::new(move || now), Random::new(move || bits));
    let shared = Arc::new(Shared::new(policy(ended), clock, random));
    let method: Method = ended.method.parse().unwrap();
    let repeatable = is_repeatable(&method, ended.has_key);
    let mut operation = Operation::begin(&shared, "http://a:80".into(), repeatable);
    for _ in 1..ended.attempt {
        operation.seen(Seen::NotSent, None, "", Duration::ZERO);
    }
    let (seen, code, note) = look(&came(&ended.outcome), now);
    let elapsed = Duration::from_millis(ended.elapsed_ms);
    match operation.seen(seen, code, &note, elapsed) {
        Step::Wait(wait) => Decision {
            wait_ms: Some(millis(wait)),
            ..Decision::default()
        },
        Step::Stop(stopped) => Decision {
            stop: Some(stopped.word().to_owned()),
            retry_after_ms: match stopped {
                Stopped::TooLate(asked) => Some(millis(asked)),
                _ => None,
            },
            ..Decision::default()
        },
    }
}

fn policy(ended: &Ended) -> Policy {
    let limits = &ended.policy;
    let budget = if ended.budget_exhausted {
        // A retry costs something, and nothing is ever paid in.
        Budget {
            per_retry: 1,
            ..Budget::unbounded()
        }
    } else {
        Budget::unbounded()
    };
    Policy {
        backoff: Backoff {
            base: Duration::from_millis(limits.base_ms),
            cap: Duration::from_millis(limits.cap_ms),
            attempts_max: limits.attempts_max,
            total: Duration::from_millis(limits.total_ms),
        },
        budget,
        attempt_max: None,
    }
}

fn came(outcome: &Outcome) -> Result<Came, Missing> {
    let seen = match outcome {
        Outcome::Response {
            status,
            headers,
            body,
        } => {
            let headers = headers.iter().map(|(name, value)| {
                let name: HeaderName = name.parse().unwrap();
                (name, value.parse().unwrap())
            });
            return Ok(Came {
                status: StatusCode::from_u16(*status).unwrap(),
                headers: headers.collect(),
                body: Some(body.clone().into()),
            });
        }
        Outcome::Failure(Failure::NotSent) => Seen::NotSent,
        Outcome::Failure(Failure::Lost) => Seen::Lost,
        Outcome::Failure(Failure::TimedOut) => Seen::TimedOut,
    };
    let source = "no response".into();
    Err(Missing { seen, source })
}

/// The random bits of a number between 0 and 1.
fn bits(unit: f64) -> u64 {
    let billionths = Duration::from_secs_f64(unit).as_nanos();
    u64::try_from((billionths << 64) / 1_000_000_000).unwrap()
}

/// The nearest millisecond.
fn millis(time: Duration) -> u64 {
    u64::try_from((time.as_nanos() + 500_000) / 1_000_000).unwrap()
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Final {
    status: u16,
    idempotency_status: Option<String>,
    code: Option<String>,
    in_doubt: bool,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Meaning {
    key: String,
}

#[test]
fn the_vectors_of_the_journal_hold() {
    let vectors: Vectors<Final, Meaning> = Vectors::load("journal.json");
    let results = vectors.inputs().map(meaning).collect();
    vectors.check(results);
}

fn meaning(response: &Final) -> Meaning {
    let status = StatusCode::from_u16(response.status).unwrap();
    let mut headers = HeaderMap::new();
    if let Some(said) = &response.idempotency_status {
        headers.insert(IDEMPOTENCY_STATUS, said.parse().unwrap());
    }
    let code = response.code.as_deref();
    let key = match response::fate(status, &headers, code, response.in_doubt) {
        Fate::Known => "known",
        Fate::Nothing => "nothing",
        Fate::Unknown => "unknown",
    };
    Meaning {
        key: key.to_owned(),
    }
}
