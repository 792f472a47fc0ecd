//! Jobs: operations on many events, which run in batches of one transaction each.
//!
//! The changes of a batch and the progress of the job are committed together. A job whose relay is
//! killed therefore continues where it stopped, and does nothing twice.
//!
//! An operator who is about to replay or discard many dead letters is first shown their number.
//! [`JobAdmin::seen`] is taken before they are counted, and the job then processes exactly these: a
//! letter that dies between the count and the job is left out.

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use super::{Actor, AdminError, EventFilter, Page};
use crate::{clock::Timestamp, store::StoreError};

/// Operations on jobs.
#[async_trait]
pub trait JobAdmin: Send + Sync {
    /// Takes a snapshot of the events and dead letters that are visible now, as opaque text.
    async fn seen(&self) -> Result<String, AdminError>;

    /// Starts a job that replays the dead letters of a destination that match a filter, or discards
    /// them if there is a reason for that. Letters that died, or died again, after they were
    /// counted are not processed.
    ///
    /// `NotFound` if no relay has ever opened the destination; `Conflict` if the key of the request
    /// was used for another job; `Invalid` if the reason is empty or too long.
    async fn start_dead_letter_job(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &EventFilter,
        discard: Option<&str>,
        options: &JobOptions,
    ) -> Result<Job, AdminError>;

    /// Starts a job that offers events to a destination again, regardless of their outcome, with
    /// the same ids. It processes the events that match a filter and existed when they were
    /// counted.
    ///
    /// Events that the destination has not read yet, or has parked, will be delivered anyway and
    /// are not changed. `partitions` is the number of partitions of the destination; if it is
    /// absent, the number of partitions that relays have opened is used.
    ///
    /// Fails like [`start_dead_letter_job`](Self::start_dead_letter_job).
    async fn start_event_job(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &EventFilter,
        partitions: Option<u8>,
        options: &JobOptions,
    ) -> Result<Job, AdminError>;

    /// Reads one job.
    ///
    /// `NotFound` if there is none.
    async fn job(&self, actor: &Actor, id: i64) -> Result<Job, AdminError>;

    /// Lists jobs, the newest first.
    async fn jobs(
        &self,
        actor: &Actor,
        filter: &JobFilter,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Page<Job>, AdminError>;

    /// Cancels a job. Its completed batches are not undone, and the removal of a destination cannot
    /// be cancelled.
    ///
    /// `NotFound` if the job does not exist; `Conflict` if it has ended or cannot be cancelled.
    async fn cancel_job(&self, actor: &Actor, id: i64) -> Result<(), AdminError>;

    /// Runs one batch of the job that has been due longest and that no other process is running.
    ///
    /// A relay calls this on a timer, and again immediately while there is work. If the store cannot
    /// be reached, the job continues with the next call.
    async fn run_job(&self) -> Result<JobStep, StoreError>;
}

/// The kind of work that a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobKind {
    /// Makes dead letters due again.
    ReplayDeadLetters,
    /// Discards dead letters permanently.
    DiscardDeadLetters,
    /// Offers events again, regardless of their outcome.
    ReplayEvents,
    /// Deletes the rows of a removed destination.
    RemoveDestination,
}

impl JobKind {
    /// The name in rows and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplayDeadLetters => "replay_dead_letters",
            Self::DiscardDeadLetters => "discard_dead_letters",
            Self::ReplayEvents => "replay_events",
            Self::RemoveDestination => "remove_destination",
        }
    }

    /// The kind with this name.
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::ReplayDeadLetters,
            Self::DiscardDeadLetters,
            Self::ReplayEvents,
            Self::RemoveDestination,
        ]
        .into_iter()
        .find(|it| it.as_str() == word)
    }
}

/// A job and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    /// The job id.
    pub id: i64,
    /// The operation of the job.
    pub kind: JobKind,
    /// The destination.
    pub destination: String,
    /// The only tenant whose events it processes; `None` for all tenants.
    #[serde(skip)]
    pub tenant: Option<String>,
    /// `waiting`, `running`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// The number of events or dead letters that matched when the job was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The number processed so far.
    pub done: u64,
    /// The maximum number per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// The filter and the reason.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub arguments: Value,
    /// Batches that have failed in a row.
    #[serde(skip)]
    pub failures: u32,
    /// The error of the last failed batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The actor that created the job.
    pub actor: String,
    /// When the job was created.
    pub created_at: Timestamp,
    /// When its first batch ended.
    #[serde(skip)]
    pub started_at: Option<Timestamp>,
    /// When the job ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The partition in which the next batch begins.
    #[serde(skip)]
    pub partition: String,
    /// The position after which the next batch begins.
    #[serde(skip)]
    pub position: i64,
}

impl Job {
    /// How many of the counted events or dead letters a finished job has left unchanged, and why;
    /// `None` if it has changed all of them, has not ended, or deletes rows.
    pub fn skipped(&self) -> Option<(u64, &'static str)> {
        let why = match self.kind {
            JobKind::ReplayDeadLetters | JobKind::DiscardDeadLetters => {
                "no longer dead letters, or dead again after they were counted"
            }
            JobKind::ReplayEvents => {
                "not read by the relay yet, or waiting for an attempt: they will be delivered anyway"
            }
            JobKind::RemoveDestination => return None,
        };
        let count = self.total?.checked_sub(self.done)?;
        (self.state == "done" && count > 0).then_some((count, why))
    }
}

/// Options of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// Maximum number of events per second.
    pub per_second: Option<u32>,
    /// The key of the request: two requests with the same key start one job.
    pub request_key: Option<String>,
    /// The [`JobAdmin::seen`] under which the events for the job were counted. By default it is
    /// taken now.
    pub seen: Option<String>,
}

/// A filter for jobs. A field that is absent matches every job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// The destination.
    pub destination: Option<String>,
    /// The state.
    pub state: Option<String>,
}

/// The result of polling for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// No job is due, or other processes run those that are.
    Nothing,
    /// A batch of a job was completed.
    Batch {
        /// The job.
        job: i64,
        /// The number of processed events.
        done: u64,
        /// Whether the job has ended.
        ended: bool,
    },
    /// A batch failed. The job is retried later or given up.
    Failed {
        /// The job.
        job: i64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_has_done_less_than_was_counted_tells_why() {
        let mut job = Job {
            id: 5,
            kind: JobKind::ReplayEvents,
            destination: "mail".to_owned(),
            tenant: None,
            state: "done".to_owned(),
            total: Some(1),
            done: 0,
            per_second: None,
            arguments: Value::Null,
            failures: 0,
            error: None,
            actor: "ops".to_owned(),
            created_at: Timestamp::default(),
            started_at: None,
            ended_at: None,
            partition: String::new(),
            position: 0,
        };
        let (count, why) = job.skipped().unwrap();
        assert_eq!(count, 1);
        assert!(why.contains("not read by the relay yet"), "{why}");
        job.done = 1;
        assert_eq!(job.skipped(), None);
        (job.done, job.state) = (0, "running".to_owned());
        assert_eq!(job.skipped(), None);
    }
}
