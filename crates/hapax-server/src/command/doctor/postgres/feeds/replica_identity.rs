//! Check of the replica identity: whether deletes, and updates of long values, become events.
//!
//! With a delete, the server sends only the columns of the table's replica identity, by default
//! those of the primary key. It sends a long value (TOAST) that an update has not changed only if the
//! identity contains it. If a setting names a column that is not sent, the change is set aside.
//!
//! A partition has its own identity and does not inherit that of its root: of its changes under the
//! name of the root, only the columns are known that are in both identities.

use std::collections::{BTreeMap, BTreeSet};

use hapax_postgres::{Change, Feed as Described, FeedTable, tokio_postgres::Client};

use super::{Finding, QueryError, error, literal, partitions, rows, warning};

/// The replica identity of a table.
#[derive(Default)]
struct Identity {
    is_full: bool,
    /// The columns of its index; none if it is full.
    columns: BTreeSet<String>,
}

/// The identities of a published table and of the partitions that are sent under its name.
#[derive(Default)]
struct Identities {
    own: Identity,
    partitions: BTreeMap<String, Identity>,
}

/// Finds the tables whose updates and deletes fail, or would be set aside. `may_fail` says whether
/// the publication publishes updates or deletes: it makes them fail if there is no identity.
pub(super) async fn check(
    client: &Client,
    name: &str,
    described: &Described,
    may_fail: bool,
) -> Result<Vec<Finding>, QueryError> {
    let published = identities(client, &described.publication).await?;
    let mut findings = Vec::new();
    for table in &described.tables {
        let of_table = format!("{}.{}", table.schema, table.table);
        if let Some(identities) = published.get(&of_table) {
            let reads = table.on.iter().any(|on| *on != Change::Insert);
            if reads || may_fail {
                findings.extend(absent(name, &of_table, identities, reads));
            }
            findings.extend(missing(name, &of_table, table, identities));
        }
    }
    Ok(findings)
}

/// The identities of the tables of a publication, by name.
async fn identities(
    client: &Client,
    publication: &str,
) -> Result<BTreeMap<String, Identities>, QueryError> {
    // The function pg_partition_tree would lock each partition. A primary key that is deferrable is
    // not a replica identity.
    let find = format!(
        "WITH RECURSIVE part AS (
             SELECT pg_class.oid, relkind, 0 AS level,
                    format('%s.%s', schemaname, tablename) AS of_table
             FROM pg_publication_tables
             JOIN pg_namespace ON nspname = schemaname
             JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = tablename
             WHERE pubname = {}
             UNION ALL
             SELECT child.oid, child.relkind, part.level + 1, of_table
             FROM part
             JOIN pg_inherits ON inhparent = part.oid
             JOIN pg_class AS child ON child.oid = inhrelid
             WHERE part.relkind = 'p'
         )
         SELECT of_table, format('%s.%s', nspname, relname) AS relation, relreplident, attname
         FROM part
         JOIN pg_class ON pg_class.oid = part.oid
         JOIN pg_namespace ON pg_namespace.oid = relnamespace
         LEFT JOIN pg_index ON indrelid = pg_class.oid
             AND CASE relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END
             AND indimmediate
         LEFT JOIN pg_attribute ON attrelid = pg_class.oid
             AND attnum = ANY ((indkey::int2[])[0:indnkeyatts - 1])
         WHERE part.level = 0 OR part.relkind = 'r'",
        literal(publication)
    );
    let mut tables = BTreeMap::<String, Identities>::new();
    for row in rows(client, &find).await? {
        let text = |column: &str| row.get(column).unwrap_or_default();
        let (table, relation) = (text("of_table"), text("relation"));
        let identities = tables.entry(table.to_owned()).or_default();
        let identity = if relation == table {
            &mut identities.own
        } else {
            identities
                .partitions
                .entry(relation.to_owned())
                .or_default()
        };
        identity.is_full = text("relreplident") == "f";
        let column = row.get("attname").map(str::to_owned);
        identity.columns.extend(column);
    }
    Ok(tables)
}

impl Identity {
    fn is_absent(&self) -> bool {
        !self.is_full && self.columns.is_empty()
    }

    /// Returns the given columns that the identity does not contain.
    fn lacks<'a>(&self, columns: &BTreeSet<&'a str>) -> Vec<&'a str> {
        let columns = columns.iter().copied();
        columns
            .filter(|column| !self.is_full && !self.columns.contains(*column))
            .collect()
    }
}

