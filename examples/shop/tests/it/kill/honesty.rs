//! Whether the faults bit: a run in which nothing went wrong proves nothing.

use std::collections::HashMap;

use super::{
    evidence::{Death, Evidence},
    journal::{Attempt, Outcome},
};

/// How often each thing happened that the run is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bites {
    /// Deaths of the shop.
    pub(super) deaths: usize,
    /// Requests that a death left without an answer.
    pub(super) cut_off: usize,
    /// Requests cut off after their commit: the answer was a replay of one that nobody heard.
    pub(super) committed: usize,
    /// Requests cut off before their commit: the retry ran.
    pub(super) not_committed: usize,
    /// Answers from memory.
    pub(super) replays: usize,
    /// Requests that asked for something else under a known key, and were told so.
    pub(super) mismatches: usize,
    /// Events delivered again because of a death.
    pub(super) redelivered: usize,
    /// Events delivered again because an answer was lost.
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

    /// What never happened, although the run is for it.
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

/// Whether a death fell between the request and the answer that never came.
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
