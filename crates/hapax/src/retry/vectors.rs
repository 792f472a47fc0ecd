//! Vectors of retries: the wait that a response asks for, and the budget of a destination.

use hapax_testkit::vectors::Vectors;
use serde::{Deserialize, Serialize};

use super::{Balance, Budget, retry_after};
use crate::clock::Timestamp;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Response {
    retry_after: Option<String>,
    date: Option<String>,
    now: i64,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    seconds: Option<u64>,
}

#[test]
fn the_vectors_of_retry_after_hold() {
    let vectors: Vectors<Response, Wait> = Vectors::load("retry-after.json");
    let wait = |response: &Response| {
        let header = |name: &str| match name {
            "retry-after" => response.retry_after.as_deref(),
            "date" => response.date.as_deref(),
            _ => None,
        };
        let wait = retry_after(header, Timestamp::from_millis(response.now * 1_000));
        Wait {
            seconds: wait.map(|wait| wait.as_secs()),
        }
    };
    let results = vectors.inputs().map(wait).collect();
    vectors.check(results);
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Destination {
    budget: Amounts,
    steps: Vec<(i64, Event)>,
}

/// The members of a [`Budget`].
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Amounts {
    max: u64,
    initial: u64,
    reserve: u64,
    per_request: u64,
    per_second: u64,
    per_success: u64,
    per_retry: u64,
    per_failure: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    First,
    Succeeded,
    Failed,
    Allows,
    Take,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Balances {
    steps: Vec<(u64, Option<bool>)>,
}

#[test]
fn the_vectors_of_the_budget_hold() {
    let vectors: Vectors<Destination, Balances> = Vectors::load("retry-budget.json");
    let results = vectors.inputs().map(balances).collect();
    vectors.check(results);
}

fn balances(destination: &Destination) -> Balances {
    let start = Timestamp::from_millis(0);
    let mut balance = Balance::new(budget(&destination.budget), start);
    let step = |(at, event): &(i64, Event)| {
        let now = Timestamp::from_millis(*at);
        let allowed = match event {
            Event::First => {
                balance.first(now);
                None
            }
            Event::Succeeded => {
                balance.succeeded(now);
                None
            }
            Event::Failed => {
                balance.failed(now);
                None
            }
            Event::Allows => Some(balance.allows(now)),
            Event::Take => Some(balance.take(now)),
        };
        (balance.amount(), allowed)
    };
    let steps = destination.steps.iter().map(step).collect();
    Balances { steps }
}

fn budget(amounts: &Amounts) -> Budget {
    Budget {
        max: amounts.max,
        initial: amounts.initial,
        reserve: amounts.reserve,
        per_request: amounts.per_request,
        per_second: amounts.per_second,
        per_success: amounts.per_success,
        per_retry: amounts.per_retry,
        per_failure: amounts.per_failure,
    }
}

#[test]
fn the_vectors_have_the_default_budget() {
    let vectors: Vectors<Destination, Balances> = Vectors::load("retry-budget.json");
    let mut budgets = vectors.inputs().map(|it| budget(&it.budget));
    assert_eq!(budgets.next(), Some(Budget::default()));
    assert!(budgets.any(|it| it == Budget::strict()));
}
