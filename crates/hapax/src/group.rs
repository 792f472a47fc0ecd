//! Group commit: concurrent requests share one commit.
//!
//! A store puts its requests into a queue and takes those that are waiting, up to a maximum. There
//! is no timer, so an idle service has no delay. A group commits or fails as a whole, and no member
//! receives a result before its [`Fate`] is known. If one member makes the commit fail, the members
//! are run one by one to find it; for some time after that, groups have one member. The store
//! decides how a group is written: with savepoints on one thread, or with set-based statements in
//! one round trip.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout_at,
};

use crate::store::{DatabaseError, StoreError};

/// A queue of requests that wait for a group. Clones share it.
pub struct Queue<J>(Arc<Mutex<Option<mpsc::Sender<J>>>>);

/// The receiving end of a [`Queue`], from which groups are taken.
#[derive(Debug)]
pub struct Waiting<J> {
    jobs: mpsc::Receiver<J>,
    members_max: usize,
    /// Number of further groups that have one member, so that the member that makes commits fail is
    /// found.
    singly: usize,
}

/// Creates a queue for at most `jobs_max` requests, with groups of at most `members_max`.
pub fn queue<J>(jobs_max: usize, members_max: usize) -> (Queue<J>, Waiting<J>) {
    let (sender, jobs) = mpsc::channel(jobs_max);
    let waiting = Waiting {
        jobs,
        members_max: members_max.max(1),
        singly: 0,
    };
    (Queue(Arc::new(Mutex::new(Some(sender)))), waiting)
}

impl<J> Queue<J> {
    /// Adds a request, and waits while the queue is full; false if the store is closed.
    pub async fn push(&self, job: J) -> bool {
        let sender = self.lock().as_ref().map(mpsc::Sender::clone);
        match sender {
            Some(sender) => sender.send(job).await.is_ok(),
            None => false,
        }
    }

    /// Accepts no more requests. Those in the queue are still executed.
    pub fn close(&self) {
        drop(self.lock().take());
    }

    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        let sender = self.lock();
        sender
            .as_ref()
            .map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
    }

    /// Whether no request is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Sender<J>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Clone for Queue<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<J> std::fmt::Debug for Queue<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("len", &self.len()).finish()
    }
}

impl<J> Waiting<J> {
    /// Waits for the first member of a group on a thread that may block; `None` if the queue is
    /// closed and empty.
    pub fn blocking_first(&mut self) -> Option<J> {
        self.jobs.blocking_recv()
    }

    /// Waits for the first member of a group; `None` if the queue is closed and empty.
    pub async fn first(&mut self) -> Option<J> {
        self.jobs.recv().await
    }

    /// The next member of the group, if one is waiting already.
    pub fn another(&mut self) -> Option<J> {
        self.jobs.try_recv().ok()
    }

    /// The maximum number of members of the next group.
    pub fn members(&mut self) -> usize {
        if self.singly == 0 {
            return self.members_max;
        }
        self.singly -= 1;
        1
    }

    /// Records that a member has made its group fail: the next groups have one member each.
    pub fn spoilt(&mut self) {
        self.singly = self.members_max;
    }
}

/// Decides between the store that starts a request and the caller that gives it up.
#[derive(Clone, Debug, Default)]
pub struct StartOnce(Arc<AtomicBool>);

impl StartOnce {
    /// True for the first caller of this function.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Adds a request to the queue and waits for its result.
///
/// If `deadline` passes before the request has started, the result is `TimedOut` and the request
/// never starts. If it has started, the call waits for the result, because the request may commit.
///
/// # Errors
/// The error of the request; `closed` if the store does not accept it or has lost it.
pub async fn answered<J, R>(
    queue: &Queue<J>,
    job: J,
    turn: &StartOnce,
    mut answer: oneshot::Receiver<Result<R, StoreError>>,
    deadline: Option<Instant>,
    closed: impl Fn() -> StoreError,
) -> Result<R, StoreError> {
    let answered = async {
        if !queue.push(job).await {
            return Err(closed());
        }
        (&mut answer).await.map_err(|_| closed())?
    };
    let Some(deadline) = deadline else {
        return answered.await;
    };
    match timeout_at(deadline.into(), answered).await {
        Ok(outcome) => outcome,
        Err(_) if turn.take() => Err(StoreError::TimedOut),
        // The request has started and may commit. Its result is known when the outcome of its group
        // is.
        Err(_) => answer.await.map_err(|_| closed())?,
    }
}

/// The outcome of a group.
#[derive(Clone, Debug)]
pub enum Fate {
    /// The group is committed.
    Committed,
    /// Nothing of the group was committed, for this reason.
    Lost(String),
    /// The group had one member, and its commit was refused.
    Refused(String),
    /// The group had one member, and the database refused its commit because of a constraint that
    /// is checked at that point.
    Violated(DatabaseError),
}

impl Fate {
    /// Returns the result of a member if its group is committed.
    ///
    /// A member without a result was not run because its group was lost, or has panicked.
    ///
    /// # Errors
    /// The member's error, or else an error that follows from the outcome of the group.
    pub fn apply<R>(&self, result: Option<Result<R, StoreError>>) -> Result<R, StoreError> {
        match (self, result) {
            (_, Some(Err(error))) => Err(error),
            (Self::Committed, Some(Ok(value))) => Ok(value),
            (Self::Committed, None) => Err(StoreError::statement("the write panicked")),
            (Self::Refused(reason), _) => Err(StoreError::statement(reason.as_str())),
            (Self::Violated(error), _) => Err(StoreError::statement(error.clone())),
            (Self::Lost(reason), _) => {
                let source = format!("the group was rolled back: {reason}").into();
                Err(StoreError::Unavailable { source })
            }
        }
    }
}
