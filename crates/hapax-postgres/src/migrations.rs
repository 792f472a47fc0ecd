//! Migrations: numbered files that are applied once, and whose hash is checked at every start.
//!
//! The record is in `hapax.migration`, by namespace, so that a service can manage its own tables in
//! the same way. Several migrations are one transaction: all of them are applied, or none. If many
//! nodes start at once, one applies the migrations under an advisory lock, and the others find them
//! applied.

use hapax::key::{FingerprintBuilder, hex};

use crate::{
    connection::Link,
    error::{SchemaError, store_error},
    settings::Schema,
};

/// One migration: its number from 1, its name, and its SQL.
pub type Migration<'a> = (u32, &'a str, &'a str);

/// The store's own migrations, in order: what `hapax migrate` applies and prints.
pub const MIGRATIONS: &[Migration<'static>] = &[
    (
        1,
        "idempotency_keys",
        include_str!("../migrations/0001_idempotency_keys.sql"),
    ),
    (2, "outbox", include_str!("../migrations/0002_outbox.sql")),
    (3, "inbox", include_str!("../migrations/0003_inbox.sql")),
    (4, "relay", include_str!("../migrations/0004_relay.sql")),
    (
        5,
        "deliveries",
        include_str!("../migrations/0005_deliveries.sql"),
    ),
    (6, "sagas", include_str!("../migrations/0006_sagas.sql")),
    (7, "admin", include_str!("../migrations/0007_admin.sql")),
    (
        8,
        "rotation",
        include_str!("../migrations/0008_rotation.sql"),
    ),
    (
        9,
        "sql_contract",
        include_str!("../migrations/0009_sql_contract.sql"),
    ),
    (
        10,
        "table_sources",
        include_str!("../migrations/0010_table_sources.sql"),
    ),
    (
        11,
        "misplaced_events",
        include_str!("../migrations/0011_misplaced_events.sql"),
    ),
    (12, "feeds", include_str!("../migrations/0012_feeds.sql")),
    (
        13,
        "sleeping_relays",
        include_str!("../migrations/0013_sleeping_relays.sql"),
    ),
    (
        14,
        "payload_locks",
        include_str!("../migrations/0014_payload_locks.sql"),
    ),
    (
        15,
        "sql_contract_2",
        include_str!("../migrations/0015_sql_contract_2.sql"),
    ),
    (
        16,
        "polling",
        include_str!("../migrations/0016_polling.sql"),
    ),
    (
        17,
        "lapsed_keys",
        include_str!("../migrations/0017_lapsed_keys.sql"),
    ),
    (
        18,
        "endpoints",
        include_str!("../migrations/0018_endpoints.sql"),
    ),
    (
        19,
        "endpoint_health",
        include_str!("../migrations/0019_endpoint_health.sql"),
    ),
    (
        20,
        "operational_events",
        include_str!("../migrations/0020_operational_events.sql"),
    ),
    (
        21,
        "mappings",
        include_str!("../migrations/0021_mappings.sql"),
    ),
    (
        22,
        "polling_tokens",
        include_str!("../migrations/0022_polling_tokens.sql"),
    ),
];

/// The version of the SQL contract that the migrations create, as `hapax.contract_version()` returns
/// it.
pub const CONTRACT_VERSION: i32 = 2;

const NAMESPACE: &str = "hapax";
/// One at a time, in this database: the number is the first eight letters of "hapax migrations".
const LOCK: &str = "SELECT pg_advisory_xact_lock(7521887012346654821)";
const RECORD: &str = "
CREATE SCHEMA IF NOT EXISTS hapax;
CREATE TABLE IF NOT EXISTS hapax.migration (
    namespace  text NOT NULL,
    version    integer NOT NULL,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, version)
)";
const IS_THERE: &str = "SELECT to_regclass('hapax.migration') IS NOT NULL";
const APPLIED: &str =
    "SELECT version, checksum FROM hapax.migration WHERE namespace = $1 ORDER BY version";
const NOTE: &str =
    "INSERT INTO hapax.migration (namespace, version, name, checksum) VALUES ($1, $2, $3, $4)";

/// The statements that bring an empty database to this version, to be run by another program: the
/// migrations of the store and the record that they were applied, in one transaction.
pub fn printed() -> String {
    let mut text = format!("BEGIN;\n{};\n", RECORD.trim());
    for (version, name, sql) in MIGRATIONS {
        let (sum, sql) = (checksum(name, sql), sql.trim_end());
        let one = format!(
            "\n-- {version:04} {name}\n{sql}\n\
             INSERT INTO hapax.migration (namespace, version, name, checksum)\n    \
             VALUES ('{NAMESPACE}', {version}, '{name}', '{sum}');\n"
        );
        text.push_str(&one);
    }
    text.push_str("\nCOMMIT;\n");
    text
}

