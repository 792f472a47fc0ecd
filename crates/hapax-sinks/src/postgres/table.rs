//! The receiver's table: mapping of event fields to columns, and their types.
//!
//! The types of the columns are read from the database. So an id may be `uuid` or `text`, and a
//! payload `jsonb`, `json`, `text` or `bytea`. Values are cast and never truncated.

use std::collections::HashMap;

use super::{Field, PostgresSettings, outcome::Failure};
use crate::settings::SettingError;

impl Field {
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
    /// The table with the columns of all fields except those that it has no column for.
    pub(super) fn new(settings: &PostgresSettings) -> Result<Self, SettingError> {
        let name = settings.table.clone();
        let parts: Vec<_> = name.split('.').collect();
        if parts.len() > 2 || !parts.into_iter().all(is_name) {
            let problem = "must be a name or schema.name, without { or }";
            return Err(SettingError::new("table", problem));
        }
        let kept = Field::ALL
            .iter()
            .filter(|(field, _)| !settings.without.contains(field));
        let column = |(field, default): &(Field, &'static str)| match settings.columns.get(field) {
            Some(column) if !is_name(column) => {
                let setting = format!("columns.{default}");
                Err(SettingError::new(setting, "must be a name without { or }"))
            }
            Some(column) => Ok((*field, column.clone())),
            None => Ok((*field, (*default).to_owned())),
        };
        let columns: Vec<_> = kept.map(column).collect::<Result<_, _>>()?;
        if columns.is_empty() {
            return Err(SettingError::new("without", "leaves no field of the event"));
        }
        Ok(Self { name, columns })
    }

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

/// Whether this can be the name of a table or a column. Braces are placeholders of the statement.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['\0', '{', '}'])
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
