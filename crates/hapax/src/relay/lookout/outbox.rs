//! Watching the outbox for all workers that rest.
//!
//! The poll interval grows with the time without events, as that of a worker does. After
//! [`SLEEP_AFTER`] the relay asks the source for a [`Sleep`] and then polls rarely, because the
//! source wakes it. It polls all the same, so a wake-up that is lost only delays an event.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::time::{Instant, sleep};

use crate::{
    delivery::{Frontier, Shards},
    limits::{
        CATCH_UP, POLL_ASLEEP, POLL_BUSY, POLL_PART, SLEEP_AFTER, SLEEP_FAILED, SLEEP_RETRY,
        SLEEP_SHARED,
    },
    notify::{Sleep, Subscription},
    store::{Source, StoreError},
};

use super::Lookout;

/// The answer of a source that was asked for a sleep.
type Slept = Result<Option<Sleep>, StoreError>;

/// The state of the watch.
pub(super) struct OutboxWatch<'a, S> {
    lookout: &'a Lookout,
    source: &'a S,
    /// Commits of this process.
    committed: Subscription,
    /// The longest poll interval of a relay that is awake.
    idle: Duration,
    /// While this exists, the source wakes the relay.
    asleep: Option<Sleep>,
    /// The question for a sleep that the source has not answered yet.
    asking: Option<BoxFuture<'a, Slept>>,
    /// When to ask for a sleep, if there are no events until then.
    sleeps_at: Instant,
    /// When to ask again after an error.
    retries_at: Instant,
    /// When events were last found.
    found_at: Option<Instant>,
    /// When to wake the workers for which there were no events, and the shards whose workers were
    /// woken.
    behind: Option<(Instant, Shards)>,
}

impl<'a, S: Source> OutboxWatch<'a, S> {
    pub(super) fn new(
        lookout: &'a Lookout,
        source: &'a S,
        committed: Subscription,
        idle: Duration,
    ) -> Self {
        Self {
            lookout,
            source,
            committed,
            idle,
            asleep: None,
            asking: None,
            sleeps_at: Instant::now() + SLEEP_AFTER,
            retries_at: Instant::now(),
            found_at: None,
            behind: None,
        }
    }

    /// Polls while workers rest.
    pub(super) async fn run(mut self) {
        loop {
            if self.lookout.post().is_none() {
                // While it is not awaited, it may hold the lock of a relay that sleeps.
                self.asking = None;
                self.behind = None;
                self.wake_up();
                self.lookout.post_changed.notified().await;
                self.sleeps_at = Instant::now() + SLEEP_AFTER;
                continue;
            }
            self.wait().await;
            // It may have changed meanwhile.
            if let Some((from, generation)) = self.lookout.post() {
                self.poll(&from, generation).await;
            }
        }
    }

    /// Waits until the next poll.
    async fn wait(&mut self) {
        let pause = self.pause();
        tokio::select! {
            () = sleep(pause) => {}
            () = self.lookout.post_changed.notified() => {}
            () = self.committed.notified() => {}
            () = woken(&mut self.asleep) => {
                self.wake_up();
                self.lookout.woken.notify_one();
            }
            slept = answered(&mut self.asking) => self.fall_asleep(slept),
        }
    }

    fn pause(&self) -> Duration {
        if self.asleep.is_some() {
            return POLL_ASLEEP;
        }
        let now = Instant::now();
        let idle_for = self.found_at.map(|at| now.duration_since(at));
        let pause = idle_for.map_or(self.idle, |idle_for| idle_for / POLL_PART);
        let pause = pause.max(POLL_BUSY).min(self.idle);
        let behind = self.behind.map(|(at, _)| at.duration_since(now));
        behind.map_or(pause, |wait| wait.min(pause))
    }

    /// Polls once. If the relay has just fallen asleep, everything that was committed before is
    /// found here, and the source wakes the relay for everything else.
    async fn poll(&mut self, from: &Frontier, generation: u64) {
        self.wake_those_behind();
        self.ask_for_sleep();
        match self.source.shards_after(from).await {
            Ok((shards, _)) if shards.is_empty() => {}
            Ok((shards, frontier)) => self.found(shards, frontier, generation),
            Err(error) => {
                let error = error.error_chain();
                tracing::debug!(error, "the outbox cannot be polled");
                // The workers read for themselves, and report the error.
                self.wake_up();
                self.lookout.forget();
            }
        }
    }

    fn found(&mut self, shards: Shards, frontier: Frontier, generation: u64) {
        let now = Instant::now();
        self.found_at = Some(now);
        self.wake_up();
        self.lookout.is_active.store(true, Ordering::Relaxed);
        if shards.is_all() {
            return self.lookout.forget();
        }
        self.lookout.advance(shards, frontier, generation);
        let (at, woken) = self.behind.unwrap_or((now + CATCH_UP, Shards::NONE));
        self.behind = Some((at, woken.union(shards)));
    }

    /// Wakes the workers that events have passed by, so that their checkpoints pass the events.
    fn wake_those_behind(&mut self) {
        let is_time = |(at, _): &mut (Instant, Shards)| *at <= Instant::now();
        if let Some((_, woken)) = self.behind.take_if(is_time) {
            self.lookout.wake(|place| !place.shards.intersects(woken));
        }
    }

    fn ask_for_sleep(&mut self) {
        let now = Instant::now();
        // A sleep only ever lengthens the poll interval.
        let is_time = self.idle < POLL_ASLEEP && now >= self.sleeps_at.max(self.retries_at);
        let is_needed = self.asleep.as_ref().is_none_or(Sleep::is_shared);
        if is_time && is_needed && self.asking.is_none() {
            self.asking = Some(self.source.fall_asleep().boxed());
        }
    }

    fn fall_asleep(&mut self, slept: Slept) {
        self.asking = None;
        let now = Instant::now();
        // If events were found since the source was asked, the sleep ends here.
        let is_late = now < self.sleeps_at;
        self.asleep = match slept {
            Ok(slept) => slept.filter(|_| !is_late),
            Err(error) => {
                let error = error.error_chain();
                tracing::debug!(error, "the relay cannot be woken and polls");
                self.retries_at = now + SLEEP_FAILED;
                None
            }
        };
        let is_asleep = self.asleep.is_some();
        self.lookout.is_asleep.store(is_asleep, Ordering::Relaxed);
        let is_shared = self.asleep.as_ref().is_some_and(Sleep::is_shared);
        let wait = if is_shared { SLEEP_SHARED } else { SLEEP_RETRY };
        self.sleeps_at = now + wait;
    }

    fn wake_up(&mut self) {
        self.asleep = None;
        self.sleeps_at = Instant::now() + SLEEP_AFTER;
        self.lookout.is_asleep.store(false, Ordering::Relaxed);
    }
}

/// Waits until the source wakes the relay; forever without a sleep.
async fn woken(asleep: &mut Option<Sleep>) {
    match asleep {
        Some(sleep) => sleep.woken().await,
        None => std::future::pending().await,
    }
}

/// Waits for the answer to a question; forever without one.
async fn answered(asking: &mut Option<BoxFuture<'_, Slept>>) -> Slept {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}
