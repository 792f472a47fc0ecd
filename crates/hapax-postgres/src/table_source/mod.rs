//! Table source: an outbox table that a service already has, as a source of events.
//!
//! Its rows are *moved*: one statement in one transaction claims a batch of unpublished rows in
//! their order, appends them to the outbox as events, and marks them. From then on they are events
//! like all others, with every destination, order policy, retry, dead letter and replay of the
//! relay. A crash leaves each row either in the table or moved.
//!
//! A row that cannot be an event blocks no other row: it stays in the table, is recorded in
//! `hapax.set_aside` (and marked as failed, where there is a status for it), and is reported. If a
//! description does not fit the table, the source is refused when it is opened.

mod described;
mod statement;
mod columns;
mod moving;
mod run;
mod error;

use std::sync::Arc;

use hapax::{
    delivery::{Frontier, Shards},
    key::Tenant,
    store::{Batch, Past, Source, StoreError},
};
use serde::{Deserialize, Serialize};

pub use error::TableSourceError;
pub use moving::Moved;

use crate::postgres::Postgres;
use moving::Mover;

/// The description of an outbox table: the meaning of its columns.
///
/// Names are always quoted, so they may contain any character.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TableSource {
    /// The source's name, in logs and in `hapax.set_aside`. In a configuration, it is the name of
    /// the section.
    #[serde(skip)]
    pub name: String,
    /// The table's schema; the connection's search path finds it when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The table.
    pub table: String,
    /// The columns of its primary key, or of another unique index; none may be null.
    #[serde(default = "key")]
    pub key: Vec<String>,
    /// The columns that rows are moved in order of; the key's when empty. None may be null.
    #[serde(default)]
    pub order: Vec<String>,
    /// The column that says that a row is published: a timestamp, a boolean, or a status (a text or
    /// an enum).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// The status of rows that are not published; `pending` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// The status of rows that are published; `processed` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processed: Option<String>,
    /// The status of rows that cannot be events; they keep their status when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The column of the moment when a row was marked, beside a mark that is not a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_at: Option<String>,
    /// Whether rows are deleted when they are moved. In that case no column marks them.
    #[serde(default)]
    pub delete: bool,
    /// The most rows that one transaction moves.
    #[serde(default = "batch")]
    pub batch: usize,
    /// The column of the event's own id, a UUID; one is derived from table and key when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The column of the event's type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The type of every event, where no column says it.
    #[serde(rename = "type_constant", skip_serializing_if = "Option::is_none")]
    pub kind_constant: Option<String>,
    /// The column of the payload: `json`, `jsonb`, a text or `bytea`.
    #[serde(default = "payload")]
    pub payload: String,
    /// The payload's media type; JSON, or bytes where the column holds bytes, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The column of the headers: an object, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// The column of the aggregate's type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    /// The type of every aggregate, where no column says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_type_constant: Option<String>,
    /// The column of the aggregate's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// The column of the event's place within its aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    /// The column of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The tenant of every event, where no column says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_constant: Option<String>,
    /// The column of the moment before which the event must not be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_at: Option<String>,
    /// The column of the moment when the row was written; that of the move when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

impl TableSource {
    /// The table `table` with key `id` and the columns `payload` and `published_at`.
    ///
    /// The event's type is still to be said, by a column or as a constant.
    pub fn new(name: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            schema: None,
            table: table.into(),
            key: key(),
            order: Vec::new(),
            published: Some("published_at".to_owned()),
            pending: None,
            processed: None,
            failed: None,
            published_at: None,
            delete: false,
            batch: batch(),
            event_id: None,
            kind: None,
            kind_constant: None,
            payload: payload(),
            content_type: None,
            headers: None,
            aggregate_type: None,
            aggregate_type_constant: None,
            aggregate_id: None,
            sequence: None,
            tenant: None,
            tenant_constant: None,
            available_at: None,
            created_at: None,
        }
    }

    /// The columns that rows are moved in order of.
    fn order(&self) -> &[String] {
        if self.order.is_empty() {
            &self.key
        } else {
            &self.order
        }
    }

    fn pending(&self) -> &str {
        self.pending.as_deref().unwrap_or("pending")
    }

    fn processed(&self) -> &str {
        self.processed.as_deref().unwrap_or("processed")
    }
}

/// A table that was described and checked: a source, and the mover of its rows.
///
/// Clones share the table. As a [`Source`] it moves a batch whenever its reader has read
/// everything; [`Imported::run`] moves rows independently, beside a relay that reads the store.
#[derive(Clone, Debug)]
pub struct Imported {
    store: Postgres,
    mover: Arc<Mover>,
}

impl Imported {
    /// Checks a description against the database.
    ///
    /// # Errors
    /// Fails when the description contradicts itself, when the table or a column is missing or of
    /// a type that cannot be read, when the key is not unique, and when the role may not do what
    /// it takes; it says which.
    pub async fn open(store: &Postgres, table: TableSource) -> Result<Self, TableSourceError> {
        let mover = Mover::open(store, table).await?;
        if !mover.is_served {
            let (source, index) = (&mover.name, &mover.index);
            tracing::warn!(
                source,
                index,
                "no index covers the rows that are not published: each batch scans the table"
            );
        }
        Ok(Self {
            store: store.clone(),
            mover: Arc::new(mover),
        })
    }

    /// The statement that makes the index by which unpublished rows are found.
    pub fn index(&self) -> &str {
        &self.mover.index
    }

    /// Whether the table had such an index when it was opened.
    pub fn is_served(&self) -> bool {
        self.mover.is_served
    }

    /// Moves one batch of rows into the outbox.
    ///
    /// # Errors
    /// Fails if the database fails, or if the table has changed; then no row was moved. If the
    /// connection broke, the batch may have been moved; the next batch finds out.
    pub async fn move_batch(&self) -> Result<Moved, StoreError> {
        self.mover.move_batch(&self.store).await
    }
}

impl Source for Imported {
    async fn read(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> Result<Batch, StoreError> {
        loop {
            let batch = Source::read(&self.store, frontier, shards, limit).await?;
            if batch.events.len() >= limit {
                return Ok(batch);
            }
            // At the head, or near it: rows wait no longer than events do.
            let moved = self.move_batch().await?;
            if !batch.events.is_empty() || moved.rows == 0 {
                return Ok(batch);
            }
        }
    }

    async fn read_past(
        &self,
        head: &Frontier,
        beyond: i64,
        shards: Shards,
        except: &[Option<Tenant>],
        limit: usize,
    ) -> Result<Past, StoreError> {
        Source::read_past(&self.store, head, beyond, shards, except, limit).await
    }
}

fn key() -> Vec<String> {
    vec!["id".to_owned()]
}

fn payload() -> String {
    "payload".to_owned()
}

fn batch() -> usize {
    500
}
