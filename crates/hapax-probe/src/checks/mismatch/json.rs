//! JSON payloads that differ in their text, and perhaps in their value.
//!
//! Whether two texts are the same request depends on the equality of the profile. A check that
//! needs another value at the varied place is skipped if the server does not accept that value
//! in a first request.

use serde_json::Value;

use crate::{
    checks::{
        mismatch::{
            again,
            reaction::{Reaction, Rule, judged},
        },
        proof::require_bodies,
    },
    json_text,
    plan::{Payload, Vary},
    profile::Equality,
    subject::{First, Subject},
    verdict::{Judge, Judged, Judgement, Stop, Verdict},
};

/// How many strings of the payload are tried until the server accepts one with another letter.
const STRINGS_MAX: usize = 4;
/// The letter e with an acute accent, as one code point.
const COMPOSED: char = '\u{e9}';
/// The same letter as two code points.
const DECOMPOSED: &str = "e\u{301}";

pub(super) async fn added_member(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_values(subject.profile().equality);
    let edit = |text: &str| json_text::with_member(text, "probe", "true");
    edited(
        subject,
        rule,
        false,
        edit,
        "the payload is not a JSON object",
    )
    .await
}

/// A member that is null is not a member that is absent.
pub(super) async fn null_member(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_values(subject.profile().equality);
    let edit = |text: &str| json_text::with_member(text, "probe", "null");
    let without = "the payload is not a JSON object";
    edited(subject, rule, false, edit, without).await
}

pub(super) async fn letter_case(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_values(subject.profile().equality);
    letters(subject, rule, false, "\u{c9}").await
}

pub(super) async fn member_order(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_texts(subject.profile().equality);
    let without = "the payload has fewer than two members";
    edited(subject, rule, true, json_text::reversed, without).await
}

pub(super) async fn white_space(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_texts(subject.profile().equality);
    let without = "the payload is not a JSON object";
    edited(subject, rule, true, json_text::spaced, without).await
}

pub(super) async fn number_one(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_numbers(subject.profile().equality);
    numbers(subject, rule, "1", "1.0").await
}

pub(super) async fn number_exponent(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_numbers(subject.profile().equality);
    numbers(subject, rule, "10", "1e1").await
}

/// The two numbers are one number only to a parser that reads doubles, so no profile excuses it.
pub(super) async fn number_large(subject: &Subject<'_>) -> Judged {
    // RFC 8785 writes both as the same double.
    let rule = match subject.profile().equality {
        Equality::Rfc8785 => Rule::Silent,
        _ => Rule::Other,
    };
    numbers(subject, rule, "9007199254740992", "9007199254740993").await
}

pub(super) async fn unicode_escape(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_texts(subject.profile().equality);
    letters(subject, rule, true, "\\u00e9").await
}

pub(super) async fn unicode_normalisation(subject: &Subject<'_>) -> Judged {
    let rule = Rule::of_values(subject.profile().equality);
    letters(subject, rule, false, DECOMPOSED).await
}

pub(super) async fn duplicate_members(subject: &Subject<'_>) -> Judged {
    // A server that compares the first of two members and executes the last is found by the second
    // order, and one that does it the other way round by the first.
    let mut judgement = duplicate_member(subject, json_text::duplicated).await?;
    if judgement.verdict == Verdict::Pass {
        judgement = duplicate_member(subject, json_text::appended).await?;
    }
    Ok(judgement)
}

/// Writes another value for a member into a JSON text.
type Edit = fn(&str, &str, &str) -> Option<String>;

async fn duplicate_member(subject: &Subject<'_>, edit: Edit) -> Judged {
    let payload = subject.payload();
    let Some(twice) = with_duplicate(subject, &payload, edit) else {
        return Ok(no_member());
    };
    let first = subject.accepted_as(&payload).await?;
    let answer = again(subject, &first, &twice).await?;
    let reaction = Reaction::of(subject.profile(), &first.answer, &answer);
    let verdict = match reaction {
        // The bytes differ; but a payload that is not valid may be refused before it is compared.
        Reaction::Refused if subject.profile().equality == Equality::Raw => Verdict::Note,
        Reaction::Mismatch | Reaction::Refused => Verdict::Pass,
        // A parser that keeps one of the two members may have read the first payload.
        Reaction::Replay if !is_strict(subject.profile().equality) => Verdict::Note,
        Reaction::Replay | Reaction::Executed => Verdict::Fail,
        Reaction::Unclear => Verdict::Unknown,
    };
    let seen = reaction.describe(&answer);
    Ok(Judgement::new(
        verdict,
        format!("the payload with two values for one member got {seen}"),
    ))
}

/// Whether a profile compares everything that a payload contains.
fn is_strict(equality: Equality) -> bool {
    matches!(equality, Equality::Raw | Equality::CanonicalJson)
}

pub(super) async fn duplicate_members_new(subject: &Subject<'_>) -> Judged {
    let payload = subject.payload();
    let Some(twice) = with_duplicate(subject, &payload, json_text::duplicated) else {
        return Ok(no_member());
    };
    let request = subject.request(&subject.key(), &twice);
    let answer = subject.settled(&request).await?;
    let verb = if answer.is_success() {
        "accepted"
    } else {
        "refused"
    };
    Ok(Judgement::note(format!(
        "a payload with two values for one member is {verb} under a new key ({})",
        answer.status
    )))
}

fn no_member() -> Judgement {
    Judgement::skipped("the varied value is not a member of the JSON object at the top")
}

