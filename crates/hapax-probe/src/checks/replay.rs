//! Group `replay`: a retry gets the first response, and nothing happens twice.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    checks::{Check, Need, proof::Proof},
    http::{Framing, Response},
    subject::{First, Subject, sorted},
    verdict::{Judge, Judged, Judgement, Stop, Verdict},
};

/// How many requests under other keys are sent between a request and its retry.
const MANY: usize = 144;
/// How many of them are sent at once.
const AT_ONCE: usize = 12;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "replay.status",
        asks: "A retry with the same key and payload gets the status of the first response.",
        needs: &[],
        run: |subject| Box::pin(status(subject)),
    },
    Check {
        id: "replay.body",
        asks: "A retry gets the body of the first response, byte for byte.",
        needs: &[],
        run: |subject| Box::pin(body(subject)),
    },
    Check {
        id: "replay.headers",
        asks: "A retry gets the header fields of the first response, repeated and binary ones too, except those of \
               one connection.",
        needs: &[],
        run: |subject| Box::pin(headers(subject)),
    },
    Check {
        id: "replay.effect",
        asks: "A request and two retries have one effect.",
        needs: &[Need::Effects],
        run: |subject| Box::pin(effect(subject)),
    },
    Check {
        id: "replay.cookies",
        asks: "A replay does not set the cookies of the first response again.",
        needs: &[],
        run: |subject| Box::pin(cookies(subject)),
    },
    Check {
        id: "replay.date",
        asks: "A replay has a new date.",
        needs: &[],
        run: |subject| Box::pin(date(subject)),
    },
    Check {
        id: "replay.chunked-request",
        asks: "A retry is the same request if its body is sent in chunks.",
        needs: &[],
        run: |subject| Box::pin(chunked_request(subject)),
    },
    Check {
        id: "replay.later",
        asks: "A retry after more than a second gets the first response.",
        needs: &[],
        run: |subject| Box::pin(later(subject)),
    },
    Check {
        id: "replay.after-many",
        asks: "A retry gets the first response after many other requests.",
        needs: &[],
        run: |subject| Box::pin(after_many(subject)),
    },
];

/// Sends a first request and its retry.
async fn pair(subject: &Subject<'_>) -> Result<(First, Response), Stop> {
    let first = subject.accepted().await?;
    let replay = subject.settled(&first.request).await?;
    Ok((first, replay))
}

