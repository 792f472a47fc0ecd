//! Backlogs: read for all partitions together, and rarely while nothing is committed or settled.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    delivery::Backlog,
    limits::{REPORT, REPORT_IDLE},
    store::Summaries,
};

use super::{Lookout, locked};

/// The backlogs of one round, by partition.
pub(super) type Backlogs = BTreeMap<String, Backlog>;

impl Lookout {
    /// Reports the backlog of `partition` while the reporter exists.
    pub(in crate::relay) fn reporter<'a>(&'a self, partition: &'a str) -> Reporter<'a> {
        let found = self.backlogs.subscribe();
        locked(&self.reported).insert(partition.to_owned());
        self.asked.notify_one();
        Reporter {
            lookout: self,
            partition,
            found,
        }
    }

    /// Reads the backlogs for the metrics.
    pub(super) async fn report<D: Summaries>(&self, store: &D) {
        let mut reported_at: Option<Instant> = None;
        loop {
            let is_asked = timeout(REPORT, self.asked.notified()).await.is_ok();
            let was_active = self.is_active.swap(false, Ordering::Relaxed);
            // Without a frontier, the lookout does not know whether anything is committed.
            let is_quiet = !was_active && locked(&self.post).frontier.is_some();
            let is_recent = reported_at.is_some_and(|at| at.elapsed() < REPORT_IDLE);
            if !is_asked && is_quiet && is_recent {
                continue;
            }
            reported_at = Some(Instant::now());
            let partitions: Vec<String> = locked(&self.reported).iter().cloned().collect();
            if partitions.is_empty() {
                continue;
            }
            match store.backlogs(&partitions).await {
                Ok(found) => {
                    let found: Backlogs = found.into_iter().collect();
                    self.backlogs.send_replace(Arc::new(found));
                }
                Err(error) => {
                    let error = error.error_chain();
                    tracing::debug!(error, "the backlogs could not be read");
                }
            }
        }
    }
}

/// Receives the backlogs of one partition.
#[derive(Debug)]
pub(in crate::relay) struct Reporter<'a> {
    lookout: &'a Lookout,
    partition: &'a str,
    found: watch::Receiver<Arc<Backlogs>>,
}

impl Reporter<'_> {
    /// The partition.
    pub(in crate::relay) fn partition(&self) -> &str {
        self.partition
    }

    /// Waits for the next time that the backlog is read; `None` if the store did not return it.
    pub(in crate::relay) async fn next(&mut self) -> Option<Backlog> {
        if self.found.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.found.borrow_and_update().get(self.partition).copied()
    }

    /// Has the backlog read at the normal interval, even if nothing happens.
    pub(in crate::relay) fn look_again(&self) {
        self.lookout.is_active.store(true, Ordering::Relaxed);
    }
}

impl Drop for Reporter<'_> {
    fn drop(&mut self) {
        locked(&self.lookout.reported).remove(self.partition);
    }
}
