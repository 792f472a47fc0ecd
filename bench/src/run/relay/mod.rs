//! Measurements of the relay on PostgreSQL. Relay, producer and receiver are separate processes,
//! which share their cores with the database.

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
mod feeds;

use std::time::Duration;

pub(super) use brokers::broker_sinks;
pub(super) use deep::Deep;
pub(super) use drain::drain;
pub(super) use feeds::feeds;
pub(super) use growth::growth;
pub(super) use latency::{counted, latency};
pub(super) use memory::memory;
pub(super) use neighbours::neighbours;
pub(super) use producer::{Producer, to_f64};
pub(super) use stress::stress;
pub(super) use tenants::tenants;
pub(super) use webhooks::webhooks;

/// The amount of work of the measurements.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Number of rounds.
    rounds: usize,
    /// Number of events of a drain.
    events: u64,
    /// Number of jobs of a drain by another queue library, and of rows of a drain by a feed.
    jobs: u64,
    /// Number of events in the deep backlog.
    deep: u64,
    /// Number of webhooks that are delivered end to end.
    webhooks: u64,
    /// Number of messages to a broker.
    messages: u64,
    /// Duration of a run at a fixed rate.
    window: Duration,
    /// Whether the other queue libraries are left out.
    alone: bool,
}

impl Sizes {
    /// The sizes for the flags of the harness.
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
            // The number of the libraries' own benchmarks. More jobs would only slow them down.
            jobs: if quick { 20_000 } else { 200_000 }.min(deep),
            deep,
            webhooks: if quick { 5_000 } else { 40_000 }.min(deep),
            messages: if quick { 10_000 } else { 100_000 }.min(deep),
            window: window.unwrap_or(Duration::from_secs(if quick { 2 } else { 5 })),
            alone,
        }
    }
}

/// The order of the sides in a round; every second round has the reverse order.
fn turns(sides: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |turn| {
        if round.is_multiple_of(2) {
            turn
        } else {
            sides - 1 - turn
        }
    })
}

/// A number of events or keys as text, such as `10 M`.
pub(super) fn many(events: u64) -> String {
    match events {
        _ if events > 0 && events.is_multiple_of(1_000_000) => {
            format!("{} M", events / 1_000_000)
        }
        _ if events > 0 && events.is_multiple_of(1_000) => format!("{} k", events / 1_000),
        _ => events.to_string(),
    }
}
