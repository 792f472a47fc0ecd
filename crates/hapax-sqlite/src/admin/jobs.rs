//! Jobs: operations on many events, which run in batches of one transaction each.
//!
//! Any process that has a handle may run a batch. Its transaction holds the database's lock for
//! writing, so no job is run twice at the same time.

use async_trait::async_trait;
use hapax::{
    admin::{
        Actor, AdminError, EventAdmin, EventFilter, Job, JobAdmin, JobFilter, JobKind, JobOptions,
        JobStep, PAGE_MAX, Page, are_same_arguments, check_job_options, check_reason,
        count_partitions, destination_object, job_object, read_cursor,
    },
    store::StoreError,
};
use rusqlite::{Row, params};
use serde_json::{Value, json};

use super::{
    audited::AuditedTransaction,
    dead_letters::{self, Bounds},
    declared::{moment, optional_moment},
    destinations::opened,
    events,
    filters::Filters,
    handle::SqliteAdmin,
    run,
    seen::Seen,
    view::View,
};
use crate::{error::corrupt, query, value::rows};

#[async_trait]
impl JobAdmin for SqliteAdmin {
    async fn seen(&self) -> Result<String, AdminError> {
        let seen = self.read(Seen::now).await?;
        Ok(seen.to_string())
    }

    async fn start_dead_letter_job(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &EventFilter,
        discard: Option<&str>,
        options: &JobOptions,
    ) -> Result<Job, AdminError> {
        let mut arguments = json!({"filter": filter.to_arguments(actor)?});
        let mut kind = JobKind::ReplayDeadLetters;
        if let Some(reason) = discard {
            check_reason(reason)?;
            arguments["reason"] = json!(reason);
            kind = JobKind::DiscardDeadLetters;
        }
        check_job_options(options)?;
        let mut new = NewJob::of(kind, destination, arguments, options);
        let (actor, find) = (actor.clone(), Filters::of(actor, filter));
        let taken = options.seen.clone();
        // Counting may take long, so it is not part of the transaction that writes.
        let count = move |view: &View<'_>| {
            let seen = seen(view, taken.as_deref())?;
            new.arguments["until"] = json!(seen.until);
            new.arguments["deaths"] = json!(seen.deaths);
            let mut total = 0;
            for partition in opened(view, Some(&new.destination))? {
                if let Some(find) = &find {
                    total += dead_letters::count(view, find, &partition.name, Bounds::of(&seen))?;
                }
            }
            new.total = Some(total);
            Ok(new)
        };
        let new = self.read(count).await?;
        self.change(move |act| begin(act, &actor, &new)).await
    }

    async fn start_event_job(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &EventFilter,
        partitions: Option<u8>,
        options: &JobOptions,
    ) -> Result<Job, AdminError> {
        check_job_options(options)?;
        let spelled = filter.to_arguments(actor)?;
        let mut new = NewJob::of(JobKind::ReplayEvents, destination, json!({}), options);
        let (taken, by, wanted) = (options.seen.clone(), actor.clone(), filter.clone());
        let look = move |view: &View<'_>| {
            let opened = opened(view, Some(&new.destination))?;
            let partitions = count_partitions(&new.destination, &opened, partitions)?;
            let seen = seen(view, taken.as_deref())?;
            // The position of a single event is known, so that no other event has to be read.
            let (before, last) = match events::place_of(view, &by, &wanted)? {
                Some(position) => (position.saturating_sub(1), position),
                None => (0, seen.until.saturating_sub(1)),
            };
            let until = last.saturating_add(1);
            new.arguments = json!({"filter": spelled, "partitions": partitions, "until": until});
            new.beyond = before;
            Ok(new)
        };
        let mut new = self.read(look).await?;
        new.total = Some(self.count_events(actor, filter).await?);
        let actor = actor.clone();
        self.change(move |act| begin(act, &actor, &new)).await
    }

    async fn job(&self, actor: &Actor, id: i64) -> Result<Job, AdminError> {
        let tenant = actor.tenant().map(str::to_owned);
        let find = move |view: &View<'_>| find(view, id, tenant.as_deref());
        let found = self.read(find).await?;
        found.ok_or_else(|| AdminError::not_found(job_object(id)))
    }

    async fn jobs(
        &self,
        actor: &Actor,
        filter: &JobFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<Job>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let before: Option<i64> = read_cursor(before, |text| text.parse().ok())?;
        let before = before.unwrap_or(i64::MAX);
        let (tenant, filter) = (actor.tenant().map(str::to_owned), filter.clone());
        let list = move |view: &View<'_>| {
            let JobFilter { destination, state } = filter;
            let params = params![before, tenant, destination, state, rows(limit)];
            view.list(query!("admin/jobs"), params, job)
        };
        let items = self.read(list).await?.into_iter();
        let items: Vec<Job> = items.collect::<Result<_, _>>()?;
        Ok(Page::up_to(limit, items, |it| it.id.to_string()))
    }

    async fn cancel_job(&self, actor: &Actor, id: i64) -> Result<(), AdminError> {
        let actor = actor.clone();
        self.change_or_refuse(move |act| {
            let found = find(act, id, actor.tenant())?;
            let found = found.ok_or_else(|| AdminError::not_found(job_object(id)))?;
            if found.kind == JobKind::RemoveDestination {
                return Err(AdminError::conflict(
                    "a removal that has started cannot be cancelled",
                ));
            }
            let params = params![id, act.now.as_millis()];
            let is_cancelled = act.execute(query!("admin/cancel_job"), params)? > 0;
            let outcome = if is_cancelled { "done" } else { "refused" };
            act.note(&actor, "cancel", &job_object(id), &json!({}), outcome)?;
            let ended = || AdminError::conflict(format!("{} has ended", job_object(id)));
            Ok(is_cancelled.then_some(()).ok_or_else(ended))
        })
        .await
    }

    async fn run_job(&self) -> Result<JobStep, StoreError> {
        run::run_one(self).await
    }
}

