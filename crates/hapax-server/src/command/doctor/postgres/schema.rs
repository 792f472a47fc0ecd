//! Checks of the tables: whether they exist, have a known version, and can be used by this role.

use hapax_postgres::{OpenError, Postgres, Schema, SchemaError, Settings, tokio_postgres::Client};

use super::{Context, Finding, QueryError, contract, first_text, rows};
use crate::environment::error_chain;

/// The privileges that the role lacks of those in the guide to roles, one object per row.
const LACKS: &str = "
    SELECT format('USAGE ON SCHEMA %I', 'hapax')
     WHERE NOT has_schema_privilege('hapax', 'USAGE')
    UNION ALL
    SELECT format('%s ON hapax.%I', string_agg(privilege, ', '), relname)
      FROM pg_class
     CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
     WHERE relnamespace = 'hapax'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
       AND (relname <> 'migration' OR privilege = 'SELECT')
       AND NOT has_table_privilege(pg_class.oid, privilege)
     GROUP BY relname
    UNION ALL
    SELECT format('USAGE, SELECT ON SEQUENCE hapax.%I', relname)
      FROM pg_class
     WHERE relnamespace = 'hapax'::regnamespace AND relkind = 'S'
       AND NOT (has_sequence_privilege(oid, 'USAGE') AND has_sequence_privilege(oid, 'SELECT'))";
const CACHE: &str = "SELECT cache_size FROM pg_sequences
    WHERE schemaname = 'hapax' AND sequencename = 'outbox_event_id'";
/// Before the migration that creates this function there is nothing to check.
const IS_RAISABLE: &str = "SELECT to_regprocedure('hapax.low_sequences()') IS NOT NULL";
const LOW: &str = "SELECT sequence, drawn, highest FROM hapax.low_sequences()";
const MISPLACED: &str = "SELECT hapax.has_misplaced()";
/// Partitions whose checkpoint was read in another history than that of this database.
const OTHER_HISTORY: &str = "SELECT partition FROM hapax.position \
                         WHERE NOT pg_is_in_recovery() \
                           AND NOT hapax.is_read_in(hapax.history(), snapshot) ORDER BY partition";
const SCHEMA_EXISTS: &str = "SELECT to_regnamespace('hapax') IS NOT NULL";

pub(super) async fn check(
    context: &Context,
    settings: &Settings,
    client: &Client,
) -> Result<Vec<Finding>, QueryError> {
    if first_text(client, SCHEMA_EXISTS).await? != "t" {
        let found = "there is no schema hapax in this database";
        return Ok(vec![Finding::error(
            "schema",
            found,
            "run `hapax migrate`, as the owner",
        )]);
    }
    let mut findings = grants(client).await?;
    // Without privileges the version cannot be read either.
    if findings.is_empty() {
        findings.push(Finding::ok(
            "grants",
            "the role may use every table and sequence",
        ));
        findings.push(version(context, settings).await);
        findings.extend(contract::check(client).await?);
        let cache = first_text(client, CACHE).await?;
        if !matches!(cache.as_str(), "1" | "") {
            let found =
                format!("the sequence of events has CACHE {cache}: the order of a key is not kept");
            let remedy = "ALTER SEQUENCE hapax.outbox_event_id CACHE 1";
            findings.push(Finding::error("sequence", found, remedy));
        }
        if first_text(client, IS_RAISABLE).await? == "t" {
            findings.extend(sequences(client).await?);
            findings.extend(history(client).await?);
        }
    }
    Ok(findings)
}

/// Sequences below a number that was already used, and events that were written meanwhile. A
/// restore or a replication did not copy them.
async fn sequences(client: &Client) -> Result<Vec<Finding>, QueryError> {
    let remedy = "as the owner: SELECT * FROM hapax.raise_sequences(), until its column is_all is \
                  true; a relay that starts does the same";
    let low = rows(client, LOW).await?;
    let mut findings = Vec::new();
    for row in &low {
        let [name, drawn, highest] = [0, 1, 2].map(|column| row.get(column).unwrap_or_default());
        let mut found = format!("the sequence {name} is at {drawn}, but {highest} was used");
        if name == "hapax.outbox_event_id" {
            found += ": relays skip events that are committed now, until it is raised";
        }
        findings.push(Finding::error("sequence", found, remedy));
    }
    if first_text(client, MISPLACED).await? == "t" {
        let found = "events that were written while the sequence was too low are not all delivered";
        findings.push(Finding::error("sequence", found, remedy));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "sequence",
            "no sequence is below a number that was used",
        ));
    }
    Ok(findings)
}

/// Checkpoints from another database, server or timeline: a backup was restored, or a standby was
/// promoted.
async fn history(client: &Client) -> Result<Option<Finding>, QueryError> {
    let partitions = rows(client, OTHER_HISTORY).await?;
    let partitions: Vec<&str> = partitions.iter().filter_map(|row| row.get(0)).collect();
    let found = format!(
        "the checkpoints of {} were read in another database, on another server or timeline",
        partitions.join(", ")
    );
    let remedy = "no action is needed if a backup was restored or a standby was promoted: the \
                  relay continues from these checkpoints, and delivers later events again";
    Ok((!partitions.is_empty()).then(|| Finding::warning("history", found, remedy)))
}

async fn grants(client: &Client) -> Result<Vec<Finding>, QueryError> {
    let role = first_text(client, "SELECT quote_ident(current_user)").await?;
    let lacking = rows(client, LACKS).await?;
    let lacking = lacking.iter().filter_map(|row| row.get(0));
    Ok(lacking
        .map(|right| {
            let found = format!("the role {role} lacks {right}");
            Finding::error(
                "grants",
                found,
                format!("as the owner: GRANT {right} TO {role}"),
            )
        })
        .collect())
}

async fn version(context: &Context, settings: &Settings) -> Finding {
    let mut settings = settings.clone();
    settings.schema = Schema::Check;
    match Postgres::open(settings).await {
        Ok(store) => {
            store.close();
            let known = hapax_postgres::MIGRATIONS
                .last()
                .map_or(0, |(version, ..)| *version);
            Finding::ok(
                "schema",
                format!("version {known}, the one that this program knows"),
            )
        }
        Err(error) => {
            let remedy = match &error {
                OpenError::Schema {
                    source: SchemaError::Older { .. },
                } => "run `hapax migrate`, as the owner",
                OpenError::Schema {
                    source: SchemaError::Newer { .. },
                } => "run the version of hapax that migrated the database, or a later one",
                OpenError::Schema {
                    source: SchemaError::Changed { .. },
                } => "a migration was edited: compare `hapax migrate --print` with the tables",
                _ if context.config.database.pooled => "read the log of the pooler",
                _ => "read the log of the database server",
            };
            Finding::error("schema", error_chain(&error), remedy)
        }
    }
}
