//! Checks of the SQL contract: its version in the database, and the programs that call it.
//!
//! A package for another language names itself and the version that it expects in
//! `application_name`, such as `hapax-node/0.1.0 contract=2`. Each version of the contract has the
//! functions of the earlier ones, so a program that expects an earlier version works. Callers that
//! are not connected at the moment are not seen.

use std::cmp::Ordering;

use hapax_postgres::{
    CONTRACT_VERSION,
    tokio_postgres::{Client, SimpleQueryRow},
};

use super::{Finding, QueryError, first_text, rows};

/// Version 1 has the functions, but none that returns the version. Databases without them are
/// reported by the check of the schema.
const EXISTS: &str = "SELECT to_regproc('hapax.claim') IS NOT NULL";
const HAS_VERSION: &str = "SELECT to_regprocedure('hapax.contract_version()') IS NOT NULL";
const VERSION: &str = "SELECT hapax.contract_version()";
/// The callers, one version of a program per row. The number of digits keeps the version in range.
const CALLERS: &str = "
    SELECT application_name, substring(application_name FROM 'contract=([0-9]{1,9})'), count(*)
      FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '(^| )contract=[0-9]{1,9}( |$)'
     GROUP BY application_name ORDER BY application_name LIMIT 50";

pub(super) async fn check(client: &Client) -> Result<Vec<Finding>, QueryError> {
    if first_text(client, EXISTS).await? != "t" {
        return Ok(Vec::new());
    }
    let version = match first_text(client, HAS_VERSION).await?.as_str() {
        "t" => first_text(client, VERSION).await?.parse().unwrap_or(1),
        _ => 1,
    };
    let mut findings = vec![spoken(version)];
    let callers = rows(client, CALLERS).await?;
    findings.extend(callers.iter().map(|row| caller(row, version)));
    Ok(findings)
}

/// The version of the database, compared with that of this program.
fn spoken(version: i32) -> Finding {
    let found = format!(
        "the database has version {version} of the SQL contract; this program expects version \
         {CONTRACT_VERSION}"
    );
    match version.cmp(&CONTRACT_VERSION) {
        Ordering::Less => Finding::error("contract", found, "run `hapax migrate`, as the owner"),
        Ordering::Equal => Finding::ok("contract", found),
        Ordering::Greater => {
            let remedy = "run the version of hapax that migrated the database, or a later one";
            Finding::warning("contract", found, remedy)
        }
    }
}

/// A program that calls the contract, with the version that it expects.
fn caller(row: &SimpleQueryRow, version: i32) -> Finding {
    let [name, expected, sessions] = [0, 1, 2].map(|column| row.get(column).unwrap_or_default());
    let program = name.split(" contract=").next().unwrap_or(name);
    let sessions = match sessions {
        "1" => "1 session".to_owned(),
        count => format!("{count} sessions"),
    };
    let found = format!("{program} expects version {expected} of the SQL contract ({sessions})");
    if expected
        .parse()
        .is_ok_and(|expected: i32| expected <= version)
    {
        return Finding::ok("callers", found);
    }
    let found = format!("{found}, but the database has version {version}");
    let remedy =
        "run `hapax migrate` with a version of hapax that has this version of the contract";
    Finding::error("callers", found, remedy)
}
