//! Places of a listener's connections, and which of them can be given to another client.
//!
//! A listener serves a limited number of connections. While all places are taken, a new client
//! takes the place of the connection whose client is the most overdue: the head of a first request
//! may take [`LISTENER_PLACE_HEAD`], anything else that the client has to send [`LISTENER_PLACE`].
//! Only the time that is spent waiting for the client counts, and received bytes of a body
//! compensate for it at [`LISTENER_RATE`]. So an upload that is faster keeps its place, and so does
//! a request that the server works on, or a response that it still produces.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hapax::limits::{LISTENER_PLACE, LISTENER_PLACE_HEAD, LISTENER_RATE};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::{Instant, timeout_at},
};

/// How often a listener without a free place checks its connections.
const LOOK: Duration = LISTENER_PLACE_HEAD.checked_div(4).expect("not zero");

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Place(Mutex<State>);

#[derive(Clone, Copy, Debug)]
enum State {
    /// The server has not read from the connection yet. The head of the request may have arrived.
    Unread,
    /// The server waits for the client, and may give the place to another one after `most`. The
    /// instant is moved back by the time that it has already waited earlier in the same request.
    Waiting { since: Instant, most: Duration },
    /// The server works. It has waited this long for the client in the request so far.
    Working { waited: Duration },
    /// The place was given to another client.
    GivenUp,
}

impl Place {
    /// The place of a connection that has received nothing yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Unread)))
    }

    /// Starts to wait for the head of the first request, because the server has read all that has
    /// arrived.
    pub(super) fn wait_for_head(&self) {
        let mut state = self.state();
        if let State::Unread = *state {
            let (since, most) = (Instant::now(), LISTENER_PLACE_HEAD);
            *state = State::Waiting { since, most };
        }
    }

    /// Starts to wait for the next bytes of a body.
    pub(super) fn wait(&self) {
        let mut state = self.state();
        if let State::Working { waited } = *state {
            let now = Instant::now();
            let since = now.checked_sub(waited).unwrap_or(now);
            let most = LISTENER_PLACE;
            *state = State::Waiting { since, most };
        }
    }

    /// Records received bytes of a body.
    pub(super) fn received(&self, bytes: usize) {
        let mut state = self.state();
        let waited = match *state {
            State::Waiting { since, .. } => since.elapsed(),
            State::Working { waited } => waited,
            State::Unread | State::GivenUp => return,
        };
        let waited = waited.saturating_sub(at_rate(bytes));
        *state = State::Working { waited };
    }

    /// Records a complete request, or the head of one whose body is still to be read. Returns
    /// `false` if the place was given up before.
    #[must_use]
    pub(super) fn requested(&self) -> bool {
        let mut state = self.state();
        let waited = Duration::ZERO;
        let before = mem::replace(&mut *state, State::Working { waited });
        let is_kept = !matches!(before, State::GivenUp);
        if !is_kept {
            *state = State::GivenUp;
        }
        is_kept
    }

    /// Records that the server has produced the response. It now waits for the next request, or for
    /// the rest of this one.
    pub(super) fn responded(&self) {
        let mut state = self.state();
        if let State::Working { .. } = *state {
            let (since, most) = (Instant::now(), LISTENER_PLACE);
            *state = State::Waiting { since, most };
        }
    }

    /// From when on the place can be given to another client.
    fn due(&self) -> Option<Instant> {
        match *self.state() {
            State::Waiting { since, most } => Some(since + most),
            State::Unread | State::Working { .. } | State::GivenUp => None,
        }
    }

    /// Gives the place up if the server has waited long enough for the client.
    fn give_up(&self) -> bool {
        let mut state = self.state();
        let is_late = matches!(*state, State::Waiting { since, most } if since.elapsed() >= most);
        if is_late {
            *state = State::GivenUp;
        }
        is_late
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time that a client may take for this number of bytes.
fn at_rate(bytes: usize) -> Duration {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    Duration::from_micros(bytes.saturating_mul(1_000_000) / LISTENER_RATE)
}

/// All places of a listener.
pub(super) struct Places {
    free: Arc<Semaphore>,
    most: usize,
    taken: Vec<(Arc<Place>, AbortHandle)>,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most)),
            most,
            taken: Vec::new(),
        }
    }

    /// Waits for a free place. If there is none, the connection whose client is the most overdue is
    /// closed, as soon as there is one.
    pub(super) async fn free(&mut self) -> OwnedSemaphorePermit {
        let free = Arc::clone(&self.free).acquire_owned();
        let free = async { free.await.expect("the places are never closed") };
        let mut free = std::pin::pin!(free);
        let mut next_look = Instant::now();
        loop {
            if let Ok(place) = timeout_at(next_look, free.as_mut()).await {
                return place;
            }
            if self.give_one_up() {
                return free.await;
            }
            next_look = Instant::now() + LOOK;
        }
    }

    fn give_one_up(&mut self) -> bool {
        self.forget_closed();
        let taken = self.taken.iter();
        let waiting = taken.filter_map(|(place, task)| Some((place.due()?, place, task)));
        let most_overdue = waiting.min_by_key(|(due, ..)| *due);
        most_overdue.is_some_and(|(_, place, task)| {
            let is_given_up = place.give_up();
            if is_given_up {
                task.abort();
            }
            is_given_up
        })
    }

    /// Records the task that serves the connection at a place.
    pub(super) fn note(&mut self, place: Arc<Place>, task: AbortHandle) {
        if self.taken.len() >= 2 * self.most {
            self.forget_closed();
        }
        self.taken.push((place, task));
    }

    fn forget_closed(&mut self) {
        self.taken.retain(|(_, task)| !task.is_finished());
    }
}
