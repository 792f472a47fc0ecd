//! Group `mismatch`: another payload under a used key is refused, and does nothing.
//!
//! A profile says what the refusal is, and which payloads are the same. That a key never has two
//! effects, and that a client does not get the response to another payload, is asked of all.

pub(crate) mod reaction;
mod json;
mod leak;

use crate::{
    checks::{
        Check, Need,
        available::patiently,
        mismatch::reaction::{Reaction, Rule, judged},
        proof::Proof,
    },
    http::Response,
    plan::Payload,
    profile::Profile,
    subject::{First, Subject},
    verdict::{Judge, Judged, Judgement, Stop, Verdict},
};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "mismatch.value",
        asks: "Another value under a used key is refused as a mismatch.",
        needs: &[Need::Vary],
        run: |subject| Box::pin(value(subject)),
    },
    Check {
        id: "mismatch.effect",
        asks: "A mismatch has no effect.",
        needs: &[Need::Effects, Need::Vary],
        run: |subject| Box::pin(effect(subject)),
    },
    Check {
        id: "mismatch.first-kept",
        asks: "After a mismatch, a retry with the first payload still gets the first response.",
        needs: &[Need::Vary],
        run: |subject| Box::pin(first_kept(subject)),
    },
    Check {
        id: "mismatch.retry-after",
        asks: "A mismatch has no Retry-After, because a later retry is a mismatch too.",
        needs: &[Need::Vary],
        run: |subject| Box::pin(retry_after(subject)),
    },
    Check {
        id: "mismatch.leak",
        asks: "A mismatch tells nothing of the first payload and of its response.",
        needs: &[Need::Vary],
        run: |subject| Box::pin(leak::leak(subject)),
    },
    Check {
        id: "mismatch.added-member",
        asks: "A payload with one more member is another payload.",
        needs: &[Need::Json],
        run: |subject| Box::pin(json::added_member(subject)),
    },
    Check {
        id: "mismatch.null-member",
        asks: "A payload with one more member that is null is another payload.",
        needs: &[Need::Json],
        run: |subject| Box::pin(json::null_member(subject)),
    },
    Check {
        id: "mismatch.letter-case",
        asks: "Two texts that differ in the case of a letter are two payloads.",
        needs: &[Need::Json],
        run: |subject| Box::pin(json::letter_case(subject)),
    },
    Check {
        id: "mismatch.member-order",
        asks: "Two orders of members are one payload or two, as the profile says.",
        needs: &[Need::Json],
        run: |subject| Box::pin(json::member_order(subject)),
    },
    Check {
        id: "mismatch.white-space",
        asks: "Two texts that differ in white space are one payload or two, as the profile says.",
        needs: &[Need::Json],
        run: |subject| Box::pin(json::white_space(subject)),
    },
    Check {
        id: "mismatch.number-one",
        asks: "The numbers 1 and 1.0 are one payload or two, as the profile says.",
        needs: &[Need::JsonNumber],
        run: |subject| Box::pin(json::number_one(subject)),
    },
    Check {
        id: "mismatch.number-exponent",
        asks: "The numbers 10 and 1e1 are one payload or two, as the profile says.",
        needs: &[Need::JsonNumber],
        run: |subject| Box::pin(json::number_exponent(subject)),
    },
    Check {
        id: "mismatch.number-large",
        asks: "The numbers 9007199254740992 and 9007199254740993 are two payloads.",
        needs: &[Need::JsonNumber],
        run: |subject| Box::pin(json::number_large(subject)),
    },
    Check {
        id: "mismatch.duplicate-members",
        asks: "A payload with two values for one member is not taken for the first payload.",
        needs: &[Need::Json, Need::Vary],
        run: |subject| Box::pin(json::duplicate_members(subject)),
    },
    Check {
        id: "mismatch.duplicate-members-new",
        asks: "A payload with two values for one member is accepted or refused under a new key.",
        needs: &[Need::Json, Need::Vary],
        run: |subject| Box::pin(json::duplicate_members_new(subject)),
    },
    Check {
        id: "mismatch.unicode-escape",
        asks: "A letter and its JSON escape are one payload or two, as the profile says.",
        needs: &[Need::Json],
        run: |subject| Box::pin(json::unicode_escape(subject)),
    },
    Check {
        id: "mismatch.unicode-normalisation",
        asks: "A composed letter and the same letter decomposed are two payloads.",
        needs: &[Need::Json],
        run: |subject| Box::pin(json::unicode_normalisation(subject)),
    },
    Check {
        id: "mismatch.query",
        asks: "A request with one more query parameter does not get the first response.",
        needs: &[],
        run: |subject| Box::pin(query(subject)),
    },
    Check {
        id: "mismatch.content-type",
        asks: "The same body with another content type is not executed under the same key.",
        needs: &[],
        run: |subject| Box::pin(content_type(subject)),
    },
    Check {
        id: "mismatch.method",
        asks: "A request with another method does not get the first response.",
        needs: &[],
        run: |subject| Box::pin(method(subject)),
    },
];

/// Sends another payload under the key of a first request.
async fn again(subject: &Subject<'_>, first: &First, payload: &Payload) -> Result<Response, Stop> {
    patiently(subject, &subject.request(&first.key(), payload)).await
}

