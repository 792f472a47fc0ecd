//! Check of the names of tables: whether the publication sends the changes of each table under the
//! name that the feed describes.
//!
//! A publication sends the changes of partitions under the name of their root or under their own
//! names. A feed ignores the changes of tables that it does not describe, unless a table does not exist
//! that it describes: then it stops at the first of them, because that table may have been renamed.

use std::collections::{BTreeMap, BTreeSet};

use hapax_postgres::{Feed as Described, tokio_postgres::Client};

use super::{Finding, QueryError, error, literal, partitions, rows, warning};

/// A partition and a table above it, of which one is published under its own name.
struct Descent {
    root: String,
    part: String,
    /// Whether it is the partition.
    is_part: bool,
}

/// Finds the tables whose changes are not sent, or are sent under another name.
pub(super) async fn check(
    client: &Client,
    name: &str,
    described: &Described,
) -> Result<Vec<Finding>, QueryError> {
    let publication = &described.publication;
    // The role may lack the privilege to use the schemas.
    let find = format!(
        "SELECT format('%s.%s', schemaname, tablename) FROM pg_publication_tables WHERE pubname = {}",
        literal(publication)
    );
    let found = rows(client, &find).await?;
    let published: BTreeSet<&str> = found.iter().filter_map(|row| row.get(0)).collect();
    let descents = descents(client, publication).await?;
    let tables = described.tables.iter();
    let tables: BTreeSet<String> = tables
        .map(|it| format!("{}.{}", it.schema, it.table))
        .collect();
    // Of a table whose changes are ignored, none have to be sent.
    let read = described.tables.iter().filter(|it| !it.on.is_empty());
    let read: BTreeSet<String> = read
        .map(|it| format!("{}.{}", it.schema, it.table))
        .collect();
    let mut absent = read;
    absent.retain(|table| !published.contains(table.as_str()));
    let existing = existing(client, &absent).await?;
    let mut findings: Vec<Finding> = absent
        .iter()
        .map(|table| {
            let (found, remedy) = if existing.contains(table) {
                absence(table, publication, &descents)
            } else {
                nonexistence(table, publication)
            };
            error(name, found, remedy)
        })
        .collect();
    findings.extend(ignored(name, publication, &tables, &descents));
    Ok(findings)
}

async fn descents(client: &Client, publication: &str) -> Result<Vec<Descent>, QueryError> {
    let find = format!(
        "WITH RECURSIVE published AS (
             SELECT pg_class.oid
             FROM pg_publication_tables
             JOIN pg_namespace ON nspname = schemaname
             JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = tablename
             WHERE pubname = {}
         ), descent AS (
             SELECT inhparent AS root, inhrelid AS part
             FROM pg_inherits
             JOIN pg_class AS parent ON parent.oid = inhparent AND parent.relkind = 'p'
             UNION ALL
             SELECT descent.root, inhrelid
             FROM descent
             JOIN pg_inherits ON inhparent = descent.part
         )
         SELECT format('%s.%s', of_root.nspname, root.relname) AS root_name,
                format('%s.%s', of_part.nspname, part.relname) AS part_name,
                descent.part IN (TABLE published) AS is_published
         FROM descent
         JOIN pg_class AS root ON root.oid = descent.root
         JOIN pg_namespace AS of_root ON of_root.oid = root.relnamespace
         JOIN pg_class AS part ON part.oid = descent.part
         JOIN pg_namespace AS of_part ON of_part.oid = part.relnamespace
         WHERE descent.root IN (TABLE published) OR descent.part IN (TABLE published)
         ORDER BY 1, 2",
        literal(publication)
    );
    let found = rows(client, &find).await?;
    let text = |column: Option<&str>| column.unwrap_or_default().to_owned();
    let descents = found.iter().map(|row| Descent {
        root: text(row.get("root_name")),
        part: text(row.get("part_name")),
        is_part: row.get("is_published") == Some("t"),
    });
    Ok(descents.collect())
}

/// Returns the tables that exist.
async fn existing(
    client: &Client,
    tables: &BTreeSet<String>,
) -> Result<BTreeSet<String>, QueryError> {
    let names: Vec<String> = tables.iter().map(|table| literal(table)).collect();
    let find = format!(
        "SELECT named
         FROM unnest(ARRAY[{}]::text[]) AS named
         WHERE EXISTS (
             SELECT FROM pg_class
             JOIN pg_namespace ON pg_namespace.oid = relnamespace
             WHERE named = format('%s.%s', nspname, relname) AND relkind IN ('r', 'p'))",
        names.join(", ")
    );
    let found = rows(client, &find).await?;
    let names = found.iter().filter_map(|row| row.get(0));
    Ok(names.map(str::to_owned).collect())
}

/// Finding about a table that does not exist, and its remedy.
fn nonexistence(table: &str, publication: &str) -> (String, String) {
    let found = format!(
        "table {table} is not in publication {publication}, because it does not exist: the feed stops at \
         the first change of a table that it does not describe"
    );
    let remedy = format!(
        "if it was renamed, describe its new name as well; if it is created later, describe it then; \
         otherwise create it, and ALTER PUBLICATION {publication} ADD TABLE {table}"
    );
    (found, remedy)
}

/// Why no change has the name of a table, and what to do about it.
fn absence(table: &str, publication: &str, descents: &[Descent]) -> (String, String) {
    if descents.iter().any(|it| it.root == table && it.is_part) {
        let found = format!(
            "publication {publication} sends the changes of table {table} under the names of its \
             partitions"
        );
        let remedy = format!(
            "ALTER PUBLICATION {publication} SET (publish_via_partition_root = true), or describe each \
             partition in the feed"
        );
        return (found, remedy);
    }
    if let Some(Descent { root, .. }) = descents.iter().find(|it| it.part == table && !it.is_part) {
        let found = format!(
            "publication {publication} sends the changes of table {table} under the name of {root}"
        );
        let remedy = format!(
            "describe {root} in the feed, or ALTER PUBLICATION {publication} SET \
             (publish_via_partition_root = false)"
        );
        return (found, remedy);
    }
    let found = format!("table {table} is not in publication {publication}");
    let remedy = format!(
        "ALTER PUBLICATION {publication} ADD TABLE {table}; if it is partitioned, ALTER PUBLICATION \
         {publication} SET (publish_via_partition_root)"
    );
    (found, remedy)
}

/// Partitions that the feed ignores although it describes others of the same table.
fn ignored(
    name: &str,
    publication: &str,
    tables: &BTreeSet<String>,
    descents: &[Descent],
) -> Vec<Finding> {
    let mut of_root = BTreeMap::<&str, (bool, Vec<&str>)>::new();
    for it in descents.iter().filter(|it| it.is_part) {
        let (is_described, others) = of_root.entry(&it.root).or_default();
        if tables.contains(&it.part) {
            *is_described = true;
        } else {
            others.push(&it.part);
        }
    }
    // If the feed describes the root, that is another finding.
    of_root.retain(|root, (is_described, others)| {
        *is_described && !others.is_empty() && !tables.contains(*root)
    });
    let finding = |(root, (_, others)): (&str, (bool, Vec<&str>))| {
        let found = format!(
            "the feed describes partitions of table {root}, and ignores the changes of {}",
            partitions(&others)
        );
        let remedy = format!(
            "describe each partition, or describe {root} and ALTER PUBLICATION {publication} SET \
             (publish_via_partition_root = true)"
        );
        warning(name, found, remedy)
    };
    of_root.into_iter().map(finding).collect()
}
