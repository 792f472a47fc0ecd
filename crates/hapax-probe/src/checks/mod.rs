//! The checks, one file per group. Their ids are stable.
//!
//! A check sends its own requests under its own keys and returns a judgement. It compares with the
//! rules of the profile only; where the profile is silent, it reports what it saw as a note.

mod header;
mod header_outcome;
mod replay;
mod mismatch;
mod in_flight;
mod race;
mod lost;
mod broken;
mod nodes;
mod scope;
mod outcome;
mod time;
mod effects;
mod available;
mod client_gone;
mod proof;

use std::{fmt, future::Future, pin::Pin};

use serde::Serialize;

use crate::{
    subject::Subject,
    verdict::{Judged, Judgement},
};

/// The future of a check.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Judged> + 'a>>;

/// Something that a check needs and a plan may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A count of effects. Without it the verdict is unknown.
    Effects,
    /// The place where the payload is varied. Without it the verdict is unknown.
    Vary,
    /// A JSON body.
    Json,
    /// A JSON body whose varied value is a number.
    JsonNumber,
    /// The address of a second node.
    SecondNode,
    /// A command that restarts the server.
    Restart,
    /// A payload whose execution takes a second or more.
    Slow,
    /// Payloads that the server refuses.
    Refused,
    /// Header fields of another principal.
    OtherPrincipal,
    /// A newer credential of the same principal.
    Rotated,
    /// Another operation with the same payload.
    OtherOperation,
    /// The same operation with another path parameter. Without it the check is skipped, because not
    /// every operation has one.
    OtherPath,
    /// A short retention.
    Retention,
}

/// A check.
pub(crate) struct Check {
    pub(crate) id: &'static str,
    pub(crate) asks: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: for<'a> fn(&'a Subject<'a>) -> Running<'a>,
}

/// A check, as `--list` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct CheckDescription {
    /// The stable id.
    pub id: &'static str,
    /// What the check asks of the server.
    pub asks: &'static str,
}

/// Returns all checks, in the order in which they run.
pub fn checks() -> Vec<CheckDescription> {
    all()
        .map(|it| CheckDescription {
            id: it.id,
            asks: it.asks,
        })
        .collect()
}

/// All checks, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        header::CHECKS,
        replay::CHECKS,
        mismatch::CHECKS,
        in_flight::CHECKS,
        lost::CHECKS,
        broken::CHECKS,
        nodes::CHECKS,
        scope::CHECKS,
        outcome::CHECKS,
        time::CHECKS,
        effects::CHECKS,
    ]
    .into_iter()
    .flatten()
}

impl Check {
    /// Returns the group: the first part of the id.
    pub(crate) fn group(&self) -> &'static str {
        self.id.split('.').next().unwrap_or(self.id)
    }

    /// Runs the check. What it relies on is found out first, once for each operation.
    pub(crate) async fn judge<'a>(&self, subject: &'a Subject<'a>) -> Judged {
        if self.needs.contains(&Need::Effects) {
            subject.calibrated().await?;
        }
        if self.needs.contains(&Need::Vary) {
            subject.accepts_varied().await?;
        }
        (self.run)(subject).await
    }

    /// Returns a judgement if the plan lacks something that the check needs.
    pub(crate) fn lacks(&self, subject: &Subject<'_>) -> Option<Judgement> {
        self.needs.iter().find_map(|need| need.lacks(subject))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Need {
    fn lacks(self, subject: &Subject<'_>) -> Option<Judgement> {
        let operation = subject.operation;
        let unknown = |what: &str| Some(Judgement::unknown(format!("the plan has no {what}")));
        let skipped = |what: &str| Some(Judgement::skipped(what));
        match self {
            Self::Effects if operation.oracle.is_none() => {
                unknown("count of effects (count-url, count-cmd or listen-effects)")
            }
            Self::Vary if operation.vary.is_none() => {
                unknown("place where the payload is varied (vary)")
            }
            Self::Json if !operation.is_json() => skipped("the payload is not JSON"),
            Self::JsonNumber if !has_number(subject) => {
                skipped("the varied value is not a number of a JSON body")
            }
            Self::SecondNode if operation.second.is_none() => unknown("second node (second-url)"),
            Self::Restart if subject.plan.restart_command.is_none() => {
                unknown("command that restarts the server (restart-cmd)")
            }
            Self::Slow if operation.slow.is_none() => unknown("slow payload (slow-body)"),
            Self::Refused if operation.refused.is_empty() => {
                unknown("payloads that are refused (refused-body)")
            }
            Self::OtherPrincipal if operation.other_principal.is_empty() => {
                unknown("other principal (other-principal)")
            }
            Self::Rotated if operation.rotated.is_empty() => {
                unknown("rotated credential (rotated-credential)")
            }
            Self::OtherOperation if operation.other.is_none() => {
                unknown("other operation (other-url)")
            }
            Self::OtherPath if operation.other_path.is_none() => {
                skipped("the plan has no address with another path parameter (other-path-url)")
            }
            Self::Retention if operation.retention.is_none() => {
                unknown("short retention (retention-hint)")
            }
            _ => None,
        }
    }
}

fn has_number(subject: &Subject<'_>) -> bool {
    let operation = subject.operation;
    let payload = crate::plan::Payload {
        target: operation.target.clone(),
        content_type: operation.content_type.clone(),
        body: operation.body.fill(&mut crate::plan::Numbers::new(0)),
    };
    operation.is_json()
        && operation
            .vary
            .as_ref()
            .and_then(|vary| vary.json(&payload))
            .is_some_and(|value| serde_json::from_str::<serde_json::Number>(value).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_begin_with_their_group() {
        let ids: Vec<&str> = all().map(|it| it.id).collect();
        for (index, id) in ids.iter().enumerate() {
            assert!(id.contains('.'), "{id}");
            assert!(!ids[..index].contains(id), "{id} exists twice");
        }
        assert!(ids.len() >= 60, "{} checks", ids.len());
    }
}
