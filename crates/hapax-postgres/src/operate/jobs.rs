//! Jobs: work on many events, a batch a transaction, that outlives whoever works on it.
//!
//! What a batch did and how far the job has come are one commit, so a job that is killed anywhere
//! goes on where it was, and does nothing twice. Of many relays that ask for work one has each
//! job, for it holds the job's row; the row is free again when that relay's connection ends.

use hapax::{Timestamp, key::IdempotencyKey, store::StoreError};
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::{
    Actor, Filter, OperateError, PAGE_MAX, Page, act::Act, batch, dead_letters, destinations,
    events,
};
use crate::{
    error::corrupt,
    outbox::rows,
    postgres::Postgres,
    query,
    settle::text,
    value::{Moment, Param},
};

pub use super::{
    run::{Ran, run_one},
    seen::{NotSeen, Seen},
};

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It makes dead letters due again.
    ReplayDeadLetters,
    /// It gives dead letters up for good.
    DiscardDeadLetters,
    /// It offers events again, whatever came of them.
    ReplayEvents,
    /// It deletes what is left of a destination.
    Remove,
}

impl Kind {
    /// The word that stands in rows and answers.
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

/// A job and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// What it does.
    pub kind: Kind,
    /// To which destination.
    pub destination: String,
    /// The one tenant whose events it touches.
    pub tenant: Option<String>,
    /// Which events, and why, as JSON.
    pub arguments: String,
    /// `waiting`, `running`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// How many it was about when it was asked for, where they were counted.
    pub total: Option<u64>,
    /// How many it has dealt with.
    pub done: u64,
    /// How many it may deal with per second.
    pub per_second: Option<u32>,
    /// Batches that failed since the last that did not.
    pub failures: u32,
    /// What the last of them failed with.
    pub error: Option<String>,
    /// Who asked for it.
    pub actor: String,
    /// When.
    pub created_at: Timestamp,
    /// When its first batch ended.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    pub(super) part: String,
    pub(super) position: i64,
}

/// How a job is to be done.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// At most so many events per second.
    pub per_second: Option<u32>,
    /// The key of the request: asked for twice under one key, a job is begun once.
    pub request_key: Option<String>,
    /// What could be seen when somebody counted what the job is to be about; now, when absent.
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

