//! Conversion of values to parameters of statements and from columns of rows.
//!
//! Every parameter knows its type: with a transaction-mode pooler no statement is prepared, and the
//! type has to be sent with the value. A single-shot statement owns its parameters as [`Value`]s,
//! so that the values of many requests can be combined into arrays.

use std::{error::Error, time::Duration};

use bytes::{BufMut, BytesMut};
use hapax::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, PgLsn, ToSql, Type, accepts, to_sql_checked};

/// A parameter that knows its type in the database.
pub(crate) trait Param: ToSql + Sync {
    /// The type in the database.
    fn of_type(&self) -> Type;
}

macro_rules! param {
    ($($rust:ty => $sql:ident),* $(,)?) => {$(
        impl Param for $rust {
            fn of_type(&self) -> Type {
                Type::$sql
            }
        }
    )*};
}
param! {
    bool => BOOL,
    i16 => INT2,
    i32 => INT4,
    i64 => INT8,
    f64 => FLOAT8,
    Option<i16> => INT2,
    Option<i64> => INT8,
    &str => TEXT,
    Option<&str> => TEXT,
    String => TEXT,
    Option<String> => TEXT,
    &[u8] => BYTEA,
    Option<&[u8]> => BYTEA,
    Option<&[i16]> => INT2_ARRAY,
    Moment => TIMESTAMPTZ,
    Option<Moment> => TIMESTAMPTZ,
    Vec<bool> => BOOL_ARRAY,
    Vec<i16> => INT2_ARRAY,
    Vec<Option<i16>> => INT2_ARRAY,
    Vec<i32> => INT4_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<Option<i64>> => INT8_ARRAY,
    &[i64] => INT8_ARRAY,
    &[String] => TEXT_ARRAY,
    Vec<String> => TEXT_ARRAY,
    Vec<Option<String>> => TEXT_ARRAY,
    Vec<&str> => TEXT_ARRAY,
    Vec<Option<&str>> => TEXT_ARRAY,
    Vec<&[u8]> => BYTEA_ARRAY,
    Vec<Option<&[u8]>> => BYTEA_ARRAY,
    PgLsn => PG_LSN,
    Option<PgLsn> => PG_LSN,
    Vec<Moment> => TIMESTAMPTZ_ARRAY,
    Vec<Option<Moment>> => TIMESTAMPTZ_ARRAY,
}

/// A [`Timestamp`] as a `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) Timestamp);

/// Milliseconds from the Unix epoch to PostgreSQL's epoch, 2000-01-01.
const EPOCH: i64 = 946_684_800_000;

impl ToSql for Moment {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let millis = self.0.as_millis().saturating_sub(EPOCH);
        out.put_i64(millis.saturating_mul(1000));
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let millis = match i64::from_be_bytes(raw.try_into()?) {
            // The infinities are kept as they are: converted like other values, they would be sent
            // back as times outside the range of `timestamptz`.
            end @ (i64::MIN | i64::MAX) => end,
            micros => micros.div_euclid(1000).saturating_add(EPOCH),
        };
        Ok(Self(Timestamp::from_millis(millis)))
    }

    accepts!(TIMESTAMPTZ);
}

/// A parameter of a single-shot statement.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// SQL's null, of the type that the statement expects.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A double-precision number.
    Real(f64),
    /// Text or JSON.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

macro_rules! from {
    ($($rust:ty => |$name:ident| $value:expr),* $(,)?) => {$(
        impl From<$rust> for Value {
            fn from($name: $rust) -> Self {
                $value
            }
        }
    )*};
}
from! {
    bool => |it| Self::Bool(it),
    i64 => |it| Self::Integer(it),
    i32 => |it| Self::Integer(it.into()),
    u32 => |it| Self::Integer(it.into()),
    u16 => |it| Self::Integer(it.into()),
    f64 => |it| Self::Real(it),
    String => |it| Self::Text(it),
    &str => |it| Self::Text(it.to_owned()),
    Vec<u8> => |it| Self::Blob(it),
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Value {
    /// The type of the value; `None` for null.
    pub(crate) fn of_type(&self) -> Option<Type> {
        match self {
            Self::Null => None,
            Self::Bool(_) => Some(Type::BOOL),
            Self::Integer(_) => Some(Type::INT8),
            Self::Real(_) => Some(Type::FLOAT8),
            Self::Text(_) => Some(Type::TEXT),
            Self::Blob(_) => Some(Type::BYTEA),
        }
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        of_type: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Bool(it) => it.to_sql_checked(of_type, out),
            Self::Integer(it) => match *of_type {
                Type::INT2 => i16::try_from(*it)?.to_sql(of_type, out),
                Type::INT4 => i32::try_from(*it)?.to_sql(of_type, out),
                _ => it.to_sql_checked(of_type, out),
            },
            Self::Real(it) => it.to_sql_checked(of_type, out),
            Self::Text(it) => match *of_type {
                Type::JSON => it.as_str().to_sql(&Type::TEXT, out),
                Type::JSONB => {
                    out.put_u8(1);
                    it.as_str().to_sql(&Type::TEXT, out)
                }
                _ => it.as_str().to_sql_checked(of_type, out),
            },
            Self::Blob(it) => it.as_slice().to_sql_checked(of_type, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // Whether a value fits a type is known only when both are given, in `to_sql`.
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(of_type: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *of_type {
            Type::BOOL => Self::Bool(FromSql::from_sql(of_type, raw)?),
            Type::INT2 => Self::Integer(i16::from_sql(of_type, raw)?.into()),
            Type::INT4 => Self::Integer(i32::from_sql(of_type, raw)?.into()),
            Type::INT8 => Self::Integer(i64::from_sql(of_type, raw)?),
            Type::FLOAT8 => Self::Real(f64::from_sql(of_type, raw)?),
            Type::BYTEA => Self::Blob(raw.to_vec()),
            Type::JSONB => Self::Text(String::from_utf8(raw[1..].to_vec())?),
            _ => Self::Text(String::from_utf8(raw.to_vec())?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(of_type: &Type) -> bool {
        matches!(
            *of_type,
            Type::BOOL
                | Type::INT2
                | Type::INT4
                | Type::INT8
                | Type::FLOAT8
                | Type::BYTEA
                | Type::TEXT
                | Type::VARCHAR
                | Type::BPCHAR
                | Type::NAME
                | Type::JSON
                | Type::JSONB
        )
    }
}

/// A bound as a parameter.
pub(crate) fn rows(bound: usize) -> i64 {
    i64::try_from(bound).unwrap_or(i64::MAX)
}

/// A duration as a parameter.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_goes_back_as_it_came_up_to_both_ends_of_time() {
        // The last two are the latest and the earliest time that a `timestamptz` can hold.
        let ends = [9_223_371_331_199_999_000, -211_813_488_000_000_000];
        for micros in [i64::MIN, i64::MAX, 0, -1_000].into_iter().chain(ends) {
            let raw = micros.to_be_bytes();
            let moment = Moment::from_sql(&Type::TIMESTAMPTZ, &raw).unwrap();
            let mut back = BytesMut::new();
            moment.to_sql(&Type::TIMESTAMPTZ, &mut back).unwrap();
            assert_eq!(back[..], raw);
        }
    }
}
