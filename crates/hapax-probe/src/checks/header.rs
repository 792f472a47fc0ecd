//! Group `header`: how the server reads the header `Idempotency-Key`.
//!
//! A key that is not valid is refused without an effect if the profile says so. If the profile is
//! silent, the check reports what the server did, and only a server error is a failure. Two keys that
//! differ in any byte are two keys in every profile.
//!
//! The vectors of structured-field strings are those of RFC 9651, each after a new key.

use crate::{
    checks::{
        Check, Running,
        available::{available, no_response, response},
        header_outcome::{judged, no_effect, outcome, padded, require_refusal, uuid_only},
        proof::{Proof, require_bodies},
    },
    http::{Failure, Response},
    profile::{KeyForm, Missing},
    subject::{First, KEY, Subject},
    verdict::{Judge, Judged, Judgement, Stop},
};

/// A UUID of version 4.
const UUID_V4: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
/// The length of keys with a long prefix in common, and the length of that prefix.
const LONG: usize = 200;
const PREFIX: usize = 190;

pub(crate) const CHECKS: &[Check] = &[
    check(
        "header.missing",
        "A request without a key is refused or executed, as the profile says.",
        |subject| Box::pin(missing(subject)),
    ),
    check("header.empty", "An empty key is refused.", |subject| {
        Box::pin(empty(subject))
    }),
    check(
        "header.too-long",
        "A key of 256 bytes or more is refused.",
        |subject| Box::pin(too_long(subject)),
    ),
    check(
        "header.control",
        "A key with a control character is refused.",
        |subject| Box::pin(control(subject)),
    ),
    check(
        "header.non-ascii",
        "A key with bytes that are not ASCII is refused.",
        |subject| Box::pin(non_ascii(subject)),
    ),
    check(
        "header.twice",
        "A request with two different keys is refused.",
        |subject| Box::pin(twice(subject)),
    ),
    check(
        "header.unterminated",
        "A key that begins with a quote and does not end with one is refused.",
        |subject| Box::pin(unterminated(subject)),
    ),
    check(
        "header.invalid-strings",
        "Keys that are not valid structured-field strings are refused.",
        |subject| Box::pin(invalid_strings(subject)),
    ),
    check(
        "header.valid-strings",
        "Keys that are valid structured-field strings are accepted, and their retries are replays.",
        |subject| Box::pin(valid_strings(subject)),
    ),
    check(
        "header.quoted-is-bare",
        "A key in quotes is the same key as without quotes.",
        |subject| Box::pin(quoted_is_bare(subject)),
    ),
    check(
        "header.parameters",
        "Parameters after a quoted key do not make it another key.",
        |subject| Box::pin(parameters(subject)),
    ),
    check(
        "header.escapes",
        "An escaped quote is a part of the key, and the key goes on after it.",
        |subject| Box::pin(escapes(subject)),
    ),
    check(
        "header.backslash",
        "A backslash that is escaped in quotes is the same backslash in a key without quotes.",
        |subject| Box::pin(backslash(subject)),
    ),
    check(
        "header.case-sensitive",
        "Two keys that differ in the case of a letter are two keys.",
        |subject| Box::pin(case_sensitive(subject)),
    ),
    check(
        "header.long-prefix",
        "Two long keys that differ in their last bytes only are two keys.",
        |subject| Box::pin(long_prefix(subject)),
    ),
    check(
        "header.uuid-version",
        "A key that is not a UUID of version 7 is refused.",
        |subject| Box::pin(uuid_version(subject)),
    ),
];

const fn check(
    id: &'static str,
    asks: &'static str,
    run: for<'a> fn(&'a Subject<'a>) -> Running<'a>,
) -> Check {
    Check {
        id,
        asks,
        needs: &[],
        run,
    }
}

/// A value of the header that is not a valid key.
struct Invalid {
    what: &'static str,
    values: Vec<Vec<u8>>,
    /// Whether HTTP itself does not allow the value, so that a server may refuse it in its own way.
    by_http: bool,
    /// Whether a server may refuse the value as if there were none.
    as_missing: bool,
}

impl Invalid {
    fn new(what: &'static str, value: impl Into<Vec<u8>>) -> Self {
        Self {
            what,
            values: vec![value.into()],
            by_http: false,
            as_missing: false,
        }
    }
}

