//! Groups `nodes` and `restart`: a key is known on every node, and after a restart.
//!
//! The second node is another address of the same operation. The restart command of the plan kills
//! the server and starts it again; in the middle of a request too, if the plan has a slow payload.

use std::time::Duration;

use futures_util::future::join;

use crate::{
    checks::{
        Check, Need,
        available::{patiently, pause},
        in_flight::{at, duplicate_at, mismatch_at},
        proof::Proof,
        race::race,
    },
    http::{Failure, Request, Response, Target},
    subject::Subject,
    verdict::{Judge, Judged, Judgement, Stop},
};

/// How many requests a race has.
const RACERS: usize = 16;
/// How long a slow request runs before the server is restarted.
const HEAD_START: Duration = Duration::from_millis(300);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "nodes.replay",
        asks: "A retry at another node gets the first response.",
        needs: &[Need::SecondNode],
        run: |subject| Box::pin(replay(subject)),
    },
    Check {
        id: "nodes.race",
        asks: "Of 16 identical requests at once at two nodes, one is executed.",
        needs: &[Need::SecondNode],
        run: |subject| Box::pin(race_of_nodes(subject)),
    },
    Check {
        id: "nodes.mismatch",
        asks: "Another payload under the same key is a mismatch at another node.",
        needs: &[Need::SecondNode, Need::Vary],
        run: |subject| Box::pin(mismatch(subject)),
    },
    Check {
        id: "nodes.in-flight",
        asks: "A duplicate at another node is refused as in flight, or waits and gets the first response.",
        needs: &[Need::SecondNode, Need::Slow],
        run: |subject| Box::pin(duplicate_at(subject, subject.operation.second.as_ref())),
    },
    Check {
        id: "nodes.mismatch-while-running",
        asks: "Another payload at another node is a mismatch at once while the first request runs.",
        needs: &[Need::SecondNode, Need::Slow, Need::Vary],
        run: |subject| Box::pin(mismatch_at(subject, subject.operation.second.as_ref())),
    },
    Check {
        id: "restart.replay",
        asks: "A retry after a restart of the server gets the first response.",
        needs: &[Need::Restart],
        run: |subject| Box::pin(after_restart(subject)),
    },
    Check {
        id: "restart.effect",
        asks: "A request and a retry after a restart of the server have one effect.",
        needs: &[Need::Restart, Need::Effects],
        run: |subject| Box::pin(restart_effect(subject)),
    },
    Check {
        id: "restart.kill-in-request",
        asks: "A request during which the server is restarted has one effect, together with its retry.",
        needs: &[Need::Restart, Need::Effects],
        run: |subject| Box::pin(kill_in_request(subject)),
    },
    Check {
        id: "restart.key-free",
        asks: "The key of a request during which the server was restarted does not stay in flight.",
        needs: &[Need::Restart],
        run: |subject| Box::pin(key_free(subject)),
    },
];

/// Returns the second node, or why a check cannot be judged.
fn second<'a>(subject: &Subject<'a>) -> Result<&'a Target, Judgement> {
    let operation = subject.operation;
    operation
        .second
        .as_ref()
        .ok_or_else(|| Judgement::unknown("the plan has no second node (second-url)"))
}