/// Returns the payload with a second value for the varied member.
fn with_duplicate(subject: &Subject<'_>, payload: &Payload, edit: Edit) -> Option<Payload> {
    let vary = subject.operation.vary.as_ref()?;
    let Vary::Pointer(pointer) = vary else {
        return None;
    };
    let varied = vary.apply(payload).ok()?;
    let body = edit(payload.text()?, pointer, vary.json(&varied)?)?;
    Some(payload.with_body(body))
}

/// Compares the payload with an edited text of it.
async fn edited(
    subject: &Subject<'_>,
    rule: Rule,
    strict: bool,
    edit: impl FnOnce(&str) -> Option<String>,
    without: &str,
) -> Judged {
    let payload = subject.payload();
    let other = payload
        .text()
        .filter(|text| text.trim_start().starts_with('{'))
        .and_then(edit)
        .map(|body| payload.with_body(body));
    let Some(other) = other else {
        return Ok(Judgement::skipped(without));
    };
    let before = effects_before(subject, rule).await?;
    let first = subject.accepted_as(&payload).await?;
    compared(subject, rule, strict, before, &first, &other).await
}

/// Compares two numbers at the varied place.
async fn numbers(subject: &Subject<'_>, rule: Rule, one: &str, two: &str) -> Judged {
    let payload = subject.payload();
    let with = |number: &str| subject.operation.vary.as_ref()?.with_json(&payload, number);
    let (Some(payload_one), Some(payload_two)) = (with(one), with(two)) else {
        return Ok(Judgement::skipped(
            "the varied value is not a member of a JSON body",
        ));
    };
    let before = effects_before(subject, rule).await?;
    let Some(first) = tried(subject, &payload_one).await? else {
        return Ok(Judgement::skipped(format!(
            "the server does not accept {one}"
        )));
    };
    compared(subject, rule, false, before, &first, &payload_two).await
}

/// Compares two ways to write a letter in a string of the payload.
async fn letters(subject: &Subject<'_>, rule: Rule, strict: bool, second: &str) -> Judged {
    let payload = subject.payload();
    let strings = strings_of(subject, &payload);
    if strings.is_empty() {
        return Ok(Judgement::skipped(
            "the payload has no string that is a member of an object",
        ));
    }
    let before = effects_before(subject, rule).await?;
    for (pointer, string) in strings.iter().take(STRINGS_MAX) {
        let one = Value::from(format!("{string}{COMPOSED}")).to_string();
        let two = one.replace(COMPOSED, second);
        let with = |json: &str| {
            let body = json_text::replaced(payload.text()?, pointer, json)?;
            Some(payload.with_body(body))
        };
        let (Some(payload_one), Some(payload_two)) = (with(&one), with(&two)) else {
            continue;
        };
        if let Some(first) = tried(subject, &payload_one).await? {
            return compared(subject, rule, strict, before, &first, &payload_two).await;
        }
    }
    Ok(Judgement::skipped(
        "the server accepts no string with a letter outside ASCII",
    ))
}

/// Returns the strings of the payload with their pointers, the varied one first.
fn strings_of(subject: &Subject<'_>, payload: &Payload) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_slice::<Value>(&payload.body) {
        collect(&value, "", &mut found);
    }
    if let Some(Vary::Pointer(varied)) = &subject.operation.vary {
        found.sort_by_key(|(pointer, _)| pointer != varied);
    }
    found
}

fn collect(value: &Value, pointer: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => found.push((pointer.to_owned(), text.clone())),
        Value::Object(members) => {
            for (name, value) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(value, &format!("{pointer}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// Sends a first request, and returns nothing if the server refuses its payload.
async fn tried(subject: &Subject<'_>, payload: &Payload) -> Result<Option<First>, Stop> {
    let request = subject.request(&subject.key(), payload);
    let answer = subject.send(&request).await?;
    if (400..500).contains(&answer.status) && !subject.is_temporary(&answer) {
        return Ok(None);
    }
    if !answer.is_success() {
        return Err(Stop::NotAccepted(answer.describe()));
    }
    Ok(Some(First {
        request,
        payload: payload.clone(),
        answer,
    }))
}

/// Counts effects if the two requests must have one effect together.
async fn effects_before(subject: &Subject<'_>, rule: Rule) -> Result<Option<u64>, Stop> {
    match rule {
        Rule::Same => subject.effects().await,
        Rule::Other | Rule::Silent => Ok(None),
    }
}

/// Sends another payload under the key of a first request, and judges the response.
async fn compared(
    subject: &Subject<'_>,
    rule: Rule,
    strict: bool,
    before: Option<u64>,
    first: &First,
    other: &Payload,
) -> Judged {
    let answer = again(subject, first, other).await?;
    let judgement = judged(subject.profile(), rule, strict, &first.answer, &answer);
    if rule != Rule::Same || judgement.verdict != Verdict::Pass {
        return Ok(judgement);
    }
    let mut judge = Judge::new();
    judge.saw(judgement.seen);
    match before {
        Some(_) => {
            let made = subject.effects_made(before, 1).await?;
            judge.require(made == Some(1), || {
                let made = made.unwrap_or_default();
                format!("{made} effects were counted, expected 1")
            });
        }
        None => require_bodies(subject, &mut judge).await?,
    }
    Ok(judge.judgement())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_with_their_pointers() {
        let value = serde_json::json!({"a/b": {"c~": "x"}, "d": ["y"], "e": 1, "f": "z"});
        let mut found = Vec::new();
        collect(&value, "", &mut found);
        found.sort();
        let pair = |pointer: &str, text: &str| (pointer.to_owned(), text.to_owned());
        assert_eq!(found, [pair("/a~1b/c~0", "x"), pair("/f", "z")]);
        let text = value.to_string();
        assert_eq!(json_text::value(&text, "/a~1b/c~0"), Some("\"x\""));
    }
}
