//! Verdicts of checks, and how a check arrives at one.
//!
//! A check collects observations with a [`Judge`]. One violated requirement makes the verdict
//! [`Verdict::Fail`]; otherwise one thing that could not be observed makes it [`Verdict::Unknown`].
//! So a check passes only if everything that it needs was observed.

use serde::Serialize;

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The server did what the profile requires.
    Pass,
    /// The server did something that the profile forbids.
    Fail,
    /// It could not be judged: something that the check needs is missing, or no request got there.
    Unknown,
    /// The check does not concern this operation or this profile.
    Skipped,
    /// The profile is silent. What the server did is reported, and not judged.
    Note,
}

impl Verdict {
    /// Returns the verdict's name, as in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
            Self::Note => "note",
        }
    }
}

/// A verdict with what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// What the server did, or why there is no verdict: one or more sentences.
    pub(crate) seen: String,
}

impl Judgement {
    pub(crate) fn new(verdict: Verdict, seen: impl Into<String>) -> Self {
        Self {
            verdict,
            seen: seen.into(),
        }
    }

    pub(crate) fn unknown(seen: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, seen)
    }

    pub(crate) fn skipped(seen: impl Into<String>) -> Self {
        Self::new(Verdict::Skipped, seen)
    }

    pub(crate) fn note(seen: impl Into<String>) -> Self {
        Self::new(Verdict::Note, seen)
    }
}

/// Why a check ended before it had a verdict. It is reported as unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// The server could not be reached, or did not respond in time or with HTTP.
    #[error("no response to {request}: {failure}")]
    NoResponse {
        request: String,
        failure: crate::http::Failure,
    },
    /// A connection that was to be cut before the response had arrived was cut too late.
    #[error("each of {0} responses arrived before the probe could close the connection")]
    CutTooLate(usize),
    /// The plan allows no further request.
    #[error("the plan's bound of {0} requests is reached")]
    RequestsMax(u64),
    /// The count of effects could not be read.
    #[error("the effects could not be counted: {0}")]
    Effects(String),
    /// The first request of a check, which only prepares it, was refused.
    #[error("the first request was not accepted: {0}")]
    NotAccepted(String),
    /// Another payload than the usual one was refused under a new key.
    #[error("the server does not accept the varied payload: {0}")]
    Varied(String),
    /// The server refuses requests because there are too many of them.
    #[error("the server limits the rate of requests: {0}; try a lower rate (--rate)")]
    RateLimited(String),
    /// The restart command failed, or the server did not come back.
    #[error("the server could not be restarted: {0}")]
    Restart(String),
}

/// The result of a check.
pub(crate) type Judged = Result<Judgement, Stop>;

/// Collects observations and returns a judgement.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    violations: Vec<String>,
    missing: Vec<String>,
    seen: Vec<String>,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Records an observation that is neither good nor bad.
    pub(crate) fn saw(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.seen.contains(&what) {
            self.seen.push(what);
        }
    }

    /// Records a violation unless the requirement holds. `otherwise` says what was seen instead.
    pub(crate) fn require(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(otherwise());
        }
    }

    /// Records that something could not be observed.
    pub(crate) fn missing(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }

    /// Requires this number of effects. Without a count the verdict is unknown.
    pub(crate) fn effects(&mut self, made: Option<u64>, expected: u64) {
        match made {
            Some(made) => {
                self.require(made == expected, || {
                    format!("{made} effects were counted, expected {expected}")
                });
                self.saw(format!("{made} effects"));
            }
            None => self.missing("the plan does not say how effects are counted"),
        }
    }

    /// Whether a requirement was violated so far.
    pub(crate) fn violated(&self) -> bool {
        !self.violations.is_empty()
    }

    /// Returns the judgement.
    pub(crate) fn judgement(self) -> Judgement {
        let Self {
            violations,
            missing,
            seen,
        } = self;
        if !violations.is_empty() {
            return Judgement::new(Verdict::Fail, violations.join("; "));
        }
        if !missing.is_empty() {
            return Judgement::new(Verdict::Unknown, missing.join("; "));
        }
        let seen = if seen.is_empty() {
            "as required".to_owned()
        } else {
            seen.join("; ")
        };
        Judgement::new(Verdict::Pass, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_outweighs_what_is_missing() {
        let mut judge = Judge::new();
        judge.effects(None, 1);
        judge.require(false, || "two responses".to_owned());
        assert_eq!(
            judge.judgement(),
            Judgement::new(Verdict::Fail, "two responses")
        );
    }

    #[test]
    fn without_a_count_of_effects_nothing_passes() {
        let mut judge = Judge::new();
        judge.require(true, String::new);
        judge.effects(None, 1);
        assert_eq!(judge.judgement().verdict, Verdict::Unknown);
    }

    #[test]
    fn another_number_of_effects_is_a_violation() {
        let mut judge = Judge::new();
        judge.effects(Some(2), 1);
        assert!(judge.violated());
        let judgement = judge.judgement();
        assert_eq!(judgement.verdict, Verdict::Fail);
        assert_eq!(judgement.seen, "2 effects were counted, expected 1");
    }
}
