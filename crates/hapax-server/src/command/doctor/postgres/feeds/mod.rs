//! Checks of feeds: the source, its slot, and its publication.

mod tables;
mod replica_identity;

use hapax_postgres::{Change, Settings, tokio_postgres::Client};
use secrecy::ExposeSecret as _;

use super::{Context, Finding, QueryError, first_text, rows};
use crate::{config::Feed, environment::error_chain};

/// Retained log at which to warn, unless the server limits it anyway.
const RETAINED_WARN: i64 = 1 << 30;
/// How many partitions a finding names.
const NAMED: usize = 3;
const CHECK: &str = "feeds";
const MAY: &str = "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user";

/// Checks every feed of the configuration.
pub(super) async fn check(
    context: &Context,
    settings: &Settings,
    client: &Client,
) -> Result<Vec<Finding>, QueryError> {
    let mut findings = recorded(context, client).await?;
    for (name, feed) in &context.config.feeds {
        let mut source = settings.clone();
        match feed.url() {
            Ok(Some(url)) => url.expose_secret().clone_into(&mut source.url),
            Ok(None) => {}
            Err(bad) => {
                findings.push(error(name, format!("database {bad}"), "correct the URL"));
                continue;
            }
        }
        let (why, remedy) = match hapax_postgres::dial(&source).await {
            Ok(client) => match source_of(&client, name, feed).await {
                Ok(found) => {
                    findings.extend(found);
                    continue;
                }
                Err(why) => (error_chain(&why), "read the log of the source"),
            },
            Err(why) => {
                let remedy = "check the URL of the source, and pg_hba.conf on its server";
                (error_chain(&why), remedy)
            }
        };
        findings.push(error(name, why, remedy));
    }
    Ok(findings)
}

/// Findings about the feeds in the database: gaps, and feeds that are not configured any more.
async fn recorded(context: &Context, client: &Client) -> Result<Vec<Finding>, QueryError> {
    let is_there = first_text(client, "SELECT to_regclass('hapax.feed') IS NOT NULL").await?;
    if is_there != "t" {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    for row in rows(
        client,
        "SELECT name, slot, gap FROM hapax.feed ORDER BY name",
    )
    .await?
    {
        let column = |index: usize| row.get(index).unwrap_or_default();
        let (name, slot, gap) = (column(0), column(1), column(2));
        if !context.config.feeds.contains_key(name) {
            let found = format!(
                "{name}: the feed is not configured here; if it was removed, its slot {slot} \
                 still retains log"
            );
            let remedy = format!(
                "at the source: SELECT pg_drop_replication_slot({}); here: DELETE FROM hapax.feed \
                 WHERE name = {}",
                literal(slot),
                literal(name)
            );
            findings.push(Finding::note(CHECK, found, remedy));
        } else if !gap.is_empty() {
            let remedy = format!(
                "add the missing events, if they matter; then hapax feeds accept-gap {name} \
                 --reason ..."
            );
            findings.push(error(
                name,
                format!("the feed has stopped at a gap: {gap}"),
                remedy,
            ));
        }
    }
    Ok(findings)
}

async fn source_of(client: &Client, name: &str, feed: &Feed) -> Result<Vec<Finding>, QueryError> {
    if first_text(client, "SELECT pg_is_in_recovery()").await? == "t" {
        let remedy = "if the URL names several hosts, add target_session_attrs=read-write: the feed \
                      itself looks for the primary";
        return Ok(vec![error(
            name,
            "this server is a read-only standby",
            remedy,
        )]);
    }
    let mut findings = Vec::new();
    if first_text(client, "SHOW wal_level").await? != "logical" {
        let remedy = "set wal_level = logical in postgresql.conf of the source, and restart it";
        findings.push(error(name, "wal_level is not logical", remedy));
    }
    if first_text(client, MAY).await? == "f" {
        let remedy = "as a superuser: ALTER ROLE ... REPLICATION";
        findings.push(error(name, "the role lacks REPLICATION", remedy));
    }
    findings.extend(slot(client, name, feed).await?);
    findings.extend(publication(client, name, feed).await?);
    if findings.is_empty() {
        let found = format!("{name}: slot and publication can be read");
        findings.push(Finding::ok(CHECK, found));
    }
    if first_text(client, "SHOW max_slot_wal_keep_size").await? == "-1" {
        let found = format!(
            "{name}: max_slot_wal_keep_size is -1: if the feed stops, its log fills the disk"
        );
        let remedy = "set a limit that leaves room on the disk; beyond it the feed reports a gap";
        findings.push(Finding::note(CHECK, found, remedy));
    }
    Ok(findings)
}

/// The slot: whether it exists, how much log it retains, and what limits that.
async fn slot(client: &Client, name: &str, feed: &Feed) -> Result<Vec<Finding>, QueryError> {
    let slot = feed.slot(name);
    let find = format!(
        "SELECT wal_status, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 AS retained,
                active, to_jsonb(slot) ->> 'failover' AS failover
         FROM pg_replication_slots AS slot WHERE slot_name = {}",
        literal(&slot)
    );
    let found = rows(client, &find).await?;
    let Some(row) = found.first() else {
        let remedy = "no action is needed before the first start of the feed, which creates the \
                      slot; later, the feed reports a gap";
        return Ok(vec![warning(
            name,
            format!("there is no slot {slot}"),
            remedy,
        )]);
    };
    let mut findings = Vec::new();
    match row.get("wal_status") {
        Some("lost") => {
            let found = format!("slot {slot} is lost: the server has invalidated it");
            let remedy = "raise max_slot_wal_keep_size and idle_replication_slot_timeout, and keep the \
                          feed running";
            findings.push(error(name, found, remedy));
        }
        Some("unreserved") => {
            let found =
                format!("slot {slot} is about to be lost: it is beyond max_slot_wal_keep_size");
            findings.push(error(name, found, "start the feed, or raise the limit"));
        }
        _ => {}
    }
    let retained = row
        .get("retained")
        .and_then(|bytes| bytes.parse::<i64>().ok());
    if let Some(retained) = retained.filter(|bytes| *bytes > RETAINED_WARN) {
        let found = format!("slot {slot} retains {} MiB of log", retained >> 20);
        let remedy = "check whether the feed runs (hapax_feed_up), and whether transactions have \
                      been open for long";
        findings.push(warning(name, found, remedy));
    }
    // Before PostgreSQL 17 there is no such column.
    if feed.described(name).failover && row.get("failover") == Some("false") {
        let found = format!("slot {slot} is not a failover slot");
        let remedy =
            format!("over a replication connection: ALTER_REPLICATION_SLOT {slot} (FAILOVER true)");
        findings.push(warning(name, found, remedy));
    }
    if row.get("failover") == Some("true") {
        findings.extend(standbys(client, name).await?);
    }
    if row.get("active") == Some("f") {
        let found = format!("nothing reads slot {slot}, so the server keeps its log");
        findings.push(warning(name, found, "start a relay with this feed"));
    }
    Ok(findings)
}

/// The standbys for which a failover slot waits: whether each of them is connected.
async fn standbys(client: &Client, name: &str) -> Result<Vec<Finding>, QueryError> {
    // Before PostgreSQL 17 there is no such setting.
    let find = "SELECT named FROM unnest(string_to_array(
            replace(current_setting('synchronized_standby_slots', true), ' ', ''), ',')) AS named
         LEFT JOIN pg_replication_slots ON slot_name = named
         WHERE named <> '' AND active IS NOT TRUE";
    let found = rows(client, find).await?;
    let absent = found.iter().filter_map(|row| row.get(0)).map(|slot| {
        let found = format!(
            "synchronized_standby_slots names {slot}, which no standby reads: the feed receives \
             nothing until one does"
        );
        let remedy = "start the standby, or remove its slot from synchronized_standby_slots";
        error(name, found, remedy)
    });
    Ok(absent.collect())
}

