//! Mapping of changes and messages to the columns of events.
//!
//! A change that cannot be an event becomes a row with a problem: it is set aside with as much of its
//! content as is known, and the feed goes on. What the database can check (types, sizes of names,
//! JSON) is checked there, by the same functions as for table sources.

use std::{collections::BTreeMap, fmt::Write as _};

use bytes::Bytes;
use hapax::limits::PAYLOAD_BYTES_MAX;
use serde_json::value::RawValue;

use super::{
    Change, FeedTable,
    pgoutput::{Datum, Old, Relation},
    tables::Leaves,
};

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
/// Bytes of a change that are kept if it cannot be an event.
const REPORTED_BYTES: usize = 64 * 1024;
/// The object id of `bytea`.
const BYTEA: u32 = 17;

/// An event before it is checked by the database, or a change that cannot be one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// The position in the log, and what was changed.
    pub(super) key: String,
    pub(super) problem: Option<String>,
    pub(super) event_id: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) aggregate_type: Option<String>,
    pub(super) aggregate_id: Option<String>,
    pub(super) sequence: Option<i64>,
    pub(super) payload: Option<Vec<u8>>,
    /// The media type; none for JSON.
    pub(super) content_type: Option<String>,
    pub(super) headers: Option<String>,
    pub(super) available_at: Option<String>,
    pub(super) created_at: Option<String>,
}

impl Row {
    /// The size of its values.
    pub(super) fn bytes(&self) -> usize {
        let texts = [
            &self.problem,
            &self.event_id,
            &self.kind,
            &self.tenant,
            &self.aggregate_type,
            &self.aggregate_id,
            &self.content_type,
            &self.headers,
            &self.available_at,
            &self.created_at,
        ];
        let texts = texts.into_iter().flatten().map(String::len);
        self.payload.as_ref().map_or(0, Vec::len) + texts.sum::<usize>()
    }

    /// A change that cannot be an event, with what is known of it.
    pub(super) fn refused(key: String, problem: impl Into<String>, known: &[u8]) -> Self {
        let known = known.get(..REPORTED_BYTES).unwrap_or(known);
        Self {
            key,
            problem: Some(problem.into()),
            payload: Some(known.to_vec()),
            ..Self::default()
        }
    }
}

/// A changed row: its table, its values, and the values before, as far as they are known.
pub(super) struct Changed<'a> {
    relation: &'a Relation,
    leaves: &'a Leaves,
    change: Change,
    row: &'a [Datum],
    old: Option<&'a Old>,
    /// Whether a null in the old row means that the value was not sent. No column of a key is null.
    has_gaps: bool,
}

impl<'a> Changed<'a> {
    pub(super) fn new(
        relation: &'a Relation,
        leaves: &'a Leaves,
        change: Change,
        row: &'a [Datum],
        old: Option<&'a Old>,
    ) -> Self {
        Self {
            relation,
            leaves,
            change,
            row,
            old,
            has_gaps: old.is_some_and(|old| old.is_key || leaves.may_be_key(&old.row)),
        }
    }

    /// The event of the change; none if the description does not select it.
    pub(super) fn event(&self, table: &FeedTable, key: String) -> Option<Row> {
        if !table.on.contains(&self.change) {
            return None;
        }
        let event = match self.is_selected(table) {
            Ok(false) => return None,
            Ok(true) => self.mapped(table),
            Err(problem) => Err(problem),
        };
        Some(match event {
            Ok(row) => Row { key, ..row },
            Err(problem) => {
                let known = self.object(&[]).unwrap_or_default();
                Row::refused(key, problem, known.as_bytes())
            }
        })
    }