async fn replay(subject: &Subject<'_>) -> Judged {
    let second = match second(subject) {
        Ok(second) => second,
        Err(judgement) => return Ok(judgement),
    };
    let proof = Proof::by_count(subject).await?;
    let first = subject.accepted().await?;
    let again = at(subject, &first.request, Some(second));
    let replay = subject.settled(&again).await?;
    let mut judge = Judge::new();
    judge.require(first.answer.is_like(&replay), || {
        format!(
            "the first response is {}, the retry at the second node got {}",
            first.answer.describe(),
            replay.describe()
        )
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn race_of_nodes(subject: &Subject<'_>) -> Judged {
    let second = match second(subject) {
        Ok(second) => second,
        Err(judgement) => return Ok(judgement),
    };
    let proof = Proof::by_count(subject).await?;
    let one = subject.request(&subject.key(), &subject.payload());
    let two = at(subject, &one, Some(second));
    let requests: Vec<Request> = [&one, &two]
        .into_iter()
        .cycle()
        .take(RACERS)
        .cloned()
        .collect();
    let mut judge = Judge::new();
    let settled = race(subject, &requests, &one, &mut judge).await?;
    let other = subject.settled(&two).await?;
    judge.require(other.is_like(&settled), || {
        format!(
            "after the race a retry got {} at one node and {} at the other one",
            settled.describe(),
            other.describe()
        )
    });
    judge.saw(format!("{RACERS} requests at once at two nodes, one body"));
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn mismatch(subject: &Subject<'_>) -> Judged {
    let second = match second(subject) {
        Ok(second) => second,
        Err(judgement) => return Ok(judgement),
    };
    let before = subject.effects().await?;
    let first = subject.accepted().await?;
    let Some(other) = subject.varied(&first.payload) else {
        return Ok(Judgement::unknown("the payload cannot be varied"));
    };
    let other = at(
        subject,
        &subject.request(&first.key(), &other),
        Some(second),
    );
    let answer = patiently(subject, &other).await?;
    let mut judge = Judge::new();
    judge.require(subject.profile().is_mismatch(&answer), || {
        format!(
            "another payload got {} at the second node, expected {}",
            answer.describe(),
            subject.profile().mismatch.describe()
        )
    });
    if before.is_some() {
        subject.require_effects(&mut judge, before, 1).await?;
    }
    Ok(judge.judgement())
}

/// Returns the restart command, or why a check cannot be judged.
fn command<'a>(subject: &Subject<'a>) -> Result<&'a str, Judgement> {
    let plan = subject.plan;
    plan.restart_command.as_deref().ok_or_else(|| {
        Judgement::unknown("the plan has no command that restarts the server (restart-cmd)")
    })
}

async fn after_restart(subject: &Subject<'_>) -> Judged {
    let command = match command(subject) {
        Ok(command) => command,
        Err(judgement) => return Ok(judgement),
    };
    let proof = Proof::by_body(subject).await?;
    let first = subject.accepted().await?;
    subject.restart(command).await?;
    let replay = subject.settled(&first.request).await?;
    let mut judge = Judge::new();
    judge.require(first.answer.is_like(&replay), || {
        format!(
            "the first response is {}, after the restart a retry got {}",
            first.answer.describe(),
            replay.describe()
        )
    });
    proof.require(subject, &mut judge, 1).await?;
    Ok(judge.judgement())
}

async fn restart_effect(subject: &Subject<'_>) -> Judged {
    let command = match command(subject) {
        Ok(command) => command,
        Err(judgement) => return Ok(judgement),
    };
    let before = subject.effects().await?;
    let first = subject.accepted().await?;
    subject.restart(command).await?;
    subject.settled(&first.request).await?;
    let mut judge = Judge::new();
    // A count that has fallen was lost with the restart, and the verdict is unknown.
    subject.require_effects(&mut judge, before, 1).await?;
    Ok(judge.judgement())
}

/// Sends a request, and restarts the server while it runs.
async fn interrupted(
    subject: &Subject<'_>,
    command: &str,
) -> Result<(Request, Result<Response, Failure>), Stop> {
    let operation = subject.operation;
    let payload = subject.filled(operation.slow.as_ref().unwrap_or(&operation.body));
    let request = subject.request(&subject.key(), &payload);
    let restart = async {
        // A payload that is not slow would have its response by then.
        if operation.slow.is_some() {
            pause(subject, HEAD_START).await;
        }
        subject.restart(command).await
    };
    let (first, restarted) = join(subject.exchange(&request, None), restart).await;
    restarted?;
    Ok((request, first?))
}

async fn kill_in_request(subject: &Subject<'_>) -> Judged {
    let command = match command(subject) {
        Ok(command) => command,
        Err(judgement) => return Ok(judgement),
    };
    subject.accepted().await?;
    let before = subject.effects().await?;
    let (request, first) = interrupted(subject, command).await?;
    let retry = subject.settled(&request).await?;
    let mut judge = Judge::new();
    if subject.is_temporary(&retry) {
        // How long the key may stay in flight is what `restart.key-free` asks.
        judge.missing(format!("the retry got {}", retry.describe()));
        return Ok(judge.judgement());
    }
    judge.require(retry.is_success(), || {
        format!("the retry got {}", retry.describe())
    });
    if let Ok(first) = first.as_ref()
        && first.is_success()
    {
        judge.require(first.is_like(&retry), || {
            format!(
                "the first response is {}, after the restart a retry got {}",
                first.describe(),
                retry.describe()
            )
        });
    }
    // A count that has fallen was lost with the restart, and the verdict is unknown.
    subject.require_effects(&mut judge, before, 1).await?;
    Ok(judge.judgement())
}

async fn key_free(subject: &Subject<'_>) -> Judged {
    let command = match command(subject) {
        Ok(command) => command,
        Err(judgement) => return Ok(judgement),
    };
    subject.accepted().await?;
    let (request, _) = interrupted(subject, command).await?;
    let retry = subject.settled(&request).await?;
    let mut judge = Judge::new();
    let still = if subject.is_temporary(&retry) {
        "still "
    } else {
        ""
    };
    judge.require(retry.is_success(), || {
        format!("after the restart a retry {still}got {}", retry.describe())
    });
    Ok(judge.judgement())
}