/// Makes, checks or upgrades the store's own tables.
pub(crate) async fn own(link: &mut Link, schema: Schema) -> Result<(), SchemaError> {
    bring(link, NAMESPACE, MIGRATIONS, schema).await
}

/// The same for a service's tables, numbered without gaps.
pub(crate) async fn of(
    link: &mut Link,
    namespace: &str,
    migrations: &[Migration<'_>],
    schema: Schema,
) -> Result<(), SchemaError> {
    let malformed = |problem| SchemaError::Malformed {
        namespace: namespace.to_owned(),
        problem,
    };
    if namespace.is_empty() || namespace == NAMESPACE {
        return Err(malformed("the namespace is empty or the store's own"));
    }
    let mut numbered = migrations.iter().zip(1..);
    if numbered.any(|((version, ..), number)| *version != number) {
        return Err(malformed("the numbers are not 1, 2, 3"));
    }
    bring(link, namespace, migrations, schema).await
}

async fn bring(
    link: &mut Link,
    namespace: &str,
    migrations: &[Migration<'_>],
    schema: Schema,
) -> Result<(), SchemaError> {
    let known = migrations.last().map_or(0, |(version, ..)| *version);
    // The usual start: nothing is missing, and nothing needs the right to create.
    let found = missing(link, namespace, migrations).await?;
    match (schema, found.is_empty()) {
        (_, true) => return Ok(()),
        (Schema::Check, false) => {
            let found = found[0].0 - 1;
            return Err(SchemaError::Older {
                namespace: namespace.to_owned(),
                found,
                known,
            });
        }
        (Schema::Apply, false) => {}
    }
    // If the future is dropped half-way, the transaction of the connection stays open.
    link.taint();
    link.run("BEGIN").await.map_err(failed)?;
    let applied = apply(link, namespace, migrations).await;
    let end = if applied.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    let ended = link.run(end).await.map_err(failed);
    applied.and(ended)
}

async fn apply(
    link: &mut Link,
    namespace: &str,
    migrations: &[Migration<'_>],
) -> Result<(), SchemaError> {
    link.run("SET LOCAL statement_timeout = 0")
        .await
        .map_err(failed)?;
    link.run(LOCK).await.map_err(failed)?;
    link.run(RECORD).await.map_err(failed)?;
    for (version, name, sql) in missing(link, namespace, migrations).await? {
        let step = async {
            link.run(sql).await?;
            let number = i32::try_from(version).unwrap_or(i32::MAX);
            let sum = checksum(name, sql);
            link.ask(NOTE, &[&namespace, &number, &name, &sum]).await
        };
        step.await.map_err(|error| SchemaError::Failed {
            namespace: namespace.to_owned(),
            version,
            name: name.to_owned(),
            source: store_error(error),
        })?;
    }
    Ok(())
}

/// Returns the migrations that were not applied. Those that were applied must be unchanged.
async fn missing<'a>(
    link: &Link,
    namespace: &str,
    migrations: &[Migration<'a>],
) -> Result<Vec<Migration<'a>>, SchemaError> {
    let there = link.ask(IS_THERE, &[]).await.map_err(failed)?;
    if !there.first().is_some_and(|row| row.get(0)) {
        return Ok(migrations.to_vec());
    }
    let applied = link.ask(APPLIED, &[&namespace]).await.map_err(failed)?;
    let applied: Vec<(i32, String)> = applied.iter().map(|row| (row.get(0), row.get(1))).collect();
    let known = migrations.last().map_or(0, |(version, ..)| *version);
    let found = applied
        .last()
        .map_or(0, |(version, _)| version.unsigned_abs());
    if found > known {
        return Err(SchemaError::Newer {
            namespace: namespace.to_owned(),
            found,
            known,
        });
    }
    let mut missing = Vec::new();
    for &(version, name, sql) in migrations {
        let record = applied.iter().find(|(it, _)| it.unsigned_abs() == version);
        match record {
            Some((_, sum)) if *sum == checksum(name, sql) => {}
            Some(_) => {
                return Err(SchemaError::Changed {
                    namespace: namespace.to_owned(),
                    version,
                    name: name.to_owned(),
                });
            }
            None => missing.push((version, name, sql)),
        }
    }
    Ok(missing)
}

fn checksum(name: &str, sql: &str) -> String {
    let hash = FingerprintBuilder::new(1)
        .part(name.as_bytes())
        .part(sql.as_bytes())
        .finish();
    hex(hash.as_bytes())
}

fn failed(error: tokio_postgres::Error) -> SchemaError {
    SchemaError::Store(store_error(error))
}
