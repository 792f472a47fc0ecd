//! Names of tables: whether a change that the feed would ignore is of a table that it describes.
//!
//! A description names a table. Its changes get another name if the table is renamed, or if the
//! publication sends the changes of partitions under other names from now on. Such changes are not
//! ignored, as those of other tables are: the feed stops until its description fits, and then reads
//! them. The stream recognizes the tables that it has seen under both names. Of all others the catalog
//! is asked, once for each table on a connection; it may be newer than the log.

use hapax::sink::BoxError;
use tokio::time::timeout;

use super::{
    FeedError, FeedTable, Feeder,
    pgoutput::Relation,
    slot::literal,
    stream::late,
    wire::{Mode, Wire},
};

impl Feeder {
    /// The described tables that tables of the source, by their object ids, may be: those that are their
    /// roots, those that they are called now, and those that have no table now.
    pub(super) async fn meant(
        &self,
        catalog: &mut Option<Wire>,
        ids: &[u32],
    ) -> Result<Vec<&FeedTable>, FeedError> {
        let tables = self.feed.tables.iter().filter(|it| !it.on.is_empty());
        let tables: Vec<&FeedTable> = tables.collect();
        if tables.is_empty() {
            return Ok(tables);
        }
        let wire = match catalog {
            Some(wire) => wire,
            None => catalog.insert(self.connect(Mode::Queries).await?),
        };
        let asked = async {
            let mut names = wire.query(&above(ids)).await?;
            names.extend(wire.query(&absent(&tables)).await?);
            Ok::<_, BoxError>(names)
        };
        let names = timeout(self.source.connect_max, asked).await;
        let names = names.map_err(late)??;
        let is_named = |table: &&FeedTable| names.iter().any(|row| is_name_of(row, table));
        Ok(tables.into_iter().filter(is_named).collect())
    }
}

/// Why a change is neither an event nor ignored.
pub(super) fn unfit(relation: &Relation, described: &FeedTable) -> String {
    let name = format!("{}.{}", relation.schema, relation.table);
    let table = format!("{}.{}", described.schema, described.table);
    format!(
        "a change of {name} may be one of table {table}, which the feed describes: the table was renamed \
         or dropped, it was not created yet, or publish_via_partition_root was changed. Describe {name} as \
         well, with on = [] if its changes are no events; if {table} is gone, and its changes were read, \
         remove its description"
    )
}

/// The names of tables and of the partitioned tables above them.
fn above(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!(
        "WITH RECURSIVE above AS (
             SELECT oid FROM pg_class WHERE oid IN ({})
             UNION
             SELECT inhparent
             FROM above
             JOIN pg_inherits ON inhrelid = above.oid
             JOIN pg_class AS parent ON parent.oid = inhparent AND parent.relkind = 'p'
         )
         SELECT nspname, relname
         FROM above
         JOIN pg_class ON pg_class.oid = above.oid
         JOIN pg_namespace ON pg_namespace.oid = relnamespace",
        ids.join(", ")
    )
}

/// Those of the described tables that do not exist. A view may have taken the name of a table.
fn absent(tables: &[&FeedTable]) -> String {
    let names = tables
        .iter()
        .map(|it| format!("({}, {})", literal(&it.schema), literal(&it.table)));
    let names: Vec<String> = names.collect();
    format!(
        "SELECT named.schema, named.name
         FROM (VALUES {}) AS named (schema, name)
         WHERE NOT EXISTS (
             SELECT FROM pg_class
             JOIN pg_namespace ON pg_namespace.oid = relnamespace
             WHERE nspname = named.schema AND relname = named.name AND relkind IN ('r', 'p'))",
        names.join(", ")
    )
}

/// Whether a row has the schema and the name of a table.
fn is_name_of(row: &[Option<String>], table: &FeedTable) -> bool {
    let column = |number: usize| row.get(number).and_then(Option::as_deref);
    column(0) == Some(table.schema.as_str()) && column(1) == Some(table.table.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_compared_as_a_whole() {
        let table = FeedTable {
            schema: "it's".to_owned(),
            table: "outbox".to_owned(),
            ..FeedTable::default()
        };
        assert!(
            absent(&[&table, &table]).contains("(VALUES ('it''s', 'outbox'), ('it''s', 'outbox'))")
        );
        let row = |schema: &str, name: &str| vec![Some(schema.to_owned()), Some(name.to_owned())];
        assert!(is_name_of(&row("it's", "outbox"), &table));
        assert!(!is_name_of(&row("public", "outbox"), &table));
        assert!(!is_name_of(&row("it's", "outbox2"), &table));
        assert!(!is_name_of(&[None, None], &table));
    }
}
