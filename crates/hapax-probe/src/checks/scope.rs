//! Group `scope`: the same key of another principal, or of another operation, is another key.
//!
//! That a principal never sees the response of another one, and that an operation never returns the
//! response of another one, is asked under every profile. Whether the second request is executed or
//! refused is a rule of the profile.

use crate::{
    checks::{
        Check, Need,
        available::patiently,
        mismatch::{
            compares_whole_requests,
            reaction::{Rule, judged},
        },
        proof::require_bodies,
    },
    http::{Request, Response},
    subject::{First, Subject},
    verdict::{Judge, Judged, Judgement, Verdict},
};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "scope.other-principal",
        asks: "Another principal does not get the first response under the same key.",
        needs: &[Need::OtherPrincipal],
        run: |subject| Box::pin(other_principal(subject)),
    },
    Check {
        id: "scope.other-operation",
        asks: "Another operation does not return the first response under the same key.",
        needs: &[Need::OtherOperation],
        run: |subject| Box::pin(other_operation(subject)),
    },
    Check {
        id: "scope.other-path",
        asks: "A request with another path parameter does not get the first response.",
        needs: &[Need::OtherPath],
        run: |subject| Box::pin(other_path(subject)),
    },
    Check {
        id: "scope.rotated",
        asks: "The same principal gets the first response with a newer credential too.",
        needs: &[Need::Rotated],
        run: |subject| Box::pin(rotated(subject)),
    },
];

/// Returns the request with other header fields of the same names.
fn with_headers(request: &Request, headers: &[(String, String)]) -> Request {
    headers
        .iter()
        .fold(request.clone(), |request, (name, value)| {
            request.replace_header(name, value.as_bytes())
        })
}

/// Whether a response says that the credential is not accepted.
fn is_denied(answer: &Response) -> bool {
    matches!(answer.status, 401 | 403)
}

async fn other_principal(subject: &Subject<'_>) -> Judged {
    let first = subject.accepted().await?;
    let request = with_headers(&first.request, &subject.operation.other_principal);
    let answer = patiently(subject, &request).await?;
    if is_denied(&answer) {
        return Ok(Judgement::unknown(format!(
            "the server does not accept the other principal: {}",
            answer.describe()
        )));
    }
    let scoped = subject.profile().scoped_by_principal;
    elsewhere(subject, &first, &answer, "the other principal", scoped).await
}

async fn other_operation(subject: &Subject<'_>) -> Judged {
    let Some(other) = &subject.operation.other else {
        return Ok(Judgement::unknown("the plan has no other operation"));
    };
    let first = subject.accepted().await?;
    let answer = patiently(subject, &first.request.clone().to(other)).await?;
    let scoped = subject.profile().scoped_by_operation;
    elsewhere(subject, &first, &answer, "the other operation", scoped).await
}

/// The path belongs to the payload, and not to the scope, if the profile says that whole requests are
/// compared. Otherwise an execution is as good as a mismatch.
async fn other_path(subject: &Subject<'_>) -> Judged {
    let Some(other) = &subject.operation.other_path else {
        return Ok(Judgement::unknown("the plan has no other path"));
    };
    let first = subject.accepted().await?;
    let answer = patiently(subject, &first.request.clone().to(other)).await?;
    if !compares_whole_requests(subject.profile()) {
        let scoped = None;
        return elsewhere(subject, &first, &answer, "the other path", scoped).await;
    }
    Ok(judged(
        subject.profile(),
        Rule::Other,
        false,
        &first.answer,
        &answer,
    ))
}

/// Judges the response to a request with the same key and payload in another scope.
async fn elsewhere(
    subject: &Subject<'_>,
    first: &First,
    answer: &Response,
    who: &str,
    scoped: Option<bool>,
) -> Judged {
    let profile = subject.profile();
    if answer.is_success() {
        if !answer.is_like(&first.answer) {
            return Ok(Judgement::new(
                Verdict::Pass,
                format!("the request was executed for {who} ({})", answer.status),
            ));
        }
        // If the payload gets the same body under a new key too, the body does not show whose it is.
        return Ok(if subject.recognizable().await? {
            Judgement::new(Verdict::Fail, format!("{who} got the first response"))
        } else {
            Judgement::unknown("all responses have the same body")
        });
    }
    if profile.is_mismatch(answer) || profile.is_in_flight(answer) {
        let seen = format!("the key is already used for {who}: {}", answer.describe());
        return Ok(match scoped {
            Some(true) => Judgement::new(Verdict::Fail, seen),
            Some(false) | None => Judgement::note(seen),
        });
    }
    Ok(Judgement::unknown(format!(
        "the request in the scope of {who} got {}",
        answer.describe()
    )))
}

async fn rotated(subject: &Subject<'_>) -> Judged {
    let before = subject.effects().await?;
    let first = subject.accepted().await?;
    let request = with_headers(&first.request, &subject.operation.rotated);
    let answer = patiently(subject, &request).await?;
    if is_denied(&answer) {
        return Ok(Judgement::unknown(format!(
            "the server does not accept the newer credential: {}",
            answer.describe()
        )));
    }
    if answer.status >= 500 {
        return Ok(Judgement::unknown(format!(
            "the retry with the newer credential got {}",
            answer.describe()
        )));
    }
    let made = subject.effects_made(before, 1).await?;
    let once = made.is_none_or(|made| made == 1);
    if once && first.answer.is_like(&answer) {
        let mut judge = Judge::new();
        judge.saw("the first response");
        require_bodies(subject, &mut judge).await?;
        return Ok(judge.judgement());
    }
    let mut seen = format!(
        "the retry with the newer credential got {}",
        answer.describe()
    );
    if let Some(made) = made {
        seen = format!("{seen}; {made} effects were counted");
    }
    Ok(match subject.profile().scoped_by_principal {
        Some(true) => Judgement::new(Verdict::Fail, seen),
        Some(false) | None => Judgement::note(seen),
    })
}
