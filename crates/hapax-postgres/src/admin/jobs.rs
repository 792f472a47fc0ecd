//! Jobs: operations on many events, which run in batches of one transaction each.
//!
//! The changes of a batch and the progress of the job are committed together. A job whose relay is
//! killed therefore continues where it stopped, and does nothing twice. If several relays poll for
//! work, each job is run by the one that has locked its row. The lock is released when the
//! connection of that relay ends.

use hapax::{Timestamp, key::IdempotencyKey, store::StoreError};
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::{
    Actor, AdminError, Filter, PAGE_MAX, Page, audited::AuditedTransaction, batch, dead_letters,
    destinations, events,
};
use crate::{
    delivery::settle::text,
    error::corrupt,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

pub use super::{
    run::{Ran, run_one},
    seen::{NotSeen, Seen},
};

/// The kind of work that a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes dead letters due again.
    ReplayDeadLetters,
    /// Discards dead letters permanently.
    DiscardDeadLetters,
    /// Offers events again, regardless of their outcome.
    ReplayEvents,
    /// Deletes the rows of a removed destination.
    Remove,
}

impl Kind {
    /// The name in rows and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplayDeadLetters => "replay_dead_letters",
            Self::DiscardDeadLetters => "discard_dead_letters",
            Self::ReplayEvents => "replay_events",
            Self::Remove => "remove_destination",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [
            Self::ReplayDeadLetters,
            Self::DiscardDeadLetters,
            Self::ReplayEvents,
            Self::Remove,
        ]
        .into_iter()
        .find(|it| it.as_str() == word)
    }
}

/// A job and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The number of the job.
    pub id: i64,
    /// The kind of work.
    pub kind: Kind,
    /// The destination.
    pub destination: String,
    /// The only tenant whose events it processes; `None` for all tenants.
    pub tenant: Option<String>,
    /// The filter of its events and the reason, as JSON.
    pub arguments: String,
    /// `waiting`, `running`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// The number of events when it was requested, if they were counted.
    pub total: Option<u64>,
    /// The number of processed events.
    pub done: u64,
    /// Maximum number of events per second.
    pub per_second: Option<u32>,
    /// Batches that have failed in a row.
    pub failures: u32,
    /// The error of the last failed batch.
    pub error: Option<String>,
    /// The operator who requested it.
    pub actor: String,
    /// When it was requested.
    pub created_at: Timestamp,
    /// When its first batch ended.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    pub(super) partition: String,
    pub(super) position: i64,
}

/// Options of a job.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Maximum number of events per second.
    pub per_second: Option<u32>,
    /// The key of the request: two requests with the same key start one job.
    pub request_key: Option<String>,
    /// The snapshot in which the events for the job were counted. By default it is taken now.
    pub seen: Option<Seen>,
}

impl Asked {
    async fn seen(&self, store: &Postgres) -> Result<Seen, StoreError> {
        match &self.seen {
            Some(seen) => Ok(seen.clone()),
            None => Seen::now(store).await,
        }
    }
}

/// Starts a job that replays the dead letters of a destination that match a filter. Letters that
/// died, or died again, after they were counted are not replayed.
///
/// # Errors
/// `NotFound` if no relay has ever opened the destination; `Conflict` if the key of the request was
/// used for another job.
pub async fn replay_dead_letters(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    asked: &Asked,
) -> Result<Job, AdminError> {
    let seen = asked.seen(store).await?;
    let mut arguments = json!({"filter": batch::spell(actor, filter)?});
    bound(&mut arguments, &seen);
    let total = dead_letters::count(store, actor, destination, filter, &seen).await?;
    let new = NewJob::of(
        Kind::ReplayDeadLetters,
        destination,
        arguments,
        Some(total),
        asked,
    );
    begin(store, actor, new).await
}

/// Starts a job that discards the dead letters of a destination that match a filter, with a reason.
/// Letters that died, or died again, after they were counted are not discarded.
///
/// # Errors
/// The same as [`replay_dead_letters`]; `Invalid` without a reason.
pub async fn discard_dead_letters(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    reason: &str,
    asked: &Asked,
) -> Result<Job, AdminError> {
    dead_letters::check_reason(reason)?;
    let seen = asked.seen(store).await?;
    let mut arguments = json!({"filter": batch::spell(actor, filter)?, "reason": reason});
    bound(&mut arguments, &seen);
    let total = dead_letters::count(store, actor, destination, filter, &seen).await?;
    let new = NewJob::of(
        Kind::DiscardDeadLetters,
        destination,
        arguments,
        Some(total),
        asked,
    );
    begin(store, actor, new).await
}

