//! Requests in flight together share one commit.
//!
//! A store queues its requests and takes what is waiting, bounded in number: there is no timer,
//! so an idle service pays nothing. A group stands or falls as one, and nobody in it is told
//! anything before its [`Fate`] is known. A member that spoils the group is found by running the
//! members one by one; for a while after, groups are of one. How a group is written is the
//! store's: savepoints on one thread, or set-based statements in one flight.

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

/// Where requests wait for their group; clones share it.
pub struct Queue<J>(Arc<Mutex<Option<mpsc::Sender<J>>>>);

/// The other end of a [`Queue`]: who writes groups takes them from here.
#[derive(Debug)]
pub struct Waiting<J> {
    jobs: mpsc::Receiver<J>,
    members_max: usize,
    /// Groups that are still to be of one, so that whoever spoils a commit is found.
    singly: usize,
}

/// A queue for at most `jobs_max` requests, whose groups have at most `members_max`.
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
    /// Puts a request in line, waiting where the line is full; false when the store is closed.
    pub async fn push(&self, job: J) -> bool {
        let sender = self.lock().as_ref().map(mpsc::Sender::clone);
        match sender {
            Some(sender) => sender.send(job).await.is_ok(),
            None => false,
        }
    }

    /// Takes no more; what is in line is still written.
    pub fn close(&self) {
        drop(self.lock().take());
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        let sender = self.lock();
        sender
            .as_ref()
            .map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
    }

    /// Whether no request waits.
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
    /// Waits for the first of a group, on a thread that may block; `None` once closed and empty.
    pub fn blocking_first(&mut self) -> Option<J> {
        self.jobs.blocking_recv()
    }

    /// Waits for the first of a group; `None` once closed and empty.
    pub async fn first(&mut self) -> Option<J> {
        self.jobs.recv().await
    }

    /// The next of a group, if one is waiting already.
    pub fn another(&mut self) -> Option<J> {
        self.jobs.try_recv().ok()
    }

    /// How many members the next group may have.
    pub fn members(&mut self) -> usize {
        if self.singly == 0 {
            return self.members_max;
        }
        self.singly -= 1;
        1
    }

    /// A group was spoilt by one of its members: the next ones are of one.
    pub fn spoilt(&mut self) {
        self.singly = self.members_max;
    }
}

/// Who comes first: the store that begins a request, or the requester that gives it up.
#[derive(Clone, Debug, Default)]
pub struct Turn(Arc<AtomicBool>);

impl Turn {
    /// True for the first to ask.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Puts a request in line and waits for its answer.
///
/// Past `deadline` a request that has not begun is `TimedOut` and never begins; one that has
/// begun is waited for, because it may commit.
///
/// # Errors
/// What the request is answered with; `closed` when the store takes no more or lost it.
pub async fn answered<J, R>(
    queue: &Queue<J>,
    job: J,
    turn: &Turn,
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
        // It has begun and may commit: only its group's fate says what came of it.
        Err(_) => answer.await.map_err(|_| closed())?,
    }
}

/// What became of a group.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It is on disk.
    Committed,
    /// None of it happened, and why.
    Lost(String),
    /// It had one member, and the commit refused it.
    Refused(String),
    /// It had one member, and the database refused its commit: a constraint that is checked there.
    Violated(DatabaseError),
}

impl Fate {
    /// Passes a result on only if the group that it belongs to is on disk.
    ///
    /// A member without a result did not run because its group was lost, or it panicked.
    ///
    /// # Errors
    /// The member's own error; otherwise what the group's fate makes of it.
    pub fn apply<R>(&self, result: Option<Result<R, StoreError>>) -> Result<R, StoreError> {
        match (self, result) {
            (_, Some(Err(error))) => Err(error),
            (Self::Committed, Some(Ok(value))) => Ok(value),
            (Self::Committed, None) => Err(StoreError::Statement {
                source: "the write panicked".into(),
            }),
            (Self::Refused(reason), _) => Err(StoreError::Statement {
                source: reason.as_str().into(),
            }),
            (Self::Violated(error), _) => Err(StoreError::Statement {
                source: error.clone().into(),
            }),
            (Self::Lost(reason), _) => {
                let source = format!("the group was rolled back: {reason}").into();
                Err(StoreError::Unavailable { source })
            }
        }
    }
}
