//! How endpoints are delivered to.

use std::time::Duration;

use crate::{limits, retry::Schedule};

/// Settings of the deliveries to all endpoints of a process.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Maximum number of first attempts at one endpoint at the same time, and of retries.
    pub concurrency: usize,
    /// Maximum number of first attempts at the same time. Those that take longer than the patience are
    /// counted separately, up to the same number.
    pub sends_max: usize,
    /// Maximum number of retries at the same time.
    pub retries_max: usize,
    /// How long a first attempt may take before its event is put into the queue. The attempt
    /// continues.
    pub patience: Duration,
    /// Timeout of an attempt.
    pub timeout: Duration,
    /// The waits before the attempts at one event.
    pub schedule: Schedule,
    /// Maximum number of deliveries that wait for one endpoint. Beyond it, the oldest ones end.
    pub waiting_max: u32,
    /// How long every attempt at an endpoint has to fail before it is disabled.
    pub disable_after: Duration,
    /// How many consecutive attempts have to fail before it is disabled.
    pub disable_failures: u32,
    /// The wait before the first probe of an endpoint that was disabled because it failed, and the longest
    /// wait between two probes; `None` if a person has to enable it.
    pub probe: Option<(Duration, Duration)>,
    /// Whether an endpoint that a probe has enabled gets what has waited in the order of the events, one
    /// at a time.
    pub catches_up_in_order: bool,
    /// How long attempts and ended deliveries are kept.
    pub retention: Duration,
    /// Whether successful first attempts are in the log of attempts. Failed ones always are.
    pub logs_successes: bool,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            concurrency: limits::ENDPOINT_CONCURRENCY,
            sends_max: limits::ENDPOINT_SENDS,
            retries_max: limits::ENDPOINT_RETRIES,
            patience: limits::ENDPOINT_PATIENCE,
            timeout: limits::OFFER,
            schedule: Schedule::default(),
            waiting_max: limits::ENDPOINT_WAITING,
            disable_after: limits::FAILING_MAX,
            disable_failures: limits::ENDPOINT_DISABLE_FAILURES,
            probe: Some(limits::ENDPOINT_PROBE),
            catches_up_in_order: false,
            retention: limits::ENDPOINT_RETENTION,
            logs_successes: true,
        }
    }
}

impl EndpointSettings {
    /// How long a claimed delivery belongs to its relay: longer than an attempt takes, including the
    /// transaction that records it.
    pub(super) fn lease(&self) -> Duration {
        self.timeout
            .saturating_mul(2)
            .saturating_add(limits::ENDPOINT_LEASE_MARGIN)
    }

    /// The time between two failures that are counted as spread over time.
    pub(super) fn failing_span(&self) -> Duration {
        self.disable_after / limits::ENDPOINT_DISABLE_PART
    }

    /// The limit of a call of the transport, which has the same timeout for a request and half of it before
    /// the request: a little longer.
    pub(super) fn outlasting(&self) -> Duration {
        self.timeout
            .saturating_add(self.timeout / 2)
            .saturating_add(limits::ENDPOINT_LEASE_MARGIN / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_belongs_to_its_relay_for_longer_than_its_body_and_its_request_take() {
        for millis in [1, 100, 1_000, 2_000, 15_000, 600_000] {
            let timeout = Duration::from_millis(millis);
            let settings = EndpointSettings {
                timeout,
                ..EndpointSettings::default()
            };
            assert!(settings.outlasting() > timeout + timeout / 2);
            assert!(settings.lease() > settings.outlasting());
        }
    }
}
