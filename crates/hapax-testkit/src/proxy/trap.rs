//! Traps: faults at a given moment in the protocol between a client and PostgreSQL.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::wait::eventually;

/// The moment at which a trap acts.
#[derive(Clone)]
pub struct Moment(Arc<dyn Fn(&ClientMessage<'_>) -> bool + Send + Sync>);

/// A message of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClientMessage<'a> {
    /// A statement: a simple query, or the execution of a prepared one.
    Statement(&'a str),
    /// The cancellation of a statement of another connection.
    Cancel,
}

impl Moment {
    /// The execution of a `COMMIT`, alone or at the end of a longer query.
    pub fn commit() -> Self {
        Self::statement(|text| {
            let ends = |it: char| it == ';' || it.is_ascii_whitespace();
            let last = text.split(ends).rfind(|word| !word.is_empty());
            last.is_some_and(|word| word.eq_ignore_ascii_case("COMMIT"))
        })
    }

    /// The execution of a statement whose text contains `part`.
    pub fn containing(part: &str) -> Self {
        let part = part.to_owned();
        Self::statement(move |text| text.contains(&part))
    }

    /// The execution of a statement for which `fits` returns true.
    pub fn statement(fits: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |said| match said {
            ClientMessage::Statement(text) => fits(text),
            ClientMessage::Cancel => false,
        }))
    }

    /// A request to cancel a statement. It is sent on its own connection and has no response.
    pub fn cancel() -> Self {
        Self(Arc::new(|said| matches!(said, ClientMessage::Cancel)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Moment")
    }
}

/// The action of a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Closes the connection before the server receives the statement.
    CutBefore,
    /// Closes the connection after the server has responded, before the client receives the
    /// response.
    CutAfter,
    /// Swallows the statement and everything after it. The connection stays open.
    SwallowBefore,
    /// Swallows the response and everything after it. The connection stays open.
    SwallowAfter,
    /// Holds the statement until it is released.
    HoldBefore,
    /// Holds the response until it is released.
    HoldAfter,
    /// Replaces the first letter of a simple query, which the server then refuses. What follows
    /// passes.
    Garble,
}

impl Deed {
    /// Whether it waits for the server's response.
    pub(super) fn is_after(self) -> bool {
        matches!(self, Self::CutAfter | Self::SwallowAfter | Self::HoldAfter)
    }
}

/// A fault at a given moment.
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
    /// The remaining number of times.
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

    /// How often the trap has acted.
    pub fn count(&self) -> usize {
        self.with(|state| state.sprung)
    }

    /// The server's responses, if the action waits for them: the tag of a completed command, or the
    /// code of an error.
    pub fn answers(&self) -> Vec<String> {
        self.with(|state| state.answers.clone())
    }

    /// Waits until the trap has acted.
    ///
    /// # Panics
    /// Panics if it does not act in time.
    #[track_caller]
    pub fn sprung(&self) -> impl Future<Output = ()> {
        eventually(Duration::from_secs(20), async || self.count() > 0)
    }

    /// Releases what it holds, now and in the future.
    pub fn release(&self) {
        self.with(|state| state.is_released = true);
        self.0.released.notify_waiters();
    }

    pub(super) fn deed(&self) -> Deed {
        self.0.deed
    }

    /// Whether this is the moment. Uses up one of the remaining times.
    pub(super) fn catches(&self, said: ClientMessage<'_>) -> bool {
        if !(self.0.moment.0)(&said) {
            return false;
        }
        self.with(|state| {
            let is_armed = state.left > 0;
            state.left = state.left.saturating_sub(1);
            is_armed
        })
    }

    /// Records an action, after this response.
    pub(super) fn spring(&self, answer: Option<String>) {
        self.with(|state| {
            state.sprung += 1;
            state.answers.extend(answer);
        });
    }

    /// Waits for the release.
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
