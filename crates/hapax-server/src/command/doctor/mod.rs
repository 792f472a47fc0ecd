//! `hapax doctor`: finds problems and says how to solve them.
//!
//! Each finding has a severity and a remedy. The command changes nothing. If a check cannot run,
//! because the database cannot be reached or a privilege is missing, that is a finding too. The exit
//! code is the worst severity: 0 for notes only, 1 for warnings, 2 for errors.

mod server;
mod schema;
mod pooler;
mod sessions;
mod stalled;
mod clock;
mod receivers;

use std::{process::ExitCode, time::Duration};

use hapax::retry::parse_duration;
use hapax_postgres::{
    Postgres, Schema,
    tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow},
};
use serde::Serialize;

use super::{Context, Failure};
use crate::{environment, output::note, wiring};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not connect to the destinations, only to the database
    #[arg(long)]
    database_only: bool,
    /// How long a transaction may be open before it is reported
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
}

/// The error of a query that failed, for a finding.
type QueryError = Error;

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    note("looking at the database ...");
    let mut findings = database(&context, args.open_max).await?;
    if !args.database_only {
        note("looking at the destinations ...");
        findings.extend(receivers::check(&context).await);
    }
    print(&findings, context.output)?;
    let worst = findings.iter().map(|finding| finding.severity).max();
    Ok(ExitCode::from(match worst {
        Some(Severity::Error) => 2,
        Some(Severity::Warning) => 1,
        _ => 0,
    }))
}

/// Checks the database as far as the privileges allow.
async fn database(context: &Context, open_max: Duration) -> Result<Vec<Finding>, Failure> {
    let url = context.config.database.url()?;
    let settings = wiring::store(&context.config, &url, context.failpoints.clone())?;
    let client = match hapax_postgres::dial(&settings).await {
        Ok(client) => client,
        Err(error) => {
            let remedy = "check [database] url: the host, the port, the role, its password, \
                          sslmode, and pg_hba.conf on the server";
            let error_chain = environment::error_chain(&error);
            return Ok(vec![Finding::error("connection", error_chain, remedy)]);
        }
    };
    let mut findings = Vec::new();
    if let Err(error) = run_checks(context, &settings, &client, open_max, &mut findings).await {
        let error_chain = environment::error_chain(&error);
        let remedy = "look into the server's log; then run `hapax doctor` again";
        findings.push(Finding::error("questions", error_chain, remedy));
    }
    Ok(findings)
}

async fn run_checks(
    context: &Context,
    settings: &hapax_postgres::Settings,
    client: &Client,
    open_max: Duration,
    findings: &mut Vec<Finding>,
) -> Result<(), QueryError> {
    findings.extend(server::version(client).await?);
    if server::is_standby(client).await? {
        let remedy = "connect to the primary: a standby does not show which transactions are open";
        findings.push(Finding::error(
            "standby",
            "the database is a read-only standby",
            remedy,
        ));
        return Ok(());
    }
    findings.push(Finding::ok("standby", "the database is a primary"));
    findings.push(pooler::check(client, settings).await?);
    findings.extend(schema::check(context, settings, client).await?);
    findings.push(clock::check(client).await?);
    findings.extend(server::durability(client).await?);
    findings.extend(server::room(client, settings).await?);
    findings.extend(sessions::check(client, open_max).await?);
    findings.extend(stalled::check(context).await);
    Ok(())
}

/// Opens the database without creating tables, whatever the configuration says.
async fn store(context: &Context) -> Option<Postgres> {
    let url = context.config.database.url().ok()?;
    let mut settings = wiring::store(&context.config, &url, context.failpoints.clone()).ok()?;
    settings.schema = Schema::Check;
    Postgres::open(settings).await.ok()
}

fn print(findings: &[Finding], output: crate::output::Output) -> std::io::Result<()> {
    if output.json {
        return output.json(&findings);
    }
    for finding in findings {
        let Finding {
            severity,
            check,
            found,
            remedy,
        } = finding;
        let severity = match severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        output.line(format_args!("{severity:<8} {check}: {found}"))?;
        if !remedy.is_empty() {
            output.line(format_args!("         -> {remedy}"))?;
        }
    }
    Ok(())
}

/// Runs a query without preparing it, because there may be a pooler.
async fn rows(client: &Client, sql: &str) -> Result<Vec<SimpleQueryRow>, QueryError> {
    let messages = client.simple_query(sql).await?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}

/// The first column of the first row as text.
async fn first_text(client: &Client, sql: &str) -> Result<String, QueryError> {
    let rows = rows(client, sql).await?;
    let first = rows.first().and_then(|row| row.get(0));
    Ok(first.unwrap_or_default().to_owned())
}
