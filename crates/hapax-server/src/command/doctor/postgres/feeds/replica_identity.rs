//! Check of the replica identity: whether deletes, and updates of long values, become events.
//!
//! With a delete, the server sends only the columns of the table's replica identity, by default
//! those of the primary key. It sends a long value (TOAST) that an update has not changed only if the
//! identity contains it. If a setting names a column that is not sent, the change is set aside.

use std::collections::{BTreeMap, BTreeSet};

use hapax_postgres::{Change, Feed as Described, FeedTable, tokio_postgres::Client};

use super::{Finding, QueryError, literal, rows, warning};

/// Finds the tables whose changes would be set aside. A table without an identity has a finding of
/// its own, because its updates and deletes fail.
pub(super) async fn check(
    client: &Client,
    name: &str,
    described: &Described,
) -> Result<Vec<Finding>, QueryError> {
    let find = format!(
        "SELECT format('%s.%s', schemaname, tablename), attname
         FROM pg_publication_tables
         JOIN pg_namespace ON nspname = schemaname
         JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = tablename
         JOIN pg_index ON indrelid = pg_class.oid
             AND CASE relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END
         JOIN pg_attribute ON attrelid = pg_class.oid
             AND attnum = ANY ((indkey::int2[])[0:indnkeyatts - 1])
         WHERE pubname = {}",
        literal(&described.publication)
    );
    let found = rows(client, &find).await?;
    let mut identities = BTreeMap::<&str, BTreeSet<&str>>::new();
    for row in &found {
        if let (Some(table), Some(column)) = (row.get(0), row.get(1)) {
            identities.entry(table).or_default().insert(column);
        }
    }
    let mut findings = Vec::new();
    for table in &described.tables {
        let of_table = format!("{}.{}", table.schema, table.table);
        if let Some(identity) = identities.get(of_table.as_str()) {
            findings.extend(missing(name, &of_table, table, identity));
        }
    }
    Ok(findings)
}

fn missing(
    name: &str,
    of_table: &str,
    table: &FeedTable,
    identity: &BTreeSet<&str>,
) -> Vec<Finding> {
    let remedy = format!(
        "ALTER TABLE {of_table} REPLICA IDENTITY FULL, or REPLICA IDENTITY USING INDEX with a unique \
         index of these columns"
    );
    let finding = |columns: BTreeSet<&str>, effect: &str| {
        let columns: Vec<&str> = columns.difference(identity).copied().collect();
        let columns = columns.join(", ");
        let found = format!(
            "the replica identity of table {of_table} lacks {columns}, which the feed reads: {effect}"
        );
        (!columns.is_empty()).then(|| warning(name, found, remedy.clone()))
    };
    let delete = table.on.contains(&Change::Delete).then(|| {
        let effect = "deletes are set aside, and are no events";
        finding(read(table).collect(), effect)
    });
    let update = table.on.contains(&Change::Update).then(|| {
        let effect = "an update that leaves a long value unchanged is set aside, and is no event";
        finding(long(table).collect(), effect)
    });
    [delete, update].into_iter().flatten().flatten().collect()
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

/// Those of them whose values may be long.
fn long(table: &FeedTable) -> impl Iterator<Item = &str> {
    let long = [&table.payload, &table.headers].into_iter().flatten();
    long.map(String::as_str)
}
