//! Group `outcome`: which responses are remembered under a key.
//!
//! Each payload of the plan that is refused is sent under a new key; its status decides which check
//! it belongs to. A refusal is remembered if the plan's usual payload is a mismatch under the same
//! key, and it is not remembered if the key is still free for this payload.

use crate::{
    checks::{Check, Need, available::patiently, in_flight::is_sane, proof::require_bodies},
    http::{Request, Response},
    subject::Subject,
    verdict::{Judge, Judged, Judgement, Stop, Verdict},
};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "outcome.refusal",
        asks: "A refusal by the business rules (402, 404, 409, 410, 422) is remembered or not, as the profile says.",
        needs: &[Need::Refused],
        run: |subject| Box::pin(remembered(subject, Class::Refusal)),
    },
    Check {
        id: "outcome.caller-error",
        asks: "A response that the request is wrong (400, 401, 403, 413, 415, 429 and so on) is remembered or not, \
               as the profile says.",
        needs: &[Need::Refused],
        run: |subject| Box::pin(remembered(subject, Class::CallerError)),
    },
    Check {
        id: "outcome.rate-limited",
        asks: "A response 429 says with Retry-After when to send the request again.",
        needs: &[Need::Refused],
        run: |subject| Box::pin(rate_limited(subject)),
    },
    Check {
        id: "outcome.server-error",
        asks: "A server error (5xx) is remembered or not, as the profile says.",
        needs: &[Need::Refused],
        run: |subject| Box::pin(remembered(subject, Class::ServerError)),
    },
    Check {
        id: "outcome.server-error-effect",
        asks: "A request that got a server error and its retry have one effect at most.",
        needs: &[Need::Refused, Need::Effects],
        run: |subject| Box::pin(server_error_effect(subject)),
    },
    Check {
        id: "outcome.success-effect",
        asks: "Requests with success responses of other kinds and their retries have one effect at most.",
        needs: &[Need::Refused, Need::Effects],
        run: |subject| Box::pin(success_effect(subject)),
    },
    Check {
        id: "outcome.success-kinds",
        asks: "Success responses of other kinds, such as 202 or 204, are replayed too.",
        needs: &[Need::Refused],
        run: |subject| Box::pin(success_kinds(subject)),
    },
    Check {
        id: "outcome.no-effect",
        asks: "A request that is refused (4xx) has no effect.",
        needs: &[Need::Refused, Need::Effects],
        run: |subject| Box::pin(no_effect(subject)),
    },
];

/// What a status says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// It was executed.
    Success,
    /// The business rules refuse it.
    Refusal,
    /// It is wrong, or came at the wrong moment.
    CallerError,
    /// The server failed.
    ServerError,
}

impl Class {
    fn of(status: u16) -> Self {
        match status {
            200..400 => Self::Success,
            402 | 404 | 409 | 410 | 422 => Self::Refusal,
            400..500 => Self::CallerError,
            _ => Self::ServerError,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Success => "another kind of success (2xx)",
            Self::Refusal => "402, 404, 409, 410 or 422",
            Self::CallerError => "400, 401, 403, 413, 415, 429 or another 4xx",
            Self::ServerError => "a server error (5xx)",
        }
    }
}

/// A payload of the plan that was sent under a new key.
struct Sample {
    key: String,
    request: Request,
    answer: Response,
}

/// Sends each payload that is refused under a new key.
async fn samples(subject: &Subject<'_>) -> Result<Vec<Sample>, Stop> {
    let mut samples = Vec::new();
    for template in &subject.operation.refused {
        let key = subject.key();
        let request = subject.request(&key, &subject.filled(template));
        let answer = subject.send(&request).await?;
        samples.push(Sample {
            key,
            request,
            answer,
        });
    }
    Ok(samples)
}

/// As [`samples`], without those of other classes.
async fn samples_of(subject: &Subject<'_>, class: Class) -> Result<Vec<Sample>, Stop> {
    let mut samples = samples(subject).await?;
    samples.retain(|it| Class::of(it.answer.status) == class);
    Ok(samples)
}