/// The snapshot that limits a job.
fn seen(view: &View<'_>, taken: Option<&str>) -> Result<Seen, AdminError> {
    match taken {
        Some(seen) => Seen::read(view, seen),
        None => Seen::now(view),
    }
}

/// A job to be stored.
pub(super) struct NewJob {
    pub(super) kind: JobKind,
    pub(super) destination: String,
    pub(super) arguments: Value,
    /// The position after which it begins.
    pub(super) beyond: i64,
    pub(super) total: Option<u64>,
    pub(super) per_second: Option<u32>,
    pub(super) after_ms: i64,
    pub(super) request_key: Option<String>,
}

impl NewJob {
    fn of(kind: JobKind, destination: &str, arguments: Value, options: &JobOptions) -> Self {
        Self {
            kind,
            destination: destination.to_owned(),
            arguments,
            beyond: 0,
            total: None,
            per_second: options.per_second,
            after_ms: 0,
            request_key: options.request_key.clone(),
        }
    }

    pub(super) fn write(
        &self,
        act: &AuditedTransaction<'_>,
        actor: &Actor,
    ) -> Result<Job, AdminError> {
        let now = act.now.as_millis();
        let total = self.total.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        let params = params![
            self.kind.as_str(),
            self.destination,
            actor.tenant(),
            self.arguments.to_string(),
            self.beyond,
            total,
            self.per_second.map(|it| it.min(i32::MAX.unsigned_abs())),
            now.saturating_add(self.after_ms),
            actor.name,
            self.request_key,
            now,
        ];
        if let Some(written) = act.first(query!("admin/begin_job"), params, job)? {
            return Ok(written?);
        }
        // The key was used before: the request must be for the same job.
        let params = params![actor.name, self.request_key];
        let known = act.first(query!("admin/job_of_request"), params, job)?;
        let same = known.transpose()?.filter(|known| {
            known.kind == self.kind
                && known.destination == self.destination
                && are_same_arguments(&known.arguments, &self.arguments)
        });
        same.ok_or_else(|| AdminError::conflict("the key of the request belongs to another job"))
    }
}

/// Stores a job and its line in the audit log.
fn begin(act: &AuditedTransaction<'_>, actor: &Actor, new: &NewJob) -> Result<Job, AdminError> {
    let object = destination_object(&new.destination);
    if opened(act, Some(&new.destination))?.is_empty() {
        return Err(AdminError::not_found(object));
    }
    let job = new.write(act, actor)?;
    let detail = json!({"job": job.id, "total": new.total, "arguments": new.arguments});
    act.note(actor, new.kind.as_str(), &object, &detail, "done")?;
    Ok(job)
}

fn find(view: &View<'_>, id: i64, tenant: Option<&str>) -> Result<Option<Job>, AdminError> {
    let found = view.first(query!("admin/job"), params![id, tenant], job)?;
    Ok(found.transpose()?)
}

/// The last job that removes a destination.
pub(super) fn removal_of(view: &View<'_>, name: &str) -> Result<Option<Job>, AdminError> {
    let params = params![name, JobKind::RemoveDestination.as_str()];
    let found = view.first(query!("admin/removal"), params, job)?;
    Ok(found.transpose()?)
}

/// Reads a job. The inner error is that of a kind that this version does not know.
pub(super) fn job(row: &Row<'_>) -> rusqlite::Result<Result<Job, StoreError>> {
    let kind: String = row.get("kind")?;
    let Some(kind) = JobKind::parse(&kind) else {
        return Ok(Err(corrupt(format!("job of kind {kind:?}"))));
    };
    let arguments: String = row.get("arguments")?;
    let total: Option<i64> = row.get("total")?;
    Ok(Ok(Job {
        id: row.get("id")?,
        kind,
        destination: row.get("destination")?,
        tenant: row.get("tenant")?,
        arguments: serde_json::from_str(&arguments).unwrap_or_default(),
        state: row.get("state")?,
        partition: row.get("partition")?,
        position: row.get("position")?,
        total: total.map(i64::unsigned_abs),
        done: row.get::<_, i64>("done")?.unsigned_abs(),
        per_second: row.get("per_second")?,
        failures: row.get("failures")?,
        error: row.get("error")?,
        actor: row.get("actor")?,
        created_at: moment(row, "created_at")?,
        started_at: optional_moment(row, "started_at")?,
        ended_at: optional_moment(row, "ended_at")?,
    }))
}
