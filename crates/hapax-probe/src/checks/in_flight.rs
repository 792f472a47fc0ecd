//! Group `in-flight`: requests under one key that run at the same time.
//!
//! A duplicate may be refused, or wait for the first request and get its response. It may not be
//! executed, and it may not stay without a response. The group `nodes` sends the same requests to
//! two nodes and judges them with the functions of this module.

use std::time::Duration;

use futures_util::future::join;

use crate::{
    checks::{
        Check, Need,
        available::pause,
        proof::Proof,
        race::{Duplicate, duplicate, race_effect, race_mismatch, race_of},
    },
    http::{Failure, Request, Response, Target},
    plan::Vary,
    subject::Subject,
    verdict::{Judge, Judged, Judgement, Stop, Verdict},
};

/// How long a slow request runs before another request is sent under its key.
const HEAD_START: Duration = Duration::from_millis(300);
/// By how much a response has to come before that of the slow request, to have come while it ran.
const MARGIN: Duration = Duration::from_millis(50);
/// Within which time a mismatch is reported while the first request runs.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How many slow requests run at once.
const SLOW_RACERS: usize = 9;
/// The maximum of a sane `Retry-After` in seconds.
const RETRY_AFTER_MAX: u32 = 3_600;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "in-flight.race-2",
        asks: "Two identical requests at once: each success response has the same body, and nothing but a request \
               in flight is refused.",
        needs: &[],
        run: |subject| Box::pin(race_of(subject, 2)),
    },
    Check {
        id: "in-flight.race-16",
        asks: "16 identical requests at once: each success response has the same body, and nothing but a request \
               in flight is refused.",
        needs: &[],
        run: |subject| Box::pin(race_of(subject, 16)),
    },
    Check {
        id: "in-flight.race-200",
        asks: "200 identical requests at once: each success response has the same body, and nothing but a request \
               in flight is refused.",
        needs: &[],
        run: |subject| Box::pin(race_of(subject, 200)),
    },
    Check {
        id: "in-flight.race-effect",
        asks: "16 identical requests at once have one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(race_effect(subject)),
    },
    Check {
        id: "in-flight.race-mismatch",
        asks: "Of two payloads that are sent at once under one key, one is executed and the other one is a mismatch.",
        needs: &[Need::Vary],
        run: |subject| Box::pin(race_mismatch(subject)),
    },
    Check {
        id: "in-flight.refused",
        asks: "A duplicate of a running request is refused as in flight, or waits and gets the first response.",
        needs: &[Need::Slow],
        run: |subject| Box::pin(duplicate_at(subject, None)),
    },
    Check {
        id: "in-flight.mismatch-while-running",
        asks: "Another payload under the key of a running request is a mismatch at once.",
        needs: &[Need::Slow, Need::Vary],
        run: |subject| Box::pin(mismatch_at(subject, None)),
    },
    Check {
        id: "in-flight.retry-after",
        asks: "The refusal of a request in flight says with Retry-After when to send it again.",
        needs: &[Need::Slow],
        run: |subject| Box::pin(retry_after(subject)),
    },
    Check {
        id: "in-flight.ends",
        asks: "Every duplicate of a running request gets a response.",
        needs: &[Need::Slow],
        run: |subject| Box::pin(ends(subject)),
    },
];

/// A slow request's response, and what became of the request that was sent while it ran.
struct Overlap {
    slow: Response,
    during: Result<Response, Failure>,
}

/// Sends a slow request, and another request while it runs.
async fn overlap(
    subject: &Subject<'_>,
    slow: &Request,
    during: &Request,
    judge: &mut Judge,
) -> Result<Overlap, Stop> {
    let later = async {
        pause(subject, HEAD_START).await;
        subject.transfer(during, None, subject.plan.wait).await
    };
    // A low rate would otherwise send the second request when the first one has ended.
    subject.admit(2).await?;
    let first = subject.transfer(slow, None, subject.plan.wait);
    let (first, during) = join(first, later).await;
    let answer = first.map_err(|failure| Stop::NoResponse {
        request: slow.describe(),
        failure,
    })?;
    if !answer.is_success() {
        return Err(Stop::NotAccepted(answer.describe()));
    }
    if !subject.plan.dry_run && answer.elapsed < HEAD_START + MARGIN {
        judge.missing(format!(
            "the slow payload was finished within {:?}, expected a second or more",
            HEAD_START + MARGIN
        ));
    }
    Ok(Overlap {
        slow: answer,
        during,
    })
}

/// Returns the request to another node, or to the same one if there is none.
pub(crate) fn at(subject: &Subject<'_>, request: &Request, node: Option<&Target>) -> Request {
    let Some(node) = node else {
        return request.clone();
    };
    // A payload that is varied in the query has another address than the operation.
    let value = match &subject.operation.vary {
        Some(Vary::Query(name)) => request.target.query(name).map(|value| (name, value)),
        _ => None,
    };
    match value {
        Some((name, value)) => request.clone().to(&node.with_query(name, &value)),
        None => request.clone().to(node),
    }
}

