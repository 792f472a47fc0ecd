//! Group `time`: a key is kept as long as it has to be, and what happens after that.
//!
//! The checks wait, so the server has to be configured for a short retention. What a retry gets
//! after the retention is reported; that a key ends at all is judged if the profile says so.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    checks::{Check, Need, proof::Proof},
    http::Response,
    subject::{First, Subject},
    verdict::{Judge, Judged, Judgement, Stop, Verdict},
};

/// The maximum retention that the checks wait for.
const RETENTION_MAX: Duration = Duration::from_secs(20);
/// How long after the retention a key is asked for: a server may delete keys once a second.
const MARGIN: Duration = Duration::from_secs(2);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "time.kept",
        asks: "A retry gets the first response when half of the retention is over.",
        needs: &[Need::Retention],
        run: |subject| Box::pin(kept(subject)),
    },
    Check {
        id: "time.expired",
        asks: "After the retention, the same request is executed again or refused as gone.",
        needs: &[Need::Retention],
        run: |subject| Box::pin(expired(subject)),
    },
];

/// Returns the retention, or why the checks do not wait for it.
fn retention(subject: &Subject<'_>) -> Result<Duration, Judgement> {
    match subject.operation.retention {
        Some(retention) if retention <= RETENTION_MAX => Ok(retention),
        Some(_) => Err(Judgement::unknown("the retention is longer than 20 s")),
        None => Err(Judgement::unknown(
            "the plan has no short retention (retention-hint)",
        )),
    }
}

async fn pause(subject: &Subject<'_>, time: Duration) {
    if !subject.plan.dry_run {
        sleep(time).await;
    }
}

async fn kept(subject: &Subject<'_>) -> Judged {
    let retention = match retention(subject) {
        Ok(retention) => retention,
        Err(judgement) => return Ok(judgement),
    };
    let proof = Proof::by_body(subject).await?;
    let first = subject.accepted().await?;
    pause(subject, retention / 2).await;
    let replay = subject.settled(&first.request).await?;
    let mut judge = Judge::new();
    judge.require(first.answer.is_like(&replay), || {
        format!(
            "when half of the retention was over, the retry got {}",
            replay.describe()
        )
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn expired(subject: &Subject<'_>) -> Judged {
    let retention = match retention(subject) {
        Ok(retention) => retention,
        Err(judgement) => return Ok(judgement),
    };
    let before = subject.effects().await?;
    let first = subject.accepted().await?;
    pause(subject, retention + MARGIN).await;
    let answer = subject.settled(&first.request).await?;
    if !is_kept(subject, before, &first, &answer).await? {
        return Ok(ended(&answer, "after the retention"));
    }
    // A server may delete its keys much later than it promises to keep them.
    pause(subject, retention).await;
    let answer = subject.settled(&first.request).await?;
    Ok(if is_kept(subject, before, &first, &answer).await? {
        let verdict = match subject.profile().expires {
            Some(true) => Verdict::Fail,
            _ => Verdict::Note,
        };
        Judgement::new(verdict, "the key is still kept after twice the retention")
    } else {
        ended(&answer, "after twice the retention")
    })
}

/// Whether a response is the first one, and the request has had one effect.
async fn is_kept(
    subject: &Subject<'_>,
    before: Option<u64>,
    first: &First,
    answer: &Response,
) -> Result<bool, Stop> {
    let made = subject.effects_since(before).await?;
    Ok(first.answer.is_like(answer) && made.is_none_or(|made| made <= 1))
}

/// Reports what a request got whose first response is not kept any more.
fn ended(answer: &Response, when: &str) -> Judgement {
    let status = answer.status;
    if answer.is_success() {
        Judgement::note(format!("{when} the request is executed again ({status})"))
    } else if is_gone(answer) {
        Judgement::note(format!("{when} the request is refused as gone ({status})"))
    } else if (400..500).contains(&status) {
        Judgement::note(format!("{when} the request is refused ({status})"))
    } else {
        Judgement::unknown(format!("{when} the request got {}", answer.describe()))
    }
}

/// Whether a refusal says that the key has expired.
fn is_gone(answer: &Response) -> bool {
    let body = String::from_utf8_lossy(&answer.body).to_ascii_uppercase();
    answer.status == 410 || ((400..500).contains(&answer.status) && body.contains("EXPIRED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, verdict: Verdict, word: &str) {
        let answer = Response {
            status,
            fields: Vec::new(),
            body: body.as_bytes().to_vec(),
            elapsed: Duration::ZERO,
        };
        let judgement = ended(&answer, "later");
        assert_eq!(judgement.verdict, verdict);
        assert!(judgement.seen.contains(word), "{}", judgement.seen);
    }

    #[test]
    fn an_expired_key_is_new_or_gone() {
        check(201, "{}", Verdict::Note, "executed again");
        check(410, "", Verdict::Note, "gone");
        check(
            422,
            r#"{"code":"IDEMPOTENCY_EXPIRED"}"#,
            Verdict::Note,
            "gone",
        );
        check(409, "{}", Verdict::Note, "refused (409)");
        check(500, "", Verdict::Unknown, "500");
    }
}
