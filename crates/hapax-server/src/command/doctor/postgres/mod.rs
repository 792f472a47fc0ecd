//! Checks of a PostgreSQL database, as far as the privileges of the role allow.

mod server;
mod schema;
mod contract;
mod pooler;
mod sessions;
mod feeds;
mod clock;

use std::time::Duration;

use hapax_postgres::{
    Settings,
    tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow},
};
use secrecy::SecretString;

use super::{Context, Failure, Finding};
use crate::{database, environment};

/// The error of a query that failed, for a finding.
type QueryError = Error;

/// Runs all checks. Returns the findings, and whether the database can be used.
pub(super) async fn check(
    context: &Context,
    url: &SecretString,
    open_max: Duration,
) -> Result<(Vec<Finding>, bool), Failure> {
    let settings = database::postgres::settings(&context.access()?, url);
    let client = match hapax_postgres::dial(&settings).await {
        Ok(client) => client,
        Err(error) => {
            let remedy = "check [database] url: the host, the port, the role, its password, \
                          sslmode, and pg_hba.conf on the server";
            let error_chain = environment::error_chain(&error);
            let finding = Finding::error("connection", error_chain, remedy);
            return Ok((vec![finding], false));
        }
    };
    let mut findings = Vec::new();
    let ran = run_checks(context, &settings, &client, open_max, &mut findings).await;
    let is_usable = ran.unwrap_or_else(|error| {
        let error_chain = environment::error_chain(&error);
        let remedy = "read the log of the database server; then run `hapax doctor` again";
        findings.push(Finding::error("questions", error_chain, remedy));
        false
    });
    Ok((findings, is_usable))
}

async fn run_checks(
    context: &Context,
    settings: &Settings,
    client: &Client,
    open_max: Duration,
    findings: &mut Vec<Finding>,
) -> Result<bool, QueryError> {
    findings.extend(server::version(client).await?);
    if server::is_standby(client).await? {
        let remedy = "connect to the primary: a standby does not show which transactions are open";
        findings.push(Finding::error(
            "standby",
            "the database is a read-only standby",
            remedy,
        ));
        return Ok(false);
    }
    findings.push(Finding::ok("standby", "the database is a primary"));
    findings.push(pooler::check(client, settings).await?);
    findings.extend(schema::check(context, settings, client).await?);
    findings.push(clock::check(client).await?);
    findings.extend(server::durability(client).await?);
    findings.extend(server::room(client, settings).await?);
    findings.extend(sessions::check(client, open_max).await?);
    findings.extend(feeds::check(context, settings, client).await?);
    Ok(true)
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
