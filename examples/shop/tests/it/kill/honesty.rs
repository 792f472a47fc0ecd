//! Fault coverage: counts the effects of the faults. A run in which no fault had an effect proves
//! nothing.

use std::collections::HashMap;

use super::{
    evidence::{Death, Evidence},
    journal::{Attempt, Outcome},
};

/// The number of times that each effect of a fault occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bites {
    /// Deaths of the shop.
    pub(super) deaths: usize,
    /// Requests without a response because of a death.
    pub(super) cut_off: usize,
    /// Requests whose response was lost after the commit: the retry got a replay.
    pub(super) committed: usize,
    /// Requests that were cut off before the commit: the retry ran.
    pub(super) not_committed: usize,
    /// Replayed responses.
    pub(super) replays: usize,
    /// Requests with another body under a known key that were rejected.
    pub(super) mismatches: usize,
    /// Events that were delivered again because of a death.
    pub(super) redelivered: usize,
    /// Events that were delivered again because a response was lost.
    pub(super) answers_lost: usize,
}

impl Bites {
    pub(super) fn count(evidence: &Evidence) -> Self {
        let mut bites = Self {
            deaths: evidence.deaths.len(),
            ..Self::default()
        };
        for attempts in evidence.attempts() {
            bites.count_attempts(&attempts, &evidence.deaths);
        }
        let altered = evidence
            .history
            .attempts
            .iter()
            .filter(|attempt| attempt.altered);
        let refused =
            |attempt: &&Attempt| attempt.answer().is_some_and(|answer| answer.status == 409);
        bites.mismatches = altered.filter(refused).count();
        let mut last = HashMap::new();
        for delivery in &evidence.received.deliveries {
            match last.insert(&delivery.event_id, delivery) {
                Some(earlier) if earlier.lost => bites.answers_lost += 1,
                Some(_) => bites.redelivered += 1,
                None => {}
            }
        }
        bites
    }

    /// The effects that never occurred, although the run should cause them.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let bites = [
            (self.deaths, "a death"),
            (self.cut_off, "a request cut off by a death"),
            (self.committed, "a request cut off after its commit"),
            (self.not_committed, "a request cut off before its commit"),
            (self.replays, "a replay"),
            (self.mismatches, "a mismatch"),
            (self.redelivered, "a delivery repeated because of a death"),
            (
                self.answers_lost,
                "a delivery repeated because its answer was lost",
            ),
        ];
        bites
            .into_iter()
            .filter(|(count, _)| *count == 0)
            .map(|(_, what)| what)
            .collect()
    }

    fn count_attempts(&mut self, attempts: &[&Attempt], deaths: &[Death]) {
        let cut_off: Vec<_> = attempts
            .iter()
            .filter(|attempt| is_cut_off(attempt, deaths))
            .collect();
        self.cut_off += cut_off.len();
        let answered = |status| {
            let of = move |attempt: &&&Attempt| {
                let answer = attempt.answer();
                answer.and_then(|answer| answer.header("idempotency-status")) == Some(status)
            };
            attempts.iter().filter(of)
        };
        self.replays += answered("replayed").count();
        match answered("stored").next() {
            None if !cut_off.is_empty() && answered("replayed").next().is_some() => {
                self.committed += 1;
            }
            Some(ran) if cut_off.iter().any(|lost| lost.ended <= ran.began) => {
                self.not_committed += 1;
            }
            _ => {}
        }
    }
}

/// Whether a death between the request and its end explains that there was no response.
fn is_cut_off(attempt: &Attempt, deaths: &[Death]) -> bool {
    let spans = |death: &Death| attempt.began <= death.latest && attempt.ended >= death.earliest;
    matches!(attempt.outcome, Outcome::Lost) && deaths.iter().any(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill::sample::{ORDER, attempt, sound};

    #[test]
    fn a_run_without_faults_proves_nothing() {
        assert_eq!(Bites::count(&Evidence::default()).missing().len(), 8);
    }

    #[test]
    fn each_fault_that_bit_is_counted() {
        let bites = Bites::count(&sound());
        let expected = Bites {
            deaths: 2,
            cut_off: 1,
            not_committed: 1,
            replays: 7,
            redelivered: 1,
            ..Bites::default()
        };
        assert_eq!(bites, expected);
        assert_eq!(bites.missing().len(), 3);
    }

    #[test]
    fn a_request_whose_every_answer_was_a_replay_was_committed_when_it_was_cut_off() {
        let mut evidence = sound();
        let stored = |attempt: &Attempt| {
            let answer = attempt.answer();
            answer.and_then(|answer| answer.header("idempotency-status")) == Some("stored")
        };
        let attempts = &mut evidence.history.attempts;
        attempts.retain(|attempt| attempt.intent != ORDER || !stored(attempt));
        let bites = Bites::count(&evidence);
        assert_eq!((bites.committed, bites.not_committed), (1, 0));
    }

    #[test]
    fn a_request_that_was_lost_far_from_any_death_was_not_cut_off() {
        let mut evidence = sound();
        let lost = attempt(ORDER, [5_000, 5_010], Outcome::Lost);
        evidence.history.attempts.push(lost);
        assert_eq!(Bites::count(&evidence).cut_off, 1);
    }
}
