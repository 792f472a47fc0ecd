//! `hapax migrate`: creates or upgrades the tables, or reports what is missing.
//!
//! If several processes migrate at once, one of them does it, in one transaction. `--print` prints
//! the same statements, including the record of the applied migrations.

use std::process::ExitCode;

use hapax_postgres::{MIGRATIONS, Migration, OpenError, Postgres, Schema, SchemaError};
use serde_json::json;

use super::{Context, Failure, opened};
use crate::{output::FAILED, wiring};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the statements that create the tables in an empty database; change nothing
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Report whether migrations are missing; change nothing; exit with code 1 if so
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let output = context.output;
    if args.print {
        output.text(&hapax_postgres::printed())?;
        return Ok(ExitCode::SUCCESS);
    }
    let missing = missing(&context).await?;
    let names: Vec<String> = missing
        .iter()
        .map(|(number, name, _)| format!("{number:04} {name}"))
        .collect();
    let known = MIGRATIONS.last().map_or(0, |(number, ..)| *number);
    if args.check && !missing.is_empty() {
        if output.json {
            output.json(&json!({ "version": known, "missing": names }))?;
            return Ok(ExitCode::from(FAILED));
        }
        let names = names.join(", ");
        return Err(Failure::new(
            FAILED,
            format!("missing: {names}: run `hapax migrate`"),
        ));
    }
    if !missing.is_empty() {
        open(&context, Schema::Apply)
            .await?
            .map_err(|error| opened(&error))?;
    }
    if output.json {
        output.json(&json!({ "version": known, "applied": names }))?;
    } else if missing.is_empty() {
        output.line(format_args!("schema is at version {known}: nothing to do"))?;
    } else {
        for name in names {
            output.line(format_args!("applied {name}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The missing migrations. Fails if the database must not be migrated.
async fn missing(context: &Context) -> Result<&'static [Migration<'static>], Failure> {
    match open(context, Schema::Check).await? {
        Ok(()) => Ok(&[]),
        Err(OpenError::Schema {
            source: SchemaError::Older { found, .. },
        }) => {
            let found = usize::try_from(found).unwrap_or(usize::MAX);
            Ok(MIGRATIONS.get(found..).unwrap_or_default())
        }
        Err(error) => Err(opened(&error)),
    }
}

async fn open(context: &Context, schema: Schema) -> Result<Result<(), OpenError>, Failure> {
    let url = context.config.database.url()?;
    let mut settings = wiring::store(&context.config, &url, context.failpoints.clone())?;
    settings.schema = schema;
    let opened = Postgres::open(settings).await;
    Ok(opened.map(|store| store.close()))
}
