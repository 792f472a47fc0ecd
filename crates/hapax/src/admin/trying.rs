//! The work of trials: filters and mappings that are applied to stored events.
//!
//! Customers write them, and a trial of one large payload can take tenths of a second. The work for such a
//! payload is done on a thread for blocking work, one event of a trial at a time. A trial whose time is over
//! ends, and can be continued from the event that would have been the next. If the client of a trial
//! disconnects, the work for the current event ends and keeps the place of the trial until then.

use std::{future::pending, panic::resume_unwind, sync::Arc};

use tokio::{task::spawn_blocking, time::Instant};

use super::{Actor, Admin, AdminError, EventFilter, EventSummary};
use crate::{
    event::Event,
    filter::Applied,
    limits::{FILTER_TRIAL, FILTERED_INLINE_BYTES},
    outbox::OutboxEvent,
    places::Place,
};

/// Size of the results of a trial in bytes after which it ends. Those of one page may exceed it.
const RESULT_BYTES: usize = 1024 * 1024;

/// The stored events of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredEvents<'a> {
    pub(super) filter: &'a EventFilter,
    /// The cursor from which the trial begins.
    pub(super) before: Option<&'a str>,
    /// Maximum number of events.
    pub(super) limit: usize,
    /// Number of events that are listed at once. The size of the results is checked after each such page.
    pub(super) page: usize,
}

/// A trial that is under way.
#[derive(Debug)]
pub(super) struct Trying {
    ends_at: Instant,
    /// The place of the trial, which work on another thread shares until it ends.
    place: Option<Arc<Place>>,
}

/// Whether an event matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MatchResult {
    pub(super) matches: bool,
    /// Whether it does not match because its payload cannot be read.
    pub(super) is_unreadable: bool,
    /// The place of the first condition that does not hold.
    pub(super) fails_at: Option<String>,
}

/// Applies `work` to stored events, the newest first, and passes each result to `add`, which returns its size
/// in bytes. Ends after `limit` events, after the time of a trial, or when the results have `RESULT_BYTES`.
/// Returns the cursor with which the trial continues; `None` after the last event.
pub(super) async fn try_each<T, W>(
    store: &dyn Admin,
    actor: &Actor,
    events: StoredEvents<'_>,
    place: Option<&Arc<Place>>,
    work: W,
    mut add: impl FnMut(EventSummary, T) -> usize,
) -> Result<Option<String>, AdminError>
where
    T: Send + 'static,
    W: Fn(&Event) -> T + Clone + Send + 'static,
{
    let trying = Trying::begin(place);
    let mut next = events.before.map(ToOwned::to_owned);
    let (mut tried, mut bytes) = (0, 0);
    loop {
        let page = events.page.min(events.limit - tried);
        let page = store.events(actor, events.filter, next.as_deref(), page);
        let page = page.await?;
        for summary in page.items {
            // It may have been deleted meanwhile.
            let Some(event) = store.event_at(actor, summary.position).await? else {
                continue;
            };
            let Some(made) = trying.on(event, work.clone()).await else {
                return Ok(Some(cursor_at(&summary)));
            };
            bytes += add(summary, made);
            tried += 1;
        }
        next = page.next;
        let is_done = next.is_none() || tried >= events.limit || bytes >= RESULT_BYTES;
        if is_done || trying.is_over() {
            return Ok(next);
        }
    }
}

impl Trying {
    /// A trial that begins now.
    pub(super) fn begin(place: Option<&Arc<Place>>) -> Self {
        Self {
            ends_at: Instant::now() + FILTER_TRIAL,
            place: place.cloned(),
        }
    }

    /// Whether the time of the trial is over.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.ends_at
    }

    /// What `work` makes of an event; `None` if the time of the trial is over before it begins.
    async fn on<T, F>(&self, event: Arc<OutboxEvent>, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(&Event) -> T + Send + 'static,
    {
        if self.is_over() {
            return None;
        }
        if event.event.payload.bytes().len() <= FILTERED_INLINE_BYTES {
            return Some(work(&event.event));
        }
        let place = self.place.clone();
        // If the caller is dropped, the work for this event ends and keeps the place until then.
        let made = spawn_blocking(move || {
            let made = work(&event.event);
            drop(place);
            made
        });
        match made.await {
            Ok(made) => Some(made),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => pending().await,
            },
        }
    }
}

impl From<Applied<'_>> for MatchResult {
    fn from(applied: Applied<'_>) -> Self {
        let fails_at = match applied {
            Applied::Fails(place) => Some(place.to_owned()),
            Applied::Matches | Applied::Unreadable => None,
        };
        Self {
            matches: applied == Applied::Matches,
            is_unreadable: applied == Applied::Unreadable,
            fails_at,
        }
    }
}

/// The cursor of the list of events from which a trial continues that has ended before this event.
pub(super) fn cursor_at(event: &EventSummary) -> String {
    event.position.saturating_add(1).to_string()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        clock::{Random, Timestamp},
        event::{Headers, NewEvent},
        outbox::build_event,
        places::Places,
    };

    const PATIENCE: Duration = Duration::from_secs(20);

    fn event(bytes: usize) -> Arc<OutboxEvent> {
        let new = NewEvent::json("order.paid", &"x".repeat(bytes));
        let now = Timestamp::from_millis(0);
        let event = build_event(new, None, &Headers::new(), now, &Random::new(|| 1));
        let event = event.expect("the event is valid");
        Arc::new(OutboxEvent { position: 1, event })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn other_tasks_run_while_a_large_payload_is_tried() {
        let (sender, receiver) = mpsc::channel();
        let other = tokio::spawn(async move { sender.send(()) });
        let large = event(FILTERED_INLINE_BYTES);
        let trying = Trying::begin(None);
        let heard = trying.on(large, move |_| receiver.recv_timeout(PATIENCE));
        assert_eq!(heard.await, Some(Ok(())));
        other.await.expect("the task ends").expect("it is heard");
    }

    #[tokio::test]
    async fn a_trial_begins_no_event_after_its_time() {
        let trying = Trying {
            ends_at: Instant::now(),
            place: None,
        };
        for bytes in [1, FILTERED_INLINE_BYTES] {
            assert_eq!(trying.on(event(bytes), |_| ()).await, None);
        }
        assert_eq!(Trying::begin(None).on(event(1), |_| ()).await, Some(()));
    }

    #[test]
    fn a_trial_that_is_dropped_keeps_its_place_until_its_work_has_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .expect("the runtime starts");
        runtime.block_on(async {
            let places = Places::new((2, 8));
            let _other = places.take("acme").expect("the first place is free");
            let place = places.take("acme").expect("the second place is free");
            let (on_start, started) = oneshot::channel();
            let (open, gate) = mpsc::channel::<()>();
            let trial = tokio::spawn(async move {
                let work = move |_: &Event| {
                    on_start.send(()).expect("the test waits for it");
                    gate.recv_timeout(PATIENCE)
                };
                let large = event(FILTERED_INLINE_BYTES);
                Trying::begin(Some(&place)).on(large, work).await
            });
            started.await.expect("the work begins");
            trial.abort();
            let dropped = trial.await.expect_err("the trial does not end by itself");
            assert!(dropped.is_cancelled(), "{dropped}");
            assert!(places.take("acme").is_none(), "the work has not ended");
            open.send(()).expect("the work waits for it");
            // The only thread is free after the work.
            spawn_blocking(|| ()).await.expect("the thread is free");
            assert!(places.take("acme").is_some(), "the work has ended");
        });
    }
}
