//! Running jobs, one batch at a time.
//!
//! A batch that fails is retried later. After too many failures in a row the job is given up.

use hapax::{
    admin::{Actor, AdminError, Job, JobStep, job_object},
    store::StoreError,
};
use serde_json::json;

use super::{
    audited::AuditedTransaction,
    batch::{self, Batch},
    jobs::job,
};
use crate::{
    delivery::settle::text,
    postgres::Postgres,
    query,
    value::{Param, rows},
};

/// Batches that may fail in a row before a job is given up.
const FAILURES_MAX: i32 = 10;
/// Pause after a failed batch, in milliseconds, multiplied by the number of failures in a row.
const BACKOFF_MS: i64 = 1_000;

/// Runs one batch of the job that has been due longest and that no other relay is running.
pub(super) async fn run_one(store: &Postgres) -> Result<JobStep, StoreError> {
    let mut act = AuditedTransaction::begin(store).await?;
    let held = act.ask(query!("admin/hold_job"), &[]).await?;
    let Some(row) = held.first() else {
        act.rollback().await;
        return Ok(JobStep::Nothing);
    };
    let job = job(row)?;
    match step(&mut act, store, &job).await {
        Ok(batch) => {
            act.commit().await?;
            Ok(JobStep::Batch {
                job: job.id,
                done: batch.done,
                ended: batch.ended,
            })
        }
        Err(AdminError::Store(error @ StoreError::Unavailable { .. })) => Err(error),
        Err(error) => {
            act.rollback().await;
            tracing::warn!(job = job.id, error = %error, "a batch of a job failed");
            fail(store, &job, &error).await?;
            Ok(JobStep::Failed { job: job.id })
        }
    }
}

async fn step(
    act: &mut AuditedTransaction<'_>,
    store: &Postgres,
    job: &Job,
) -> Result<Batch, AdminError> {
    let batch = batch::run(act, store, job).await?;
    let pause = job.per_second.map_or(0, |rate| {
        rows(usize::try_from(batch.done).unwrap_or(usize::MAX)) * 1_000 / i64::from(rate.max(1))
    });
    let done = i64::try_from(batch.done).unwrap_or(i64::MAX);
    let params: [&dyn Param; 6] = [
        &job.id,
        &batch.partition,
        &batch.position,
        &done,
        &pause,
        &batch.ended,
    ];
    act.ask(query!("admin/advance_job"), &params).await?;
    if batch.ended {
        let actor = Actor::new(job.actor.as_str());
        let detail = json!({"done": job.done + batch.done});
        act.note(
            &actor,
            job.kind.as_str(),
            &job_object(job.id),
            &detail,
            "done",
        )
        .await?;
    }
    Ok(batch)
}

async fn fail(store: &Postgres, job: &Job, error: &AdminError) -> Result<(), StoreError> {
    let outcome = text(&match error {
        AdminError::Store(error) => error.error_chain(),
        other => other.to_string(),
    });
    let wait = BACKOFF_MS * i64::from(job.failures + 1);
    let params: [&dyn Param; 4] = [&job.id, &outcome, &wait, &FAILURES_MAX];
    store.ask(query!("admin/fail_job"), &params).await.map(drop)
}
