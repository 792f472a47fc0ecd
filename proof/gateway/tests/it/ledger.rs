//! Responses that clients have seen, and the comparison with the ledger of the service.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    upstream::Entry,
    wire::{Answer, digest},
};

/// The result of one attempt for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An answer of the service: status, the hash of its body, and the headers that the service has
    /// set.
    Answered(u16, String, Vec<(String, String)>),
    /// The outcome is unknown, with the status: 409 if it was unknown before, 502 if the exchange with
    /// the service has failed now, 504 if the service was late.
    Unknown(u16),
    /// A response of the gateway that asks for a retry: its status and its code.
    Later(u16, String),
    /// The connection ended before the response was complete.
    Lost,
}

impl Seen {
    /// Reads a response. The answers of the service contain their hash in a header.
    pub(crate) fn of(answer: Option<&Answer>) -> Self {
        let Some(answer) = answer else {
            return Self::Lost;
        };
        if answer.header("x-answer").is_some() {
            let own = ["x-answer", "content-type"];
            let is_own = |(name, _): &&(String, String)| own.contains(&name.as_str());
            let headers = answer.headers.iter().filter(is_own).cloned().collect();
            return Self::Answered(answer.status, digest(&answer.body), headers);
        }
        if answer.is_unknown() {
            return Self::Unknown(answer.status);
        }
        let code = answer.code().unwrap_or_default();
        let is_retryable = [409, 502, 503, 504].contains(&answer.status);
        assert!(
            is_retryable && !code.is_empty(),
            "no client expects {} {:?} {}",
            answer.status,
            answer.headers,
            answer.text()
        );
        Self::Later(answer.status, code)
    }

    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Answered(200..300, ..))
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// How many attempts have ended in which way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Results {
    /// A success of the service, stored now or replayed.
    pub(crate) answered: usize,
    /// An error of the service, passed on.
    pub(crate) failed: usize,
    /// The exchange with the service has failed.
    pub(crate) cut: usize,
    /// The service was late.
    pub(crate) late: usize,
    /// The outcome was unknown before.
    pub(crate) undecided: usize,
    /// Nothing of the request has left the gateway.
    pub(crate) not_sent: usize,
    /// The gateway asks for a retry for another reason.
    pub(crate) later: usize,
    /// The connection to the gateway has ended.
    pub(crate) lost: usize,
}

impl Results {
    pub(crate) fn attempts(&self) -> usize {
        let unknown = self.cut + self.late + self.undecided;
        let nothing = self.not_sent + self.later + self.lost;
        self.answered + self.failed + unknown + nothing
    }

    fn add(&mut self, seen: &Seen) {
        let count = match seen {
            Seen::Answered(..) if seen.is_success() => &mut self.answered,
            Seen::Answered(..) => &mut self.failed,
            Seen::Unknown(502) => &mut self.cut,
            Seen::Unknown(504) => &mut self.late,
            Seen::Unknown(_) => &mut self.undecided,
            Seen::Later(503, code) if code == "DEPENDENCY.unavailable" => &mut self.not_sent,
            Seen::Later(..) => &mut self.later,
            Seen::Lost => &mut self.lost,
        };
        *count += 1;
    }
}

/// The attempts of all clients by key, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<Attempts>>);

#[derive(Debug, Default)]
struct Attempts {
    by_key: BTreeMap<String, Vec<Seen>>,
    results: Results,
}

impl History {
    pub(crate) fn add(&self, key: &str, seen: Seen) {
        let mut attempts = self.attempts();
        attempts.results.add(&seen);
        attempts
            .by_key
            .entry(key.to_owned())
            .or_default()
            .push(seen);
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Vec<Seen>> {
        self.attempts().by_key.clone()
    }

    /// The results of all attempts so far.
    pub(crate) fn results(&self) -> Results {
        self.attempts().results
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the attempts with the ledger. The last attempt of every key was made after the last
    /// fault, and must have decided.
    ///
    /// Returns every violation of the invariant.
    pub(crate) fn violations(&self, ledger: &[Entry]) -> Vec<String> {
        let mut lines: HashMap<&str, Vec<&Entry>> = HashMap::new();
        for line in ledger {
            lines.entry(&line.key).or_default().push(line);
        }
        let mut wrong = Vec::new();
        let all = self.all();
        for key in lines.keys().filter(|key| !all.contains_key(**key)) {
            wrong.push(format!("{key}: no client has sent the key in the ledger"));
        }
        for (key, seen) in &all {
            let lines = lines.remove(key.as_str()).unwrap_or_default();
            for problem in violations_of(seen, &lines) {
                wrong.push(format!("{key}: {problem}: {seen:?}, ledger {lines:?}"));
            }
        }
        wrong
    }
}

fn violations_of(seen: &[Seen], lines: &[&Entry]) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if lines.len() > 1 {
        wrong.push("the service has acted more than once");
    }
    let mut first: Option<&Seen> = None;
    for (at, attempt) in seen.iter().enumerate() {
        let Seen::Answered(_, hash, headers) = attempt else {
            continue;
        };
        let claimed = headers.iter().find(|(name, _)| name == "x-answer");
        if claimed.is_none_or(|(_, claimed)| claimed != hash) {
            wrong.push("an answer differs from what the service has sent");
        }
        if !lines.iter().any(|line| &line.answer == hash) {
            wrong.push("an answer is not in the ledger");
        }
        if !attempt.is_success() {
            continue;
        }
        if first.is_some_and(|first| first != attempt) {
            wrong.push("a replay differs from the first answer");
        }
        first = first.or(Some(attempt));
        if seen[..at].iter().any(Seen::is_unknown) {
            wrong.push("an unknown outcome was answered without a decision");
        }
    }
    let last = seen.last();
    if last.is_some_and(Seen::is_unknown) {
        if first.is_some() {
            wrong.push("an answered key has an unknown outcome");
        }
    } else if !last.is_some_and(Seen::is_success) {
        wrong.push("the last attempt has decided nothing");
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_violation_is_found() {
        let answered = |text: &str| {
            let headers = vec![("x-answer".to_owned(), digest(text.as_bytes()))];
            Seen::Answered(201, digest(text.as_bytes()), headers)
        };
        let line = |text: &str| Entry {
            key: "k".to_owned(),
            answer: digest(text.as_bytes()),
            text: text.to_owned(),
        };
        let unknown = Seen::Unknown(409);
        let check = |seen: &[Seen], ledger: &[Entry]| {
            let history = History::default();
            for seen in seen {
                history.add("k", seen.clone());
            }
            history.violations(ledger).len()
        };
        let one = [line("a")];
        assert_eq!(check(&[answered("a"), answered("a")], &one), 0);
        assert_eq!(check(&[Seen::Lost, unknown.clone()], &one), 0);
        assert_eq!(check(&[Seen::Unknown(504), unknown.clone()], &[]), 0);
        assert_eq!(check(&[answered("a")], &[line("a"), line("b")]), 1);
        assert_eq!(check(&[answered("a")], &[]), 1);
        assert_eq!(check(&[answered("a"), answered("b")], &one), 2);
        assert_eq!(check(&[unknown.clone(), answered("a")], &one), 1);
        assert_eq!(check(&[answered("a"), unknown], &one), 1);
        assert_eq!(check(&[Seen::Lost], &one), 1);
        let forged = Seen::Answered(201, digest(b"a"), Vec::new());
        assert_eq!(check(&[forged], &one), 1);
        let other = History::default();
        assert_eq!(other.violations(&one).len(), 1);
    }
}