/// Sends a first request, and another payload under its key.
async fn conflict(subject: &Subject<'_>) -> Result<Option<(First, Response)>, Stop> {
    let first = subject.accepted().await?;
    let Some(other) = subject.varied(&first.payload) else {
        return Ok(None);
    };
    let answer = again(subject, &first, &other).await?;
    Ok(Some((first, answer)))
}

fn not_varied() -> Judgement {
    Judgement::unknown("the payload cannot be varied")
}

async fn value(subject: &Subject<'_>) -> Judged {
    let Some((first, answer)) = conflict(subject).await? else {
        return Ok(not_varied());
    };
    let profile = subject.profile();
    Ok(judged(profile, Rule::Other, true, &first.answer, &answer))
}

async fn effect(subject: &Subject<'_>) -> Judged {
    let before = subject.effects().await?;
    if conflict(subject).await?.is_none() {
        return Ok(not_varied());
    }
    let mut judge = Judge::new();
    subject.require_effects(&mut judge, before, 1).await?;
    Ok(judge.judgement())
}

async fn first_kept(subject: &Subject<'_>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let Some((first, _)) = conflict(subject).await? else {
        return Ok(not_varied());
    };
    let replay = patiently(subject, &first.request).await?;
    let mut judge = Judge::new();
    judge.require(first.answer.is_like(&replay), || {
        format!("after another payload, the retry got {}", replay.describe())
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn retry_after(subject: &Subject<'_>) -> Judged {
    let Some((first, answer)) = conflict(subject).await? else {
        return Ok(not_varied());
    };
    if !Reaction::of(subject.profile(), &first.answer, &answer).is_refusal() {
        return Ok(not_refused(&answer));
    }
    let verdict = match (
        answer.header("retry-after").is_some(),
        subject.profile().mismatch_retry_after,
    ) {
        (false, _) => return Ok(Judgement::new(Verdict::Pass, "no Retry-After")),
        (true, Some(false)) => Verdict::Fail,
        (true, _) => Verdict::Note,
    };
    let seen = "the refusal of the other payload has a Retry-After";
    Ok(Judgement::new(verdict, seen))
}

fn not_refused(answer: &Response) -> Judgement {
    Judgement::unknown(format!(
        "the other payload is not refused: {}",
        answer.describe()
    ))
}

/// Whether query and content type are a part of the payload.
pub(crate) fn compares_whole_requests(profile: &Profile) -> bool {
    profile.compares_whole_requests == Some(true)
}

async fn query(subject: &Subject<'_>) -> Judged {
    let first = subject.accepted().await?;
    let other = Payload {
        target: first.payload.target.with_query("probe", "1"),
        ..first.payload.clone()
    };
    let answer = again(subject, &first, &other).await?;
    let what = "the request with one more query parameter";
    // Where the address is a part of the key's scope, an execution is no violation.
    Ok(part(subject, &first, &answer, what, Verdict::Note))
}

async fn content_type(subject: &Subject<'_>) -> Judged {
    let first = subject.accepted().await?;
    if first.payload.body.is_empty() {
        return Ok(Judgement::skipped("the request has no body"));
    }
    let is_text = first.payload.content_type.starts_with("text/plain");
    let content_type = if is_text {
        "application/octet-stream"
    } else {
        "text/plain"
    };
    let other = Payload {
        content_type: content_type.to_owned(),
        ..first.payload.clone()
    };
    let answer = again(subject, &first, &other).await?;
    let what = "the request with another content type";
    Ok(part(subject, &first, &answer, what, Verdict::Fail))
}

/// Judges a request with the same body and another part. `executed` is the verdict on an execution
/// where the profile does not say that the part belongs to the payload.
fn part(
    subject: &Subject<'_>,
    first: &First,
    answer: &Response,
    what: &str,
    executed: Verdict,
) -> Judgement {
    let reaction = Reaction::of(subject.profile(), &first.answer, answer);
    let verdict = match (reaction, compares_whole_requests(subject.profile())) {
        (Reaction::Unclear, _) => Verdict::Unknown,
        (Reaction::Mismatch | Reaction::Refused, true) => Verdict::Pass,
        (Reaction::Replay | Reaction::Executed, true) => Verdict::Fail,
        (Reaction::Executed, false) => executed,
        (_, false) => Verdict::Note,
    };
    Judgement::new(verdict, format!("{what} got {}", reaction.describe(answer)))
}

async fn method(subject: &Subject<'_>) -> Judged {
    let first = subject.accepted().await?;
    let mut judge = Judge::new();
    for method in ["PUT", "PATCH"] {
        if subject.operation.method.eq_ignore_ascii_case(method) {
            continue;
        }
        let answer = patiently(subject, &first.request.clone().method(method)).await?;
        judge.saw(format!("{method}: {}", answer.status));
        if !answer.is_success() || !answer.is_like(&first.answer) {
            continue;
        }
        if subject.recognizable().await? {
            judge.require(false, || format!("{method} got the first response"));
        } else {
            judge.missing("all responses have the same body");
        }
    }
    Ok(judge.judgement())
}