/// Returns a slow request under a new key and another payload under this key, if there is one.
fn slow(subject: &Subject<'_>) -> Option<(Request, Option<Request>)> {
    let payload = subject.filled(subject.operation.slow.as_ref()?);
    let key = subject.key();
    let other = subject
        .varied(&payload)
        .map(|other| subject.request(&key, &other));
    Some((subject.request(&key, &payload), other))
}

fn no_slow() -> Judgement {
    Judgement::unknown("the plan has no slow payload (slow-body)")
}

/// Judges a duplicate that is sent to `node` while the first request runs.
pub(crate) async fn duplicate_at(subject: &Subject<'_>, node: Option<&Target>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let Some((request, _)) = slow(subject) else {
        return Ok(no_slow());
    };
    let again = at(subject, &request, node);
    let mut judge = Judge::new();
    let overlap = overlap(subject, &request, &again, &mut judge).await?;
    let mut observed = None;
    match duplicate(subject, &overlap.during, &overlap.slow) {
        Duplicate::Served => judge.saw("the duplicate waited and got the first response"),
        Duplicate::Refused(answer) => match &subject.profile().in_flight {
            Some(rule) => {
                judge.require(rule.refusal.allows(answer), || {
                    format!(
                        "the duplicate got {}, expected {}",
                        answer.describe(),
                        rule.refusal.describe()
                    )
                });
                judge.saw(format!("the duplicate was refused with {}", answer.status));
            }
            None => observed = Some(format!("the duplicate was refused with {}", answer.status)),
        },
        Duplicate::Later(answer) => {
            judge.missing(format!("the duplicate got {}", answer.describe()));
        }
        Duplicate::Lost(what) => judge.missing(what),
        Duplicate::Wrong(what) => judge.require(false, || what),
    }
    let retry = subject.settled(&again).await?;
    judge.require(retry.is_success() && retry.is_like(&overlap.slow), || {
        format!("after the first request a retry got {}", retry.describe())
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(noted(judge, observed))
}

/// Judges another payload that is sent to `node` under the key of a running request.
pub(crate) async fn mismatch_at(subject: &Subject<'_>, node: Option<&Target>) -> Judged {
    let Some((request, other)) = slow(subject) else {
        return Ok(no_slow());
    };
    let Some(other) = other else {
        return Ok(Judgement::unknown("the slow payload cannot be varied"));
    };
    let other = at(subject, &other, node);
    let before = subject.effects().await?;
    let mut judge = Judge::new();
    let overlap = overlap(subject, &request, &other, &mut judge).await?;
    let mut observed = None;
    match &overlap.during {
        Ok(answer) if answer.is_success() => judge.require(false, || {
            format!("another payload under the key got {}", answer.describe())
        }),
        Ok(answer) if subject.profile().mismatch_while_running == Some(true) => {
            judge_mismatch(subject, answer, &overlap.slow, &mut judge);
        }
        Ok(answer) if subject.profile().is_mismatch(answer) => {
            observed =
                Some("another payload is a mismatch while the first request runs".to_owned());
        }
        Ok(answer) if subject.profile().is_in_flight(answer) => {
            observed = Some("another payload is in flight while the first request runs".to_owned());
        }
        Ok(answer) => {
            observed = Some(format!(
                "another payload got {} while the first request ran",
                answer.status
            ));
        }
        Err(Failure::Timeout(_)) => judge.require(false, || {
            "another payload under the key never got a response".to_owned()
        }),
        Err(failure) => judge.missing(format!("another payload has no response: {failure}")),
    }
    let retry = subject.settled(&request).await?;
    judge.require(retry.is_success() && retry.is_like(&overlap.slow), || {
        format!(
            "after another payload a retry of the first one got {}",
            retry.describe()
        )
    });
    if before.is_some() {
        subject.require_effects(&mut judge, before, 1).await?;
    }
    Ok(noted(judge, observed))
}

/// Requires a mismatch that did not wait for the running request.
fn judge_mismatch(subject: &Subject<'_>, answer: &Response, slow: &Response, judge: &mut Judge) {
    let profile = subject.profile();
    if matches!(answer.status, 429 | 502..=504) {
        judge.missing(format!("another payload got {}", answer.describe()));
        return;
    }
    judge.require(profile.is_mismatch(answer), || {
        format!(
            "another payload got {} while the first request ran, expected {}",
            answer.describe(),
            profile.mismatch.describe()
        )
    });
    let early = subject.plan.dry_run || answer.elapsed + HEAD_START + MARGIN < slow.elapsed;
    judge.require(early && answer.elapsed < AT_ONCE, || {
        "the response to another payload came only when the first request had ended".to_owned()
    });
    judge.saw("another payload is a mismatch while the first request runs");
}

/// Returns the judgement; in place of a pass, the note if there is one.
fn noted(judge: Judge, note: Option<String>) -> Judgement {
    let judgement = judge.judgement();
    match note {
        Some(seen) if judgement.verdict == Verdict::Pass => Judgement::note(seen),
        _ => judgement,
    }
}

async fn retry_after(subject: &Subject<'_>) -> Judged {
    let Some((request, _)) = slow(subject) else {
        return Ok(no_slow());
    };
    let mut judge = Judge::new();
    let overlap = overlap(subject, &request, &request, &mut judge).await?;
    let answer = match duplicate(subject, &overlap.during, &overlap.slow) {
        Duplicate::Refused(answer) => answer,
        Duplicate::Served => {
            return Ok(match judge.judgement() {
                it if it.verdict == Verdict::Pass => Judgement::skipped("the server waits"),
                it => it,
            });
        }
        Duplicate::Later(answer) => return Ok(Judgement::unknown(answer.describe())),
        Duplicate::Lost(what) | Duplicate::Wrong(what) => return Ok(Judgement::unknown(what)),
    };
    let required = subject
        .profile()
        .in_flight
        .as_ref()
        .is_some_and(|it| it.retry_after);
    let date = answer.header("date");
    match answer.header("retry-after") {
        Some(value) => {
            judge.require(is_sane(&value, date.as_deref()), || {
                format!(
                    "Retry-After is {value:?}, expected 1 to {RETRY_AFTER_MAX} whole seconds, or a date within them"
                )
            });
            judge.saw("Retry-After is there and sane");
        }
        None if required => judge.require(false, || {
            format!("the refusal has no Retry-After: {}", answer.describe())
        }),
        None => return Ok(Judgement::note("the refusal has no Retry-After")),
    }
    Ok(judge.judgement())
}

/// Whether a value of `Retry-After` is one that a client can obey. A date is compared with the
/// `Date` of the response, if there is one.
pub(crate) fn is_sane(value: &str, date: Option<&str>) -> bool {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value
            .parse::<u32>()
            .is_ok_and(|seconds| (1..=RETRY_AFTER_MAX).contains(&seconds));
    }
    let Some(at) = seconds_of(value) else {
        return false;
    };
    date.and_then(seconds_of)
        .is_none_or(|now| (0..=i64::from(RETRY_AFTER_MAX)).contains(&(at - now)))
}

