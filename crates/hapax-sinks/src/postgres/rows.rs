//! Encoding of events as rows, and of rows as the arrays of the statement.

use hapax::{
    event::{Headers, Payload},
    inbox::Message,
    sink::Offer,
    trace::TRACEPARENT,
};
use tokio_postgres::types::{ToSql, Type};

use super::outcome::Failure;
use crate::format;

/// The row of an event.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// The index in the batch.
    pub(super) index: usize,
    pub(super) id: String,
    pub(super) hash: [u8; 32],
    offer: &'a Offer,
}

impl<'a> Row<'a> {
    /// The row of an event for a column that takes bytes or text.
    pub(super) fn of(index: usize, offer: &'a Offer, binary: bool) -> Result<Self, Failure> {
        let event = offer.event();
        if !binary && matches!(event.payload, Payload::Binary { .. }) {
            return Err(Failure::Binary);
        }
        let id = event.id.to_string();
        let message = Message::new("consumer", "source", &id, event.payload.bytes());
        let hash = message.map_err(|_| Failure::Mismatch)?.payload_hash;
        Ok(Self {
            index,
            id,
            hash,
            offer,
        })
    }

    /// The headers of the event as JSON, with the trace of the current attempt.
    fn headers(&self) -> String {
        let headers = &self.offer.event().headers;
        let written = match self.offer.trace {
            None => serde_json::to_string(headers),
            Some(own) => {
                let mut headers: Headers = headers.clone();
                headers.insert(TRACEPARENT.to_owned(), own.to_string());
                serde_json::to_string(&headers)
            }
        };
        written.expect("strings can be serialized as JSON")
    }
}

/// Rows by column.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    ids: Vec<&'a str>,
    hashes: Vec<&'a [u8]>,
    types: Vec<&'a str>,
    tenants: Vec<Option<&'a str>>,
    aggregate_types: Vec<Option<&'a str>>,
    aggregate_ids: Vec<Option<&'a str>>,
    sequences: Vec<Option<i64>>,
    texts: Vec<&'a str>,
    bytes: Vec<&'a [u8]>,
    headers: Vec<String>,
    created_at: Vec<String>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(rows: &'a [Row<'a>], binary: bool) -> Self {
        let mut columns = Self::default();
        for row in rows {
            let event = row.offer.event();
            let aggregate = event.aggregate.as_ref();
            columns.ids.push(&row.id);
            columns.hashes.push(&row.hash);
            columns.types.push(&event.kind);
            columns
                .tenants
                .push(event.tenant.as_ref().map(hapax::key::Tenant::as_str));
            columns
                .aggregate_types
                .push(aggregate.map(|it| it.kind.as_str()));
            columns
                .aggregate_ids
                .push(aggregate.map(|it| it.id.as_str()));
            columns.sequences.push(event.sequence);
            match &event.payload {
                Payload::Json(text) if !binary => columns.texts.push(text),
                payload => columns.bytes.push(payload.bytes()),
            }
            columns.headers.push(row.headers());
            columns.created_at.push(format::rfc3339(event.created_at));
        }
        columns
    }

    /// The parameters of the statement after the consumer and the source.
    pub(super) fn params(&self, binary: bool) -> [(&(dyn ToSql + Sync), Type); 10] {
        let payloads: (&(dyn ToSql + Sync), Type) = if binary {
            (&self.bytes, Type::BYTEA_ARRAY)
        } else {
            (&self.texts, Type::TEXT_ARRAY)
        };
        [
            (&self.ids, Type::TEXT_ARRAY),
            (&self.hashes, Type::BYTEA_ARRAY),
            (&self.types, Type::TEXT_ARRAY),
            (&self.tenants, Type::TEXT_ARRAY),
            (&self.aggregate_types, Type::TEXT_ARRAY),
            (&self.aggregate_ids, Type::TEXT_ARRAY),
            (&self.sequences, Type::INT8_ARRAY),
            payloads,
            (&self.headers, Type::TEXT_ARRAY),
            (&self.created_at, Type::TEXT_ARRAY),
        ]
    }
}
