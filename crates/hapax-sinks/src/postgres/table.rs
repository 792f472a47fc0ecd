//! The receiver's table: mapping of event fields to columns, and their types.
//!
//! The types of the columns are read from the database. So an id may be `uuid` or `text`, and a
//! payload `jsonb`, `json`, `text` or `bytea`. Values are cast and never truncated.

use std::collections::HashMap;

use super::answer::Failure;

/// A field of an event that is stored in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Field {
    /// The event id.
    EventId,
    /// The event type.
    Type,
    /// The tenant, or null.
    Tenant,
    /// The aggregate type, or null.
    AggregateType,
    /// The aggregate id, or null.
    AggregateId,
    /// The sequence number within the aggregate, or null.
    Sequence,
    /// The payload.
    Payload,
    /// The headers as a JSON object.
    Headers,
    /// When the event was created.
    CreatedAt,
}

impl Field {
    /// All fields with their default columns.
    pub(super) const ALL: [(Self, &'static str); 9] = [
        (Self::EventId, "event_id"),
        (Self::Type, "type"),
        (Self::Tenant, "tenant"),
        (Self::AggregateType, "aggregate_type"),
        (Self::AggregateId, "aggregate_id"),
        (Self::Sequence, "sequence"),
        (Self::Payload, "payload"),
        (Self::Headers, "headers"),
        (Self::CreatedAt, "created_at"),
    ];

    /// The name of the field in the statement's input rows.
    fn offered(self) -> &'static str {
        let found = Self::ALL.iter().find(|(field, _)| *field == self);
        found.map_or("", |(_, name)| name)
    }
}

/// The configured table and its columns.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<(Field, String)>,
}

/// The statement for the table's current columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) insert: String,
    /// Whether payloads are sent as bytes instead of text.
    pub(super) binary: bool,
}

impl Table {
    /// The quoted name.
    pub(super) fn quoted(&self) -> String {
        let parts = self.name.split('.').map(quoted);
        parts.collect::<Vec<_>>().join(".")
    }

    /// Builds the statement for columns of these types.
    pub(super) fn plan(&self, types: &HashMap<String, String>) -> Result<Plan, Failure> {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        let mut binary = false;
        for (field, column) in &self.columns {
            let Some(kind) = types.get(column) else {
                return Err(Failure::NoColumn {
                    table: self.name.clone(),
                    column: column.clone(),
                });
            };
            binary |= *field == Field::Payload && kind == "bytea";
            columns.push(quoted(column));
            values.push(format!("{}::{kind}", field.offered()));
        }
        let payloads = if binary { "bytea" } else { "text" };
        // No name contains a brace, and the types, which come from the receiver's database, are
        // inserted last. So nothing that was inserted is replaced again.
        let insert = include_str!("insert.sql")
            .replace("{payloads}", payloads)
            .replace("{table}", &self.quoted())
            .replace("{columns}", &columns.join(", "))
            .replace("{values}", &values.join(", "));
        Ok(Plan { insert, binary })
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_casts_to_the_types_of_the_columns() {
        let table = table(&[(Field::EventId, "id"), (Field::Payload, "bo\"dy")]);
        let plan = table
            .plan(&types(&[("id", "uuid"), ("bo\"dy", "bytea")]))
            .unwrap();
        assert!(plan.binary);
        for part in [
            "INSERT INTO \"in\".\"box\" (\"id\", \"bo\"\"dy\")",
            "event_id::uuid, payload::bytea",
            "$10::bytea[]",
        ] {
            assert!(plan.insert.contains(part), "{part}: {}", plan.insert);
        }
    }

    #[test]
    fn a_column_that_is_not_there_is_named() {
        let table = table(&[(Field::EventId, "id")]);
        let failure = table.plan(&types(&[("other", "uuid")])).unwrap_err();
        assert_eq!(failure.to_string(), "table in.box has no column id");
    }

    fn table(columns: &[(Field, &str)]) -> Table {
        let columns = columns
            .iter()
            .map(|(field, name)| (*field, (*name).to_owned()));
        Table {
            name: "in.box".to_owned(),
            columns: columns.collect(),
        }
    }

    fn types(types: &[(&str, &str)]) -> HashMap<String, String> {
        let owned = types
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()));
        owned.collect()
    }
}