fn none_of(what: &str) -> Judgement {
    Judgement::skipped(format!("the plan has no payload that gets {what}"))
}

/// Judges whether the responses of a class are remembered.
async fn remembered(subject: &Subject<'_>, class: Class) -> Judged {
    let samples = samples_of(subject, class).await?;
    if samples.is_empty() {
        return Ok(none_of(class.describe()));
    }
    let mut judge = Judge::new();
    let mut notes = Vec::new();
    for sample in &samples {
        match subject.profile().keeps(sample.answer.status) {
            Some(true) => judge_kept(subject, sample, &mut judge).await?,
            Some(false) => judge_not_kept(subject, sample, &mut judge).await?,
            None => notes.push(observed(subject, sample).await?),
        }
    }
    let judgement = judge.judgement();
    Ok(if notes.is_empty() || judgement.verdict != Verdict::Pass {
        judgement
    } else {
        Judgement::note(notes.join("; "))
    })
}

/// Sends the usual payload under the key of a refusal.
async fn usual(subject: &Subject<'_>, sample: &Sample) -> Result<Response, Stop> {
    let request = subject.request(&sample.key, &subject.payload());
    patiently(subject, &request).await
}

/// Requires that the retry gets the refusal again, and that the key belongs to the refused payload.
async fn judge_kept(subject: &Subject<'_>, sample: &Sample, judge: &mut Judge) -> Result<(), Stop> {
    let first = &sample.answer;
    let retry = subject.send(&sample.request).await?;
    judge.require(retry.status == first.status && retry.is_like(first), || {
        format!(
            "the first response is {}, the retry got {}",
            first.describe(),
            retry.describe()
        )
    });
    let usual = usual(subject, sample).await?;
    judge.require(subject.profile().is_mismatch(&usual), || {
        format!(
            "another payload under the key of a refusal with {} got {}, expected {}",
            first.status,
            usual.describe(),
            subject.profile().mismatch.describe()
        )
    });
    judge.saw(format!("{} is remembered", first.status));
    Ok(())
}

/// Requires that the key is free for the usual payload.
async fn judge_not_kept(
    subject: &Subject<'_>,
    sample: &Sample,
    judge: &mut Judge,
) -> Result<(), Stop> {
    let first = &sample.answer;
    let usual = usual(subject, sample).await?;
    match binding(subject, first, &usual) {
        Binding::Free => judge.saw(format!("{} is not remembered", first.status)),
        Binding::Bound => judge.require(false, || {
            format!(
                "after {} the key is not free for another payload: {}",
                first.status,
                usual.describe()
            )
        }),
        Binding::Unclear => judge.missing(format!(
            "after {} the usual payload got {}",
            first.status,
            usual.describe()
        )),
    }
    Ok(())
}

/// Returns what the server did where the profile is silent.
async fn observed(subject: &Subject<'_>, sample: &Sample) -> Result<String, Stop> {
    let first = &sample.answer;
    let usual = usual(subject, sample).await?;
    Ok(match binding(subject, first, &usual) {
        Binding::Free => format!("{} is not remembered", first.status),
        Binding::Bound => format!("{} is remembered", first.status),
        Binding::Unclear => format!(
            "after {} the usual payload got {} under the same key",
            first.status, usual.status
        ),
    })
}

/// Whether a key belongs to the payload that was refused under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    Free,
    Bound,
    Unclear,
}

/// Reads from the response to the usual payload whether the key was free.
fn binding(subject: &Subject<'_>, refused: &Response, usual: &Response) -> Binding {
    let profile = subject.profile();
    let is_same = usual.status == refused.status && usual.is_like(refused);
    if usual.is_success() {
        Binding::Free
    } else if matches!(usual.status, 429 | 502..=504) {
        Binding::Unclear
    } else if is_same || profile.is_mismatch(usual) || profile.is_in_flight(usual) {
        Binding::Bound
    } else {
        Binding::Unclear
    }
}