/// Begins to replay the dead letters of a destination that a filter fits: those that were dead when
/// they were counted, and none that died, or died again, since.
///
/// # Errors
/// `NotFound` when no relay ever opened the destination, `Conflict` when the request's key stands
/// for another job.
pub async fn replay_dead_letters(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    asked: &Asked,
) -> Result<Job, OperateError> {
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

/// Begins to discard the dead letters of a destination that a filter fits, with a reason: those that
/// were dead when they were counted, and none that died, or died again, since.
///
/// # Errors
/// As [`replay_dead_letters`]; `Invalid` without a reason.
pub async fn discard_dead_letters(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    reason: &str,
    asked: &Asked,
) -> Result<Job, OperateError> {
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

/// Begins to offer events to a destination again, whatever came of them, under the ids they have:
/// those that a filter fits and that existed when they were counted.
///
/// What the destination has not read yet, or has parked, comes to it anyway and is left as it is.
/// `parts` says in how many parts the destination is carried; what relays have opened tells when
/// it is absent.
///
/// # Errors
/// As [`replay_dead_letters`].
pub async fn replay_events(
    store: &Postgres,
    actor: &Actor,
    destination: &str,
    filter: &Filter,
    parts: Option<u8>,
    asked: &Asked,
) -> Result<Job, OperateError> {
    let opened = destinations::parts(store, Some(destination)).await?;
    let parts = batch::count_parts(destination, &opened, parts)?;
    let spelled = batch::spell(actor, filter)?;
    let seen = asked.seen(store).await?;
    let total = events::count(store, actor, filter).await?;
    // One event is where it is: nobody has to look at all the others.
    let (before, last) = match events::place_of(store, actor, filter).await? {
        Some(position) => (position.saturating_sub(1), position),
        None => (0, seen.until.saturating_sub(1)),
    };
    let arguments = json!({"filter": spelled, "parts": parts, "until": last.saturating_add(1)});
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
/// `NotFound` when there is none.
pub async fn get(store: &Postgres, actor: &Actor, id: i64) -> Result<Job, OperateError> {
    let params: [&dyn Param; 2] = [&id, &actor.tenant()];
    let found = store.ask(query!("operate/job"), &params).await?;
    let row = found
        .first()
        .ok_or_else(|| OperateError::not_found(object(id)))?;
    Ok(job(row)?)
}

/// Lists jobs below a number, the newest first: of a destination, in a state.
///
/// # Errors
/// Fails when the store cannot be read.
pub async fn list(
    store: &Postgres,
    actor: &Actor,
    destination: Option<&str>,
    state: Option<&str>,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Job, i64>, OperateError> {
    let limit = limit.clamp(1, PAGE_MAX);
    let (before, tenant, count) = (before.unwrap_or(i64::MAX), actor.tenant(), rows(limit));
    let (destination, state) = (destination.map(text), state.map(text));
    let params: [&dyn Param; 5] = [&before, &tenant, &destination, &state, &count];
    let found = store.ask(query!("operate/jobs"), &params).await?;
    let items: Vec<Job> = found.iter().map(job).collect::<Result<_, _>>()?;
    let next = items.last().filter(|_| items.len() == limit);
    let next = next.map(|it| it.id);
    Ok(Page { items, next })
}

/// Ends a job; what it did stays done. A destination that is being removed stays removed.
///
/// # Errors
/// `NotFound` when there is none, `Conflict` when it has ended or cannot be ended.
pub async fn cancel(store: &Postgres, actor: &Actor, id: i64) -> Result<(), OperateError> {
    let found = get(store, actor, id).await?;
    if found.kind == Kind::Remove {
        return Err(OperateError::conflict(
            "a removal that has begun is not cancelled",
        ));
    }
    let mut act = Act::begin(store).await?;
    let cancelled = !act
        .ask(query!("operate/cancel_job"), &[&id])
        .await?
        .is_empty();
    let outcome = if cancelled { "done" } else { "refused" };
    act.note(actor, "cancel", &object(id), &json!({}), outcome)
        .await?;
    act.commit().await?;
    if cancelled {
        Ok(())
    } else {
        Err(OperateError::conflict(format!("{} has ended", object(id))))
    }
}

/// A job that is to be written down.
pub(super) struct NewJob<'a> {
    pub(super) kind: Kind,
    pub(super) destination: &'a str,
    pub(super) arguments: Value,
    /// The position beyond which it begins.
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
        act: &mut Act<'_>,
        actor: &Actor,
    ) -> Result<Job, OperateError> {
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
        if let Some(row) = act.ask(query!("operate/begin_job"), &params).await?.first() {
            return Ok(job(row)?);
        }
        // Asked for before, under the same key: the same thing, it is hoped.
        let params: [&dyn Param; 2] = [&by, &key];
        let found = act.ask(query!("operate/job_of_request"), &params).await?;
        let known = found.first().map(job).transpose()?;
        let same = known.filter(|known| {
            known.kind == self.kind
                && known.destination == self.destination
                && meaning(&known.arguments) == meaning(&arguments)
        });
        same.ok_or_else(|| OperateError::conflict("the key of the request stands for another job"))
    }
}

/// Writes a job down, with its line in the log.
async fn begin(store: &Postgres, actor: &Actor, new: NewJob<'_>) -> Result<Job, OperateError> {
    if new.per_second == Some(0) {
        return Err(OperateError::invalid("per_second", "is at least 1"));
    }
    let key = new.request_key;
    if let Some(Err(problem)) = key.map(IdempotencyKey::new) {
        return Err(OperateError::invalid("request_key", problem.to_string()));
    }
    if destinations::parts(store, Some(new.destination))
        .await?
        .is_empty()
    {
        return Err(OperateError::not_found(destinations::object(
            new.destination,
        )));
    }
    let mut act = Act::begin(store).await?;
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

/// Bounds a job over dead letters by those that could be seen to be dead when they were counted.
fn bound(arguments: &mut Value, seen: &Seen) {
    arguments["seen"] = json!(seen.snapshot);
    arguments["until"] = json!(seen.until);
    arguments["counted_at"] = json!(seen.at.as_millis());
}

/// What was asked for, without what depends on when it was.
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
    let kind: &str = row.get(1);
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    Ok(Job {
        id: row.get(0),
        kind: Kind::parse(kind).ok_or_else(|| corrupt(format!("job of kind {kind:?}")))?,
        destination: row.get(2),
        tenant: row.get(3),
        arguments: row.get(4),
        state: row.get(5),
        part: row.get(6),
        position: row.get(7),
        total: row.get::<_, Option<i64>>(8).map(i64::unsigned_abs),
        done: row.get::<_, i64>(9).unsigned_abs(),
        per_second: row.get::<_, Option<i32>>(10).map(i32::unsigned_abs),
        failures: row.get::<_, i32>(12).unsigned_abs(),
        error: row.get(13),
        actor: row.get(14),
        created_at: row.get::<_, Moment>(16).0,
        started_at: moment(17),
        ended_at: moment(18),
    })
}