async fn missing(subject: &Subject<'_>) -> Judged {
    let before = subject.effects().await?;
    let request = subject.without_key(&subject.payload());
    let answer = response(subject, &request).await?;
    let made = subject.effects_since(before).await?;
    // If a request with a key is refused too, the missing key is not the reason.
    subject.accepted().await?;
    let mut judge = Judge::new();
    judge.require(answer.status < 500, || {
        format!("without a key: the server responds {}", answer.describe())
    });
    let (refusal, noted) = match subject.profile().missing {
        Missing::PerOperation(_) if answer.is_success() => (None, true),
        Missing::Refused(refusal) | Missing::PerOperation(refusal) => (Some(refusal), false),
        Missing::Optional => (None, false),
    };
    match refusal {
        Some(refusal) => {
            require_refusal(&mut judge, refusal, &answer, "without a key");
            no_effect(&mut judge, made);
        }
        None if answer.is_success() => judge.saw("executed without protection"),
        // The key is optional, and a request with a key is accepted.
        None => judge.require(false, || {
            format!("without a key: the server responds {}", answer.describe())
        }),
    }
    Ok(judged(judge, noted))
}

async fn empty(subject: &Subject<'_>) -> Judged {
    let nothing = Invalid {
        as_missing: true,
        ..Invalid::new("an empty value", "")
    };
    let quoted = Invalid::new("an empty string in quotes", "\"\"");
    refused(subject, &[nothing, quoted]).await
}

async fn too_long(subject: &Subject<'_>) -> Judged {
    let of = |what, length| Invalid::new(what, padded(&subject.key(), length, 'x'));
    refused(subject, &[of("300 bytes", 300), of("256 bytes", 256)]).await
}

async fn control(subject: &Subject<'_>) -> Judged {
    let tab = Invalid::new("a tab", format!("{}\tx", subject.key()));
    let control = Invalid {
        by_http: true,
        ..Invalid::new("the byte 01", format!("{}\u{1}x", subject.key()))
    };
    refused(subject, &[tab, control]).await
}

async fn non_ascii(subject: &Subject<'_>) -> Judged {
    let value = format!("{}-\u{e9}\u{4e2d}", subject.key());
    refused(subject, &[Invalid::new("UTF-8", value)]).await
}

async fn twice(subject: &Subject<'_>) -> Judged {
    let keys = Invalid {
        values: vec![subject.key().into_bytes(), subject.key().into_bytes()],
        ..Invalid::new("two keys", "")
    };
    refused(subject, &[keys]).await
}

async fn unterminated(subject: &Subject<'_>) -> Judged {
    let value = format!("\"{}", subject.key());
    refused(subject, &[Invalid::new("no quote at the end", value)]).await
}

async fn invalid_strings(subject: &Subject<'_>) -> Judged {
    if let Some(skipped) = uuid_only(subject) {
        return Ok(skipped);
    }
    let of = |what, before: &str, after: &str| {
        Invalid::new(what, format!("{before}{}{after}", subject.key()))
    };
    let cases = [
        of("a backslash before a comma", "\"", " \\,\""),
        of("a backslash at the end", "\"", "\\"),
        of("an escaped quote at the end", "\"", "\\\""),
        of("single quotes", "'", " foo bar'"),
        of("text after the string", "\"", "\" foo"),
    ];
    refused(subject, &cases).await
}

async fn uuid_version(subject: &Subject<'_>) -> Judged {
    if subject.profile().key != KeyForm::UuidV7 {
        return Ok(Judgement::skipped("the profile does not require UUIDs"));
    }
    let cases = [
        Invalid::new("a UUID of version 4", UUID_V4),
        Invalid::new("not a UUID", "probe"),
    ];
    refused(subject, &cases).await
}

/// Sends requests with keys that are not valid, and judges the responses.
async fn refused(subject: &Subject<'_>, cases: &[Invalid]) -> Judged {
    let before = subject.effects().await?;
    let mut judge = Judge::new();
    let mut noted = false;
    for case in cases {
        let mut request = subject.without_key(&subject.payload());
        for value in &case.values {
            request = request.header(KEY, value.clone());
        }
        noted |= match available(subject, &request).await? {
            Ok(answer) => judge_invalid(subject, &mut judge, case, &answer),
            Err(Failure::Ended(_)) if case.by_http => {
                judge.saw(format!("{}: refused", case.what));
                false
            }
            // Such as a response that repeats the key with its control characters.
            Err(Failure::Malformed(reason)) => {
                judge.require(false, || {
                    format!("{}: the response is not valid HTTP: {reason}", case.what)
                });
                false
            }
            Err(failure) => return Err(no_response(&request, failure)),
        };
    }
    if !noted {
        no_effect(&mut judge, subject.effects_since(before).await?);
    }
    // If a request with a valid key is refused too, these keys are not the reason.
    subject.accepted().await?;
    Ok(judged(judge, noted))
}

