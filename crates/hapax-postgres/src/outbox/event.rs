//! Reading events from their rows.
//!
//! Payloads are decrypted here. An event that cannot be read is an error that names its position.

use std::{error::Error, str, sync::Arc};

use hapax::{
    event::{Aggregate, Event, EventId, Headers, Payload},
    key::Tenant,
    keyring::Keyring,
    outbox::{OutboxEvent, decode_columns, decode_columns_to_show},
    store::StoreError,
};
use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};

use crate::{error::corrupt, value::Moment};

/// Reads an event from the columns of a row that are named like those of the outbox.
pub(crate) fn event(row: &Row, keyring: &Keyring) -> Result<Arc<OutboxEvent>, StoreError> {
    read(row, |id, headers, payload| {
        decode_columns(id, headers, payload, keyring)
    })
}

/// Reads an event like [`event`], to display it. A payload that cannot be decrypted here is
/// returned as it is stored; the headers name the key that encrypted it.
pub(crate) fn shown(row: &Row, keyring: &Keyring) -> Result<Arc<OutboxEvent>, StoreError> {
    read(row, |id, headers, payload| {
        decode_columns_to_show(id, headers, payload, keyring)
    })
}

fn read(
    row: &Row,
    texts: impl FnOnce(EventId, &str, String) -> Result<(Headers, Payload), String>,
) -> Result<Arc<OutboxEvent>, StoreError> {
    let position: i64 = row
        .try_get("id")
        .map_err(|error| corrupt(format!("event: {error}")))?;
    columns(row, position, texts)
        .map(Arc::new)
        .map_err(|what| corrupt(format!("event {position}: {what}")))
}

fn columns(
    row: &Row,
    position: i64,
    texts: impl FnOnce(EventId, &str, String) -> Result<(Headers, Payload), String>,
) -> Result<OutboxEvent, String> {
    let bad = |error: tokio_postgres::Error| error.to_string();
    let Id(id) = row.try_get("event_id").map_err(bad)?;
    let tenant: Option<&str> = row.try_get("tenant").map_err(bad)?;
    let kind: Option<&str> = row.try_get("aggregate_type").map_err(bad)?;
    let about: Option<&str> = row.try_get("aggregate_id").map_err(bad)?;
    let payload: String = row.try_get("payload").map_err(bad)?;
    let (headers, payload) = match row.try_get("headers").map_err(bad)? {
        // Most events have no headers.
        "{}" => (Headers::new(), Payload::Json(payload)),
        headers => texts(id, headers, payload)?,
    };
    let moment = |column| row.try_get::<_, Option<Moment>>(column).map_err(bad);
    let event = Event {
        id,
        kind: row.try_get("type").map_err(bad)?,
        tenant: tenant
            .map(Tenant::new)
            .transpose()
            .map_err(|error| error.to_string())?,
        aggregate: kind.zip(about).map(|(kind, id)| Aggregate {
            kind: kind.to_owned(),
            id: id.to_owned(),
        }),
        sequence: row.try_get("sequence").map_err(bad)?,
        payload,
        headers,
        created_at: moment("created_at")?.ok_or("created_at is null")?.0,
        available_at: moment("available_at")?.map(|at| at.0),
    };
    Ok(OutboxEvent { position, event })
}

/// An event's id, from a `uuid` or from text.
struct Id(EventId);

impl<'a> FromSql<'a> for Id {
    fn from_sql(of_type: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        if *of_type == Type::TEXT {
            return Ok(Self(str::from_utf8(raw)?.parse()?));
        }
        let raw: [u8; 16] = raw.try_into()?;
        let mut words = [0; 32];
        for (pair, byte) in words.chunks_exact_mut(2).zip(raw) {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Ok(Self(str::from_utf8(&words)?.parse()?))
    }

    fn accepts(of_type: &Type) -> bool {
        matches!(*of_type, Type::UUID | Type::TEXT)
    }
}
