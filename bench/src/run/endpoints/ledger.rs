//! Ledger of a round: the arrivals of its events at their endpoints.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};

use crate::{histogram::Histogram, receive::nanoseconds, run::relay::to_f64};

use super::plan::{EACH, Plan, sickness};

/// The arrivals of the events of a round.
#[derive(Debug)]
pub(super) struct Ledger {
    plan: Plan,
    /// The number of the first event.
    first: usize,
    /// The first arrival of each event at each endpoint of its tenant; 0 if there was none.
    arrivals: Vec<u64>,
    /// Whether some endpoints are sick.
    is_sick: bool,
    /// Deliveries to healthy endpoints that have not arrived.
    missing: usize,
    /// Deliveries that had arrived before.
    repeated: u64,
    /// The first delivery that is wrong.
    problem: Option<String>,
}

/// The delays of a round at the endpoints that are healthy in every round.
#[derive(Debug)]
pub(super) struct Delays {
    pub(super) histogram: Histogram,
    /// Deliveries per second, from the first commit to the last arrival.
    pub(super) rate: f64,
}

impl Ledger {
    /// A ledger without events.
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            first: 0,
            arrivals: Vec::new(),
            is_sick: false,
            missing: 0,
            repeated: 0,
            problem: None,
        }
    }

    /// Begins a round with these events. Those of earlier rounds are not counted any more.
    pub(super) fn begin(&mut self, first: usize, count: usize, is_sick: bool) {
        (self.first, self.is_sick) = (first, is_sick);
        self.arrivals = vec![0; count * EACH];
        let events = first..first + count;
        let healthy = events.map(|event| {
            let own = self.plan.receivers(event);
            own.filter(|it| self.is_expected(*it)).count()
        });
        self.missing = healthy.sum();
    }

    /// Whether an endpoint has to receive every event of its tenant in this round.
    fn is_expected(&self, endpoint: usize) -> bool {
        !self.is_sick || sickness(endpoint).is_none()
    }

    /// Notes that an event has arrived at an endpoint.
    pub(super) fn arrived(&mut self, endpoint: usize, event: usize) {
        if !self.plan.belongs(endpoint, event) {
            self.refuse(format!(
                "event {event} arrived at endpoint {endpoint}, which belongs to another tenant"
            ));
            return;
        }
        let Some(of_round) = event.checked_sub(self.first) else {
            // A retry from an earlier round.
            return;
        };
        let is_expected = self.is_expected(endpoint);
        match self.arrivals.get_mut(of_round * EACH + endpoint % EACH) {
            Some(at) if *at == 0 => {
                *at = nanoseconds();
                self.missing -= usize::from(is_expected);
            }
            Some(_) => self.repeated += 1,
            None => self.refuse(format!("event {event} was not emitted")),
        }
    }

    /// Notes a delivery that is wrong.
    pub(super) fn refuse(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    /// The number of deliveries to healthy endpoints that have not arrived. Fails if a delivery was
    /// wrong.
    pub(super) fn missing(&self) -> anyhow::Result<usize> {
        match &self.problem {
            Some(problem) => bail!("{problem}"),
            None => Ok(self.missing),
        }
    }

    /// The number of deliveries that had arrived before, in all rounds.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The delays since these commits, by event. Fails if an event is not at an endpoint that stays
    /// healthy.
    pub(super) fn delays(&self, commits: &BTreeMap<usize, u64>) -> anyhow::Result<Delays> {
        let (mut histogram, mut last) = (Histogram::new(), 0);
        for (event, committed) in commits {
            let own = self.plan.receivers(*event);
            for endpoint in own.filter(|it| sickness(*it).is_none()) {
                let of_round = event.checked_sub(self.first);
                let place = of_round.map(|it| it * EACH + endpoint % EACH);
                let arrived = place.and_then(|it| self.arrivals.get(it));
                let arrived = arrived.copied().filter(|at| *at > 0);
                let arrived = arrived.with_context(|| {
                    format!("event {event} did not arrive at endpoint {endpoint}")
                })?;
                last = last.max(arrived);
                // The receiver may have the event before the writer knows that its commit has
                // succeeded.
                histogram.record(Duration::from_nanos(arrived.saturating_sub(*committed)));
            }
        }
        let began = commits.values().min().copied().unwrap_or(last);
        let took = Duration::from_nanos(last.saturating_sub(began)).as_secs_f64();
        let count = to_f64(histogram.count());
        Ok(Delays {
            histogram,
            rate: count / took,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_complete_when_each_healthy_endpoint_has_each_event() {
        let plan = Plan { tenants: 10 };
        let mut ledger = Ledger::new(plan);
        for (is_sick, expected) in [(false, 20), (true, 19)] {
            // Events 13 and 14: the fourth tenant has endpoint 37.
            ledger.begin(13, 2, is_sick);
            assert_eq!(ledger.missing().unwrap(), expected);
            assert!(ledger.delays(&BTreeMap::from([(13, 1)])).is_err());
            for endpoint in plan.receivers(13).chain(plan.receivers(14)) {
                let event = 13 + (endpoint - 30) / EACH;
                if !is_sick || sickness(endpoint).is_none() {
                    ledger.arrived(endpoint, event);
                }
            }
            assert_eq!(ledger.missing().unwrap(), 0);
            let delays = ledger.delays(&BTreeMap::from([(13, 1), (14, 1)])).unwrap();
            assert_eq!(delays.histogram.count(), 19);
        }
        ledger.arrived(30, 13);
        // Event 12 is from an earlier round.
        ledger.arrived(20, 12);
        assert_eq!(ledger.repeated(), 1);
    }

    #[test]
    fn an_event_of_another_tenant_fails_the_run() {
        let mut ledger = Ledger::new(Plan { tenants: 10 });
        ledger.begin(0, 1, false);
        ledger.arrived(10, 0);
        let error = ledger.missing().unwrap_err().to_string();
        assert!(error.contains("another tenant"), "{error}");
    }

    #[test]
    fn an_event_that_was_not_emitted_fails_the_run() {
        let mut ledger = Ledger::new(Plan { tenants: 10 });
        ledger.begin(0, 1, false);
        ledger.arrived(10, 1);
        assert!(ledger.missing().is_err());
    }
}
