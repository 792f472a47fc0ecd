//! Migrations: numbered files that are applied once and then checked by their hash.
//!
//! Applied migrations are recorded in `hapax_migration` by namespace, so that a service can manage
//! its own tables by the same rules. A schema that is newer, foreign or changed is refused with an
//! error that says what differs; nothing is repaired by guessing. All missing migrations are
//! applied in one transaction.

use hapax::{
    Timestamp,
    key::{FingerprintBuilder, hex},
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    error::{SchemaError, store_error},
    writer::WriterContext,
};

/// One migration: its number, starting at 1, its name, and its SQL.
pub type Migration<'a> = (u32, &'a str, &'a str);

const NAMESPACE: &str = "hapax";
/// The migrations of the store's tables. [`Sqlite::open`](crate::Sqlite::open) applies those that
/// are missing.
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
    (8, "polling", include_str!("../migrations/0008_polling.sql")),
    (
        9,
        "endpoints",
        include_str!("../migrations/0009_endpoints.sql"),
    ),
    (
        10,
        "endpoint_health",
        include_str!("../migrations/0010_endpoint_health.sql"),
    ),
    (
        11,
        "operational_events",
        include_str!("../migrations/0011_operational_events.sql"),
    ),
    (
        12,
        "mappings",
        include_str!("../migrations/0012_mappings.sql"),
    ),
    (
        13,
        "polling_tokens",
        include_str!("../migrations/0013_polling_tokens.sql"),
    ),
];
const RECORD: &str = "CREATE TABLE hapax_migration (
    namespace  TEXT NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, version)
) WITHOUT ROWID";

/// Creates, checks or upgrades the store's own tables.
pub(crate) fn apply_own(conn: &mut Connection, now: Timestamp) -> Result<(), SchemaError> {
    let tx = conn.unchecked_transaction().map_err(failed)?;
    let plan = Plan::own();
    make_record(&tx)?;
    if plan.missing(&tx)?.is_empty() {
        check_objects(&tx)?;
    }
    plan.apply(&tx, now)?;
    tx.commit().map_err(failed)
}

/// Checks that the store's own tables are those of this version. Changes nothing.
pub(crate) fn check_own(conn: &Connection) -> Result<(), SchemaError> {
    if !is_recorded(conn)? {
        return Err(SchemaError::Absent);
    }
    let plan = Plan::own();
    let missing = plan.missing(conn)?;
    if let Some(first) = missing.first() {
        return Err(SchemaError::Older {
            namespace: NAMESPACE.to_owned(),
            found: first.version - 1,
            known: plan.steps.last().map_or(0, |step| step.version),
        });
    }
    check_objects(conn)
}

/// The migrations of a namespace.
#[derive(Debug)]
pub(crate) struct Plan {
    namespace: String,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    version: u32,
    name: String,
    sql: String,
    checksum: String,
}

impl Plan {
    /// The migrations of the store.
    fn own() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
            steps: MIGRATIONS.iter().map(step).collect(),
        }
    }

    /// Checks that a service's migrations are numbered without gaps.
    pub(crate) fn new(namespace: &str, migrations: &[Migration<'_>]) -> Result<Self, SchemaError> {
        let malformed = |problem| SchemaError::Malformed {
            namespace: namespace.to_owned(),
            problem,
        };
        if namespace.is_empty() || namespace == NAMESPACE {
            return Err(malformed("the namespace is empty or the store's own"));
        }
        if migrations
            .iter()
            .zip(1..)
            .any(|((version, ..), number)| *version != number)
        {
            return Err(malformed("the numbers are not 1, 2, 3"));
        }
        let steps = migrations.iter().map(step).collect();
        Ok(Self {
            namespace: namespace.to_owned(),
            steps,
        })
    }

    /// Applies the missing migrations in the writer's savepoint.
    pub(crate) fn apply_in(&self, ctx: &WriterContext) -> Result<(), SchemaError> {
        let mut outcome = Ok(());
        let ran = ctx.foreign(|conn| {
            // The caller keeps its savepoint, so a plan that fails half-way is undone here.
            conn.execute_batch("SAVEPOINT hapax_migration")?;
            outcome = self.apply(conn, ctx.now());
            if outcome.is_err() {
                conn.execute_batch("ROLLBACK TO hapax_migration")?;
            }
            conn.execute_batch("RELEASE hapax_migration")
        });
        ran.map_err(SchemaError::Store)?;
        outcome
    }

    fn apply(&self, conn: &Connection, now: Timestamp) -> Result<(), SchemaError> {
        for step in self.missing(conn)? {
            self.apply_step(conn, step, now)?;
        }
        Ok(())
    }

    /// Returns the steps that are not applied. Fails if an applied step has changed.
    fn missing(&self, conn: &Connection) -> Result<Vec<&Step>, SchemaError> {
        self.check_known(conn)?;
        let mut missing = Vec::new();
        for step in &self.steps {
            match applied(conn, &self.namespace, step.version).map_err(failed)? {
                Some(checksum) if checksum == step.checksum => {}
                Some(_) => return Err(self.changed(step)),
                None => missing.push(step),
            }
        }
        Ok(missing)
    }

    fn check_known(&self, conn: &Connection) -> Result<(), SchemaError> {
        let known = self.steps.last().map_or(0, |step| step.version);
        let sql = "SELECT max(version) FROM hapax_migration WHERE namespace = ?1";
        let found: Option<u32> = conn
            .query_row(sql, [&self.namespace], |row| row.get(0))
            .map_err(failed)?;
        match found {
            Some(found) if found > known => {
                let namespace = self.namespace.clone();
                Err(SchemaError::Newer {
                    namespace,
                    found,
                    known,
                })
            }
            _ => Ok(()),
        }
    }

    fn apply_step(
        &self,
        conn: &Connection,
        step: &Step,
        now: Timestamp,
    ) -> Result<(), SchemaError> {
        let apply = || {
            conn.execute_batch(&step.sql)?;
            conn.execute(
                "INSERT INTO hapax_migration (namespace, version, name, checksum, applied_at)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    self.namespace,
                    step.version,
                    step.name,
                    step.checksum,
                    now.as_millis()
                ],
            )
        };
        apply().map(drop).map_err(|error| SchemaError::Failed {
            namespace: self.namespace.clone(),
            version: step.version,
            name: step.name.clone(),
            source: store_error(error),
        })
    }

    fn changed(&self, step: &Step) -> SchemaError {
        SchemaError::Changed {
            namespace: self.namespace.clone(),
            version: step.version,
            name: step.name.clone(),
        }
    }
}

