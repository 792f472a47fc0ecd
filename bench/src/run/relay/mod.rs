//! What the relay is measured by, on PostgreSQL: relay, producer and receiver in processes of
//! their own, on the cores that they share with the database.

mod parts;
mod producer;
mod receiver;
mod peers;
mod drain;
mod deep;
mod stress;
mod memory;
mod growth;
mod latency;
mod webhooks;
mod brokers;
mod neighbours;
mod tenants;

use std::time::Duration;

pub(super) use brokers::broker_sinks;
pub(super) use deep::Deep;
pub(super) use drain::drain;
pub(super) use growth::growth;
pub(super) use latency::latency;
pub(super) use memory::memory;
pub(super) use neighbours::neighbours;
pub(super) use stress::stress;
pub(super) use tenants::tenants;
pub(super) use webhooks::webhooks;

/// How much the relay is given to do.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Rounds of what takes long.
    rounds: usize,
    /// Events of a drain.
    events: u64,
    /// Jobs of a drain of the others.
    jobs: u64,
    /// Events of the deep backlog.
    deep: u64,
    /// Webhooks that are delivered end to end.
    webhooks: u64,
    /// Messages that a broker takes.
    messages: u64,
    /// How long a pace is kept.
    window: Duration,
    /// Leaves the other programs out.
    alone: bool,
}

impl Sizes {
    /// As the harness was told.
    pub(super) fn new(
        quick: bool,
        alone: bool,
        rounds: usize,
        events: Option<u64>,
        window: Option<Duration>,
    ) -> Self {
        let all = if quick { 50_000 } else { 1_000_000 };
        let deep = events.unwrap_or(if quick { 300_000 } else { 10_000_000 });
        Self {
            rounds: if quick { rounds.min(2) } else { rounds },
            events: all.min(deep),
            // What the others' own benchmarks have: more of them would only slow them down.
            jobs: if quick { 20_000 } else { 200_000 }.min(deep),
            deep,
            webhooks: if quick { 5_000 } else { 40_000 }.min(deep),
            messages: if quick { 10_000 } else { 100_000 }.min(deep),
            window: window.unwrap_or(Duration::from_secs(if quick { 2 } else { 5 })),
            alone,
        }
    }
}

/// Whoever goes first goes last the next time.
fn turns(sides: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |turn| {
        if round.is_multiple_of(2) {
            turn
        } else {
            sides - 1 - turn
        }
    })
}

/// A number of events as it is spoken.
fn many(events: u64) -> String {
    match events {
        _ if events > 0 && events.is_multiple_of(1_000_000) => {
            format!("{} M", events / 1_000_000)
        }
        _ if events > 0 && events.is_multiple_of(1_000) => format!("{} k", events / 1_000),
        _ => events.to_string(),
    }
}
