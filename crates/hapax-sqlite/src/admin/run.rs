//! Running jobs, one batch at a time.
//!
//! A batch that fails is retried later. After too many failures in a row the job is given up.
//! Between two batches the database is free for as long as the batch took, so that a job slows the
//! service down by no more than half.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hapax::{
    admin::{Actor, AdminError, Job, JobStep, job_object},
    store::StoreError,
};
use rusqlite::params;
use serde_json::json;

use super::{
    audited::AuditedTransaction,
    batch::{self, Batch},
    handle::SqliteAdmin,
    jobs::job,
    view::View,
};
use crate::query;

/// Batches that may fail in a row before a job is given up.
const FAILURES_MAX: i64 = 10;
/// Pause after a failed batch, in milliseconds, multiplied by the number of failures in a row.
const BACKOFF_MS: i64 = 1_000;
/// The longest time after which a job is due again. A later time was written while the clock was
/// ahead.
const NEXT_MS_MAX: i64 = 60_000;
/// The longest pause after a batch.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The job of a batch and how long the batch took, even if the batch fails.
type Attempted = Arc<Mutex<Option<(Job, Duration)>>>;

/// Runs one batch of the job that has been due longest.
pub(super) async fn run_one(store: &SqliteAdmin) -> Result<JobStep, StoreError> {
    // Most calls find nothing. They do not take the lock for writing.
    if store.read(due).await.map_err(store_error)?.is_none() {
        return Ok(JobStep::Nothing);
    }
    let attempted = Attempted::default();
    let noted = Arc::clone(&attempted);
    let ran = store.change(move |act| run(act, &noted)).await;
    let attempted = attempted
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some((job, took)) = attempted else {
        return ran.map_err(store_error);
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(error @ (AdminError::Busy | AdminError::Store(StoreError::Unavailable { .. }))) => {
            return Err(store_error(error));
        }
        Err(error) => {
            tracing::warn!(job = job.id, error = %error, "a batch of a job failed");
            let failed = JobStep::Failed { job: job.id };
            let fail = move |act: &AuditedTransaction<'_>| fail(act, &job, &error);
            store.change(fail).await.map_err(store_error)?;
            failed
        }
    };
    tokio::time::sleep(took.min(PAUSE_MAX)).await;
    Ok(ran)
}

/// The job that has been due longest.
fn due(view: &View<'_>) -> Result<Option<Job>, AdminError> {
    let now = view.now.as_millis();
    let params = params![now, now.saturating_add(NEXT_MS_MAX)];
    let found = view.first(query!("admin/hold_job"), params, job)?;
    Ok(found.transpose()?)
}

fn run(act: &AuditedTransaction<'_>, noted: &Attempted) -> Result<JobStep, AdminError> {
    let Some(job) = due(act)? else {
        return Ok(JobStep::Nothing);
    };
    let began = Instant::now();
    let stepped = step(act, &job);
    let ran = stepped.map(|batch| JobStep::Batch {
        job: job.id,
        done: batch.done,
        ended: batch.ended,
    });
    let attempted = Some((job, began.elapsed()));
    *noted.lock().unwrap_or_else(PoisonError::into_inner) = attempted;
    ran
}

fn step(act: &AuditedTransaction<'_>, job: &Job) -> Result<Batch, AdminError> {
    let batch = batch::run(act, job)?;
    let done = i64::try_from(batch.done).unwrap_or(i64::MAX);
    let pause = job.per_second.map_or(0, |rate| {
        done.saturating_mul(1_000) / i64::from(rate.max(1))
    });
    let params = params![
        job.id,
        batch.partition,
        batch.position,
        done,
        pause,
        batch.ended,
        act.now.as_millis()
    ];
    act.execute(query!("admin/advance_job"), params)?;
    if batch.ended {
        let actor = Actor::new(job.actor.as_str());
        let detail = json!({"done": job.done + batch.done});
        act.note(
            &actor,
            job.kind.as_str(),
            &job_object(job.id),
            &detail,
            "done",
        )?;
    }
    Ok(batch)
}

fn fail(act: &AuditedTransaction<'_>, job: &Job, error: &AdminError) -> Result<(), AdminError> {
    let outcome = match error {
        AdminError::Store(error) => error.error_chain(),
        other => other.to_string(),
    };
    let wait = BACKOFF_MS * (i64::from(job.failures) + 1);
    let params = params![job.id, outcome, wait, FAILURES_MAX, act.now.as_millis()];
    act.execute(query!("admin/fail_job"), params).map(drop)
}

/// The error of a store that the worker of jobs retries.
fn store_error(error: AdminError) -> StoreError {
    match error {
        AdminError::Store(error) => error,
        other => StoreError::unavailable(other),
    }
}