fn step((version, name, sql): &Migration<'_>) -> Step {
    let hash = FingerprintBuilder::new(1)
        .part(name.as_bytes())
        .part(sql.as_bytes())
        .finish();
    Step {
        version: *version,
        name: (*name).to_owned(),
        sql: (*sql).to_owned(),
        checksum: hex(hash.as_bytes()),
    }
}

/// Whether migrations are recorded. Fails if the table of applied migrations is another one.
fn is_recorded(conn: &Connection) -> Result<bool, SchemaError> {
    let found = object(conn, "table", "hapax_migration").map_err(failed)?;
    match found {
        Some(sql) if sql != RECORD => Err(SchemaError::Foreign {
            object: "table hapax_migration".to_owned(),
        }),
        found => Ok(found.is_some()),
    }
}

/// Creates the table of applied migrations. Fails if other tables with the prefix exist already.
fn make_record(conn: &Connection) -> Result<(), SchemaError> {
    if is_recorded(conn)? {
        return Ok(());
    }
    let sql =
        r"SELECT type || ' ' || name FROM sqlite_schema WHERE name LIKE 'hapax\_%' ESCAPE '\'";
    let foreign: Option<String> = conn
        .query_row(sql, [], |row| row.get(0))
        .optional()
        .map_err(failed)?;
    match foreign {
        Some(object) => Err(SchemaError::Foreign { object }),
        None => conn.execute_batch(RECORD).map_err(failed),
    }
}

/// Compares every object of the schema with the one that the migrations create.
fn check_objects(conn: &Connection) -> Result<(), SchemaError> {
    let pristine = Connection::open_in_memory().map_err(failed)?;
    for (_, _, sql) in MIGRATIONS {
        pristine.execute_batch(sql).map_err(failed)?;
    }
    let mut objects = pristine
        .prepare("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        .map_err(failed)?;
    let mut rows = objects.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let read = || Ok((row.get("type")?, row.get("name")?, row.get("sql")?));
        let (kind, name, sql): (String, String, String) = read().map_err(failed)?;
        if object(conn, &kind, &name).map_err(failed)?.as_ref() != Some(&sql) {
            return Err(SchemaError::Damaged {
                object: format!("{kind} {name}"),
            });
        }
    }
    Ok(())
}

fn object(conn: &Connection, kind: &str, name: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT sql FROM sqlite_schema WHERE type = ?1 AND name = ?2";
    conn.query_row(sql, [kind, name], |row| row.get(0))
        .optional()
}

fn applied(conn: &Connection, namespace: &str, version: u32) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT checksum FROM hapax_migration WHERE namespace = ?1 AND version = ?2";
    conn.query_row(sql, params![namespace, version], |row| row.get(0))
        .optional()
}

pub(crate) fn failed(error: rusqlite::Error) -> SchemaError {
    SchemaError::Store(store_error(error))
}