/// The publication: whether it is there, and whether it sends the changes that become events.
async fn publication(client: &Client, name: &str, feed: &Feed) -> Result<Vec<Finding>, QueryError> {
    let described = feed.described(name);
    let publication = &described.publication;
    let find = format!(
        "SELECT pubinsert, pubupdate, pubdelete FROM pg_publication WHERE pubname = {}",
        literal(publication)
    );
    let found = rows(client, &find).await?;
    let Some(row) = found.first() else {
        let remedy =
            format!("as the owner of the tables: CREATE PUBLICATION {publication} FOR TABLE ...");
        let found = format!("there is no publication {publication}");
        return Ok(vec![error(name, found, remedy)]);
    };
    let mut findings = Vec::new();
    for (column, change) in [
        ("pubinsert", Change::Insert),
        ("pubupdate", Change::Update),
        ("pubdelete", Change::Delete),
    ] {
        let is_used = described.tables.iter().any(|it| it.on.contains(&change));
        if is_used && row.get(column) != Some("t") {
            let found = format!(
                "publication {publication} does not publish changes of kind {}",
                change.as_str()
            );
            let remedy =
                format!("ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete')");
            findings.push(error(name, found, remedy));
        }
    }
    let may_fail = row.get("pubupdate") == Some("t") || row.get("pubdelete") == Some("t");
    findings.extend(tables::check(client, name, &described).await?);
    findings.extend(replica_identity::check(client, name, &described, may_fail).await?);
    Ok(findings)
}

/// Partitions by name. Of many, the first ones.
fn partitions(names: &[&str]) -> String {
    let word = if names.len() == 1 {
        "partition"
    } else {
        "partitions"
    };
    let listed: Vec<&str> = names.iter().take(NAMED).copied().collect();
    let listed = listed.join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => format!("{word} {listed}"),
        more => format!("{word} {listed} and {more} more"),
    }
}

fn error(name: &str, found: impl std::fmt::Display, remedy: impl Into<String>) -> Finding {
    Finding::error(CHECK, format!("{name}: {found}"), remedy)
}

fn warning(name: &str, found: impl std::fmt::Display, remedy: impl Into<String>) -> Finding {
    Finding::warning(CHECK, format!("{name}: {found}"), remedy)
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
