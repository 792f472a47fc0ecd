//! Settings of the PostgreSQL sink.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    secret::Secret,
    settings::{Address, Compared, is_same},
};

/// The inbox and a table of another PostgreSQL database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PostgresSettings {
    /// The URL of the database: `postgres://user:password@host:5432/database`.
    pub url: Secret,
    /// The consumer name in the inbox of that database. It must never change, because it is part of
    /// the inbox rows.
    pub consumer: String,
    /// The table that receives a row for each event, such as `public.incoming_event`.
    pub table: String,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = "path"))]
    pub ca: Option<PathBuf>,
    /// The columns whose names differ from the names of the fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<Field, String>,
    /// The fields for which the table has no column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<Field>,
}

/// A field of an event that is stored in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// The event id.
    EventId,
    /// The event type.
    Type,
    /// The tenant, or null.
    Tenant,
    /// The aggregate type, or null.
    AggregateType,
    /// The aggregate id, or null.
    AggregateId,
    /// The sequence number within the aggregate, or null.
    Sequence,
    /// The payload.
    Payload,
    /// The headers as a JSON object.
    Headers,
    /// When the event was created.
    CreatedAt,
}

impl Field {
    /// All fields with their default columns.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::EventId, "event_id"),
        (Self::Type, "type"),
        (Self::Tenant, "tenant"),
        (Self::AggregateType, "aggregate_type"),
        (Self::AggregateId, "aggregate_id"),
        (Self::Sequence, "sequence"),
        (Self::Payload, "payload"),
        (Self::Headers, "headers"),
        (Self::CreatedAt, "created_at"),
    ];
}

impl Address for PostgresSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            url,
            ca,
            consumer: _,
            table: _,
            columns: _,
            without: _,
        } = self;
        vec![("url", is_same(url, &before.url)), ("ca", *ca == before.ca)]
    }
}
