//! Faults that wait for a named moment in what a client and PostgreSQL say to each other.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::wait::eventually;

/// What a trap waits for.
#[derive(Clone)]
pub struct Moment(Arc<dyn Fn(&Said<'_>) -> bool + Send + Sync>);

/// What a client says to its server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said<'a> {
    /// A statement is to run: a simple query, or the execution of a prepared one.
    Statement(&'a str),
    /// A statement of another connection is to be cancelled.
    Cancel,
}

impl Moment {
    /// When a `COMMIT` is to run, alone or as the end of a longer query.
    pub fn commit() -> Self {
        Self::statement(|text| {
            let text = text.trim_end_matches([';', ' ', '\n']).to_ascii_uppercase();
            text.split_ascii_whitespace().next_back() == Some("COMMIT")
        })
    }

    /// When a statement is to run whose text holds `part`.
    pub fn containing(part: &str) -> Self {
        let part = part.to_owned();
        Self::statement(move |text| text.contains(&part))
    }

    /// When a statement is to run that `fits`.
    pub fn statement(fits: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |said| match said {
            Said::Statement(text) => fits(text),
            Said::Cancel => false,
        }))
    }

    /// When a client asks that a statement be cancelled; it does so on a connection of its own,
    /// and there is no answer.
    pub fn cancel() -> Self {
        Self(Arc::new(|said| matches!(said, Said::Cancel)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Moment")
    }
}

/// What a trap does when its moment comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The connection ends before the server hears the statement.
    CutBefore,
    /// The connection ends when the server has answered, before the client hears it.
    CutAfter,
    /// The server never hears the statement or anything after it; the connection stays.
    SwallowBefore,
    /// The client never hears the answer or anything after it; the connection stays.
    SwallowAfter,
    /// The statement waits until it is let go.
    HoldBefore,
    /// The answer waits until it is let go.
    HoldAfter,
}

impl Deed {
    /// Whether it waits for the server's answer.
    pub(super) fn is_after(self) -> bool {
        matches!(self, Self::CutAfter | Self::SwallowAfter | Self::HoldAfter)
    }
}

/// A fault that waits for its moment.
#[derive(Clone, Debug)]
pub struct Trap(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    moment: Moment,
    deed: Deed,
    state: Mutex<State>,
    released: Notify,
}

#[derive(Debug)]
struct State {
    /// How often it may still spring.
    left: usize,
    sprung: usize,
    answers: Vec<String>,
    is_released: bool,
}

impl Trap {
    pub(super) fn new(moment: Moment, deed: Deed, times: usize) -> Self {
        Self(Arc::new(Inner {
            moment,
            deed,
            state: Mutex::new(State {
                left: times,
                sprung: 0,
                answers: Vec::new(),
                is_released: false,
            }),
            released: Notify::new(),
        }))
    }

    /// How often its deed was done.
    pub fn count(&self) -> usize {
        self.with(|state| state.sprung)
    }

    /// What the server had answered each time, where the deed waits for that: the tag of a
    /// completed command, or an error's code.
    pub fn answers(&self) -> Vec<String> {
        self.with(|state| state.answers.clone())
    }

    /// Waits until its deed was done.
    ///
    /// # Panics
    /// When that does not come.
    #[track_caller]
    pub fn sprung(&self) -> impl Future<Output = ()> {
        eventually(Duration::from_secs(20), async || self.count() > 0)
    }

    /// Lets go what it holds, and will hold.
    pub fn release(&self) {
        self.with(|state| state.is_released = true);
        self.0.released.notify_waiters();
    }

    pub(super) fn deed(&self) -> Deed {
        self.0.deed
    }

    /// Takes one of its times, where this is its moment.
    pub(super) fn catches(&self, said: Said<'_>) -> bool {
        if !(self.0.moment.0)(&said) {
            return false;
        }
        self.with(|state| {
            let is_armed = state.left > 0;
            state.left = state.left.saturating_sub(1);
            is_armed
        })
    }

    /// Notes that its deed is done, after this answer.
    pub(super) fn spring(&self, answer: Option<String>) {
        self.with(|state| {
            state.sprung += 1;
            state.answers.extend(answer);
        });
    }

    /// Waits until what it holds is let go.
    pub(super) async fn is_released(&self) {
        loop {
            let released = self.0.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if self.with(|state| state.is_released) {
                return;
            }
            released.await;
        }
    }

    fn with<R>(&self, run: impl FnOnce(&mut State) -> R) -> R {
        run(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
