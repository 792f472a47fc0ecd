//! `[sources.NAME]`: existing outbox tables of services. The settings are documented in
//! `hapax.default.toml`, their effect in `hapax_postgres::Imported`.

use hapax_postgres::TableSource;
use serde::{Deserialize, Serialize};

use super::Wrong;

/// Maximum number of rows that one transaction moves.
const BATCH_MAX: u16 = 10_000;

/// An existing outbox table and the meaning of its columns.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    table: String,
    #[serde(default = "key")]
    key: Vec<String>,
    #[serde(default)]
    order: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    published_at: Option<String>,
    #[serde(default)]
    delete: bool,
    #[serde(default = "batch")]
    batch: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(
        default,
        rename = "type_constant",
        skip_serializing_if = "Option::is_none"
    )]
    kind_constant: Option<String>,
    #[serde(default = "payload")]
    payload: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    headers: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregate_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregate_type_constant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregate_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant_constant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    available_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
}

impl Source {
    /// Finds the first setting that is not valid. The rest is checked against the database.
    pub(super) fn check(&self, name: &str) -> Result<(), Wrong> {
        let wrong = |setting: &str, problem: &str| {
            Err(Wrong::at(format!("sources.{name}.{setting}"), problem))
        };
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return wrong("batch", "must be 1 to 10000");
        }
        if self.key.is_empty() {
            return wrong("key", "must name at least one column");
        }
        match (&self.published, self.delete) {
            (None, false) => wrong(
                "published",
                "is missing: name a column, or set delete = true",
            ),
            (Some(_), true) => wrong("published", "cannot be combined with delete = true"),
            _ if self.kind.is_some() == self.kind_constant.is_some() => {
                wrong("type", "is missing: set either type or type_constant")
            }
            _ => Ok(()),
        }
    }

    /// The table in the form that the store expects.
    pub(crate) fn described(&self, name: &str) -> TableSource {
        let mut table = TableSource::new(name, &self.table);
        table.schema.clone_from(&self.schema);
        table.key.clone_from(&self.key);
        table.order.clone_from(&self.order);
        table.published.clone_from(&self.published);
        table.pending.clone_from(&self.pending);
        table.processed.clone_from(&self.processed);
        table.failed.clone_from(&self.failed);
        table.published_at.clone_from(&self.published_at);
        table.delete = self.delete;
        table.batch = self.batch.into();
        table.event_id.clone_from(&self.event_id);
        table.kind.clone_from(&self.kind);
        table.kind_constant.clone_from(&self.kind_constant);
        table.payload.clone_from(&self.payload);
        table.content_type.clone_from(&self.content_type);
        table.headers.clone_from(&self.headers);
        table.aggregate_type.clone_from(&self.aggregate_type);
        table
            .aggregate_type_constant
            .clone_from(&self.aggregate_type_constant);
        table.aggregate_id.clone_from(&self.aggregate_id);
        table.sequence.clone_from(&self.sequence);
        table.tenant.clone_from(&self.tenant);
        table.tenant_constant.clone_from(&self.tenant_constant);
        table.available_at.clone_from(&self.available_at);
        table.created_at.clone_from(&self.created_at);
        table
    }
}

fn key() -> Vec<String> {
    vec!["id".to_owned()]
}

fn payload() -> String {
    "payload".to_owned()
}

fn batch() -> u16 {
    500
}
