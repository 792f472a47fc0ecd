//! The store's statements on a connection of sqlx.
//!
//! A statement has the same text and the same parameters on either driver. A parameter is encoded
//! by the code that encodes it for tokio-postgres, in PostgreSQL's binary format, which sqlx sends
//! too.

use bytes::BytesMut;
use hapax::{idempotency::KeyRecord, store::StoreError};
use sqlx::{
    Decode, Encode, Postgres, Row as _, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo, PgValueRef, types::Oid},
    query::Query,
};
use tokio_postgres::types::{FromSql as _, IsNull as Null, Type as Column};

use crate::{
    error::corrupt,
    idempotency::{KeyColumns, key_columns},
    settings::Settings,
    value::{Moment, Param},
};

/// A statement of the store with its parameters. The connection keeps it prepared, unless there is a
/// pooler in transaction mode.
pub(super) fn bound(
    settings: &Settings,
    sql: &'static str,
    params: &[&dyn Param],
) -> Query<'static, Postgres, PgArguments> {
    let statement: Query<'static, Postgres, PgArguments> = sqlx::query(sql);
    let statement = statement.persistent(!settings.pooled);
    params
        .iter()
        .fold(statement, |statement, param| statement.bind(Bound(*param)))
}

/// Reads a row of the key table. Its response is not decrypted.
pub(super) fn record(row: &PgRow) -> Result<KeyRecord, StoreError> {
    let columns = columns(row).map_err(|error| corrupt(format!("idempotency key: {error}")))?;
    columns.record()
}

fn columns(row: &PgRow) -> Result<KeyColumns<'_>, sqlx::Error> {
    Ok(key_columns!(row))
}

/// A parameter, for sqlx.
struct Bound<'a>(&'a dyn Param);

impl Type<Postgres> for Bound<'_> {
    // Not used: `produces` returns the type of each value.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(Column::UNKNOWN.oid()))
    }
}

impl Encode<'_, Postgres> for Bound<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let mut raw = BytesMut::new();
        match self.0.to_sql_checked(&self.0.of_type(), &mut raw)? {
            Null::Yes => Ok(IsNull::Yes),
            Null::No => {
                buffer.extend_from_slice(&raw);
                Ok(IsNull::No)
            }
        }
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.0.of_type().oid())))
    }
}

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(Column::TIMESTAMPTZ.oid()))
    }
}

impl<'r> Decode<'r, Postgres> for Moment {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Self::from_sql(&Column::TIMESTAMPTZ, value.as_bytes()?)
    }
}
