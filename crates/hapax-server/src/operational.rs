//! Operational events of a relay that no row reports by itself: the lag of its destinations.

use std::{num::NonZeroU8, time::Duration};

use hapax::operational::{LagSettings, OperationalKind, watch_lag};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    config::{Config, Wrong},
    database::RelayStore,
    listeners::stopped,
};

/// Destinations, each with its number of partitions.
pub(crate) type Partitions = Vec<(String, NonZeroU8)>;

/// How often the lag is measured: as often as an idle relay reports its metrics.
const EVERY: Duration = Duration::from_secs(10);

/// Measures the lag of these destinations until the process stops, if an event reports it.
pub(crate) fn measure_lag<S: RelayStore>(
    tasks: &mut JoinSet<()>,
    store: &S,
    config: &Config,
    destinations: watch::Receiver<Partitions>,
    stopping: &watch::Receiver<bool>,
) -> Result<(), Wrong> {
    let section = &config.operational_events;
    let events = section.emitted()?;
    let reports = [OperationalKind::RelayLag, OperationalKind::RelayCaughtUp];
    if !reports.into_iter().any(|kind| events.emits(kind)) {
        return Ok(());
    }
    let settings = LagSettings {
        threshold: section.lag.0,
        every: EVERY.min(section.lag.0),
    };
    let (store, stopping) = (store.clone(), stopping.clone());
    tasks.spawn(async move {
        let clock = store.clock();
        tokio::select! {
            () = watch_lag(&store, &clock, settings, destinations) => {}
            () = stopped(stopping) => {}
        }
    });
    Ok(())
}