/// Judges the response to a key that is not valid. Returns whether the profile is silent about it.
fn judge_invalid(
    subject: &Subject<'_>,
    judge: &mut Judge,
    case: &Invalid,
    answer: &Response,
) -> bool {
    let what = case.what;
    judge.require(answer.status < 500, || {
        format!("{what}: the server responds {}", answer.describe())
    });
    let as_missing = case.as_missing.then_some(subject.profile().missing);
    let is_missing = match as_missing {
        Some(Missing::Refused(refusal) | Missing::PerOperation(refusal)) => refusal.allows(answer),
        Some(Missing::Optional) | None => false,
    };
    if is_missing || (case.by_http && (400..500).contains(&answer.status)) {
        judge.saw(format!("{what}: refused"));
        return false;
    }
    match subject.profile().invalid {
        Some(refusal) => require_refusal(judge, refusal, answer, what),
        None => judge.saw(format!("{what}: {}", outcome(answer))),
    }
    subject.profile().invalid.is_none()
}

async fn quoted_is_bare(subject: &Subject<'_>) -> Judged {
    let before = subject.effects().await?;
    let first = subject.accepted().await?;
    let again = format!("\"{}\"", first.key());
    same_key(subject, before, &first, &again, "the key in quotes").await
}

async fn parameters(subject: &Subject<'_>) -> Judged {
    let before = subject.effects().await?;
    let quoted = format!("\"{}\"", subject.key());
    match first_under(subject, &quoted).await? {
        Ok(first) => {
            let again = format!("{quoted};a=1");
            same_key(subject, before, &first, &again, "the key with a parameter").await
        }
        Err(answer) => {
            let mut judge = Judge::new();
            let noted = not_accepted(subject, &mut judge, "a key in quotes", &answer).await?;
            Ok(judged(judge, noted))
        }
    }
}

/// Retries a request with another form of its key.
async fn same_key(
    subject: &Subject<'_>,
    before: Option<u64>,
    first: &First,
    again: &str,
    what: &str,
) -> Judged {
    let request = first.request.clone().replace_header(KEY, again.as_bytes());
    let retry = subject.settled(&request).await?;
    let made = subject.effects_made(before, 1).await?;
    let same = first.answer.is_like(&retry) && made.is_none_or(|made| made == 1);
    let required = subject.profile().quoted_is_bare == Some(true);
    let mut judge = Judge::new();
    judge.require(retry.status < 500 && (same || !required), || {
        let made = made.map_or_else(String::new, |made| format!(", and {made} effects"));
        format!("{what} got {}{made}, expected a replay", retry.describe())
    });
    judge.saw(match (same, retry.is_success()) {
        (true, _) => format!("{what} is the same key"),
        (false, true) => format!("{what} is another key"),
        (false, false) => format!("{what} is refused with {}", retry.status),
    });
    if same {
        require_bodies(subject, &mut judge).await?;
    }
    Ok(judged(judge, !required))
}

async fn valid_strings(subject: &Subject<'_>) -> Judged {
    if let Some(skipped) = uuid_only(subject) {
        return Ok(skipped);
    }
    let cases = [
        ("spaces", "\"", " foo bar\""),
        ("an escaped backslash", "\"", " b\\\\a\""),
        ("escaped quotes", "\"", " \\\"b\\\"\""),
        ("a comma and a semicolon", "\"", ",a;b=c\""),
        ("spaces around the quotes", "  \"", "\"  "),
    ];
    let proof = Proof::by_count(subject).await?;
    let mut judge = Judge::new();
    let mut noted = false;
    let mut accepted = 0;
    for (what, before_key, after_key) in cases {
        let value = format!("{before_key}{}{after_key}", subject.key());
        match first_under(subject, &value).await? {
            Ok(first) => {
                accepted += 1;
                require_replay(subject, &mut judge, &first, what).await?;
            }
            Err(answer) => noted |= not_accepted(subject, &mut judge, what, &answer).await?,
        }
    }
    // A refused key leads to a request with another key, whose effect is not counted here.
    if accepted == cases.len() as u64 {
        proof.require(subject, &mut judge, accepted).await?;
    } else if accepted > 0 && !subject.recognizable().await? {
        judge.missing("all responses have the same body");
    }
    Ok(judged(judge, noted))
}

async fn escapes(subject: &Subject<'_>) -> Judged {
    if let Some(skipped) = uuid_only(subject) {
        return Ok(skipped);
    }
    let key = subject.key();
    let [one, two] = ["a", "b"].map(|end| format!("\"{key}\\\"{end}\""));
    let mut judge = Judge::new();
    let before = subject.effects().await?;
    let noted = match first_under(subject, &one).await? {
        Ok(first) => {
            require_replay(subject, &mut judge, &first, "an escaped quote").await?;
            let what = "two keys that differ after an escaped quote";
            require_another(subject, &mut judge, before, (&first, two.as_str()), what).await?;
            false
        }
        Err(answer) => not_accepted(subject, &mut judge, "an escaped quote", &answer).await?,
    };
    Ok(judged(judge, noted))
}