async fn rate_limited(subject: &Subject<'_>) -> Judged {
    let mut samples = samples(subject).await?;
    samples.retain(|it| it.answer.status == 429);
    let Some(sample) = samples.first() else {
        return Ok(none_of("429"));
    };
    let date = sample.answer.header("date");
    Ok(Judgement::note(match sample.answer.header("retry-after") {
        Some(value) if is_sane(&value, date.as_deref()) => "429 has a sane Retry-After".to_owned(),
        Some(value) => format!("429 has the Retry-After {value:?}, which is not sane"),
        None => "429 has no Retry-After".to_owned(),
    }))
}

async fn server_error_effect(subject: &Subject<'_>) -> Judged {
    effect_of(subject, Class::ServerError).await
}

async fn success_effect(subject: &Subject<'_>) -> Judged {
    effect_of(subject, Class::Success).await
}

/// Requires that a request of a class and its retry have one effect at most.
async fn effect_of(subject: &Subject<'_>, class: Class) -> Judged {
    let mut judge = Judge::new();
    let mut found = false;
    for template in &subject.operation.refused {
        let before = subject.effects().await?;
        let request = subject.request(&subject.key(), &subject.filled(template));
        let answer = subject.send(&request).await?;
        if Class::of(answer.status) != class {
            continue;
        }
        found = true;
        patiently(subject, &request).await?;
        match subject.effects_since(before).await? {
            Some(made) => judge.require(made <= 1, || {
                format!(
                    "a request that got {} and its retry had {made} effects",
                    answer.status
                )
            }),
            None => judge.missing("the plan does not say how effects are counted"),
        }
    }
    if !found {
        return Ok(none_of(class.describe()));
    }
    judge.saw("one effect at most");
    Ok(judge.judgement())
}

async fn success_kinds(subject: &Subject<'_>) -> Judged {
    let samples = samples_of(subject, Class::Success).await?;
    if samples.is_empty() {
        return Ok(none_of(Class::Success.describe()));
    }
    let mut judge = Judge::new();
    for sample in &samples {
        let replay = subject.settled(&sample.request).await?;
        let (first, again) = (&sample.answer, &replay);
        judge.require(
            (first.status, &first.body) == (again.status, &again.body),
            || {
                format!(
                    "the first response is {}, the retry got {}",
                    sample.answer.describe(),
                    replay.describe()
                )
            },
        );
        judge.saw(format!("{} is replayed", sample.answer.status));
        // With a count, `outcome.success-effect` judges responses without a body.
        if first.body.is_empty() && subject.operation.oracle.is_none() {
            judge.missing(format!(
                "{} has no body, and the plan does not say how effects are counted",
                first.status
            ));
        }
    }
    require_bodies(subject, &mut judge).await?;
    Ok(judge.judgement())
}

async fn no_effect(subject: &Subject<'_>) -> Judged {
    let mut judge = Judge::new();
    let mut found = false;
    for template in &subject.operation.refused {
        let before = subject.effects().await?;
        let request = subject.request(&subject.key(), &subject.filled(template));
        let answer = subject.send(&request).await?;
        if !(400..500).contains(&answer.status) {
            continue;
        }
        found = true;
        match subject.effects_since(before).await? {
            Some(made) => judge.require(made == 0, || {
                format!("a request that got {} had {made} effects", answer.status)
            }),
            None => judge.missing("the plan does not say how effects are counted"),
        }
    }
    if !found {
        return Ok(none_of("a refusal (4xx)"));
    }
    judge.saw("no effects");
    Ok(judge.judgement())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides_the_class() {
        for (status, class) in [
            (200, Class::Success),
            (204, Class::Success),
            (303, Class::Success),
            (400, Class::CallerError),
            (402, Class::Refusal),
            (422, Class::Refusal),
            (429, Class::CallerError),
            (500, Class::ServerError),
            (503, Class::ServerError),
        ] {
            assert_eq!(Class::of(status), class, "{status}");
        }
    }
}
