//! Reports: as text, JSON, `JUnit` XML and SARIF.

mod text;
mod json;
mod junit;
mod sarif;
#[cfg(test)]
mod sample;

use std::time::Duration;

use serde::Serialize;

use crate::{profile::Profile, verdict::Verdict};

/// The result of one check of one operation.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The operation's name in the plan.
    pub operation: String,
    /// The stable id of the check, such as `replay.body`.
    pub id: &'static str,
    /// The group of the check, which is the first part of its id.
    pub group: &'static str,
    /// What the check asks of the server: one sentence.
    pub asks: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// What was seen, or why there is no verdict.
    pub seen: String,
    /// The title of the specification.
    pub source: &'static str,
    /// The address of the specification.
    pub source_url: &'static str,
    /// The first requests of the check as `curl` commands, with secrets masked.
    pub commands: Vec<String>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) profile: &'static Profile,
    pub(crate) seed: u64,
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    pub(crate) findings: Vec<Finding>,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// `JUnit` XML, for CI systems.
    Junit,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

impl Report {
    /// Returns the findings, in the order of the checks.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the number of findings with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let found = self.findings.iter().filter(|it| it.verdict == verdict);
        found.count()
    }

    /// Returns the exit code: 0 if everything that was judged holds and at least one check passed, 1
    /// if a check failed, 2 if something could not be judged.
    pub fn exit_code(&self) -> u8 {
        if self.count(Verdict::Fail) > 0 {
            1
        } else if self.count(Verdict::Unknown) > 0 || self.count(Verdict::Pass) == 0 {
            2
        } else {
            0
        }
    }

    /// Returns the report in this format.
    pub fn render(&self, format: ReportFormat) -> String {
        match format {
            ReportFormat::Text => text::render(self),
            ReportFormat::Json => json::render(self),
            ReportFormat::Junit => junit::render(self),
            ReportFormat::Sarif => sarif::render(self),
        }
    }
}