async fn status(subject: &Subject<'_>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let (first, replay) = pair(subject).await?;
    let mut judge = Judge::new();
    judge.saw(format!("{} twice", first.answer.status));
    judge.require(first.answer.status == replay.status, || {
        format!(
            "the first response has the status {}, the retry got {}",
            first.answer.status,
            replay.describe()
        )
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn body(subject: &Subject<'_>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let (first, replay) = pair(subject).await?;
    let mut judge = Judge::new();
    let mut seen = format!("{} equal bytes", first.answer.body.len());
    if !subject.plan.per_request_members.is_empty() {
        let members = subject.plan.per_request_members.join(", ");
        seen = format!("{seen}, without {members}");
    }
    judge.saw(seen);
    judge.require(first.answer.body == replay.body, || {
        format!(
            "the first response is {}, the retry got {}",
            first.answer.describe(),
            replay.describe()
        )
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn headers(subject: &Subject<'_>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let (first, replay) = pair(subject).await?;
    let expected = sorted(subject.lasting(&first.answer));
    let got = sorted(subject.lasting(&replay));
    let missing: Vec<&str> = expected
        .iter()
        .filter(|field| !got.contains(field))
        .map(|field| field.name.as_str())
        .collect();
    let added: Vec<&str> = got
        .iter()
        .filter(|field| !expected.contains(field))
        .map(|field| field.name.as_str())
        .collect();
    let seen = match (expected == got, missing.is_empty() && added.is_empty()) {
        (true, _) => format!("{} equal header fields", expected.len()),
        (false, true) => "repeated header fields have another order or number".to_owned(),
        (false, false) => format!(
            "not as in the first response: {}; only in the replay: {}",
            listed(&missing),
            listed(&added)
        ),
    };
    let verdict = match (expected == got, subject.profile().replays_headers) {
        (true, _) => Verdict::Pass,
        (false, Some(true)) => Verdict::Fail,
        (false, _) => Verdict::Note,
    };
    if verdict != Verdict::Pass {
        return Ok(Judgement::new(verdict, seen));
    }
    let mut judge = Judge::new();
    judge.saw(seen);
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

async fn effect(subject: &Subject<'_>) -> Judged {
    let before = subject.effects().await?;
    let (first, _) = pair(subject).await?;
    subject.settled(&first.request).await?;
    let mut judge = Judge::new();
    subject.require_effects(&mut judge, before, 1).await?;
    Ok(judge.judgement())
}

async fn cookies(subject: &Subject<'_>) -> Judged {
    let (first, replay) = pair(subject).await?;
    let given = first.answer.values("set-cookie");
    if given.is_empty() {
        return Ok(Judgement::skipped("the first response sets no cookie"));
    }
    let repeated = replay.values("set-cookie") == given;
    let seen = if repeated {
        "the replay sets the same cookies as the first response"
    } else {
        "the replay does not repeat the cookies of the first response"
    };
    Ok(Judgement::new(of_one_response(subject, repeated), seen))
}

async fn date(subject: &Subject<'_>) -> Judged {
    let first = subject.accepted().await?;
    if first.answer.header("date").is_none() {
        return Ok(Judgement::skipped("the response has no date"));
    }
    // Dates have a resolution of one second.
    pause(subject, Duration::from_millis(1_200)).await;
    let replay = subject.settled(&first.request).await?;
    let repeated = replay.values("date") == first.answer.values("date");
    let seen = if repeated {
        "a replay after more than a second has the date of the first response"
    } else {
        "the replay has another date"
    };
    Ok(Judgement::new(of_one_response(subject, repeated), seen))
}

/// Judges that a field which belongs to one response was repeated in its replay.
fn of_one_response(subject: &Subject<'_>, repeated: bool) -> Verdict {
    match (repeated, subject.profile().replays_cookies_and_date) {
        (_, None) => Verdict::Note,
        (repeated, Some(allowed)) if repeated && !allowed => Verdict::Fail,
        (_, Some(_)) => Verdict::Pass,
    }
}

/// Waits, except in a dry run.
async fn pause(subject: &Subject<'_>, time: Duration) {
    if !subject.plan.dry_run {
        sleep(time).await;
    }
}

async fn chunked_request(subject: &Subject<'_>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let first = subject.accepted().await?;
    if first.request.body.is_empty() {
        return Ok(Judgement::skipped("the request has no body"));
    }
    let again = first.request.clone().framing(Framing::Chunked(7));
    let replay = subject.settled(&again).await?;
    if replay.status == 411 {
        return Ok(Judgement::note("the server requires Content-Length (411)"));
    }
    let mut judge = Judge::new();
    judge.require(first.answer.is_like(&replay), || {
        format!("the retry in chunks got {}", replay.describe())
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn later(subject: &Subject<'_>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let first = subject.accepted().await?;
    pause(subject, Duration::from_millis(1_500)).await;
    same(subject, &first, "after 1.5 s", (proof, 1)).await
}

async fn after_many(subject: &Subject<'_>) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let first = subject.accepted().await?;
    for _ in 0..MANY / AT_ONCE {
        let others = (0..AT_ONCE).map(|_| subject.accepted());
        futures_util::future::try_join_all(others).await?;
    }
    let expected = 1 + MANY as u64;
    same(
        subject,
        &first,
        "after many other requests",
        (proof, expected),
    )
    .await
}

/// Requires that a retry of `first` is a replay, and that there was this number of effects.
async fn same(
    subject: &Subject<'_>,
    first: &First,
    when: &str,
    (proof, expected): (Proof, u64),
) -> Judged {
    let replay = subject.settled(&first.request).await?;
    let mut judge = Judge::new();
    judge.require(first.answer.is_like(&replay), || {
        format!("{when} the retry got {}", replay.describe())
    });
    proof.require(subject, &mut judge, expected).await?;
    Ok(judge.judgement())
}
