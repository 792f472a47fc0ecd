//! A result row, whose columns are read by position.

use hapax::store::StoreError;

use super::Value;

/// One row of a query result.
#[derive(Debug)]
pub(crate) struct Row(pub(super) Vec<Value>);

impl Row {
    /// Returns the integer in this column.
    pub(crate) fn integer(&self, column: usize) -> Result<i64, StoreError> {
        match self.0.get(column) {
            Some(Value::Integer(number)) => Ok(*number),
            _ => Err(unreadable(column, "an integer")),
        }
    }

    /// Takes the text from this column.
    pub(crate) fn text(&mut self, column: usize) -> Result<String, StoreError> {
        self.maybe_text(column)?
            .ok_or_else(|| unreadable(column, "text"))
    }

    /// Takes the bytes from this column.
    pub(crate) fn bytes(&mut self, column: usize) -> Result<Vec<u8>, StoreError> {
        match self.0.get_mut(column) {
            Some(Value::Bytes(bytes)) => Ok(std::mem::take(bytes)),
            _ => Err(unreadable(column, "bytes")),
        }
    }

    /// Takes the text from this column; `None` if it is null.
    pub(crate) fn maybe_text(&mut self, column: usize) -> Result<Option<String>, StoreError> {
        match self
            .0
            .get_mut(column)
            .map(|value| std::mem::replace(value, Value::Null))
        {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            _ => Err(unreadable(column, "text")),
        }
    }
}

fn unreadable(column: usize, expected: &str) -> StoreError {
    StoreError::Corrupt {
        what: format!("column {column} is not {expected}"),
    }
}
