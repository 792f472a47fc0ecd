//! Gauge of the requests whose outcome is unknown and that wait for a decision.
//!
//! Every gateway counts those of the whole store, so that the gauge is right as long as one of them
//! runs. A count that fails leaves the last value.

use std::{sync::Arc, time::Duration};

use hapax::{
    Clock,
    admin::{Actor, Admin, waiting_unknown},
    telemetry::GATEWAY_UNKNOWN_WAITING,
};
use metrics::gauge;
use tokio::time::{MissedTickBehavior, interval};

/// How often the requests are counted.
const EVERY: Duration = Duration::from_secs(15);

/// Counts until the future is dropped. `clock` is the one that decides about leases.
pub async fn report(admin: Arc<dyn Admin>, clock: Clock) {
    let actor = Actor::new("gateway");
    let mut rounds = interval(EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        match waiting_unknown(&*admin, &actor, clock.now()).await {
            Ok(waiting) => {
                let number = u32::try_from(waiting.number).unwrap_or(u32::MAX);
                gauge!(GATEWAY_UNKNOWN_WAITING).set(f64::from(number));
            }
            Err(error) => tracing::warn!(%error, "cannot count unknown outcomes"),
        }
    }
}