/// Starts a job that offers events to a destination again, regardless of their outcome, with the
/// same ids. It processes the events that match a filter and existed when they were counted.
///
/// Events that the destination has not read yet, or has parked, will be delivered anyway and are
/// not changed. `partitions` is the number of partitions of the destination; if it is absent, the number
/// of partitions that relays have opened is used.
///
/// # Errors
/// The same as [`replay_dead_letters`].
pub async fn replay_events(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    partitions: Option<u8>,
    asked: &Asked,
) -> Result<Job, AdminError> {
    let opened = destinations::partitions(store, Some(destination)).await?;
    let partitions = batch::count_partitions(destination, &opened, partitions)?;
    let spelled = batch::spell(actor, filter)?;
    let seen = asked.seen(store).await?;
    let total = events::count(store, actor, filter).await?;
    // The position of a single event is known, so that no other event has to be read.
    let (before, last) = match events::place_of(store, actor, filter).await? {
        Some(position) => (position.saturating_sub(1), position),
        None => (0, seen.until.saturating_sub(1)),
    };
    let arguments =
        json!({"filter": spelled, "partitions": partitions, "until": last.saturating_add(1)});
    let mut new = NewJob::of(
        Kind::ReplayEvents,
        destination,
        arguments,
        Some(total),
        asked,
    );
    new.beyond = before;
    begin(store, actor, new).await
}

/// Reads one job.
///
/// # Errors
/// `NotFound` if there is none.
pub async fn get(store: &Postgres, actor: &Actor, id: i64) -> Result<Job, AdminError> {
    let params: [&dyn Param; 2] = [&id, &actor.tenant()];
    let found = store.ask(query!("admin/job"), &params).await?;
    let row = found
        .first()
        .ok_or_else(|| AdminError::not_found(object(id)))?;
    Ok(job(row)?)
}

/// Lists jobs below a number, the newest first, optionally of one destination and in one state.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    destination: Option<&str>,
    state: Option<&str>,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Job, i64>, AdminError> {
    let limit = limit.clamp(1, PAGE_MAX);
    let (before, tenant, count) = (before.unwrap_or(i64::MAX), actor.tenant(), rows(limit));
    let (destination, state) = (destination.map(text), state.map(text));
    let params: [&dyn Param; 5] = [&before, &tenant, &destination, &state, &count];
    let found = store.ask(query!("admin/jobs"), &params).await?;
    let items: Vec<Job> = found.iter().map(job).collect::<Result<_, _>>()?;
    let next = items.last().filter(|_| items.len() == limit);
    let next = next.map(|it| it.id);
    Ok(Page { items, next })
}

/// Cancels a job. Its completed batches are not undone, and the removal of a destination cannot be
/// cancelled.
///
/// # Errors
/// `NotFound` if the job does not exist; `Conflict` if it has ended or cannot be cancelled.
pub async fn cancel(store: &Postgres, actor: &Actor, id: i64) -> Result<(), AdminError> {
    let found = get(store, actor, id).await?;
    if found.kind == Kind::Remove {
        return Err(AdminError::conflict(
            "a removal that has started cannot be cancelled",
        ));
    }
    let mut act = AuditedTransaction::begin(store).await?;
    let cancelled = !act
        .ask(query!("admin/cancel_job"), &[&id])
        .await?
        .is_empty();
    let outcome = if cancelled { "done" } else { "refused" };
    act.note(actor, "cancel", &object(id), &json!({}), outcome)
        .await?;
    act.commit().await?;
    if cancelled {
        Ok(())
    } else {
        Err(AdminError::conflict(format!("{} has ended", object(id))))
    }
}

/// A job to be stored.
pub(super) struct NewJob<'a> {
    pub(super) kind: Kind,
    pub(super) destination: &'a str,
    pub(super) arguments: Value,
    /// The position after which it begins.
    pub(super) beyond: i64,
    pub(super) total: Option<u64>,
    pub(super) per_second: Option<u32>,
    pub(super) after_ms: i64,
    pub(super) request_key: Option<&'a str>,
}