/// Reports that a table or its partitions have no identity.
fn absent(name: &str, of_table: &str, identities: &Identities, reads: bool) -> Vec<Finding> {
    let failing = |found: String, remedy: String| {
        if reads {
            error(name, found, remedy)
        } else {
            warning(name, found, remedy)
        }
    };
    let mut findings = Vec::new();
    if identities.own.is_absent() && identities.partitions.is_empty() {
        let found =
            format!("table {of_table} has no replica identity: its updates and deletes fail");
        let remedy = format!(
            "ALTER TABLE {of_table} REPLICA IDENTITY FULL, or add a primary key that is not deferrable"
        );
        findings.push(failing(found, remedy));
    } else if identities.own.is_absent() && reads {
        let found = format!(
            "table {of_table} has no replica identity: no column of a delete is sent, also if its \
             partitions have one"
        );
        let remedy = format!(
            "ALTER TABLE {of_table} REPLICA IDENTITY FULL, or add a primary key that is not deferrable"
        );
        findings.push(warning(name, found, remedy));
    }
    let without: Vec<&str> = identities
        .partitions
        .iter()
        .filter(|(_, identity)| identity.is_absent())
        .map(|(partition, _)| partition.as_str())
        .collect();
    if let Some(first) = without.first() {
        let found = format!(
            "updates and deletes fail in {} of table {of_table}: there is no replica identity",
            partitions(&without)
        );
        findings.push(failing(found, of_each(first, of_table)));
    }
    findings
}

/// Reports the columns that the feed reads and that are not sent.
fn missing(name: &str, of_table: &str, table: &FeedTable, identities: &Identities) -> Vec<Finding> {
    let delete = "deletes are set aside and do not become events";
    let update = "an update that leaves a long value unchanged is set aside";
    let all: BTreeSet<&str> = read(table).collect();
    let may_be_long: BTreeSet<&str> = long(table).collect();
    let mut findings = Vec::new();
    for (change, columns, effect) in [
        (Change::Delete, all, delete),
        (Change::Update, may_be_long, update),
    ] {
        if table.on.contains(&change) {
            findings.extend(missing_in_own(
                name,
                of_table,
                &identities.own,
                &columns,
                effect,
            ));
            findings.extend(missing_in_partitions(
                name, of_table, identities, &columns, effect,
            ));
        }
    }
    findings
}

fn missing_in_own(
    name: &str,
    of_table: &str,
    own: &Identity,
    columns: &BTreeSet<&str>,
    effect: &str,
) -> Option<Finding> {
    let lacking = own.lacks(columns);
    if own.is_absent() || lacking.is_empty() {
        return None;
    }
    let found = format!(
        "the replica identity of table {of_table} lacks {}, which the feed reads: {effect}",
        lacking.join(", ")
    );
    let remedy = format!(
        "ALTER TABLE {of_table} REPLICA IDENTITY FULL, or REPLICA IDENTITY USING INDEX with a unique \
         index of these columns"
    );
    Some(warning(name, found, remedy))
}

/// Finding about all partitions that lack the same columns.
fn missing_in_partitions(
    name: &str,
    of_table: &str,
    identities: &Identities,
    columns: &BTreeSet<&str>,
    effect: &str,
) -> Vec<Finding> {
    let mut lacking = BTreeMap::<Vec<&str>, Vec<&str>>::new();
    for (partition, identity) in &identities.partitions {
        let lacks = identity.lacks(columns);
        if !identity.is_absent() && !lacks.is_empty() {
            lacking.entry(lacks).or_default().push(partition);
        }
    }
    let finding = |(columns, of): (Vec<&str>, Vec<&str>)| {
        let first = of.first().copied().unwrap_or_default();
        let found = format!(
            "the replica identity of {} of table {of_table} lacks {}, which the feed reads: {effect}",
            partitions(&of),
            columns.join(", ")
        );
        warning(name, found, of_each(first, of_table))
    };
    lacking.into_iter().map(finding).collect()
}

/// The remedy for a partition, and for all others.
fn of_each(first: &str, of_table: &str) -> String {
    format!(
        "ALTER TABLE {first} REPLICA IDENTITY FULL, and the same for each other and each new \
         partition: a partition does not inherit the identity of {of_table}"
    )
}

/// The columns without which a change cannot be an event.
fn read(table: &FeedTable) -> impl Iterator<Item = &str> {
    let mapped = [
        &table.event_id,
        &table.kind,
        &table.aggregate_type,
        &table.aggregate_id,
        &table.sequence,
        &table.tenant,
        &table.available_at,
        &table.created_at,
    ];
    let mapped = mapped.into_iter().flatten().chain(table.when.keys());
    mapped.map(String::as_str).chain(long(table))
}

/// Returns the mapped columns whose values may be long.
fn long(table: &FeedTable) -> impl Iterator<Item = &str> {
    let long = [&table.payload, &table.headers].into_iter().flatten();
    long.map(String::as_str)
}
