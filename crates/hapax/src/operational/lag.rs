//! Lag of destinations: when one begins to lag, and when it has caught up.
//!
//! The state of a destination is a row of the store, which changes in the transaction of its event. So
//! of several relays that see the lag, one reports it, and a relay that was restarted does not report
//! it again. A destination lags from the threshold on, and has caught up below half of it.

use std::{collections::BTreeMap, num::NonZeroU8, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use crate::{
    clock::Clock,
    delivery::{Backlog, partition},
    store::{StoreError, Summaries},
};

/// The lag of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The name of the destination.
    pub destination: String,
    /// Whether it lags, or has caught up.
    pub is_lagging: bool,
    /// How long its oldest event has been due.
    pub lag: Duration,
    /// The number of events that it has not settled.
    pub backlog: u64,
}

/// A store that remembers which destinations lag.
#[async_trait]
pub trait OperationalStore: Send + Sync + 'static {
    /// Records whether a destination lags, with its operational event, in one transaction. Returns
    /// false, and emits nothing, if the store has this state already.
    async fn record_lag(&self, lag: &Lag) -> Result<bool, StoreError>;
}

/// When a destination lags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagSettings {
    /// From this lag on.
    pub threshold: Duration,
    /// How often the lag is measured.
    pub every: Duration,
}

/// Measures the lag of these destinations, each with its number of partitions, and records its
/// changes, until it is dropped. If the store fails, the next measurement tries again.
pub async fn watch_lag<S: Summaries + OperationalStore>(
    store: &S,
    clock: &Clock,
    settings: LagSettings,
    destinations: watch::Receiver<Vec<(String, NonZeroU8)>>,
) {
    let mut ticks = interval(settings.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    loop {
        ticks.tick().await;
        let current = destinations.borrow().clone();
        known.retain(|name, _| current.iter().any(|(it, _)| it == name));
        for (name, partitions) in current {
            if let Err(error) = measure(store, clock, settings, &name, partitions, &mut known).await
            {
                let (destination, error) = (name, error.error_chain());
                tracing::warn!(destination, error, "the lag cannot be recorded");
            }
        }
    }
}

async fn measure<S: Summaries + OperationalStore>(
    store: &S,
    clock: &Clock,
    settings: LagSettings,
    name: &str,
    partitions: NonZeroU8,
    known: &mut BTreeMap<String, bool>,
) -> Result<(), StoreError> {
    let names: Vec<_> = (0..partitions.get())
        .map(|number| partition(name, number, partitions))
        .collect();
    let backlogs = store.backlogs(&names).await?;
    let mut lag = sum(name, backlogs.iter().map(|(_, backlog)| backlog), clock);
    let Some(is_lagging) = decide(lag.lag, settings.threshold, known.get(name).copied()) else {
        return Ok(());
    };
    lag.is_lagging = is_lagging;
    store.record_lag(&lag).await?;
    known.insert(name.to_owned(), is_lagging);
    Ok(())
}

/// The lag of a destination, from the backlogs of its partitions.
fn sum<'a>(name: &str, backlogs: impl Iterator<Item = &'a Backlog>, clock: &Clock) -> Lag {
    let (mut oldest, mut backlog) = (None, 0_u64);
    for one in backlogs {
        backlog = backlog.saturating_add(one.events);
        oldest = oldest.into_iter().chain(one.oldest_at).min();
    }
    Lag {
        destination: name.to_owned(),
        is_lagging: false,
        lag: oldest.map_or(Duration::ZERO, |at| clock.now().since(at)),
        backlog,
    }
}

/// The state to be recorded, if it is not the known one. Between the two thresholds nothing changes.
fn decide(lag: Duration, threshold: Duration, known: Option<bool>) -> Option<bool> {
    let is_lagging = if lag >= threshold {
        true
    } else if lag < threshold / 2 {
        false
    } else {
        return None;
    };
    (known != Some(is_lagging)).then_some(is_lagging)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn a_destination_has_caught_up_at_half_of_the_threshold() {
        let threshold = Duration::from_secs(10);
        let check = |seconds, known, expected| {
            let lag = Duration::from_secs(seconds);
            assert_eq!(
                decide(lag, threshold, known),
                expected,
                "{seconds} {known:?}"
            );
        };
        check(10, None, Some(true));
        check(10, Some(false), Some(true));
        check(11, Some(true), None);
        check(9, Some(true), None);
        check(5, Some(true), None);
        check(5, None, None);
        check(4, Some(true), Some(false));
        // After a start, the store may still have the lag.
        check(0, None, Some(false));
        check(0, Some(false), None);
    }

    #[test]
    fn the_oldest_event_of_all_partitions_counts() {
        let clock = Clock::new(|| Timestamp::from_millis(60_000));
        let backlog = |events, oldest: Option<i64>| Backlog {
            events,
            oldest_at: oldest.map(Timestamp::from_millis),
            ..Backlog::default()
        };
        let all = [
            backlog(2, Some(50_000)),
            backlog(3, Some(20_000)),
            backlog(0, None),
        ];
        let lag = sum("orders", all.iter(), &clock);
        assert_eq!((lag.lag, lag.backlog), (Duration::from_secs(40), 5));
    }
}