impl<'a> NewJob<'a> {
    fn of(
        kind: Kind,
        destination: &'a str,
        arguments: Value,
        total: Option<u64>,
        asked: &'a Asked,
    ) -> Self {
        Self {
            kind,
            destination,
            arguments,
            beyond: 0,
            total,
            per_second: asked.per_second,
            after_ms: 0,
            request_key: asked.request_key.as_deref(),
        }
    }

    pub(super) async fn write(
        &self,
        act: &mut AuditedTransaction<'_>,
        actor: &Actor,
    ) -> Result<Job, AdminError> {
        let (kind, arguments, by) = (
            self.kind.as_str(),
            self.arguments.to_string(),
            text(&actor.name),
        );
        let total = self.total.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        let rate = self
            .per_second
            .map(|it| i64::from(it.min(i32::MAX.unsigned_abs())));
        let key = self.request_key.map(text);
        let tenant = actor.tenant();
        let params: [&dyn Param; 10] = [
            &kind,
            &self.destination,
            &tenant,
            &arguments,
            &self.beyond,
            &total,
            &rate,
            &self.after_ms,
            &by,
            &key,
        ];
        if let Some(row) = act.ask(query!("admin/begin_job"), &params).await?.first() {
            return Ok(job(row)?);
        }
        // The key was used before: the request must be for the same job.
        let params: [&dyn Param; 2] = [&by, &key];
        let found = act.ask(query!("admin/job_of_request"), &params).await?;
        let known = found.first().map(job).transpose()?;
        let same = known.filter(|known| {
            known.kind == self.kind
                && known.destination == self.destination
                && meaning(&known.arguments) == meaning(&arguments)
        });
        same.ok_or_else(|| AdminError::conflict("the key of the request belongs to another job"))
    }
}

/// Stores a job and its line in the audit log.
async fn begin(store: &Postgres, actor: &Actor, new: NewJob<'_>) -> Result<Job, AdminError> {
    if new.per_second == Some(0) {
        return Err(AdminError::invalid("per_second", "must be at least 1"));
    }
    let key = new.request_key;
    if let Some(Err(problem)) = key.map(IdempotencyKey::new) {
        return Err(AdminError::invalid("request_key", problem.to_string()));
    }
    if destinations::partitions(store, Some(new.destination))
        .await?
        .is_empty()
    {
        return Err(AdminError::not_found(destinations::object(new.destination)));
    }
    let mut act = AuditedTransaction::begin(store).await?;
    let job = new.write(&mut act, actor).await?;
    let detail = json!({
        "job": job.id,
        "total": new.total,
        "arguments": new.arguments,
    });
    let object = destinations::object(new.destination);
    act.note(actor, new.kind.as_str(), &object, &detail, "done")
        .await?;
    act.commit().await?;
    Ok(job)
}

/// Limits a job to the dead letters that were visible when they were counted.
fn bound(arguments: &mut Value, seen: &Seen) {
    arguments["seen"] = json!(seen.snapshot);
    arguments["until"] = json!(seen.until);
    arguments["counted_at"] = json!(seen.at.as_millis());
}

/// The arguments of a job without those that depend on the time of the request.
fn meaning(arguments: &str) -> Value {
    let mut read: Value = serde_json::from_str(arguments).unwrap_or_default();
    if let Some(read) = read.as_object_mut() {
        for bound in ["until", "seen", "counted_at"] {
            read.remove(bound);
        }
    }
    read
}

pub(super) fn object(id: i64) -> String {
    format!("job {id}")
}

pub(super) fn job(row: &Row) -> Result<Job, StoreError> {
    let kind: &str = row.get("kind");
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    Ok(Job {
        id: row.get("id"),
        kind: Kind::parse(kind).ok_or_else(|| corrupt(format!("job of kind {kind:?}")))?,
        destination: row.get("destination"),
        tenant: row.get("tenant"),
        arguments: row.get("arguments"),
        state: row.get("state"),
        partition: row.get("partition"),
        position: row.get("position"),
        total: row.get::<_, Option<i64>>("total").map(i64::unsigned_abs),
        done: row.get::<_, i64>("done").unsigned_abs(),
        per_second: row
            .get::<_, Option<i32>>("per_second")
            .map(i32::unsigned_abs),
        failures: row.get::<_, i32>("failures").unsigned_abs(),
        error: row.get("error"),
        actor: row.get("actor"),
        created_at: row.get::<_, Moment>("created_at").0,
        started_at: moment("started_at"),
        ended_at: moment("ended_at"),
    })
}
