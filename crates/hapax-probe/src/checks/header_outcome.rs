//! What the responses to a form of the key mean.

use crate::{
    http::Response,
    profile::{KeyForm, Refusal},
    subject::Subject,
    verdict::{Judge, Judgement, Verdict},
};

pub(super) fn require_refusal(judge: &mut Judge, refusal: Refusal, answer: &Response, what: &str) {
    judge.require(refusal.allows(answer), || {
        format!(
            "{what}: expected {}, got {}",
            refusal.describe(),
            answer.describe()
        )
    });
    judge.saw(format!("{what}: refused"));
}

/// Requires that there was no effect, if effects are counted.
pub(super) fn no_effect(judge: &mut Judge, made: Option<u64>) {
    if made.is_some() {
        judge.effects(made, 0);
    }
}

/// Returns what a response means, without its text.
pub(super) fn outcome(answer: &Response) -> String {
    if answer.is_success() {
        format!("executed ({})", answer.status)
    } else {
        format!("not executed ({})", answer.status)
    }
}

/// Returns the judgement, as a note if the profile is silent about what was seen.
pub(super) fn judged(judge: Judge, noted: bool) -> Judgement {
    let judgement = judge.judgement();
    if noted && judgement.verdict == Verdict::Pass {
        Judgement::note(judgement.seen)
    } else {
        judgement
    }
}

/// Returns a judgement if the profile allows UUIDs only, so that no other key can be tried.
pub(super) fn uuid_only(subject: &Subject<'_>) -> Option<Judgement> {
    matches!(subject.profile().key, KeyForm::Uuid | KeyForm::UuidV7)
        .then(|| Judgement::skipped("the profile allows UUIDs only"))
}

/// Returns a text of this length that begins with `text`.
pub(super) fn padded(text: &str, length: usize, with: char) -> String {
    text.chars()
        .chain(std::iter::repeat(with))
        .take(length)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_keys_have_their_length_and_prefix() {
        let prefix = padded("key", 190, 'x');
        let [one, two] = ['a', 'b'].map(|end| padded(&prefix, 200, end));
        assert_eq!((one.len(), two.len()), (200, 200));
        assert_eq!(one.get(..190), two.get(..190));
        assert_ne!(one, two);
    }

    #[test]
    fn a_note_does_not_hide_a_violation() {
        let mut judge = Judge::new();
        judge.require(false, || "a server error".to_owned());
        assert_eq!(judged(judge, true).verdict, Verdict::Fail);
        assert_eq!(judged(Judge::new(), true).verdict, Verdict::Note);
        assert_eq!(judged(Judge::new(), false).verdict, Verdict::Pass);
    }
}
