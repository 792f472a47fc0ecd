//! Races: requests under one key that are sent at the same moment.
//!
//! The groups `in-flight` and `nodes` judge them.

use crate::{
    checks::{available::patiently, proof::Proof},
    http::{Failure, Request, Response},
    subject::Subject,
    verdict::{Judge, Judged, Judgement, Stop},
};

/// How many requests a race of two payloads, and a race of which the effects are counted, has.
const RACERS: usize = 16;
/// How many races are counted.
const ROUNDS: usize = 5;
/// How many different violations of a race are reported.
const SHOWN: usize = 3;

/// What became of a duplicate.
pub(super) enum Duplicate<'a> {
    /// It got the first response.
    Served,
    /// It was refused because the key is in flight.
    Refused(&'a Response),
    /// The server asks to send it again later, for another reason.
    Later(&'a Response),
    /// It has no response, for a reason that need not be the server's.
    Lost(String),
    /// Something that no duplicate may get.
    Wrong(String),
}

pub(super) fn duplicate<'a>(
    subject: &Subject<'_>,
    result: &'a Result<Response, Failure>,
    first: &Response,
) -> Duplicate<'a> {
    let profile = subject.profile();
    match result {
        Ok(answer) if answer.is_success() && answer.is_like(first) => Duplicate::Served,
        Ok(answer) if answer.is_success() => Duplicate::Wrong(format!(
            "a duplicate got another response: {}",
            answer.describe()
        )),
        Ok(answer) if profile.is_in_flight(answer) => Duplicate::Refused(answer),
        Ok(answer) if profile.in_flight.is_none() && matches!(answer.status, 409 | 423 | 425) => {
            Duplicate::Refused(answer)
        }
        Ok(answer) if matches!(answer.status, 429 | 502..=504) => Duplicate::Later(answer),
        Ok(answer) => Duplicate::Wrong(format!("a duplicate got {}", answer.describe())),
        Err(Failure::Timeout(_)) => Duplicate::Wrong("a duplicate never got a response".to_owned()),
        Err(failure) => Duplicate::Lost(format!("a duplicate has no response: {failure}")),
    }
}

/// Sends identical requests at once and judges their responses. Returns what a later retry gets.
pub(crate) async fn race(
    subject: &Subject<'_>,
    requests: &[Request],
    retry: &Request,
    judge: &mut Judge,
) -> Result<Response, Stop> {
    let results = subject.race(requests).await?;
    let settled = subject.settled(retry).await?;
    if !settled.is_success() {
        if !results.iter().flatten().any(Response::is_success) {
            return Err(Stop::NotAccepted(settled.describe()));
        }
        judge.require(false, || {
            format!("after the race a retry got {}", settled.describe())
        });
        return Ok(settled);
    }
    let mut wrong: Vec<String> = Vec::new();
    let mut lost: Vec<String> = Vec::new();
    for result in &results {
        match duplicate(subject, result, &settled) {
            Duplicate::Wrong(what) if !wrong.contains(&what) => wrong.push(what),
            Duplicate::Lost(what) if !lost.contains(&what) => lost.push(what),
            _ => {}
        }
    }
    for what in wrong.into_iter().take(SHOWN) {
        judge.require(false, || what);
    }
    for what in lost.into_iter().take(SHOWN) {
        judge.missing(what);
    }
    Ok(settled)
}

pub(super) async fn race_of(subject: &Subject<'_>, count: usize) -> Judged {
    let proof = Proof::by_body(subject).await?;
    let request = subject.request(&subject.key(), &subject.payload());
    let mut judge = Judge::new();
    race(subject, &vec![request.clone(); count], &request, &mut judge).await?;
    judge.saw(format!("{count} requests at once, one body"));
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

pub(super) async fn race_effect(subject: &Subject<'_>) -> Judged {
    let mut judge = Judge::new();
    for round in 1..=ROUNDS {
        let before = subject.effects().await?;
        let request = subject.request(&subject.key(), &subject.payload());
        race(
            subject,
            &vec![request.clone(); RACERS],
            &request,
            &mut judge,
        )
        .await?;
        match subject.effects_made(before, 1).await? {
            Some(made) => judge.require(made == 1, || {
                format!("race {round} had {made} effects, expected 1")
            }),
            None => judge.missing("the plan does not say how effects are counted"),
        }
    }
    judge.saw(format!(
        "{ROUNDS} races of {RACERS} requests with one effect each"
    ));
    Ok(judge.judgement())
}

pub(super) async fn race_mismatch(subject: &Subject<'_>) -> Judged {
    let key = subject.key();
    let payload = subject.payload();
    let Some(other) = subject.varied(&payload) else {
        return Ok(Judgement::unknown("the payload cannot be varied"));
    };
    let pair = [
        subject.request(&key, &payload),
        subject.request(&key, &other),
    ];
    let before = subject.effects().await?;
    let requests: Vec<Request> = pair.iter().cycle().take(RACERS).cloned().collect();
    let results = subject.race(&requests).await?;
    let [one, two] = &pair;
    let one = patiently(subject, one).await?;
    let two = patiently(subject, two).await?;
    let (evens, odds): (Vec<_>, Vec<_>) = results
        .iter()
        .enumerate()
        .partition(|(index, _)| index % 2 == 0);
    let mut judge = Judge::new();
    let (winner, loser, winners, losers) = match (one.is_success(), two.is_success()) {
        (true, false) => (one, two, evens, odds),
        (false, true) => (two, one, odds, evens),
        (true, true) => {
            judge.require(false, || {
                "two payloads have success under one key".to_owned()
            });
            return Ok(judge.judgement());
        }
        (false, false) => return Err(Stop::NotAccepted(one.describe())),
    };
    judge.require(subject.profile().is_mismatch(&loser), || {
        format!(
            "after the race the other payload got {}, expected {}",
            loser.describe(),
            subject.profile().mismatch.describe()
        )
    });
    for (_, result) in winners {
        match duplicate(subject, result, &winner) {
            Duplicate::Wrong(what) => judge.require(false, || what),
            Duplicate::Lost(what) => judge.missing(what),
            _ => {}
        }
    }
    for (_, result) in losers {
        judge_loser(subject, result, &mut judge);
    }
    judge.saw("one payload was executed, the other one is a mismatch");
    if before.is_some() {
        subject.require_effects(&mut judge, before, 1).await?;
    }
    Ok(judge.judgement())
}

/// Judges the response to a payload that lost the race for its key.
fn judge_loser(subject: &Subject<'_>, result: &Result<Response, Failure>, judge: &mut Judge) {
    match result {
        Ok(answer) => judge.require(
            subject.profile().is_mismatch(answer)
                || subject.is_temporary(answer)
                || matches!(answer.status, 409 | 423 | 425 | 429),
            || {
                format!(
                    "the payload that was not executed got {}",
                    answer.describe()
                )
            },
        ),
        Err(Failure::Timeout(_)) => judge.require(false, || {
            "the payload that was not executed never got a response".to_owned()
        }),
        Err(failure) => judge.missing(format!("a request has no response: {failure}")),
    }
}
