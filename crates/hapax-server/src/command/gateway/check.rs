//! `hapax gateway check`: which operations of a service are protected by which route, and what an
//! operator should look at.
//!
//! The command starts nothing and changes nothing. The exit code is 1 if there is a warning.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use hapax_gateway::check::{
    Description, Finding, OperationProtection, Severity, findings, operations, unreachable,
};
use serde_json::{Value, json};

use crate::{
    command::{Context, Failure},
    output::{FAILED, USAGE},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// OpenAPI 3 description of the service, as JSON: lists which of its operations are protected
    #[arg(long, value_name = "FILE")]
    openapi: Option<PathBuf>,
    /// Also connect to every instance of the upstreams
    #[arg(long)]
    connect: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.config.gateway.as_ref();
    let settings = settings.ok_or_else(|| {
        Failure::new(
            USAGE,
            "gateway is missing: give the file of --config with its routes",
        )
    })?;
    let description = args.openapi.as_deref().map(read).transpose()?;
    let protected = description.as_ref();
    let protected = protected.map(|description| operations(settings, description));
    let mut found = findings(settings, description.as_ref());
    if args.connect {
        found.extend(unreachable(settings).await);
        found.sort_by_key(|finding| finding.severity);
    }
    print(context, protected.as_deref(), &found)?;
    let has_warning = found.iter().any(|it| it.severity == Severity::Warning);
    Ok(ExitCode::from(if has_warning { FAILED } else { 0 }))
}

/// Reads a description.
fn read(path: &Path) -> Result<Description, Failure> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("--openapi {name} cannot be read"))?;
    let description = serde_json::from_reader(BufReader::new(file));
    let description: Description = description.map_err(|error| {
        let wrong = format!("--openapi {name}: expected an OpenAPI description as JSON: {error}");
        Failure::new(USAGE, wrong)
    })?;
    if !description.openapi.starts_with("3.") {
        let version = description.openapi.escape_debug();
        let wrong = format!("--openapi {name}: expected OpenAPI 3, got version {version}");
        return Err(Failure::new(USAGE, wrong));
    }
    Ok(description)
}

fn print(
    context: &Context,
    protected: Option<&[OperationProtection]>,
    found: &[Finding],
) -> Result<(), Failure> {
    let output = context.output;
    if output.json {
        let protected = protected.map(|all| all.iter().map(operation).collect::<Vec<_>>());
        let found: Vec<_> = found.iter().map(finding).collect();
        return Ok(output.json(&json!({"operations": protected, "findings": found}))?);
    }
    if let Some(all) = protected {
        let row = |it: &OperationProtection| {
            [
                it.method.to_string(),
                it.path.clone(),
                it.route.clone().unwrap_or_default(),
                it.protection.as_str().to_owned(),
            ]
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        output.table(["METHOD", "PATH", "ROUTE", "KEY"], &rows)?;
    }
    for it in found {
        output.line(it)?;
    }
    if found.is_empty() {
        output.line("nothing was found")?;
    }
    Ok(())
}

fn operation(it: &OperationProtection) -> Value {
    json!({
        "method": it.method.as_str(),
        "path": it.path,
        "id": it.id,
        "route": it.route,
        "protection": it.protection.as_str(),
        "declares_key": it.declares_key,
    })
}

fn finding(it: &Finding) -> Value {
    json!({
        "severity": it.severity.as_str(),
        "object": it.object,
        "text": it.text,
    })
}
