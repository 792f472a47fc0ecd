//! What is shown: the answers of the API, which are also what the verbs print with `--json`.

use hapax::Timestamp;
use hapax_postgres::operate::{
    Page,
    audit::Entry,
    deliveries::{Cursor, Delivery},
    destination_of,
    destinations::{Declared, Part},
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
    /// What is on it; it may be empty although there is a next one.
    pub(crate) items: Vec<T>,
    /// What to send as `before` (or `after`) for the next one; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl<T> PageView<T> {
    /// A page in the words of the API.
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

/// Where a page of deliveries begins, as a word: its position and its part.
pub(crate) fn cursor_word(cursor: &Cursor) -> String {
    format!("{}:{}", cursor.position, cursor.part)
}

/// Reads such a word back.
pub(crate) fn cursor_of(word: &str) -> Option<Cursor> {
    let (position, part) = word.split_once(':')?;
    Some(Cursor {
        position: position.parse().ok()?,
        part: part.to_owned(),
    })
}

/// A moment as RFC 3339.
pub(crate) fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis())
        .map_or_else(|_| at.as_millis().to_string(), |it| format!("{it:.3}"))
}

/// A destination.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DestinationView {
    /// Its name.
    pub(crate) name: String,
    /// Where it is declared: `database`, `configuration`, or `unknown` where a relay has opened it
    /// and nobody here declares it.
    pub(crate) declared_in: &'static str,
    /// What it is; secrets are shown as `***`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Spec>)]
    pub(crate) spec: Option<Value>,
    /// The number of its last change: send it back as `version` to change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<i64>,
    /// `active`, `paused`, `disabled` or `removing`.
    pub(crate) state: &'static str,
    /// Why it is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Who paused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused_by: Option<String>,
    /// When it was last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed_at: Option<String>,
    /// By whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed_by: Option<String>,
    /// How far it is; where one destination is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) standing: Option<StandingView>,
}

/// How far behind a destination is.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct StandingView {
    /// Events that are not settled.
    pub(crate) backlog: u64,
    /// Deliveries that wait outside the flow.
    pub(crate) parked: u64,
    /// Dead letters.
    pub(crate) dead: u64,
}

impl DestinationView {
    /// What is known about a destination: declared, opened, or both.
    pub(crate) fn of(
        name: String,
        declared: Option<&Declared>,
        parts: &[Part],
        configured: Option<&Spec>,
    ) -> Self {
        let known = declared;
        let disabled = parts.iter().find(|part| part.disabled_at.is_some());
        let spec = known.and_then(|it| it.spec.as_deref());
        let spec: Option<Value> = spec.and_then(|text| serde_json::from_str(text).ok());
        // By its own setting, where nobody has paused it.
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
            reason: disabled.and_then(|part| part.disabled_reason.clone()),
            paused_by: known.and_then(|it| it.paused_by.clone()),
            changed_at: known.map(|it| moment(it.changed_at)),
            changed_by: known.map(|it| it.changed_by.clone()),
            standing: None,
        }
    }
}

/// An event in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SummaryView {
    /// Its position in the outbox.
    pub(crate) position: i64,
    /// Its own id.
    pub(crate) id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// What kind of thing it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// Which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// When it was created.
    pub(crate) created_at: String,
    /// When it may first be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_at: Option<String>,
    /// Bytes of its payload.
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
    /// The destination.
    pub(crate) destination: String,
    /// Its part: the first half of the delivery's name.
    pub(crate) part: String,
    /// The event's position: the second half.
    pub(crate) position: i64,
    /// `scheduled`, `retrying`, `blocked`, `dead`, `delivered` or `discarded`.
    pub(crate) state: String,
    /// Attempts since it was parked or replayed.
    pub(crate) attempts: u32,
    /// When it falls due, or fell.
    pub(crate) next_at: String,
    /// When this was written down.
    pub(crate) changed_at: String,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    /// Why it was discarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The event's own id.
    pub(crate) event_id: String,
    /// The event's type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// What kind of thing it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// Which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// When the event was created.
    pub(crate) created_at: String,
}

impl From<Delivery> for DeliveryView {
    fn from(it: Delivery) -> Self {
        Self {
            destination: destination_of(&it.part).to_owned(),
            part: it.part,
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
    /// Its number.
    pub(crate) id: i64,
    /// What it does.
    pub(crate) kind: &'static str,
    /// To which destination.
    pub(crate) destination: String,
    /// `waiting`, `running`, `done`, `cancelled` or `failed`.
    pub(crate) state: String,
    /// How many it was about when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    /// How many it has dealt with.
    pub(crate) done: u64,
    /// How many it may deal with per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_second: Option<u32>,
    /// Which events, and why.
    pub(crate) arguments: Value,
    /// What its last batch failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Who asked for it.
    pub(crate) actor: String,
    /// When.
    pub(crate) created_at: String,
    /// When it ended.
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

/// A line of the audit log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EntryView {
    /// Its number.
    pub(crate) id: i64,
    /// When.
    pub(crate) at: String,
    /// Who.
    pub(crate) actor: String,
    /// What was done.
    pub(crate) action: String,
    /// To what.
    pub(crate) object: String,
    /// More about it.
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
