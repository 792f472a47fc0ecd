//! The far table: which field of an event goes into which column, and as what.
//!
//! The types of the columns are read from the database, so that an id may be
//! a `uuid` there or a `text`, and a payload `jsonb`, `json`, `text` or
//! `bytea`. Values are cast, never cut.

use std::collections::HashMap;

use super::answer::Failure;

/// What of an event goes into a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Field {
    /// The event's id.
    EventId,
    /// Its type.
    Type,
    /// Whose it is, or null.
    Tenant,
    /// The kind of what it is about, or null.
    AggregateType,
    /// Which one it is about, or null.
    AggregateId,
    /// Its place within its aggregate, or null.
    Sequence,
    /// What it says.
    Payload,
    /// Its headers as a JSON object.
    Headers,
    /// When it was written.
    CreatedAt,
}

impl Field {
    /// All fields, with the columns they go to by default.
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

    /// What the field is called among the rows that are offered.
    fn offered(self) -> &'static str {
        let found = Self::ALL.iter().find(|(field, _)| *field == self);
        found.map_or("", |(_, name)| name)
    }
}

/// A table and its columns, as they were configured.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<(Field, String)>,
}

/// The statement that writes a batch into the table as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) insert: String,
    /// Whether payloads go as bytes, and not as text.
    pub(super) binary: bool,
}

impl Table {
    /// Its name as SQL.
    pub(super) fn quoted(&self) -> String {
        let parts = self.name.split('.').map(quoted);
        parts.collect::<Vec<_>>().join(".")
    }

    /// Plans the statement for columns of these types.
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
        // No name has a brace, and the types, which the far side names, come last: nothing that is
        // filled in is filled in once more.
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
