//! A configured destination: its sink, its events, their order, and the retry schedule.

use std::{fmt, num::NonZeroU8, sync::Arc, time::Duration};

use crate::{
    delivery::{Shards, ShardsError, Start},
    filter::Filter,
    key::Tenant,
    limits,
    retry::Schedule,
    sink::Sink,
};

use super::route::Pattern;

/// A destination of events.
#[derive(Clone)]
pub struct Destination {
    /// The name, under which its checkpoint, deliveries and metrics are kept.
    pub name: String,
    /// The sink that delivers its events.
    pub sink: Arc<dyn Sink>,
    /// Patterns of event types. An event is delivered if at least one matches.
    pub patterns: Vec<Pattern>,
    /// The filter that an event has to match too; `None` for no filter.
    pub filter: Option<Filter>,
    /// The tenant whose events are delivered; `None` for all tenants.
    pub tenant: Option<Tenant>,
    /// The order that is kept.
    pub order: Order,
    /// When a failed event is offered again, and how often.
    pub schedule: Schedule,
    /// Maximum number of concurrent attempts. Each may be a batch.
    pub concurrency: usize,
    /// Maximum number of events per second; `None` for no limit.
    pub per_second: Option<u32>,
    /// Time limit of an attempt. It applies in addition to the limits of the sink.
    pub timeout: Duration,
    /// The number of partitions, each of which can be owned by another node: 1, 2, 4, 8 or 16. It
    /// cannot be changed during the life of the destination.
    pub partitions: NonZeroU8,
    /// Where the destination starts in the outbox if it is new. It has no effect on a destination
    /// whose start is recorded in the store, or that was ever opened.
    pub start: Start,
    /// Whether the destination is paused: nothing is offered.
    pub paused: bool,
    /// A number that changes when an operator resumes the destination. The destination is then
    /// taken again, which enables it.
    pub turn: i64,
}

impl Destination {
    /// Creates a destination for every event, without order, with the default retry schedule. It
    /// starts with the oldest event in the outbox.
    pub fn new(name: impl Into<String>, sink: Arc<dyn Sink>) -> Self {
        Self {
            name: name.into(),
            sink,
            patterns: vec![Pattern::new("*")],
            filter: None,
            tenant: None,
            order: Order::None,
            schedule: Schedule::default(),
            concurrency: limits::CONCURRENCY,
            per_second: None,
            timeout: limits::OFFER * 2,
            partitions: NonZeroU8::MIN,
            start: Start::Beginning,
            paused: false,
            turn: 0,
        }
    }

    /// Delivers only events whose type matches one of `patterns`.
    #[must_use]
    pub fn only(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.patterns = patterns.into_iter().map(Pattern::new).collect();
        self
    }

    /// Delivers only events that match `filter` too. An event that does not is skipped like one of
    /// another type: it has no delivery, and it does not delay the later events of its key.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Delivers only events of `tenant`.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Sets the order that is kept.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the retry schedule.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Sets the maximum number of concurrent attempts, at least one.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Sets the maximum number of events per second.
    #[must_use]
    pub fn per_second(mut self, events: u32) -> Self {
        self.per_second = Some(events.max(1));
        self
    }

    /// Sets the time limit of an attempt.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the number of partitions.
    ///
    /// # Errors
    /// Fails if it is not 1, 2, 4, 8 or 16.
    pub fn partitions(mut self, partitions: u8) -> Result<Self, ShardsError> {
        self.partitions = NonZeroU8::new(partitions).ok_or(ShardsError)?;
        Shards::of_partition(0, self.partitions)?;
        Ok(self)
    }

    /// Sets where the destination starts in the outbox if it is new.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Pauses the destination, or resumes it.
    #[must_use]
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Whether `other` has the same settings and the same sink.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let settings = |it: &Self| {
            let pace = (it.concurrency, it.per_second, it.timeout);
            (
                it.tenant.clone(),
                it.order,
                pace,
                it.partitions,
                it.paused,
                it.turn,
            )
        };
        Arc::ptr_eq(&self.sink, &other.sink)
            && self.name == other.name
            && self.patterns == other.patterns
            && self.filter == other.filter
            && self.schedule == other.schedule
            && settings(self) == settings(other)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("name", &self.name)
            .field("sink", &self.sink.kind())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// The order that a destination keeps among the events of one aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// No order: events are delivered as they come, concurrently.
    #[default]
    None,
    /// One event at a time. A failing event blocks its key until it is delivered or discarded.
    Key,
    /// One event at a time. A dead letter does not block its key.
    KeySkip,
}
