//! Feed: logical replication as a source of events.
//!
//! A feeder reads the write-ahead log of a database through a replication slot, and appends what it
//! reads to the outbox: rows of an outbox table, messages of `pg_logical_emit_message`, or changes
//! of business tables. Events and position are committed in one transaction; only then does the
//! feeder confirm the position to the server. So a destination that is down never holds back the
//! log, a crash repeats and loses nothing, and what the feeder appends are events like all others.
//!
//! If changes may be missing, because the slot is gone or is of another history, the feed stops at a
//! gap until an operator accepts it. Nothing is skipped silently.

mod wire;
mod pgoutput;
mod tables;
mod names;
mod mapping;
mod appender;
mod slot;
mod stream;

use std::{collections::BTreeMap, pin::pin, time::Duration};

use hapax::{
    limits::STORE_BACKOFF,
    retry::Delays,
    sink::BoxError,
    store::StoreError,
    telemetry::{self, error_chain},
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use tokio::time::timeout;

use crate::{connection::QueryError, outbox::is_refused, postgres::Postgres, settings::Settings};

/// How long a feeder waits before it looks whether a gap was accepted. It logs the gap as often.
const GAP_WAIT: Duration = Duration::from_secs(15);
/// How long a feeder waits for a slot that another one reads.
const BUSY_WAIT: Duration = Duration::from_secs(2);

/// The description of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The feed's name, under which its position is stored.
    pub name: String,
    /// The replication slot. It is created when the feed starts for the first time.
    pub slot: String,
    /// The publication whose changes are read.
    pub publication: String,
    /// Whether the slot is created as a failover slot, which PostgreSQL 17 and later copy to
    /// standbys.
    pub failover: bool,
    /// Tables whose changes become events. Other tables of the publication are ignored, unless they
    /// may be one of these under another name: then nothing is read.
    pub tables: Vec<FeedTable>,
    /// The prefix of messages of `pg_logical_emit_message` that become events.
    pub message_prefix: Option<String>,
}

/// A table, which of its changes become events, and the meaning of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FeedTable {
    /// The table's schema.
    #[serde(default = "schema")]
    pub schema: String,
    /// The table. A configuration may omit it if the section has the same name.
    #[serde(
        default,
        deserialize_with = "table_name",
        skip_serializing_if = "String::is_empty"
    )]
    pub table: String,
    /// The changes that become events. If there are none, the changes of the table are ignored.
    #[serde(default = "on")]
    pub on: Vec<Change>,
    /// Values, as text, that columns must have: a row with another value is not an event.
    #[serde(default)]
    pub when: BTreeMap<String, Vec<String>>,
    /// The columns of which the payload consists as a JSON object; all columns if empty. Only without
    /// `payload`.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The column of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload's media type; JSON, or bytes if the column holds bytes, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The column of the event's own id, a UUID; one is derived from the position in the log when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The column of the event's type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The type of every event, in which `{operation}` is replaced by `insert`, `update` or
    /// `delete`.
    #[serde(rename = "type_constant", skip_serializing_if = "Option::is_none")]
    pub kind_constant: Option<String>,
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
    /// The column of the moment when the row was written; that of the append when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// A kind of change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The row is new.
    Insert,
    /// The row has other values.
    Update,
    /// The row is gone.
    Delete,
}

impl Change {
    /// The name in event types.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Why a feeder does not read.
#[derive(Debug)]
enum FeedError {
    /// Changes may be missing.
    Gap(String),
    /// Another feeder reads the slot.
    Busy,
    /// The source failed, or is not set up.
    Source(BoxError),
    /// The store failed.
    Store(StoreError),
}

impl From<BoxError> for FeedError {
    fn from(error: BoxError) -> Self {
        let server = error.downcast_ref::<wire::ServerError>();
        // The slot is in use by another connection.
        if server.is_some_and(|error| error.code == "55006") {
            return Self::Busy;
        }
        Self::Source(error)
    }
}

impl From<StoreError> for FeedError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<QueryError> for FeedError {
    fn from(error: QueryError) -> Self {
        // Another feeder has taken over.
        if is_refused(&error) {
            return Self::Busy;
        }
        Self::Store(error.into())
    }
}

/// Reads the log of one database for one feed.
///
/// Any number of processes may run the same feed: one of them reads, and the others wait for it to
/// end.
#[derive(Clone, Debug)]
pub struct Feeder {
    store: Postgres,
    source: Settings,
    feed: Feed,
}

impl Feeder {
    /// A feeder that reads from the database of the settings `source`, which may be that of the
    /// store. The connection must not go through a pooler.
    pub fn new(store: &Postgres, source: Settings, feed: Feed) -> Self {
        Self {
            store: store.clone(),
            source,
            feed,
        }
    }

    /// Reads until `stop` is ready. A failure is logged, and the feeder connects again.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut failed = Delays::new(STORE_BACKOFF);
        self.report(false, None);
        loop {
            let ended = tokio::select! {
                () = &mut stop => break,
                ended = self.read(&mut failed) => ended,
            };
            let wait = self.wait_after(ended, &mut failed);
            if timeout(wait, &mut stop).await.is_ok() {
                break;
            }
        }
        self.report(false, None);
    }

    /// Reports why the stream ended. Returns how long to wait before the next one.
    fn wait_after(&self, ended: FeedError, failed: &mut Delays) -> Duration {
        let feed = self.feed.name.as_str();
        match ended {
            FeedError::Gap(gap) => {
                self.report(false, Some(true));
                tracing::error!(
                    feed,
                    gap,
                    "changes may be missing, so the feed has stopped: see `hapax feeds accept-gap`"
                );
                GAP_WAIT
            }
            FeedError::Busy => {
                self.report(false, Some(false));
                tracing::debug!(feed, "another feeder reads the slot");
                BUSY_WAIT
            }
            FeedError::Source(error) => {
                self.report(false, None);
                let error = error_chain(&*error);
                tracing::error!(
                    feed,
                    error,
                    "the feed cannot read its source and will retry"
                );
                failed.advance()
            }
            FeedError::Store(error) => {
                self.report(false, None);
                let error = error.error_chain();
                tracing::error!(
                    feed,
                    error,
                    "the feed cannot append its events and will retry"
                );
                failed.advance()
            }
        }
    }

    /// Sets the gauges of the feed; that of the gap only if it is known.
    fn report(&self, is_up: bool, is_at_gap: Option<bool>) {
        let gauge = |name: &'static str| metrics::gauge!(name, "feed" => self.feed.name.clone());
        gauge(telemetry::FEED_UP).set(f64::from(u8::from(is_up)));
        if let Some(is_at_gap) = is_at_gap {
            gauge(telemetry::FEED_GAP).set(f64::from(u8::from(is_at_gap)));
        }
    }
}

/// Refuses an empty name, which would mean that of the section.
fn table_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.is_empty() {
        return Err(D::Error::custom("must not be empty"));
    }
    Ok(name)
}

fn schema() -> String {
    "public".to_owned()
}

fn on() -> Vec<Change> {
    vec![Change::Insert]
}
