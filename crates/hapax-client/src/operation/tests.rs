//! Complete outages on a simulated clock: every wait, every deadline, every time window.

use std::{cmp::Reverse, collections::BinaryHeap};

use hapax::retry::{Backoff, Budget};
use hapax_testkit::clock::{ManualClock, seeded_random};
use http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::policy::Policy;

const NO_ONE: Seen = Seen::NotSent;

fn answer(status: u16, retry_after: Option<u64>) -> Seen {
    Seen::Response {
        status: StatusCode::from_u16(status).unwrap(),
        retry_after: retry_after.map(Duration::from_secs),
        is_stored: false,
    }
}

fn shared(policy: Policy, clock: &ManualClock, seed: u64) -> Arc<Shared> {
    Arc::new(Shared::new(policy, clock.clock(), seeded_random(seed)))
}

/// An operation on a stopped clock.
fn operation(policy: Policy, repeatable: bool) -> Operation {
    let shared = shared(policy, &ManualClock::new(), 1);
    Operation::begin(&shared, "http://a:80".into(), repeatable)
}

#[track_caller]
fn stops(operation: &mut Operation, seen: Seen, expected: Stopped) {
    let step = operation.seen(seen, None, "", Duration::ZERO);
    assert_eq!(step, Step::Stop(expected));
}

#[track_caller]
fn waits(operation: &mut Operation, seen: Seen) {
    let step = operation.seen(seen, None, "", Duration::ZERO);
    assert!(matches!(step, Step::Wait(_)), "{step:?}");
}

#[test]
fn an_answer_that_stands_ends_the_operation_whatever_it_says() {
    for status in [200, 201, 301, 400, 401, 404, 409, 412, 422, 501, 505] {
        stops(
            &mut operation(Policy::default(), true),
            answer(status, None),
            Stopped::Final,
        );
    }
    let mut outcome = operation(Policy::default(), true);
    waits(&mut outcome, answer(409, Some(1)));
}

#[test]
fn a_failure_of_the_class_internal_is_not_tried_again() {
    let mut outcome = operation(Policy::default(), true);
    let code = |code: &str| Some(code.to_owned());
    let step = outcome.seen(
        answer(500, None),
        code("TRANSIENT.internal"),
        "",
        Duration::ZERO,
    );
    assert!(matches!(step, Step::Wait(_)), "{step:?}");
    let step = outcome.seen(
        answer(500, None),
        code("INTERNAL.statement"),
        "",
        Duration::ZERO,
    );
    assert_eq!(step, Step::Stop(Stopped::Final));
}

#[test]
fn what_may_not_be_repeated_is_sent_again_only_while_nothing_of_it_has_left() {
    let mut operation = operation(Policy::default(), false);
    waits(&mut operation, NO_ONE);
    assert_eq!(operation.resume(Duration::ZERO), Ok(()));
    stops(&mut operation, answer(503, None), Stopped::Unrepeatable);
    let mut lost = self::operation(Policy::default(), false);
    stops(&mut lost, Seen::Lost, Stopped::Unrepeatable);
}

#[test]
fn a_spent_budget_refuses_before_the_wait_and_after_it() {
    let budget = Budget::strict();
    let policy = Policy {
        budget,
        ..Policy::default()
    };
    let shared = shared(policy, &ManualClock::new(), 1);
    let begin = || Operation::begin(&shared, "http://a:80".into(), true);
    let (mut first, mut second, mut third) = (begin(), begin(), begin());
    waits(&mut first, NO_ONE);
    waits(&mut second, NO_ONE);
    assert_eq!(first.resume(Duration::ZERO), Ok(()));
    assert_eq!(second.resume(Duration::ZERO), Err(Stopped::BudgetExhausted));
    stops(&mut third, NO_ONE, Stopped::BudgetExhausted);
    let mut elsewhere = Operation::begin(&shared, "http://b:80".into(), true);
    waits(&mut elsewhere, NO_ONE);
}

#[test]
fn a_wait_that_took_too_long_is_not_followed_by_an_attempt() {
    let mut late = operation(Policy::default(), true);
    waits(&mut late, NO_ONE);
    let total = Duration::from_secs(10);
    assert_eq!(late.resume(total), Err(Stopped::Late));
    assert_eq!(late.resume(Duration::from_millis(9_999)), Ok(()));
}

#[test]
fn doubt_is_about_attempts_before_the_last() {
    let mut unsent = operation(Policy::default(), true);
    waits(&mut unsent, NO_ONE);
    assert!(!unsent.is_in_doubt());
    let mut lost = operation(Policy::default(), true);
    waits(&mut lost, Seen::Lost);
    stops(&mut lost, answer(401, None), Stopped::Final);
    assert!(lost.is_in_doubt());
}

#[test]
fn an_attempt_has_what_is_left_and_at_most_its_own_bound() {
    let attempt_max = Some(Duration::from_secs(3));
    let mut operation = operation(
        Policy {
            attempt_max,
            ..Policy::default()
        },
        true,
    );
    let secs = Duration::from_secs;
    assert_eq!(operation.time(secs(0)), (secs(10), secs(3)));
    assert_eq!(operation.time(secs(8)), (secs(2), secs(2)));
    assert_eq!(operation.time(secs(11)).1, Duration::from_millis(1));
}

/// The attempts of one client during an outage in which every attempt fails at once.
#[derive(Debug, Default)]
struct Sent {
    /// Milliseconds at which first attempts, and retries, were sent.
    firsts: Vec<u64>,
    retries: Vec<u64>,
}

