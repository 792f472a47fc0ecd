//! Recovery of endpoints that were disabled because they failed: what follows a probe.
//!
//! A probe is one delivery to a disabled endpoint. If the endpoint accepts it, the endpoint is enabled and
//! gets what has waited; otherwise the next probe waits for longer. A probe whose event cannot be sent is
//! repeated with the next event. A process that dies before it has recorded the outcome leaves a probe that
//! is due again when its lease is over.

use std::collections::BTreeSet;

use metrics::counter;

use super::{
    sent::Sent,
    service::{Endpoints, Failpoint},
    store::NextStep,
};
use crate::{store::StoreError, telemetry};

/// Probes that have ended and endpoints that may have caught up, until their deliveries are recorded.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    probed: Vec<Probed>,
    caught_up: BTreeSet<String>,
}

/// A probe that has ended.
#[derive(Debug)]
struct Probed {
    endpoint: String,
    version: i64,
    outcome: ProbeOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeOutcome {
    Delivered,
    Failed,
    Gone,
    /// Its event could not be sent.
    Rejected,
}

impl Recovery {
    /// Notes an attempt that has ended. A probe that this relay could not make says nothing about the
    /// endpoint, and is due again when its lease is over.
    pub(super) fn note(&mut self, sent: &Sent, next: NextStep) {
        if sent.is_probe && sent.is_made() {
            let (endpoint, version) = sent.version();
            let outcome = if sent.is_delivered() {
                ProbeOutcome::Delivered
            } else if sent.is_gone() {
                ProbeOutcome::Gone
            } else if sent.is_rejected() {
                ProbeOutcome::Rejected
            } else {
                ProbeOutcome::Failed
            };
            self.probed.push(Probed {
                endpoint,
                version,
                outcome,
            });
        }
        let has_ended = matches!(next, NextStep::Delivered | NextStep::Failed);
        if sent.endpoint.is_catching_up && has_ended {
            self.caught_up.insert(sent.endpoint.id.clone());
        }
    }

    /// Enables the endpoints whose probes have succeeded, repeats probes whose events could not be sent,
    /// postpones the next probe of the others, and ends that endpoints catch up for which nothing waits.
    pub(super) async fn apply(&mut self, endpoints: &Endpoints) {
        for probed in std::mem::take(&mut self.probed) {
            if let Err(error) = endpoints.after_probe(&probed).await {
                let (error, endpoint) = (error.error_chain(), &probed.endpoint);
                tracing::warn!(endpoint, error, "probe of an endpoint cannot be recorded");
            }
        }
        for endpoint in std::mem::take(&mut self.caught_up) {
            // If it fails, the end of the next delivery tries again.
            if let Err(error) = endpoints.store().end_catch_up(&endpoint).await {
                let error = error.error_chain();
                tracing::warn!(endpoint, error, "endpoint cannot be changed");
            }
        }
    }
}

impl Endpoints {
    async fn after_probe(&self, probed: &Probed) -> Result<(), StoreError> {
        let Probed {
            endpoint,
            version,
            outcome,
        } = probed;
        if *outcome == ProbeOutcome::Rejected {
            return self.store().repeat_probe(endpoint, *version).await;
        }
        let is_delivered = *outcome == ProbeOutcome::Delivered;
        let label = if is_delivered { "delivered" } else { "failed" };
        counter!(telemetry::ENDPOINTS_PROBES, "outcome" => label).increment(1);
        let settings = self.settings();
        if !is_delivered {
            let waits = settings.probe.filter(|_| *outcome == ProbeOutcome::Failed);
            return self.store().postpone_probe(endpoint, *version, waits).await;
        }
        self.hit(Failpoint::RecoverBefore);
        let in_order = settings.catches_up_in_order;
        let store = self.store();
        let is_enabled = store.recover_endpoint(endpoint, *version, in_order).await?;
        self.hit(Failpoint::RecoverAfter);
        if is_enabled {
            tracing::info!(
                endpoint,
                from_state = "disabled",
                to_state = "enabled",
                "endpoint enabled: it accepted a probe"
            );
            counter!(telemetry::ENDPOINTS_RECOVERED).increment(1);
            self.wake();
        }
        Ok(())
    }
}
