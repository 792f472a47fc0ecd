//! Views: the responses of the API, which are also the output of the CLI with `--json`.

use hapax::Timestamp;
use hapax_postgres::admin::{
    Page,
    audit::Entry,
    deliveries::{Cursor, Delivery},
    destination_of,
    destinations::{Declared, Partition},
    events::Summary,
    jobs::Job,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::destination::Spec;

/// A page of a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PageView<T> {
    /// The items. They may be empty although there is a next page.
    pub(crate) items: Vec<T>,
    /// The value of `before` (or `after`) for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl<T> PageView<T> {
    /// Converts a page of the store.
    pub(crate) fn of<I, C>(
        page: Page<I, C>,
        item: impl FnMut(I) -> T,
        cursor: impl FnOnce(C) -> String,
    ) -> Self {
        Self {
            items: page.items.into_iter().map(item).collect(),
            next: page.next.map(cursor),
        }
    }
}

/// The cursor of a page of deliveries, made of position and partition.
pub(crate) fn cursor_word(cursor: &Cursor) -> String {
    format!("{}:{}", cursor.position, cursor.partition)
}

/// Parses such a cursor.
pub(crate) fn cursor_of(word: &str) -> Option<Cursor> {
    let (position, partition) = word.split_once(':')?;
    Some(Cursor {
        position: position.parse().ok()?,
        partition: partition.to_owned(),
    })
}

/// A time in RFC 3339.
pub(crate) fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis())
        .map_or_else(|_| at.as_millis().to_string(), |it| format!("{it:.3}"))
}

/// A destination.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DestinationView {
    /// The name.
    pub(crate) name: String,
    /// Where it is declared: `database`, `configuration`, or `unknown` if a relay has opened it and
    /// it is declared in neither of them.
    pub(crate) declared_in: &'static str,
    /// The declaration. Secrets are shown as `***`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Spec>)]
    pub(crate) spec: Option<Value>,
    /// The number of the last change. Send it as `version` to change the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<i64>,
    /// `active`, `paused`, `disabled` or `removing`.
    pub(crate) state: &'static str,
    /// Why the destination is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The actor that paused the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused_by: Option<String>,
    /// The time of the last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed_at: Option<String>,
    /// The actor of the last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed_by: Option<String>,
    /// The progress; absent in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<CountsView>,
}

/// The progress of a destination.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct CountsView {
    /// Events that are not settled.
    pub(crate) backlog: u64,
    /// Parked deliveries.
    pub(crate) parked: u64,
    /// Dead letters.
    pub(crate) dead: u64,
}

impl DestinationView {
    /// A destination that is declared, opened by a relay, or both.
    pub(crate) fn of(
        name: String,
        declared: Option<&Declared>,
        partitions: &[Partition],
        configured: Option<&Spec>,
    ) -> Self {
        let known = declared;
        let disabled = partitions
            .iter()
            .find(|partition| partition.disabled_at.is_some());
        let spec = known.and_then(|it| it.spec.as_deref());
        let spec: Option<Value> = spec.and_then(|text| serde_json::from_str(text).ok());
        // Paused by its own setting, unless an operator has paused it.
        let is_paused = match &spec {
            Some(spec) => spec["paused"] == true,
            None => configured.is_some_and(|spec| spec.paused),
        };
        let state = match known {
            Some(it) if it.removed_at.is_some() => "removing",
            Some(it) if it.paused_at.is_some() => "paused",
            _ if is_paused => "paused",
            _ if disabled.is_some() => "disabled",
            _ => "active",
        };
        Self {
            name,
            declared_in: match (&spec, configured.is_some()) {
                (Some(_), _) => "database",
                (None, true) => "configuration",
                (None, false) => "unknown",
            },
            spec,
            version: known.map(|it| it.version),
            state,
            reason: disabled.and_then(|partition| partition.disabled_reason.clone()),
            paused_by: known.and_then(|it| it.paused_by.clone()),
            changed_at: known.map(|it| moment(it.changed_at)),
            changed_by: known.map(|it| it.changed_by.clone()),
            counts: None,
        }
    }
}

