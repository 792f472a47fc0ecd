//! `hapax doctor`: finds problems and says how to solve them.
//!
//! Each finding has a severity and a remedy. The command changes nothing. If a check cannot run,
//! because the database cannot be reached or a privilege is missing, that is a finding too. The exit
//! code is the worst severity: 0 for notes only, 1 for warnings, 2 for errors.

mod postgres;
mod sqlite;
mod stalled;
mod receivers;
mod gateway;
mod portal;

use std::{process::ExitCode, sync::Arc, time::Duration};

use hapax::{admin::Admin, retry::parse_duration};
use serde::Serialize;

use super::{Context, Failure};
use crate::{
    config::{DatabaseLocation, Schema},
    database::{self, Access},
    output::note,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not connect to the destinations, only to the database
    #[arg(long)]
    database_only: bool,
    /// How long a transaction may be open before it is reported (PostgreSQL)
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    open_max: Duration,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// The check passed.
    Ok,
    /// Information.
    Note,
    /// A problem that will have consequences or already has.
    Warning,
    /// Something does not work, or events are lost.
    Error,
}

/// A finding.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    severity: Severity,
    /// The name of the check, which does not change between versions.
    check: &'static str,
    /// The problem.
    found: String,
    /// What to do about it; empty if nothing needs to be done.
    remedy: String,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, found, "")
    }

    fn note(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Note, check, found, remedy)
    }

    fn warning(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, found, remedy)
    }

    fn error(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Error, check, found, remedy)
    }

    fn new(
        severity: Severity,
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            check,
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    /// Its cells in a table.
    fn row(&self) -> [String; 4] {
        let severity = match self.severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let (check, found, remedy) = (self.check, &self.found, &self.remedy);
        [
            severity.to_owned(),
            check.to_owned(),
            found.clone(),
            remedy.clone(),
        ]
    }
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    note("looking at the database ...");
    let mut findings = database(&context, args.open_max).await?;
    if !args.database_only {
        note("looking at the destinations ...");
        findings.extend(receivers::check(&context).await);
    }
    findings.extend(portal::check(&context));
    findings.extend(gateway::check(&context, !args.database_only).await);
    print(&findings, context.output)?;
    let worst = findings.iter().map(|finding| finding.severity).max();
    Ok(ExitCode::from(match worst {
        Some(Severity::Error) => 2,
        Some(Severity::Warning) => 1,
        _ => 0,
    }))
}

/// Checks the database, and what is stalled in it.
async fn database(context: &Context, open_max: Duration) -> Result<Vec<Finding>, Failure> {
    let mut findings = match context.config.database.place()? {
        DatabaseLocation::Server(url) => {
            let (findings, is_usable) = postgres::check(context, &url, open_max).await?;
            if !is_usable {
                return Ok(findings);
            }
            findings
        }
        DatabaseLocation::File(path) => sqlite::check(&path),
    };
    findings.extend(stalled::check(context).await);
    Ok(findings)
}

/// Opens the database without creating tables, even if the configuration says to.
async fn admin(context: &Context) -> Option<Arc<dyn Admin>> {
    let place = context.config.database.place().ok()?;
    let mut config = context.config.database.clone();
    config.schema = Schema::Check;
    let access = Access {
        config: &config,
        ..context.access().ok()?
    };
    database::open(&access, &place).await.ok()
}

fn print(findings: &[Finding], output: crate::output::Output) -> std::io::Result<()> {
    if output.json {
        return output.json(&findings);
    }
    if output.csv {
        let rows: Vec<_> = findings.iter().map(Finding::row).collect();
        return output.table(["SEVERITY", "CHECK", "FOUND", "REMEDY"], &rows);
    }
    for finding in findings {
        let [severity, check, found, remedy] = finding.row();
        output.line(format_args!("{severity:<8} {check}: {found}"))?;
        if !remedy.is_empty() {
            output.line(format_args!("         -> {remedy}"))?;
        }
    }
    Ok(())
}
