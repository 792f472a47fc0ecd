//! What shows that the response to a retry is a replay, and not that of a second execution.
//!
//! An equal body shows it if two executions have different bodies. If all responses of an operation are
//! equal, only a count of effects shows it, and without one a check cannot be judged.

use crate::{
    subject::Subject,
    verdict::{Judge, Stop},
};

/// Why nothing shows that a response is a replay.
const ALL_EQUAL: &str =
    "all responses have the same body, and the plan does not say how effects are counted";

/// What shows that a response is a replay.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof {
    /// Its body.
    Body,
    /// That the count of effects, which was this one before, does not rise.
    Count(u64),
    /// Nothing.
    Nothing,
}

impl Proof {
    /// Returns the proof for a check that asks about responses: effects are counted only if bodies show
    /// nothing. It has to come before the requests of the check.
    pub(crate) async fn by_body(subject: &Subject<'_>) -> Result<Self, Stop> {
        if subject.recognizable().await? {
            return Ok(Self::Body);
        }
        let count = subject.effects().await?;
        Ok(count.map_or(Self::Nothing, Self::Count))
    }

    /// Returns the proof for a check that counts effects whenever it can. It has to come before the
    /// requests of the check.
    pub(crate) async fn by_count(subject: &Subject<'_>) -> Result<Self, Stop> {
        match subject.effects().await? {
            Some(count) => Ok(Self::Count(count)),
            None => Self::by_body(subject).await,
        }
    }

    /// Requires that the requests since had this number of effects. Where bodies show it, the check has
    /// compared them.
    pub(crate) async fn require(
        self,
        subject: &Subject<'_>,
        judge: &mut Judge,
        expected: u64,
    ) -> Result<(), Stop> {
        match self {
            Self::Body => {}
            Self::Count(before) => {
                subject
                    .require_effects(judge, Some(before), expected)
                    .await?;
            }
            Self::Nothing => judge.missing(ALL_EQUAL),
        }
        Ok(())
    }
}

/// Records that nothing shows what is a replay, if the bodies do not and the plan has no count. Another
/// check counts the effects if it has one.
pub(crate) async fn require_bodies(subject: &Subject<'_>, judge: &mut Judge) -> Result<(), Stop> {
    if subject.operation.oracle.is_none() && !subject.recognizable().await? {
        judge.missing(ALL_EQUAL);
    }
    Ok(())
}