/// An event in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SummaryView {
    /// The position in the outbox.
    pub(crate) position: i64,
    /// The event id.
    pub(crate) id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The aggregate type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// The aggregate id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// When the event was created.
    pub(crate) created_at: String,
    /// The earliest time of delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_at: Option<String>,
    /// The size of the payload in bytes.
    pub(crate) payload_bytes: u64,
}

impl From<Summary> for SummaryView {
    fn from(it: Summary) -> Self {
        Self {
            position: it.position,
            id: it.id,
            kind: it.kind,
            tenant: it.tenant,
            aggregate_type: it.aggregate_type,
            aggregate_id: it.aggregate_id,
            created_at: moment(it.created_at),
            available_at: it.available_at.map(moment),
            payload_bytes: it.payload_bytes,
        }
    }
}

/// A delivery that has a row.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryView {
    /// The name of the destination.
    pub(crate) destination: String,
    /// The partition; together with the position it identifies the delivery.
    pub(crate) partition: String,
    /// The position of the event.
    pub(crate) position: i64,
    /// `scheduled`, `retrying`, `blocked`, `dead`, `delivered` or `discarded`.
    pub(crate) state: String,
    /// Attempts since it was parked or replayed.
    pub(crate) attempts: u32,
    /// When the next attempt is due, or was due.
    pub(crate) next_at: String,
    /// When this state was recorded.
    pub(crate) changed_at: String,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    /// Why the delivery was discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The event id.
    pub(crate) event_id: String,
    /// The event type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The aggregate type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// The aggregate id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// When the event was created.
    pub(crate) created_at: String,
}

impl From<Delivery> for DeliveryView {
    fn from(it: Delivery) -> Self {
        Self {
            destination: destination_of(&it.partition).to_owned(),
            partition: it.partition,
            position: it.position,
            state: it.state,
            attempts: it.attempts,
            next_at: moment(it.next_at),
            changed_at: moment(it.changed_at),
            last_error: it.last_error,
            reason: it.reason,
            event_id: it.event_id,
            kind: it.kind,
            tenant: it.tenant,
            aggregate_type: it.aggregate_type,
            aggregate_id: it.aggregate_id,
            created_at: moment(it.created_at),
        }
    }
}

/// A job.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct JobView {
    /// The job id.
    pub(crate) id: i64,
    /// The operation of the job.
    pub(crate) kind: &'static str,
    /// The destination.
    pub(crate) destination: String,
    /// `waiting`, `running`, `done`, `cancelled` or `failed`.
    pub(crate) state: String,
    /// The number of events or dead letters that matched when the job was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    /// The number processed so far.
    pub(crate) done: u64,
    /// The maximum number per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_second: Option<u32>,
    /// The filter and the reason.
    pub(crate) arguments: Value,
    /// The error of the last batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The actor that created the job.
    pub(crate) actor: String,
    /// When the job was created.
    pub(crate) created_at: String,
    /// When the job ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<String>,
}

impl From<Job> for JobView {
    fn from(it: Job) -> Self {
        Self {
            id: it.id,
            kind: it.kind.as_str(),
            destination: it.destination,
            state: it.state,
            total: it.total,
            done: it.done,
            per_second: it.per_second,
            arguments: serde_json::from_str(&it.arguments).unwrap_or_default(),
            error: it.error,
            actor: it.actor,
            created_at: moment(it.created_at),
            ended_at: it.ended_at.map(moment),
        }
    }
}

/// An entry of the audit log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EntryView {
    /// The number of the entry.
    pub(crate) id: i64,
    /// The time.
    pub(crate) at: String,
    /// The actor.
    pub(crate) actor: String,
    /// The action.
    pub(crate) action: String,
    /// The object of the action.
    pub(crate) object: String,
    /// Details of the action.
    pub(crate) detail: Value,
    /// `done`, `nothing` or `refused`.
    pub(crate) outcome: String,
}

impl From<Entry> for EntryView {
    fn from(it: Entry) -> Self {
        Self {
            id: it.id,
            at: moment(it.at),
            actor: it.actor,
            action: it.action,
            object: it.object,
            detail: serde_json::from_str(&it.detail).unwrap_or_default(),
            outcome: it.outcome,
        }
    }
}
