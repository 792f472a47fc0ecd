//! Offering events: the limits of the circuit breaker and the rate, and the effect of outcomes on
//! the breaker.

use std::sync::Arc;

use tokio::task::JoinError;

use crate::{
    clock::Timestamp,
    sink::SinkError,
    store::{Deliveries, Source},
};

use super::{
    super::{Settings, breaker::Allowed, gauges, lane::Item, offer::offer, settle::Tried},
    Worker,
};

impl<S: Source, D: Deliveries> Worker<S, D> {
    pub(super) fn choose(&mut self) -> Vec<Item> {
        if !self.queue.lane.is_ready() {
            return Vec::new();
        }
        let destination = &self.queue.destination;
        let free = destination.concurrency.saturating_sub(self.in_flight.len());
        let now = self.settings.clock.now();
        let mut count = free * destination.sink.batch_max().max(1);
        let allowed = self.breaker.allows(now);
        match allowed {
            Allowed::All => {}
            Allowed::Probe if self.in_flight.is_empty() => count = count.min(1),
            Allowed::Probe | Allowed::NothingUntil(_) => count = 0,
        }
        if let Some(rate) = &mut self.rate {
            count = count.min(rate.allows(now));
        }
        let chosen = if allowed == Allowed::Probe && count == 1 {
            self.queue.choose_probe(self.failed_kind.as_deref(), now)
        } else {
            self.queue.choose(count, now)
        };
        if let Some(rate) = &mut self.rate {
            rate.spend(chosen.len());
        }
        chosen
    }

    /// Offers the selected events, distributed over the free slots.
    pub(super) fn offer(&mut self, chosen: Vec<Item>) {
        let destination = &self.queue.destination;
        let free = destination
            .concurrency
            .saturating_sub(self.in_flight.len())
            .max(1);
        let size = chosen
            .len()
            .div_ceil(free)
            .min(destination.sink.batch_max())
            .max(1);
        let mut chosen = chosen.into_iter().peekable();
        while chosen.peek().is_some() {
            let items = chosen.by_ref().take(size).collect();
            let Settings {
                clock,
                failpoints,
                traces,
                ..
            } = self.settings.clone();
            let destination = Arc::clone(destination);
            self.in_flight
                .spawn(offer(destination, items, clock, failpoints, traces));
        }
    }

    pub(super) fn conclude(&mut self, finished: Result<Vec<Tried>, JoinError>) {
        // The task was aborted and has no outcome. Its events remain recorded as offered.
        let Ok(tried) = finished else { return };
        let now = self.settings.clock.now();
        for tried in tried {
            self.update_breaker(&tried, now);
            self.queue.conclude(tried, now, self.settings.random.unit());
        }
        if self.breaker.is_hopeless() {
            let reason = "all offers have failed for five days";
            self.queue
                .pending
                .disable
                .get_or_insert_with(|| reason.to_owned());
        }
    }

    /// Records the outcome of an attempt in the breaker.
    fn update_breaker(&mut self, tried: &Tried, now: Timestamp) {
        let was_open = self.breaker.is_open();
        match &tried.outcome {
            Ok(_) => self.breaker.succeeded(),
            Err(SinkError::Unavailable { .. }) => {
                self.failed_kind = Some(tried.item.event.event.kind.clone());
                self.breaker.failed(now);
            }
            // The failure concerns one event and not the destination.
            Err(_) => {}
        }
        let is_open = self.breaker.is_open();
        if was_open == is_open {
            return;
        }
        let state = |is_open| if is_open { "open" } else { "closed" };
        gauges::breaker(&self.queue.partition, is_open);
        tracing::warn!(
            destination = self.queue.partition,
            from_state = state(was_open),
            to_state = state(is_open),
            "the state of the breaker has changed"
        );
    }
}
