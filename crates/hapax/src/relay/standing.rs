//! Saying how far behind each destination is.

use metrics::gauge;

use crate::{clock::Clock, store::Deliveries, telemetry};

/// Reports the lag, the backlog and the parked deliveries of `destination`.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a double; counts stay far below 2^53"
)]
pub(super) async fn report<S: Deliveries>(store: &S, destination: &str, clock: &Clock) {
    let standing = match store.standing(destination).await {
        Ok(standing) => standing,
        Err(error) => {
            tracing::debug!(destination, error = error.story(), "standing is not known");
            return;
        }
    };
    let lag = standing
        .oldest_at
        .map_or(0.0, |at| clock.now().since(at).as_secs_f64());
    let set = |name, value| gauge!(name, "destination" => destination.to_owned()).set(value);
    set(telemetry::OUTBOX_LAG, lag);
    set(telemetry::OUTBOX_BACKLOG, standing.backlog as f64);
    set(telemetry::RELAY_PARKED, standing.parked as f64);
}
