//! Job worker: runs jobs once a second, and without a pause while there is more to do.

use std::time::Duration;

use hapax::admin::{JobAdmin, Ran};
use tokio::{sync::watch, time::timeout};

/// Poll interval while there is no job.
const ASK: Duration = Duration::from_secs(1);

/// Runs until it is stopped. A batch that has started is finished first.
pub(crate) async fn work(store: impl JobAdmin, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        match store.run_job().await {
            Ok(ran) => {
                if let Ran::Batch {
                    job, ended: true, ..
                } = ran
                {
                    tracing::info!(job, to_state = "done", "job ended");
                }
                if goes_on(&ran) {
                    continue;
                }
            }
            Err(error) => tracing::warn!(error = error.error_chain(), "the jobs cannot be run"),
        }
        let _told = timeout(ASK, stop.wait_for(|stop| *stop)).await;
    }
}

/// Whether to continue without a pause. A batch that found nothing has looked at a limited number
/// of events, and the next batch continues after them.
fn goes_on(ran: &Ran) -> bool {
    matches!(ran, Ran::Batch { done, ended, .. } if *done > 0 || !ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_found_nothing_and_has_not_ended_goes_on_at_once() {
        let batch = |done, ended| Ran::Batch {
            job: 1,
            done,
            ended,
        };
        assert!(goes_on(&batch(0, false)));
        assert!(goes_on(&batch(1, false)));
        assert!(goes_on(&batch(1, true)));
        assert!(!goes_on(&batch(0, true)));
        assert!(!goes_on(&Ran::Nothing));
    }
}
