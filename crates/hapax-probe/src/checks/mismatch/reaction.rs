//! How a server reacts to a second request under a used key, and what a profile expects of it.
//!
//! Responses are distinguished by status and body only. If all responses of an operation are equal, a
//! second execution looks like a replay; the checks then count effects, if the plan says how.

use crate::{
    http::Response,
    profile::{Equality, Profile},
    verdict::{Judgement, Verdict},
};

/// What a server did with a second request under the key of a first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// It returned the first response.
    Replay,
    /// It succeeded with another response: the request was executed.
    Executed,
    /// It refused the request as the profile's mismatch.
    Mismatch,
    /// It refused the request with another 4xx status or code.
    Refused,
    /// A server error or a redirect.
    Unclear,
}

/// What a profile says about two payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// They are the same request.
    Same,
    /// They are different requests.
    Other,
    /// Nothing.
    Silent,
}

impl Reaction {
    pub(crate) fn of(profile: &Profile, first: &Response, answer: &Response) -> Self {
        if answer.is_success() {
            if answer.is_like(first) {
                Self::Replay
            } else {
                Self::Executed
            }
        } else if profile.is_mismatch(answer) {
            Self::Mismatch
        } else if (400..500).contains(&answer.status) {
            Self::Refused
        } else {
            Self::Unclear
        }
    }

    /// Whether the request was refused, as a mismatch or otherwise.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(self, Self::Mismatch | Self::Refused)
    }

    /// Returns what was seen. The text is the same in every run.
    pub(crate) fn describe(self, answer: &Response) -> String {
        let status = answer.status;
        match self {
            Self::Replay => "the first response".to_owned(),
            Self::Executed => format!("a response of its own ({status})"),
            Self::Mismatch => format!("a mismatch ({status})"),
            Self::Refused => format!("another refusal ({status})"),
            Self::Unclear => format!("{status}"),
        }
    }
}

impl Rule {
    /// The rule for two texts of the same JSON value.
    pub(crate) fn of_texts(equality: Equality) -> Self {
        match equality {
            Equality::Raw => Self::Other,
            Equality::CanonicalJson | Equality::Rfc8785 | Equality::JsonByValue => Self::Same,
            Equality::Unstated => Self::Silent,
        }
    }

    /// The rule for two ways to write the same number.
    pub(crate) fn of_numbers(equality: Equality) -> Self {
        match equality {
            Equality::Raw | Equality::CanonicalJson => Self::Other,
            Equality::JsonByValue | Equality::Rfc8785 => Self::Same,
            Equality::Unstated => Self::Silent,
        }
    }

    /// The rule for two JSON values.
    pub(crate) fn of_values(equality: Equality) -> Self {
        match equality {
            Equality::Raw | Equality::CanonicalJson | Equality::Rfc8785 | Equality::JsonByValue => {
                Self::Other
            }
            Equality::Unstated => Self::Silent,
        }
    }

    fn expected(self, profile: &Profile) -> String {
        match self {
            Self::Same => "the first response".to_owned(),
            Self::Other => format!("a mismatch ({})", profile.mismatch.describe()),
            Self::Silent => "nothing in particular".to_owned(),
        }
    }
}

/// Judges the response to the second request.
///
/// If the second payload could be refused before the key is looked at, because it is not valid for
/// the operation, `strict` is false, and such a refusal is a note.
pub(crate) fn judged(
    profile: &Profile,
    rule: Rule,
    strict: bool,
    first: &Response,
    answer: &Response,
) -> Judgement {
    let reaction = Reaction::of(profile, first, answer);
    let seen = format!("the second request got {}", reaction.describe(answer));
    match (reaction, rule) {
        (Reaction::Unclear, _) => {
            Judgement::unknown(format!("the second request got {}", answer.describe()))
        }
        (Reaction::Executed, _) => Judgement::new(
            Verdict::Fail,
            format!(
                "the second request was executed under the key of the first and got {}",
                answer.describe()
            ),
        ),
        (_, Rule::Silent) => Judgement::note(seen),
        (Reaction::Replay, Rule::Same) | (Reaction::Mismatch, Rule::Other) => {
            Judgement::new(Verdict::Pass, seen)
        }
        (Reaction::Refused, _) if !strict => {
            Judgement::note(format!("{seen}, perhaps because its payload is not valid"))
        }
        (Reaction::Refused | Reaction::Mismatch | Reaction::Replay, _) => Judgement::new(
            Verdict::Fail,
            format!(
                "expected {}, the second request got {}",
                rule.expected(profile),
                answer.describe()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn answer(status: u16, body: &str) -> Response {
        Response {
            status,
            fields: Vec::new(),
            body: body.as_bytes().to_vec(),
            elapsed: Duration::ZERO,
        }
    }

    #[track_caller]
    fn check(rule: Rule, strict: bool, status: u16, body: &str, expected: Verdict) {
        let profile = Profile::named("acp").expect("a known profile");
        let judgement = judged(
            profile,
            rule,
            strict,
            &answer(201, "1"),
            &answer(status, body),
        );
        assert_eq!(judgement.verdict, expected, "{}", judgement.seen);
    }

    const CONFLICT: &str = r#"{"code":"idempotency_conflict"}"#;

    #[test]
    fn another_payload_has_to_be_the_mismatch_of_the_profile() {
        check(Rule::Other, true, 422, CONFLICT, Verdict::Pass);
        check(Rule::Other, true, 422, "{}", Verdict::Fail);
        check(Rule::Other, true, 409, CONFLICT, Verdict::Fail);
        check(Rule::Other, true, 201, "1", Verdict::Fail);
        check(Rule::Other, true, 500, "", Verdict::Unknown);
    }

    #[test]
    fn the_same_request_has_to_be_a_replay() {
        check(Rule::Same, true, 201, "1", Verdict::Pass);
        check(Rule::Same, true, 422, CONFLICT, Verdict::Fail);
        check(Rule::Same, true, 400, "", Verdict::Fail);
        check(Rule::Same, false, 400, "", Verdict::Note);
    }

    #[test]
    fn a_second_execution_is_a_violation_under_every_rule() {
        for rule in [Rule::Same, Rule::Other, Rule::Silent] {
            check(rule, false, 201, "2", Verdict::Fail);
            check(rule, false, 201, "", Verdict::Fail);
        }
    }

    #[test]
    fn a_silent_profile_judges_nothing_else() {
        check(Rule::Silent, true, 201, "1", Verdict::Note);
        check(Rule::Silent, true, 422, CONFLICT, Verdict::Note);
        check(Rule::Silent, true, 400, "", Verdict::Note);
    }
}
