//! A result row, whose columns are read by name.

use std::sync::Arc;

use hapax::store::StoreError;

use super::Value;

/// One row of a query result.
#[derive(Debug)]
pub(crate) struct Row {
    /// The names of the columns, which all rows of a result share.
    pub(super) columns: Arc<[String]>,
    pub(super) values: Vec<Value>,
}

impl Row {
    /// Returns the integer in this column.
    pub(crate) fn integer(&self, column: &str) -> Result<i64, StoreError> {
        match self.value(column) {
            Some(Value::Integer(number)) => Ok(*number),
            _ => Err(unreadable(column, "an integer")),
        }
    }

    /// Takes the text from this column.
    pub(crate) fn text(&mut self, column: &str) -> Result<String, StoreError> {
        self.maybe_text(column)?
            .ok_or_else(|| unreadable(column, "text"))
    }

    /// Takes the bytes from this column.
    pub(crate) fn bytes(&mut self, column: &str) -> Result<Vec<u8>, StoreError> {
        match self.value_mut(column) {
            Some(Value::Bytes(bytes)) => Ok(std::mem::take(bytes)),
            _ => Err(unreadable(column, "bytes")),
        }
    }

    /// Takes the text from this column; `None` if it is null.
    pub(crate) fn maybe_text(&mut self, column: &str) -> Result<Option<String>, StoreError> {
        let value = self.value_mut(column);
        match value.map(|value| std::mem::replace(value, Value::Null)) {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            _ => Err(unreadable(column, "text")),
        }
    }

    fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }

    fn value(&self, column: &str) -> Option<&Value> {
        self.values.get(self.place(column)?)
    }

    fn value_mut(&mut self, column: &str) -> Option<&mut Value> {
        let place = self.place(column)?;
        self.values.get_mut(place)
    }
}

fn unreadable(column: &str, expected: &str) -> StoreError {
    StoreError::Corrupt {
        what: format!("column {column} is not {expected}"),
    }
}