impl Sent {
    /// Checks every window of each width that begins with a retry.
    fn check(&self, widths: &[u64], fits: impl Fn(u64, u64, u64) -> bool) {
        // Both lists are in order.
        let within = |sent: &[u64], from: u64, to: u64| {
            let before = |end: u64| sent.partition_point(|at| *at < end) as u64;
            before(to) - before(from)
        };
        for from in &self.retries {
            for width in widths {
                let retries = within(&self.retries, *from, from + width);
                let firsts = within(&self.firsts, *from, from + width);
                assert!(
                    fits(retries, firsts, *width),
                    "{retries} retries of {firsts} in {width} ms from {from}"
                );
            }
        }
    }
}

/// Runs an outage of `length` milliseconds in which `per_second` operations start.
fn outage(policy: Policy, per_second: u64, length: u64, seed: u64) -> Sent {
    let (clock, mut sent) = (ManualClock::new(), Sent::default());
    let (start, random) = (clock.now(), seeded_random(seed));
    let shared = shared(policy, &clock, seed ^ 1);
    let mut due: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut courses: Vec<(u64, Operation)> = Vec::new();
    let mut next = 0;
    loop {
        let retry = due.peek().map(|Reverse((at, _))| *at);
        let now = retry.map_or(next, |at| at.min(next));
        if now >= length {
            return sent;
        }
        clock.set(start.after(Duration::from_millis(now)));
        let index = if retry == Some(now) {
            let Reverse((_, index)) = due.pop().unwrap();
            let (began, operation) = &mut courses[index];
            if operation
                .resume(Duration::from_millis(now - *began))
                .is_err()
            {
                continue;
            }
            sent.retries.push(now);
            index
        } else {
            let operation = Operation::begin(&shared, "http://a:80".into(), true);
            courses.push((now, operation));
            sent.firsts.push(now);
            next += 1 + random.bits() % (2_000 / per_second).max(1);
            courses.len() - 1
        };
        let (began, operation) = &mut courses[index];
        let elapsed = Duration::from_millis(now - *began);
        if let Step::Wait(wait) = operation.seen(NO_ONE, None, "", elapsed) {
            let wait = u64::try_from(wait.as_millis()).unwrap();
            due.push(Reverse((now + wait, index)));
        }
    }
}

fn policy(budget: Budget) -> Policy {
    let attempts_max = 50;
    let backoff = Backoff {
        attempts_max,
        ..Backoff::default()
    };
    Policy {
        backoff,
        budget,
        attempt_max: None,
    }
}

#[test]
fn without_a_budget_an_outage_multiplies_the_load() {
    let sent = outage(policy(Budget::unbounded()), 100, 30_000, 7);
    assert!(
        sent.retries.len() > 5 * sent.firsts.len(),
        "the outage multiplies the load"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn in_an_outage_every_window_of_ten_seconds_holds_ten_percent_and_one_per_second(
        per_second in prop_oneof![Just(1_u64), Just(3), Just(20), Just(100), Just(400)],
        seed in any::<u64>(),
    ) {
        let sent = outage(policy(Budget::default()), per_second, 40_000, seed);
        assert!(!sent.retries.is_empty());
        sent.check(&[10_000, 10_001, 12_345, 20_000, 40_000], |retries, firsts, millis| {
            retries * 1_000 <= firsts * 100 + millis
        });
        // In shorter windows the initial reserve dominates.
        sent.check(&[1, 100, 1_000, 5_000], |retries, firsts, millis| {
            retries * 1_000 <= 5_000 + firsts * 100 + millis / 2
        });
    }

    #[test]
    fn in_an_outage_the_strict_budget_holds_in_every_window_however_short(
        per_second in prop_oneof![Just(1_u64), Just(3), Just(20), Just(100), Just(400)],
        seed in any::<u64>(),
    ) {
        let sent = outage(policy(Budget::strict()), per_second, 40_000, seed);
        assert!(!sent.retries.is_empty());
        let widths = [1, 10, 100, 999, 1_000, 1_001, 5_000, 10_000, 40_000];
        sent.check(&widths, |retries, firsts, millis| {
            retries <= (firsts * 100 + millis).div_ceil(1_000)
        });
    }

    #[test]
    fn no_attempt_comes_before_it_was_asked_for_past_the_deadline_or_beyond_the_last(
        answers in proptest::collection::vec(
            prop_oneof![
                Just(NO_ONE),
                Just(Seen::Lost),
                (0..6_u64).prop_map(|it| answer(503, Some(it))),
                Just(answer(500, None)),
            ],
            1..40,
        ),
        (took, seed) in (0..2_000_u64, any::<u64>()),
        (attempts_max, total) in (1..20_u32, 100..20_000_u64),
    ) {
        let clock = ManualClock::new();
        let total = Duration::from_millis(total);
        let backoff = Backoff { attempts_max, total, ..Backoff::default() };
        let policy = Policy { backoff, budget: Budget::unbounded(), attempt_max: None };
        let shared = shared(policy, &clock, seed);
        let mut operation = Operation::begin(&shared, "http://a:80".into(), true);
        let (mut now, mut number) = (Duration::ZERO, 0);
        for seen in answers {
            prop_assert!(now < total, "an attempt past the deadline");
            let (left, at_most) = operation.time(now);
            prop_assert!(at_most <= left);
            number += 1;
            prop_assert!(number <= attempts_max);
            now += Duration::from_millis(took).min(at_most);
            let Step::Wait(wait) = operation.seen(seen, None, "", now) else { break };
            let asked = seen.asked().unwrap_or_default();
            prop_assert!(wait >= asked && wait <= asked + backoff.ceiling(number));
            now += wait;
            prop_assert!(operation.resume(now).is_ok());
        }
    }
}
