//! Statements of single-shot requests: their text and the values that they own.
//!
//! Statements that take arrays are executed once for all requests of a group.

use std::borrow::Cow;

use tokio_postgres::types::{ToSql, Type};

use crate::value::Value;

/// One statement of a single-shot request.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub(crate) sql: Cow<'static, str>,
    pub(crate) params: Vec<Value>,
    /// Whether each parameter is an array.
    pub(crate) each: bool,
}

impl Statement {
    /// Creates the statement `sql` with the values of `$1`, `$2` and so on.
    pub fn new(sql: impl Into<Cow<'static, str>>, params: impl IntoIterator<Item = Value>) -> Self {
        Self {
            sql: sql.into(),
            params: params.into_iter().collect(),
            each: false,
        }
    }

    /// Creates a statement whose parameters are arrays with one element for each request.
    ///
    /// A group executes it once for all its members. It must therefore treat all elements alike and
    /// independently: `INSERT INTO orders SELECT * FROM unnest($1::text[], $2::int8[])`.
    pub fn each(
        sql: impl Into<Cow<'static, str>>,
        params: impl IntoIterator<Item = Value>,
    ) -> Self {
        Self {
            each: true,
            ..Self::new(sql, params)
        }
    }
}

/// A parameter as it is sent: one value, or an array with a value for each request.
#[derive(Debug)]
pub(crate) enum Argument<'a> {
    One(&'a Value),
    Each(Vec<&'a Value>),
}

/// A statement as it is sent, for one request or for several at once.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) sql: &'a str,
    pub(crate) arguments: Vec<Argument<'a>>,
}

impl Argument<'_> {
    pub(crate) fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::One(value) => *value,
            Self::Each(column) => column,
        }
    }

    /// The type that is sent with it if the statement is not prepared.
    pub(crate) fn of_type(&self) -> Type {
        match self {
            Self::One(value) => value.of_type().unwrap_or(Type::UNKNOWN),
            Self::Each(column) => {
                let first = column.iter().find_map(|value| value.of_type());
                match first {
                    Some(Type::BOOL) => Type::BOOL_ARRAY,
                    Some(Type::INT8) => Type::INT8_ARRAY,
                    Some(Type::FLOAT8) => Type::FLOAT8_ARRAY,
                    Some(Type::BYTEA) => Type::BYTEA_ARRAY,
                    _ => Type::TEXT_ARRAY,
                }
            }
        }
    }
}

/// The calls that execute the statements of all these requests.
///
/// A statement that takes arrays is executed once per text, at the position of the first statement
/// with this text. If an earlier statement of the same request comes after this position, it is
/// executed again, so that the order within each request is kept.
pub(crate) fn calls<'a>(requests: impl Iterator<Item = &'a [Statement]>) -> Vec<Call<'a>> {
    let mut calls: Vec<Call<'a>> = Vec::new();
    for statements in requests {
        let mut earliest = 0;
        for statement in statements {
            earliest = if let Some(place) = place(&calls, statement, earliest) {
                calls[place].add(statement);
                place
            } else {
                calls.push(Call::of(statement));
                calls.len() - 1
            };
        }
    }
    calls
}

fn place(calls: &[Call<'_>], statement: &Statement, earliest: usize) -> Option<usize> {
    if !statement.each {
        return None;
    }
    (earliest..calls.len()).find(|place| calls[*place].fits(statement))
}

impl<'a> Call<'a> {
    fn of(statement: &'a Statement) -> Self {
        let argument = |value| {
            if statement.each {
                Argument::Each(vec![value])
            } else {
                Argument::One(value)
            }
        };
        Self {
            sql: &statement.sql,
            arguments: statement.params.iter().map(argument).collect(),
        }
    }

    fn fits(&self, statement: &Statement) -> bool {
        self.sql == statement.sql
            && self.arguments.len() == statement.params.len()
            && !matches!(self.arguments.first(), Some(Argument::One(_)))
    }

    fn add(&mut self, statement: &'a Statement) {
        for (argument, value) in self.arguments.iter_mut().zip(&statement.params) {
            if let Argument::Each(column) = argument {
                column.push(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_take_arrays_are_run_once_for_all_members() {
        check(
            &[&["each a", "b"], &["each a", "b"]],
            &[("each a", 2), ("b", 1), ("b", 1)],
        );
        check(&[&["b", "b"], &["b"]], &[("b", 1), ("b", 1), ("b", 1)]);
        check(
            &[&["each a", "each c"], &["each a", "each c"]],
            &[("each a", 2), ("each c", 2)],
        );
    }

    #[test]
    fn no_statement_is_run_before_one_that_its_request_has_put_first() {
        check(
            &[&["each a", "b"], &["b", "each a"]],
            &[("each a", 1), ("b", 1), ("b", 1), ("each a", 1)],
        );
        check(
            &[&["each a", "each c"], &["each c", "each a"]],
            &[("each a", 1), ("each c", 2), ("each a", 1)],
        );
    }

    #[track_caller]
    fn check(requests: &[&[&'static str]], expected: &[(&str, usize)]) {
        let statement = |sql: &&'static str| {
            let one = [Value::from(1_i64)];
            if sql.starts_with("each") {
                Statement::each(*sql, one)
            } else {
                Statement::new(*sql, one)
            }
        };
        let requests: Vec<Vec<_>> = requests
            .iter()
            .map(|sqls| sqls.iter().map(statement).collect())
            .collect();
        let calls = calls(requests.iter().map(Vec::as_slice));
        let found: Vec<_> = calls
            .iter()
            .map(|call| match &call.arguments[0] {
                Argument::One(_) => (call.sql, 1),
                Argument::Each(column) => (call.sql, column.len()),
            })
            .collect();
        assert_eq!(found, expected);
    }
}
