//! The report of the probe, version 1, as far as the page shows it.

use anyhow::{Context as _, ensure};
use serde::Deserialize;

const VERSION: u32 = 1;

/// The checks of one app.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    version: u32,
    pub(super) checks: Vec<Check>,
}

/// One check and its verdict.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Check {
    pub(super) id: String,
    pub(super) verdict: Verdict,
    pub(super) asks: String,
    pub(super) seen: String,
}

/// The verdict of a check.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Pass,
    Fail,
    Unknown,
    Skipped,
    Note,
}

impl Verdict {
    /// The verdict in a table.
    pub(super) const fn cell(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Unknown => "UNKNOWN",
            Self::Skipped | Self::Note => "-",
        }
    }
}

impl Report {
    /// Parses a report.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let report: Self = serde_json::from_str(text).context("the report of the probe")?;
        ensure!(
            report.version == VERSION,
            "the report of the probe has version {}, expected {VERSION}",
            report.version
        );
        ensure!(
            !report.checks.is_empty(),
            "the report of the probe has no check"
        );
        Ok(report)
    }

    /// The number of checks with this verdict.
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.verdict == verdict).count()
    }
}

#[cfg(test)]
pub(super) const SAMPLE: &str = r#"{
  "version": 1, "profile": "ietf", "target": "http://127.0.0.1:1/orders",
  "checks": [
    {"id": "replay.body", "group": "replay", "verdict": "pass", "asks": "Are the bytes the same?",
     "rule": "r", "source": "s", "seen": "as required", "curl": "curl"},
    {"id": "mismatch.value", "group": "mismatch", "verdict": "fail", "asks": "Is it refused?",
     "rule": "r", "source": "s", "seen": "201 {\"a\": 1|2}\nfor <b>", "curl": "curl"},
    {"id": "time.expiry", "group": "time", "verdict": "skipped", "asks": "Does it expire?",
     "rule": "r", "source": "s", "seen": "no hint", "curl": "curl"}
  ]
}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_checks_with_verdicts() {
        let report = Report::parse(SAMPLE).unwrap();
        assert_eq!(report.checks[1].id, "mismatch.value");
        assert_eq!(report.checks[1].verdict, Verdict::Fail);
        assert_eq!(report.count(Verdict::Pass), 1);
        assert_eq!(report.count(Verdict::Unknown), 0);
    }

    #[test]
    fn a_report_of_another_version_or_without_checks_is_refused() {
        let newer = SAMPLE.replace("\"version\": 1", "\"version\": 2");
        let error = Report::parse(&newer).unwrap_err().to_string();
        assert_eq!(error, "the report of the probe has version 2, expected 1");
        let error = Report::parse("{\"version\": 1, \"checks\": []}").unwrap_err();
        assert_eq!(error.to_string(), "the report of the probe has no check");
        let error = Report::parse("{").unwrap_err().to_string();
        assert_eq!(error, "the report of the probe");
    }
}
