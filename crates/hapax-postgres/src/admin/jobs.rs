//! Jobs: operations on many events, which run in batches of one transaction each.
//!
//! If several relays poll for work, each job is run by the one that has locked its row. The lock is
//! released when the connection of that relay ends.

use async_trait::async_trait;
use hapax::{
    admin::{
        Actor, AdminError, DeliveryAdmin, DestinationAdmin, EventAdmin, EventFilter, Job, JobAdmin,
        JobFilter, JobKind, JobOptions, JobStep, PAGE_MAX, Page, are_same_arguments,
        check_job_options, check_reason, count_partitions, destination_object, job_object,
        read_cursor,
    },
    store::StoreError,
};
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::{audited::AuditedTransaction, events, filters::word, run, seen::Seen};
use crate::{
    delivery::settle::text,
    error::corrupt,
    postgres::Postgres,
    query,
    value::{Moment, Param, rows},
};

#[async_trait]
impl JobAdmin for Postgres {
    async fn seen(&self) -> Result<String, AdminError> {
        Ok(Seen::now(self).await?.to_string())
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
        let seen = seen(self, options).await?;
        bound(&mut arguments, &seen);
        let seen = seen.to_string();
        let total = self.count_dead_letters(actor, destination, filter, &seen);
        let total = Some(total.await?);
        let new = NewJob::of(kind, destination, arguments, total, options);
        begin(self, actor, new).await
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
        let opened = self.partitions(Some(destination)).await?;
        let partitions = count_partitions(destination, &opened, partitions)?;
        let spelled = filter.to_arguments(actor)?;
        let seen = seen(self, options).await?;
        let total = self.count_events(actor, filter).await?;
        // The position of a single event is known, so that no other event has to be read.
        let (before, last) = match events::place_of(self, actor, filter).await? {
            Some(position) => (position.saturating_sub(1), position),
            None => (0, seen.until.saturating_sub(1)),
        };
        let arguments =
            json!({"filter": spelled, "partitions": partitions, "until": last.saturating_add(1)});
        let kind = JobKind::ReplayEvents;
        let mut new = NewJob::of(kind, destination, arguments, Some(total), options);
        new.beyond = before;
        begin(self, actor, new).await
    }

    async fn job(&self, actor: &Actor, id: i64) -> Result<Job, AdminError> {
        let params: [&dyn Param; 2] = [&id, &actor.tenant()];
        let found = self.ask(query!("admin/job"), &params).await?;
        let row = found
            .first()
            .ok_or_else(|| AdminError::not_found(job_object(id)))?;
        Ok(job(row)?)
    }

    async fn jobs(
        &self,
        actor: &Actor,
        filter: &JobFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<Job>, AdminError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let before = read_cursor(before, |text| text.parse().ok())?;
        let (before, tenant, count) = (before.unwrap_or(i64::MAX), actor.tenant(), rows(limit));
        let destination = word(filter.destination.as_ref());
        let state = word(filter.state.as_ref());
        let params: [&dyn Param; 5] = [&before, &tenant, &destination, &state, &count];
        let found = self.ask(query!("admin/jobs"), &params).await?;
        let items: Vec<Job> = found.iter().map(job).collect::<Result<_, _>>()?;
        Ok(Page::up_to(limit, items, |it| it.id.to_string()))
    }

    async fn cancel_job(&self, actor: &Actor, id: i64) -> Result<(), AdminError> {
        let found = self.job(actor, id).await?;
        if found.kind == JobKind::RemoveDestination {
            return Err(AdminError::conflict(
                "a removal that has started cannot be cancelled",
            ));
        }
        let mut act = AuditedTransaction::begin(self).await?;
        let cancelled = !act
            .ask(query!("admin/cancel_job"), &[&id])
            .await?
            .is_empty();
        let outcome = if cancelled { "done" } else { "refused" };
        act.note(actor, "cancel", &job_object(id), &json!({}), outcome)
            .await?;
        act.commit().await?;
        if cancelled {
            Ok(())
        } else {
            Err(AdminError::conflict(format!(
                "{} has ended",
                job_object(id)
            )))
        }
    }

    async fn run_job(&self) -> Result<JobStep, StoreError> {
        run::run_one(self).await
    }
}

/// The snapshot that limits a job.
async fn seen(store: &Postgres, options: &JobOptions) -> Result<Seen, AdminError> {
    match &options.seen {
        Some(seen) => Seen::parse(seen),
        None => Ok(Seen::now(store).await?),
    }
}

/// A job to be stored.
pub(super) struct NewJob<'a> {
    pub(super) kind: JobKind,
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
        kind: JobKind,
        destination: &'a str,
        arguments: Value,
        total: Option<u64>,
        options: &'a JobOptions,
    ) -> Self {
        Self {
            kind,
            destination,
            arguments,
            beyond: 0,
            total,
            per_second: options.per_second,
            after_ms: 0,
            request_key: options.request_key.as_deref(),
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
                && are_same_arguments(&known.arguments, &self.arguments)
        });
        same.ok_or_else(|| AdminError::conflict("the key of the request belongs to another job"))
    }
}

/// Stores a job and its line in the audit log.
async fn begin(store: &Postgres, actor: &Actor, new: NewJob<'_>) -> Result<Job, AdminError> {
    if store.partitions(Some(new.destination)).await?.is_empty() {
        return Err(AdminError::not_found(destination_object(new.destination)));
    }
    let mut act = AuditedTransaction::begin(store).await?;
    let job = new.write(&mut act, actor).await?;
    let detail = json!({
        "job": job.id,
        "total": new.total,
        "arguments": new.arguments,
    });
    let object = destination_object(new.destination);
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

pub(super) fn job(row: &Row) -> Result<Job, StoreError> {
    let kind: &str = row.get("kind");
    let moment = |column| row.get::<_, Option<Moment>>(column).map(|it| it.0);
    Ok(Job {
        id: row.get("id"),
        kind: JobKind::parse(kind).ok_or_else(|| corrupt(format!("job of kind {kind:?}")))?,
        destination: row.get("destination"),
        tenant: row.get("tenant"),
        arguments: serde_json::from_str(row.get("arguments")).unwrap_or_default(),
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