/// An escaped backslash in quotes is a backslash without quotes.
async fn backslash(subject: &Subject<'_>) -> Judged {
    if let Some(skipped) = uuid_only(subject) {
        return Ok(skipped);
    }
    let key = subject.key();
    let before = subject.effects().await?;
    match first_under(subject, &format!("\"{key}\\\\x\"")).await? {
        Ok(first) => {
            let again = format!("{key}\\x");
            let what = "the same key without quotes and escapes";
            same_key(subject, before, &first, &again, what).await
        }
        Err(answer) => {
            let mut judge = Judge::new();
            let what = "an escaped backslash";
            let noted = not_accepted(subject, &mut judge, what, &answer).await?;
            Ok(judged(judge, noted))
        }
    }
}

async fn case_sensitive(subject: &Subject<'_>) -> Judged {
    let key = subject.key();
    let keys = ["a", "A"].map(|end| format!("{key}-{end}"));
    two_keys(subject, &keys, "two keys that differ in case").await
}

async fn long_prefix(subject: &Subject<'_>) -> Judged {
    let prefix = padded(&subject.key(), PREFIX, 'x');
    let keys = ['a', 'b'].map(|end| padded(&prefix, LONG, end));
    two_keys(subject, &keys, "two keys with 190 bytes in common").await
}

/// Requires that a request under each of two keys is executed.
async fn two_keys(subject: &Subject<'_>, [one, two]: &[String; 2], what: &str) -> Judged {
    if let Some(skipped) = uuid_only(subject) {
        return Ok(skipped);
    }
    let before = subject.effects().await?;
    let mut judge = Judge::new();
    match first_under(subject, one).await? {
        Ok(first) => {
            require_another(subject, &mut judge, before, (&first, two.as_str()), what).await?;
        }
        Err(answer) => return Err(Stop::NotAccepted(answer.describe())),
    }
    Ok(judge.judgement())
}

/// Requires that a request under another key than that of `first` is executed.
///
/// It has a new payload, so that no rule about equal payloads refuses it.
async fn require_another(
    subject: &Subject<'_>,
    judge: &mut Judge,
    before: Option<u64>,
    (first, key): (&First, &str),
    what: &str,
) -> Result<(), Stop> {
    let request = subject
        .without_key(&subject.payload())
        .header(KEY, key.as_bytes());
    let second = subject.settled(&request).await?;
    if subject.profile().is_mismatch(&second) {
        judge.require(false, || {
            format!(
                "{what} are one key: the second one got {}",
                second.describe()
            )
        });
        return Ok(());
    }
    if !second.is_success() {
        judge.missing(format!("the second of {what} got {}", second.describe()));
        return Ok(());
    }
    if before.is_some() {
        subject.require_effects(judge, before, 2).await?;
    } else if first.answer.is_like(&second) {
        judge.missing(format!(
            "the responses to {what} are equal, and the plan does not say how effects are counted"
        ));
    } else {
        judge.saw("two different responses");
    }
    Ok(())
}

/// Requires that a retry of `first` is a replay.
async fn require_replay(
    subject: &Subject<'_>,
    judge: &mut Judge,
    first: &First,
    what: &str,
) -> Result<(), Stop> {
    let replay = subject.settled(&first.request).await?;
    judge.require(first.answer.is_like(&replay), || {
        format!("{what}: the retry got {}", replay.describe())
    });
    judge.saw(format!("{what}: accepted"));
    require_bodies(subject, judge).await
}

/// Judges that a key was not accepted which is a valid structured-field string. Returns whether the
/// profile is silent about such keys.
async fn not_accepted(
    subject: &Subject<'_>,
    judge: &mut Judge,
    what: &str,
    answer: &Response,
) -> Result<bool, Stop> {
    // If a request with a bare key is refused too, the form of the key is not the reason.
    subject.accepted().await?;
    let required = subject.profile().quoted_is_bare == Some(true);
    judge.require(answer.status < 500 && !required, || {
        format!("{what}: the server responds {}", answer.describe())
    });
    judge.saw(format!("{what}: {}", outcome(answer)));
    Ok(!required)
}

/// Sends a first request with this value of the header, and returns the response as the error if it
/// was not accepted.
async fn first_under(subject: &Subject<'_>, value: &str) -> Result<Result<First, Response>, Stop> {
    let payload = subject.payload();
    let request = subject.without_key(&payload).header(KEY, value.as_bytes());
    let answer = response(subject, &request).await?;
    Ok(if answer.is_success() {
        Ok(First {
            request,
            payload,
            answer,
        })
    } else {
        Err(answer)
    })
}
