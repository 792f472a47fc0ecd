//! Retry budget: limits the load that all retries to one destination add.
//!
//! A [`Balance`] holds thousandths of a retry. First attempts, time and successes add to it;
//! retries and failures subtract from it. It never exceeds a maximum. So the number of retries in
//! any time window is at most `max` plus what was added during the window. All amounts are
//! integers, so that 10 % is exact at any rate.

use crate::clock::Timestamp;

/// One retry, in the unit of all amounts in this module.
const RETRY: u64 = 1_000;

/// What is added and subtracted, in thousandths of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Maximum of the balance, and so of the retries at one moment.
    pub max: u64,
    /// Initial balance.
    pub initial: u64,
    /// Minimum balance after a retry.
    pub reserve: u64,
    /// Added for a first attempt.
    pub per_request: u64,
    /// Added per second.
    pub per_second: u64,
    /// Added for an operation that succeeds.
    pub per_success: u64,
    /// Subtracted for a retry.
    pub per_retry: u64,
    /// Subtracted for an attempt that failed and could be retried.
    pub per_failure: u64,
}

impl Budget {
    const NOTHING: Self = Self {
        max: 0,
        initial: 0,
        reserve: 0,
        per_request: 0,
        per_second: 0,
        per_success: 0,
        per_retry: 0,
        per_failure: 0,
    };

    /// 10 % of first attempts and one retry per second, without reserve: the limit holds in every
    /// window, however short, rounded up to a whole retry.
    ///
    /// A single operation then has one retry per second, even if its maximum number of attempts is
    /// higher.
    pub const fn strict() -> Self {
        Self {
            max: RETRY,
            initial: RETRY,
            per_request: RETRY / 10,
            per_second: RETRY,
            per_retry: RETRY,
            ..Self::NOTHING
        }
    }

    /// Retry throttling of gRPC (proposal A6): a failure subtracts a token, a success adds
    /// `ratio_milli` thousandths of one, and retries require more than half of `tokens_max`.
    pub const fn grpc(tokens_max: u32, ratio_milli: u32) -> Self {
        let max = tokens_max as u64 * RETRY;
        Self {
            max,
            initial: max,
            reserve: max / 2 + 1,
            per_success: ratio_milli as u64,
            per_failure: RETRY,
            ..Self::NOTHING
        }
    }

    /// Retry budget of Finagle: a request adds `percent` of a retry, a second adds `per_second`
    /// retries, and a retry subtracts one. The balance is limited to `max` retries, where Finagle
    /// limits the age of deposits.
    pub const fn finagle(percent: u32, per_second: u32, max: u32) -> Self {
        let max = max as u64 * RETRY;
        Self {
            max,
            initial: max,
            per_request: percent as u64 * RETRY / 100,
            per_second: per_second as u64 * RETRY,
            per_retry: RETRY,
            ..Self::NOTHING
        }
    }

    /// No limit except the maximum number of attempts, for a program that performs one operation
    /// and exits.
    pub const fn unbounded() -> Self {
        Self::NOTHING
    }
}

impl Default for Budget {
    /// 10 % of first attempts, half a retry per second, and five at once: a single operation has
    /// all its attempts, and in every window of ten seconds or longer retries stay within 10 % of
    /// first attempts plus one per second.
    fn default() -> Self {
        Self {
            max: 5 * RETRY,
            initial: 5 * RETRY,
            per_request: RETRY / 10,
            per_second: RETRY / 2,
            per_retry: RETRY,
            ..Self::NOTHING
        }
    }
}

/// The balance of one destination.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    budget: Budget,
    amount: u64,
    /// Millionths of a retry that time has added and that do not make a thousandth yet.
    rest: u64,
    seen_at: Timestamp,
}

impl Balance {
    /// Creates the balance of a destination without previous requests.
    pub fn new(budget: Budget, now: Timestamp) -> Self {
        Self {
            budget,
            amount: budget.initial.min(budget.max),
            rest: 0,
            seen_at: now,
        }
    }