/// Returns the seconds since 1970 of an HTTP date.
fn seconds_of(date: &str) -> Option<i64> {
    let date = date.trim();
    if !date.ends_with(" GMT") {
        return None;
    }
    let at = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(at.timestamp().as_second())
}

async fn ends(subject: &Subject<'_>) -> Judged {
    let Some((request, _)) = slow(subject) else {
        return Ok(no_slow());
    };
    let results = subject.race(&vec![request.clone(); SLOW_RACERS]).await?;
    let retry = subject.settled(&request).await?;
    let mut judge = Judge::new();
    if !retry.is_success() && !results.iter().flatten().any(Response::is_success) {
        return Err(Stop::NotAccepted(retry.describe()));
    }
    if results.iter().all(Result::is_err) {
        judge.missing("none of the requests got a response");
        return Ok(judge.judgement());
    }
    let silent = results
        .iter()
        .filter(|it| matches!(it, Err(Failure::Timeout(_) | Failure::Ended(_))))
        .count();
    judge.require(silent == 0, || {
        format!("{silent} of {SLOW_RACERS} requests at once got no response")
    });
    for failure in results.iter().filter_map(|it| it.as_ref().err()) {
        if !matches!(failure, Failure::Timeout(_) | Failure::Ended(_)) {
            judge.missing(format!("a request has no response: {failure}"));
        }
    }
    judge.saw(format!(
        "{SLOW_RACERS} requests at once, each with a response"
    ));
    Ok(judge.judgement())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    #[track_caller]
    fn check(value: &str, expected: bool) {
        assert_eq!(is_sane(value, Some(NOW)), expected, "{value:?}");
    }

    #[test]
    fn whole_seconds_of_an_hour_at_most_are_sane() {
        check("1", true);
        check("3600", true);
        for insane in [
            "",
            "0",
            "3601",
            "-1",
            "+1",
            "1.5",
            "1s",
            "99999999999999999999",
        ] {
            check(insane, false);
        }
    }

    #[test]
    fn a_date_has_to_be_within_an_hour() {
        check(NOW, true);
        check("Sun, 06 Nov 1994 09:49:37 GMT", true);
        check("Sun, 06 Nov 1994 09:49:38 GMT", false);
        check("Sun, 06 Nov 1994 08:49:36 GMT", false);
        check("Sun, 06 Nov 1994 08:50:00 +0000", false);
        check("tomorrow GMT", false);
        assert!(is_sane("Sun, 06 Nov 1994 08:49:36 GMT", None));
    }
}