    fn is_selected(&self, table: &FeedTable) -> Result<bool, String> {
        for (column, values) in &table.when {
            let value = self.text(column)?;
            if !value.is_some_and(|value| values.contains(&value)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn mapped(&self, table: &FeedTable) -> Result<Row, String> {
        let text = |column: &Option<String>| match column {
            Some(column) => self.text(column),
            None => Ok(None),
        };
        let aggregate_id = text(&table.aggregate_id)?;
        let aggregate_type = match &table.aggregate_type_constant {
            // A constant type is used only if there is an id.
            Some(constant) => aggregate_id.as_ref().map(|_| constant.clone()),
            None => text(&table.aggregate_type)?,
        };
        let kind = match &table.kind_constant {
            Some(kind) => Some(kind.replace("{operation}", self.change.as_str())),
            None => text(&table.kind)?,
        };
        let tenant = match &table.tenant_constant {
            Some(tenant) => Some(tenant.clone()),
            None => text(&table.tenant)?,
        };
        let sequence = text(&table.sequence)?;
        let sequence = sequence.map(|it| {
            it.parse::<i64>()
                .map_err(|_| "the sequence is not an integer")
        });
        let (payload, content_type) = self.payload(table)?;
        if let Some(payload) = &payload
            && payload.len() > PAYLOAD_BYTES_MAX
        {
            let size = payload.len();
            return Err(format!(
                "the payload is {size} bytes long, at most {PAYLOAD_BYTES_MAX} are carried"
            ));
        }
        Ok(Row {
            event_id: text(&table.event_id)?,
            kind,
            tenant,
            aggregate_type,
            aggregate_id,
            sequence: sequence.transpose()?,
            payload,
            content_type,
            headers: text(&table.headers)?,
            available_at: text(&table.available_at)?,
            created_at: text(&table.created_at)?,
            ..Row::default()
        })
    }

    /// The payload and its media type.
    fn payload(&self, table: &FeedTable) -> Result<(Option<Vec<u8>>, Option<String>), String> {
        let Some(column) = &table.payload else {
            let object = self.object(&table.columns)?;
            return Ok((Some(object.into_bytes()), None));
        };
        let is_bytes = self.relation.columns[self.index(column)?].of_type == BYTEA;
        let payload = match self.value(column)? {
            Some(value) if is_bytes => {
                Some(unhex(value).ok_or("the payload is not written as hexadecimal digits")?)
            }
            value => value.map(|value| value.to_vec()),
        };
        let content_type = match &table.content_type {
            Some(content_type) => Some(content_type.clone()).filter(|it| it != JSON),
            None => is_bytes.then(|| BYTES.to_owned()),
        };
        Ok((payload, content_type))
    }

    /// The columns as a JSON object. Values that are not sent are left out.
    fn object(&self, columns: &[String]) -> Result<String, String> {
        if let Some(missing) = columns.iter().find(|name| self.index(name).is_err()) {
            return Err(self.lacks(missing));
        }
        let mut object = String::from("{");
        for (index, column) in self.relation.columns.iter().enumerate() {
            if !columns.is_empty() && !columns.contains(&column.name) {
                continue;
            }
            let Some(datum) = self.datum(index) else {
                continue;
            };
            let comma = if object.len() > 1 { "," } else { "" };
            let _infallible = write!(object, "{comma}{}:", quoted(&column.name));
            match datum {
                Datum::Text(text) => {
                    let text = str::from_utf8(text)
                        .map_err(|_| format!("column {} is not UTF-8", column.name))?;
                    object.push_str(&json(column.of_type, text));
                }
                Datum::Null | Datum::Unchanged => object.push_str("null"),
            }
        }
        object.push('}');
        Ok(object)
    }

    fn text(&self, column: &str) -> Result<Option<String>, String> {
        let value = self.value(column)?.map(|value| value.to_vec());
        let text = value.map(String::from_utf8).transpose();
        text.map_err(|_| format!("column {column} is not UTF-8"))
    }

    fn value(&self, column: &str) -> Result<Option<&Bytes>, String> {
        match self.datum(self.index(column)?) {
            Some(Datum::Text(text)) => Ok(Some(text)),
            Some(_) => Ok(None),
            None => Err(self.unsent(column)),
        }
    }

    fn unsent(&self, column: &str) -> String {
        let Relation { schema, table, .. } = self.relation;
        let only = self.old.and_then(|old| self.leaves.only(&old.row));
        let whose = match only {
            _ if self.leaves.is_empty() => "the table".to_owned(),
            Some(leaf) => format!("table {schema}.{table} and of its partition {leaf}"),
            None => format!("table {schema}.{table} and of each partition"),
        };
        format!(
            "column {column} is not sent with this change: REPLICA IDENTITY FULL of {whose} includes it"
        )
    }

    /// The value of a column; none if the server has not sent it.
    fn datum(&self, index: usize) -> Option<&Datum> {
        let is_key = self.relation.columns.get(index)?.is_key;
        let old = self.old.filter(|old| !old.is_key || is_key);
        let old = old.and_then(|old| old.row.get(index));
        let old = old.filter(|datum| !self.has_gaps || **datum != Datum::Null);
        let datum = match self.change {
            Change::Insert => self.row.get(index),
            Change::Update => match self.row.get(index)? {
                Datum::Unchanged => old,
                datum => Some(datum),
            },
            Change::Delete => old,
        };
        datum.filter(|datum| **datum != Datum::Unchanged)
    }

    fn index(&self, column: &str) -> Result<usize, String> {
        let mut columns = self.relation.columns.iter();
        let index = columns.position(|it| it.name == column);
        index.ok_or_else(|| self.lacks(column))
    }

    fn lacks(&self, column: &str) -> String {
        let Relation { schema, table, .. } = self.relation;
        format!("table {schema}.{table} sends no column {column}")
    }
}

/// The event of a message: a JSON object with the parameters of `hapax.emit`.
pub(super) fn message(content: &[u8], key: String) -> Row {
    match envelope(content) {
        Ok(row) => Row { key, ..row },
        Err(problem) => Row::refused(key, problem, content),
    }
}

fn envelope(content: &[u8]) -> Result<Row, String> {
    let members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(content).map_err(|_| "the message is not a JSON object")?;
    let mut row = Row::default();
    for (name, value) in &members {
        let json = value.get();
        let text = || match serde_json::from_str::<Option<String>>(json) {
            Ok(text) if !text.as_ref().is_some_and(|it| it.contains('\0')) => Ok(text),
            _ => Err(format!("member {name} is not a text without zero bytes")),
        };
        match name.as_str() {
            "type" => row.kind = text()?,
            "event_id" => row.event_id = text()?,
            "tenant" => row.tenant = text()?,
            "aggregate_type" => row.aggregate_type = text()?,
            "aggregate_id" => row.aggregate_id = text()?,
            "available_at" => row.available_at = text()?,
            "sequence" => {
                let sequence = serde_json::from_str(json);
                row.sequence = sequence.map_err(|_| "the sequence is not an integer")?;
            }
            "headers" => row.headers = Some(json.to_owned()).filter(|it| it != "null"),
            "payload" if json.len() > PAYLOAD_BYTES_MAX => {
                let size = json.len();
                return Err(format!(
                    "the payload is {size} bytes long, at most {PAYLOAD_BYTES_MAX} are carried"
                ));
            }
            "payload" => row.payload = Some(json.as_bytes().to_vec()),
            other => {
                let other: String = other.chars().take(50).collect();
                return Err(format!("the message has an unknown member {other:?}"));
            }
        }
    }
    Ok(row)
}

/// A value of a type as JSON: numbers, booleans and JSON as they are, everything else as a string.
fn json(of_type: u32, text: &str) -> String {
    match of_type {
        16 => (if text == "t" { "true" } else { "false" }).to_owned(),
        // smallint, integer, bigint, oid, json and jsonb
        20 | 21 | 23 | 26 | 114 | 3802 => text.to_owned(),
        // real, double precision and numeric, which also have values that are not numbers
        700 | 701 | 1700 if text.ends_with(|last: char| last.is_ascii_digit()) => text.to_owned(),
        _ => quoted(text),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The bytes of a `bytea` as the server writes them.
fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.strip_prefix(b"\\x")?.chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from((digit(*high)? << 4) + digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::pgoutput::Column;

    const LONG: &str = "long";

    fn relation() -> Relation {
        let column = |name: &str, is_key, of_type| Column {
            name: name.to_owned(),
            is_key,
            of_type,
        };
        Relation {
            id: 1,
            schema: "public".to_owned(),
            table: "orders".to_owned(),
            columns: vec![
                column("id", true, 20),
                column("paid", false, 16),
                column("total", false, 1700),
                column("note", false, 25),
                column(LONG, false, 25),
                column("raw", false, 17),
            ],
        }
    }

    fn row(texts: [Option<&'static str>; 6]) -> Vec<Datum> {
        let datum = |text: Option<&'static str>| match text {
            None => Datum::Null,
            Some("unchanged") => Datum::Unchanged,
            Some(text) => Datum::Text(Bytes::from_static(text.as_bytes())),
        };
        texts.map(datum).to_vec()
    }

    fn table() -> FeedTable {
        FeedTable {
            on: vec![Change::Insert, Change::Update, Change::Delete],
            kind_constant: Some("order.{operation}".to_owned()),
            aggregate_type_constant: Some("order".to_owned()),
            aggregate_id: Some("id".to_owned()),
            ..FeedTable::default()
        }
    }

    fn mapped(table: &FeedTable, change: Change, row: &[Datum], old: Option<&Old>) -> Option<Row> {
        let (relation, leaves) = (relation(), Leaves::default());
        let changed = Changed::new(&relation, &leaves, change, row, old);
        changed.event(table, "0/1".to_owned())
    }

    #[track_caller]
    fn check(row: Option<Row>, kind: &str, payload: &str) {
        let row = row.expect("the change is selected");
        assert_eq!(row.problem, None);
        assert_eq!(row.kind.as_deref(), Some(kind));
        assert_eq!(row.aggregate_type.as_deref(), Some("order"));
        assert_eq!(row.aggregate_id.as_deref(), Some("4"));
        let found = String::from_utf8(row.payload.unwrap()).unwrap();
        assert_eq!(found, payload);
        serde_json::from_str::<serde_json::Value>(&found).expect("the payload is JSON");
    }

    #[test]
    fn a_new_row_is_an_object_of_its_columns() {
        let new = row([
            Some("4"),
            Some("t"),
            Some("1.50"),
            Some("a \"b\""),
            None,
            Some("\\x00"),
        ]);
        let payload =
            r#"{"id":4,"paid":true,"total":1.50,"note":"a \"b\"","long":null,"raw":"\\x00"}"#;
        check(
            mapped(&table(), Change::Insert, &new, None),
            "order.insert",
            payload,
        );
        let nan = row([Some("4"), Some("f"), Some("NaN"), None, None, None]);
        let mut some = table();
        some.columns = vec!["total".to_owned(), "paid".to_owned()];
        let payload = r#"{"paid":false,"total":"NaN"}"#;
        check(
            mapped(&some, Change::Insert, &nan, None),
            "order.insert",
            payload,
        );
    }

    #[test]
    fn a_long_value_that_was_not_changed_is_left_out_unless_the_old_row_has_it() {
        let new = row([Some("4"), None, None, None, Some("unchanged"), None]);
        let payload = r#"{"id":4,"paid":null,"total":null,"note":null,"raw":null}"#;
        check(
            mapped(&table(), Change::Update, &new, None),
            "order.update",
            payload,
        );
        let old = Old {
            is_key: false,
            row: row([Some("4"), None, None, None, Some("text"), None]),
        };
        let payload = r#"{"id":4,"paid":null,"total":null,"note":null,"long":"text","raw":null}"#;
        check(
            mapped(&table(), Change::Update, &new, Some(&old)),
            "order.update",
            payload,
        );
        let mut of_long = table();
        of_long.payload = Some(LONG.to_owned());
        let refused = mapped(&of_long, Change::Update, &new, None).unwrap();
        assert!(refused.problem.unwrap().contains("REPLICA IDENTITY FULL"));
        assert!(refused.payload.unwrap().starts_with(b"{\"id\":4"));
    }

    #[test]
    fn the_size_of_a_row_is_that_of_all_its_values() {
        let row = Row {
            kind: Some("1234".to_owned()),
            headers: Some("123456".to_owned()),
            payload: Some(vec![0; 10]),
            ..Row::default()
        };
        assert_eq!(row.bytes(), 20);
    }

    #[test]
    fn a_deleted_row_has_the_columns_of_its_identity() {
        let old = Old {
            is_key: true,
            row: row([Some("4"), None, None, None, None, None]),
        };
        check(
            mapped(&table(), Change::Delete, &[], Some(&old)),
            "order.delete",
            r#"{"id":4}"#,
        );
    }

    /// The identity of a partition may lack columns of that of its root.
    #[test]
    fn a_null_in_a_key_is_a_value_that_was_not_sent() {
        let old = Old {
            is_key: true,
            row: row([None, None, None, None, None, None]),
        };
        let refused = mapped(&table(), Change::Delete, &[], Some(&old)).unwrap();
        let problem = "column id is not sent with this change: REPLICA IDENTITY FULL of the table \
                       includes it";
        assert_eq!(refused.problem.as_deref(), Some(problem));
        let whole = Old {
            is_key: false,
            ..old
        };
        let event = mapped(&table(), Change::Delete, &[], Some(&whole)).unwrap();
        assert_eq!(event.problem, None);
    }

    #[test]
    fn rows_of_other_values_and_changes_of_other_kinds_are_no_events() {
        let mut paid = table();
        paid.on = vec![Change::Update];
        paid.when.insert("paid".to_owned(), vec!["t".to_owned()]);
        let is = |paid| row([Some("4"), paid, None, None, None, None]);
        assert!(mapped(&paid, Change::Update, &is(Some("t")), None).is_some());
        assert_eq!(mapped(&paid, Change::Update, &is(Some("f")), None), None);
        assert_eq!(mapped(&paid, Change::Update, &is(None), None), None);
        assert_eq!(mapped(&paid, Change::Insert, &is(Some("t")), None), None);
    }

    #[test]
    fn bytes_and_columns_that_are_missing() {
        let mut of_raw = table();
        of_raw.payload = Some("raw".to_owned());
        let new = row([Some("4"), None, None, None, None, Some("\\x00ff")]);
        let event = mapped(&of_raw, Change::Insert, &new, None).unwrap();
        assert_eq!(event.payload.as_deref(), Some(&[0, 255][..]));
        assert_eq!(event.content_type.as_deref(), Some(BYTES));
        of_raw.payload = Some("none".to_owned());
        let refused = mapped(&of_raw, Change::Insert, &new, None).unwrap();
        let problem = "table public.orders sends no column none";
        assert_eq!(refused.problem.as_deref(), Some(problem));
    }

    #[test]
    fn a_message_has_the_parameters_of_emit() {
        let content = r#"{"type":"a.b","payload":{"n":12345678901234567890},"aggregate_type":"o",
            "aggregate_id":"1","sequence":7,"headers":{"a":"b"},"tenant":null}"#;
        let event = message(content.as_bytes(), "0/1".to_owned());
        let expected = Row {
            key: "0/1".to_owned(),
            kind: Some("a.b".to_owned()),
            payload: Some(b"{\"n\":12345678901234567890}".to_vec()),
            aggregate_type: Some("o".to_owned()),
            aggregate_id: Some("1".to_owned()),
            sequence: Some(7),
            headers: Some("{\"a\":\"b\"}".to_owned()),
            ..Row::default()
        };
        assert_eq!(event, expected);
    }

    #[test]
    fn messages_that_cannot_be_events_say_why() {
        let samples: [(&[u8], &str); 6] = [
            (&b"[]"[..], "the message is not a JSON object"),
            (b"\xff\0", "the message is not a JSON object"),
            (b"{\"typ\":1}", "the message has an unknown member \"typ\""),
            (
                b"{\"type\":1}",
                "member type is not a text without zero bytes",
            ),
            (
                b"{\"type\":\"\\u0000\"}",
                "member type is not a text without zero bytes",
            ),
            (b"{\"sequence\":\"1\"}", "the sequence is not an integer"),
        ];
        for (content, problem) in samples {
            let refused = message(content, "0/1".to_owned());
            assert_eq!(refused.problem.as_deref(), Some(problem));
            assert_eq!(refused.payload.as_deref(), Some(content));
        }
    }
}
