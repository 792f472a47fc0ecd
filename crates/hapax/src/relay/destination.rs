//! A configured place: which sink, which events, in what order, how patiently.

use std::{fmt, num::NonZeroU8, sync::Arc, time::Duration};

use crate::{
    delivery::{Shards, ShardsError},
    key::Tenant,
    limits,
    retry::Schedule,
    sink::Sink,
};

use super::route::Pattern;

/// A place where events go.
#[derive(Clone)]
pub struct Destination {
    /// Its name: what its checkpoint, deliveries and metrics are kept under.
    pub name: String,
    /// How it is reached.
    pub sink: Arc<dyn Sink>,
    /// The event types that it takes; any one suffices.
    pub patterns: Vec<Pattern>,
    /// The one tenant whose events it takes; all when absent.
    pub tenant: Option<Tenant>,
    /// What order is kept.
    pub order: Order,
    /// When a failed event is offered again, and how often.
    pub schedule: Schedule,
    /// Offers on the wire at once; each may be a batch.
    pub concurrency: usize,
    /// Events that may be offered per second; unlimited when absent.
    pub per_second: Option<u32>,
    /// After this long an offer is given up, whatever the sink thinks.
    pub timeout: Duration,
    /// In how many parts its events are carried, each on a node of its own: 1, 2, 4, 8 or 16, and
    /// the same for as long as the destination lives.
    pub parts: NonZeroU8,
    /// Whether nothing is to be offered for now.
    pub paused: bool,
    /// Differs from before when somebody had it go on: it is taken anew, which enables it.
    pub turn: i64,
}

impl Destination {
    /// A destination that takes every event, unordered, on the default schedule.
    pub fn new(name: impl Into<String>, sink: Arc<dyn Sink>) -> Self {
        Self {
            name: name.into(),
            sink,
            patterns: vec![Pattern::new("*")],
            tenant: None,
            order: Order::None,
            schedule: Schedule::default(),
            concurrency: limits::CONCURRENCY,
            per_second: None,
            timeout: limits::OFFER * 2,
            parts: NonZeroU8::MIN,
            paused: false,
            turn: 0,
        }
    }

    /// Takes only events whose type matches one of `patterns`.
    #[must_use]
    pub fn only(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.patterns = patterns.into_iter().map(Pattern::new).collect();
        self
    }

    /// Takes only events of `tenant`.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Keeps this order.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Offers failed events again on this schedule.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Keeps at most this many offers on the wire; at least one.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Offers at most this many events per second.
    #[must_use]
    pub fn per_second(mut self, events: u32) -> Self {
        self.per_second = Some(events.max(1));
        self
    }

    /// Gives an offer up after this long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Carries its events in this many parts.
    ///
    /// # Errors
    /// Fails when it is not 1, 2, 4, 8 or 16.
    pub fn parts(mut self, parts: u8) -> Result<Self, ShardsError> {
        self.parts = NonZeroU8::new(parts).ok_or(ShardsError)?;
        Shards::of_part(0, self.parts)?;
        Ok(self)
    }

    /// Offers nothing until it is no longer paused.
    #[must_use]
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Whether `other` is carried in the same way to the same sink.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let settings = |it: &Self| {
            let pace = (it.concurrency, it.per_second, it.timeout);
            (
                it.tenant.clone(),
                it.order,
                pace,
                it.parts,
                it.paused,
                it.turn,
            )
        };
        Arc::ptr_eq(&self.sink, &other.sink)
            && self.name == other.name
            && self.patterns == other.patterns
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

/// What order a destination keeps among the events of one aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// None: events go as they come, in parallel.
    #[default]
    None,
    /// One at a time; a failing event blocks its key until it is delivered or discarded.
    Key,
    /// One at a time; an event that dies lets its key go on.
    KeySkip,
}
