//! `hapax migrate`: creates or upgrades the tables, or reports what is missing.
//!
//! If several processes migrate a PostgreSQL database at once, one of them does it, in one
//! transaction. `--print` prints the same statements, including the record of the applied
//! migrations. An SQLite file is migrated by opening it as a store, which is refused while a service
//! has it open: the service migrates it itself when it starts.

use std::{path::Path, process::ExitCode};

use hapax_postgres::{OpenError, Postgres, SchemaError};
use hapax_sqlite::Sqlite;
use secrecy::SecretString;
use serde_json::json;

use super::{Context, Failure};
use crate::{
    config::DatabaseLocation,
    database::{postgres, sqlite},
    output::{FAILED, USAGE},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the statements that create the tables in an empty PostgreSQL database; change nothing
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Report whether migrations are missing; change nothing; exit with code 1 if so
    #[arg(long)]
    check: bool,
}

/// One migration: its number, its name, and its SQL.
type Migration = (u32, &'static str, &'static str);

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let output = context.output;
    if args.print {
        return print(&context);
    }
    let place = context.config.database.place()?;
    let missing = match &place {
        DatabaseLocation::Server(url) => missing_of_server(&context, url).await?,
        DatabaseLocation::File(path) => missing_of_file(path)?,
    };
    let names: Vec<String> = missing
        .iter()
        .map(|(number, name, _)| format!("{number:04} {name}"))
        .collect();
    let known = known(&place).last().map_or(0, |(number, ..)| *number);
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
        apply(&context, &place).await?;
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

/// Prints the statements for PostgreSQL, which needs no database.
fn print(context: &Context) -> Result<ExitCode, Failure> {
    let database = &context.config.database;
    if database.url.is_some() && matches!(database.place()?, DatabaseLocation::File(_)) {
        let problem = "--print is for PostgreSQL: an SQLite file is migrated by the process that \
                       opens it, or by `hapax migrate`";
        return Err(Failure::new(USAGE, problem));
    }
    context.output.text(&hapax_postgres::printed())?;
    Ok(ExitCode::SUCCESS)
}

/// All migrations that this program knows.
fn known(place: &DatabaseLocation) -> &'static [Migration] {
    match place {
        DatabaseLocation::Server(_) => hapax_postgres::MIGRATIONS,
        DatabaseLocation::File(_) => hapax_sqlite::MIGRATIONS,
    }
}

/// The migrations after a version.
fn after(migrations: &'static [Migration], found: u32) -> &'static [Migration] {
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    migrations.get(found..).unwrap_or_default()
}

/// The missing migrations of a PostgreSQL database. Fails if it must not be migrated.
async fn missing_of_server(
    context: &Context,
    url: &SecretString,
) -> Result<&'static [Migration], Failure> {
    match open(context, url, hapax_postgres::Schema::Check).await? {
        Ok(()) => Ok(&[]),
        Err(OpenError::Schema {
            source: SchemaError::Older { found, .. },
        }) => Ok(after(hapax_postgres::MIGRATIONS, found)),
        Err(error) => Err(postgres::refused(&error).into()),
    }
}

/// The missing migrations of an SQLite file; all of them if it does not exist.
fn missing_of_file(path: &Path) -> Result<&'static [Migration], Failure> {
    if !path.exists() {
        return Ok(hapax_sqlite::MIGRATIONS);
    }
    let shown = path.display();
    let found = sqlite::version(&sqlite::look(path)?);
    let found = found.map_err(|error| {
        Failure::new(FAILED, format!("database {shown} cannot be read: {error}"))
    })?;
    let known = sqlite::known_version();
    if found > known {
        let newer = format!(
            "database {shown} is at version {found}, this program knows {known}: run a newer \
             version of it"
        );
        return Err(Failure::new(FAILED, newer));
    }
    Ok(after(hapax_sqlite::MIGRATIONS, found))
}

async fn apply(context: &Context, place: &DatabaseLocation) -> Result<(), Failure> {
    match place {
        DatabaseLocation::Server(url) => open(context, url, hapax_postgres::Schema::Apply)
            .await?
            .map_err(|error| postgres::refused(&error).into()),
        DatabaseLocation::File(path) => {
            let settings = sqlite::settings(&context.access()?, path);
            let store = Sqlite::open(settings).map_err(|error| match error {
                hapax_sqlite::OpenError::InUse { path } => {
                    let path = path.display();
                    let problem = format!(
                        "database {path} is in use: the service that has it open migrates it when \
                         it starts with a new version of Hapax"
                    );
                    Failure::new(FAILED, problem)
                }
                error => sqlite::refused(&error).into(),
            })?;
            Ok(store.close().await?)
        }
    }
}

async fn open(
    context: &Context,
    url: &SecretString,
    schema: hapax_postgres::Schema,
) -> Result<Result<(), OpenError>, Failure> {
    let mut settings = postgres::settings(&context.access()?, url);
    settings.schema = schema;
    let opened = Postgres::open(settings).await;
    Ok(opened.map(|store| store.close()))
}