    /// The balance, in thousandths of a retry.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Whether the balance equals that of a destination without previous requests.
    pub fn is_fresh(&mut self, now: Timestamp) -> bool {
        self.pass(now);
        self.amount >= self.budget.initial.min(self.budget.max)
    }

    /// Records a first attempt.
    pub fn first(&mut self, now: Timestamp) {
        self.pass(now);
        self.pay_in(self.budget.per_request);
    }

    /// Records an operation that succeeded.
    pub fn succeeded(&mut self, now: Timestamp) {
        self.pass(now);
        self.pay_in(self.budget.per_success);
    }

    /// Records an attempt that failed and could be retried.
    pub fn failed(&mut self, now: Timestamp) {
        self.pass(now);
        self.amount = self.amount.saturating_sub(self.budget.per_failure);
    }

    /// Whether a retry could be sent now.
    pub fn allows(&mut self, now: Timestamp) -> bool {
        self.pass(now);
        self.amount >= self.budget.reserve.saturating_add(self.budget.per_retry)
    }

    /// Subtracts a retry at the moment at which it is sent; `false` if the balance is too low.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let allowed = self.allows(now);
        if allowed {
            self.amount = self.amount.saturating_sub(self.budget.per_retry);
        }
        allowed
    }

    /// Adds the amount for the time since the last call. A clock that was set back adds nothing.
    fn pass(&mut self, now: Timestamp) {
        let millis = u64::try_from(now.since(self.seen_at).as_millis()).unwrap_or(u64::MAX);
        self.seen_at = now;
        let earned = millis.saturating_mul(self.budget.per_second);
        let earned = earned.saturating_add(self.rest);
        self.rest = earned % 1_000;
        self.pay_in(earned / 1_000);
    }

    fn pay_in(&mut self, amount: u64) {
        self.amount = self.amount.saturating_add(amount).min(self.budget.max);
        if self.amount == self.budget.max {
            self.rest = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    /// An attempt that was sent, and when: a first attempt or a retry.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Sent {
        First(u64),
        Retry(u64),
    }

    #[test]
    fn ten_percent_of_requests_are_ten_percent_of_retries() {
        let mut balance = Balance::new(
            Budget {
                initial: 0,
                ..Budget::strict()
            },
            START,
        );
        let mut retries = 0;
        for _ in 0..1_000 {
            balance.first(START);
            retries += u32::from(balance.take(START));
        }
        assert_eq!(retries, 100);
    }

    #[test]
    fn an_operation_that_is_alone_has_all_its_attempts_by_default() {
        let mut balance = Balance::new(Budget::default(), START);
        balance.first(START);
        for _ in 1..crate::limits::SEND_ATTEMPTS {
            assert!(balance.take(START));
        }
    }

    #[test]
    fn time_pays_in_to_the_last_thousandth_however_often_it_is_looked_at() {
        let budget = Budget {
            initial: 0,
            per_second: 333,
            ..Budget::strict()
        };
        let mut balance = Balance::new(budget, START);
        for millis in 1..=1_000 {
            balance.allows(START.after(Duration::from_millis(millis)));
        }
        assert_eq!(balance.amount(), 333);
    }

    #[test]
    fn a_clock_that_jumps_pays_in_a_full_budget_at_most_and_takes_nothing() {
        let mut balance = Balance::new(Budget::default(), START);
        assert!(balance.take(START));
        balance.allows(Timestamp::from_millis(0));
        assert_eq!(balance.amount(), 4_000);
        balance.allows(Timestamp::from_millis(1_000));
        assert_eq!(
            balance.amount(),
            4_500,
            "time continues from the time to which the clock was set back"
        );
        balance.allows(Timestamp::from_millis(i64::MAX));
        assert_eq!(balance.amount(), 5_000);
    }

    #[test]
    fn the_throttle_of_grpc_stops_retries_at_half_and_resumes_above_it() {
        let mut balance = Balance::new(Budget::grpc(10, 500), START);
        for _ in 0..4 {
            balance.failed(START);
            assert!(balance.take(START));
        }
        balance.failed(START);
        assert!(!balance.take(START), "exactly half is not more than half");
        balance.succeeded(START);
        assert!(balance.take(START));
        for _ in 0..100 {
            balance.failed(START);
        }
        assert_eq!(balance.amount(), 0);
    }

    #[test]
    fn the_budget_of_finagle_deposits_and_withdraws() {
        let mut balance = Balance::new(Budget::finagle(20, 0, 2), START);
        assert!(balance.take(START) && balance.take(START) && !balance.take(START));
        for _ in 0..5 {
            balance.first(START);
        }
        assert!(balance.take(START) && !balance.take(START));
    }

    #[test]
    fn without_bounds_there_is_always_another_retry() {
        let mut balance = Balance::new(Budget::unbounded(), START);
        assert!((0..1_000).all(|_| balance.take(START)));
    }

    /// All retries that are wanted and allowed, among first attempts at any pace.
    fn load(budget: Budget, steps: &[(u16, u8, u8)]) -> Vec<Sent> {
        let (mut balance, mut sent, mut now) = (Balance::new(budget, START), Vec::new(), 0);
        for &(gap, firsts, wanted) in steps {
            now += u64::from(gap);
            let at = START.after(Duration::from_millis(now));
            for _ in 0..firsts {
                balance.first(at);
                sent.push(Sent::First(now));
            }
            for _ in 0..wanted {
                if balance.take(at) {
                    sent.push(Sent::Retry(now));
                }
            }
        }
        sent
    }

    /// Calls `check` for every window that begins and ends with a retry: retries, first attempts,
    /// and milliseconds from the first to the last.
    fn windows(sent: &[Sent], mut check: impl FnMut(u64, u64, u64)) {
        for (begin, first) in sent.iter().enumerate() {
            let Sent::Retry(from) = *first else { continue };
            let (mut retries, mut firsts) = (0, 0);
            for next in &sent[begin..] {
                match *next {
                    Sent::First(_) => firsts += 1,
                    Sent::Retry(to) => {
                        retries += 1;
                        check(retries, firsts, to - from);
                    }
                }
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<(u16, u8, u8)>> {
        // From a request every few seconds to a thousand per second.
        let pace = prop_oneof![Just(1_u16), Just(10), Just(100), Just(3_000)];
        pace.prop_flat_map(|pace| proptest::collection::vec((0..=pace, 0..8_u8, 0..8_u8), 1..300))
    }

    proptest! {
        #[test]
        fn no_window_holds_more_retries_than_were_kept_and_paid_in(
            steps in steps(),
            (max, per_request, per_second) in (1_000_u64..9_000, 0_u64..500, 0_u64..3_000),
        ) {
            let budget = Budget { max, initial: max, per_request, per_second, ..Budget::strict() };
            windows(&load(budget, &steps), |retries, firsts, millis| {
                let paid_in = firsts * per_request * 1_000 + millis * per_second;
                assert!(retries * RETRY * 1_000 <= max * 1_000 + paid_in);
            });
        }

        #[test]
        fn by_default_ten_seconds_and_more_hold_ten_percent_and_one_per_second(steps in steps()) {
            windows(&load(Budget::default(), &steps), |retries, firsts, millis| {
                // The shortest window of ten seconds or more around these retries.
                let window = millis.max(10_000);
                assert!(retries * 1_000 <= firsts * 100 + window);
            });
        }

        #[test]
        fn the_strict_budget_holds_in_every_window_rounded_up_to_a_whole_retry(steps in steps()) {
            windows(&load(Budget::strict(), &steps), |retries, firsts, millis| {
                // Windows are half-open, so the shortest one that contains them is longer than
                // `millis`.
                assert!(retries <= (firsts * 100 + millis + 1).div_ceil(1_000));
            });
        }
    }
}
