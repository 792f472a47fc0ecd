//! Job worker: runs the jobs that operators have started, in batches.
//!
//! A job does nothing until a worker runs it. Every process that runs a relay or serves the console
//! of a store therefore runs a worker. Any number of workers may run at the same time, in any
//! processes: a batch is claimed in the database.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::{Admin, JobStep};

/// Poll interval while no job is due.
const POLL: Duration = Duration::from_secs(1);
/// Poll interval after [`IDLE_POLLS`] polls that have found no job.
const POLL_IDLE: Duration = Duration::from_secs(5);
/// Number of polls without a job after which the worker polls less often.
const IDLE_POLLS: u32 = 60;

/// Runs the jobs of a store: once a second, every five seconds after a minute without a job, and
/// without a pause while there is more to do.
#[derive(Clone, Debug)]
pub struct JobWorker {
    admin: Arc<dyn Admin>,
}

impl JobWorker {
    /// Creates a worker for the jobs of a store.
    pub fn new(admin: Arc<dyn Admin>) -> Self {
        Self { admin }
    }

    /// Runs jobs until `shutdown` completes. A batch that has started is finished first.
    ///
    /// If the store cannot be read, a warning is logged and the worker continues a second later.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let mut shutdown = pin!(shutdown);
        let mut idle_polls = 0_u32;
        while shutdown.as_mut().now_or_never().is_none() {
            match self.batch().await {
                Some(ran) if has_more(&ran) => {
                    idle_polls = 0;
                    continue;
                }
                Some(JobStep::Nothing) => idle_polls = idle_polls.saturating_add(1),
                _ => idle_polls = 0,
            }
            if timeout(pause(idle_polls), &mut shutdown).await.is_ok() {
                return;
            }
        }
    }

    /// Runs one batch; `None` if the store cannot be read.
    async fn batch(&self) -> Option<JobStep> {
        match self.admin.run_job().await {
            Ok(ran) => {
                if let JobStep::Batch {
                    job, ended: true, ..
                } = ran
                {
                    tracing::info!(job, to_state = "done", "job ended");
                }
                Some(ran)
            }
            Err(error) => {
                tracing::warn!(error = error.error_chain(), "the jobs cannot be run");
                None
            }
        }
    }
}

/// Whether to continue without a pause. A batch that found nothing has looked at a limited number
/// of events, and the next batch continues after them.
fn has_more(ran: &JobStep) -> bool {
    matches!(ran, JobStep::Batch { done, ended, .. } if *done > 0 || !ended)
}

/// How long to wait after so many polls that have found no job.
fn pause(idle_polls: u32) -> Duration {
    if idle_polls < IDLE_POLLS {
        POLL
    } else {
        POLL_IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_jobs_polls_less_often_after_a_minute() {
        assert_eq!(
            [0, 59, 60, u32::MAX].map(pause),
            [POLL, POLL, POLL_IDLE, POLL_IDLE]
        );
    }

    #[test]
    fn a_batch_that_found_nothing_and_has_not_ended_goes_on_at_once() {
        let batch = |done, ended| JobStep::Batch {
            job: 1,
            done,
            ended,
        };
        assert!(has_more(&batch(0, false)));
        assert!(has_more(&batch(1, false)));
        assert!(has_more(&batch(1, true)));
        assert!(!has_more(&batch(0, true)));
        assert!(!has_more(&JobStep::Nothing));
    }
}
