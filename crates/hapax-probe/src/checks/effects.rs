//! Group `effects`: nothing happens after the last request, and the count has seen everything.
//!
//! An effect that appears later than a check counts is found here: the check comes last, waits, and
//! counts once more. A count that has ceased to follow would not have seen it; so the probe asks that
//! again too.

use crate::{
    calibration::LATE,
    checks::{Check, Need},
    subject::Subject,
    verdict::{Judge, Judged},
};

pub(crate) const CHECKS: &[Check] = &[Check {
    id: "effects.late",
    asks: "No effect appears some seconds after the last request.",
    needs: &[Need::Effects],
    run: |subject| Box::pin(late(subject)),
}];

async fn late(subject: &Subject<'_>) -> Judged {
    let before = match subject.last_count() {
        Some(count) => Some(count),
        None => subject.effects().await?,
    };
    subject.rest(LATE.max(subject.operation.settle)).await;
    let made = subject.effects_since(before).await?;
    let mut judge = Judge::new();
    judge.effects(made, 0);
    if !judge.violated() {
        subject.still_counted().await?;
    }
    Ok(judge.judgement())
}
