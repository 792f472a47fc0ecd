//! Columns and constants as SQL spells them, and which of them each step of the statement needs.

use super::{
    described::Column,
    statement::{Writer, quoted, unpublished},
};

const JSON: &str = "application/json";

impl Writer<'_> {
    /// The condition for rows that may be moved: not published, not set aside, and not of an
    /// aggregate that is skipped. Rows that are marked as failed need no look at those set aside.
    pub(super) fn candidates(&self) -> String {
        let unpublished = unpublished(self.table, self.described, "source.");
        let aside = self.table.failed.is_none();
        let aside = aside.then(|| format!("{} NOT IN (SELECT row_key FROM aside)", self.row_key()));
        let passed = self.aggregate_columns().map(|(kind, id)| {
            format!("coalesce({kind} || E'\\n' || {id} <> ALL ($3::text[]), true)")
        });
        let conditions: Vec<_> = [unpublished, aside, passed].into_iter().flatten().collect();
        conditions.join(" AND ")
    }

    /// The row's key as one text that no other row has.
    pub(super) fn row_key(&self) -> String {
        let columns = self.table.key.iter();
        let columns: Vec<_> = columns
            .map(|name| format!("{}::text", source(name)))
            .collect();
        match &*columns {
            [column] => format!("({column} COLLATE \"C\")"),
            _ => format!(
                "(json_build_array({})::text COLLATE \"C\")",
                columns.join(", ")
            ),
        }
    }

    /// The columns that say which rows keep order, where any do.
    pub(super) fn aggregate(&self) -> Option<String> {
        let (kind, id) = self.aggregate_columns()?;
        Some(format!("{kind} AS aggregate_type, {id} AS aggregate_id"))
    }

    fn aggregate_columns(&self) -> Option<(String, String)> {
        let id = source(self.table.aggregate_id.as_deref()?);
        let kind = match (
            &self.table.aggregate_type,
            &self.table.aggregate_type_constant,
        ) {
            (Some(name), _) => format!("{}::text", source(name)),
            (None, constant) => literal(constant.as_deref()?),
        };
        Some((kind, format!("{id}::text")))
    }

    pub(super) fn order(&self, of: &str) -> String {
        let columns = self.table.order().iter();
        let columns: Vec<_> = columns
            .map(|name| format!("{of}{}", quoted(name)))
            .collect();
        columns.join(", ")
    }

    pub(super) fn numbered_order(&self, direction: &str) -> String {
        let columns = (1..=self.table.order().len()).map(|it| format!("o{it} {direction}"));
        let columns: Vec<_> = columns.collect();
        columns.join(", ")
    }

    /// The columns that every step hands on, and some more.
    pub(super) fn all(&self, more: &[&str]) -> String {
        const ALWAYS: &[&str] = &[
            "row_key",
            "size",
            "event_id",
            "type",
            "tenant",
            "aggregate_type",
            "aggregate_id",
            "sequence",
            "available_at",
            "created_at",
        ];
        let keys = (1..=self.table.key.len()).map(|number| format!("k{number}"));
        let order = (1..=self.table.order().len()).map(|number| format!("o{number}"));
        let fixed = ALWAYS.iter().chain(more).map(|name| (*name).to_owned());
        let columns: Vec<_> = keys.chain(order).chain(fixed).collect();
        columns.join(", ")
    }

    pub(super) fn moment(&self, name: Option<&str>) -> String {
        let Some(name) = name else {
            return "NULL::timestamptz".to_owned();
        };
        let is_local = self.described.column(name);
        let is_local = is_local.is_some_and(|column| column.of_type == "timestamp");
        let zone = if is_local { " AT TIME ZONE 'UTC'" } else { "" };
        format!("{}{zone}", source(name))
    }

    pub(super) fn column(&self) -> Option<&Column> {
        self.described.column(&self.table.payload)
    }

    pub(super) fn holds_bytes(&self) -> bool {
        self.column().is_some_and(Column::is_bytes)
    }

    /// Whether the payload goes as JSON text, and not as bytes of another media type.
    pub(super) fn carries_json(&self) -> bool {
        match &self.table.content_type {
            Some(content_type) => content_type == JSON,
            None => !self.holds_bytes(),
        }
    }
}

/// A column of the table that is read.
pub(super) fn source(name: &str) -> String {
    format!("source.{}", quoted(name))
}

/// Columns under the names by which later steps know them.
pub(super) fn numbered(names: &[String], letter: &str) -> String {
    let columns = names.iter().zip(1..);
    let columns: Vec<_> = columns
        .map(|(name, number)| format!("{} AS {letter}{number}", source(name)))
        .collect();
    columns.join(", ")
}

/// A text as an SQL literal, regardless of the server's setting for backslashes.
pub(super) fn literal(text: &str) -> String {
    format!("{}::text", untyped(text))
}

/// A literal that takes the type of the column that it is compared with or assigned to.
pub(super) fn untyped(text: &str) -> String {
    let escape = if text.contains('\\') { "E" } else { "" };
    let text = text.replace('\\', "\\\\").replace('\'', "''");
    format!("{escape}'{text}'")
}
