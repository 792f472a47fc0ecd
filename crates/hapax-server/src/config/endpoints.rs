//! The section of endpoints of tenants.

use std::{path::PathBuf, time::Duration};

use hapax::{
    limits::{ENDPOINT_WAITING_MAX, ENDPOINTS_PER_TENANT_MAX},
    retry::Schedule,
};
use hapax_sinks::settings::networks;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Span, Wrong, sections::within};

/// Maximum number of attempts at one event.
const ATTEMPTS_MAX: usize = 100;
/// Maximum number of attempts at the same time.
const AT_ONCE_MAX: u16 = 10_000;

/// The endpoints of tenants.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Endpoints {
    pub(crate) per_tenant: u32,
    #[serde(deserialize_with = "networks")]
    pub(crate) allow: Vec<IpNet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    pub(crate) timeout: Span,
    pub(crate) patience: Span,
    pub(crate) concurrency: u16,
    pub(crate) sends: u16,
    pub(crate) retries: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<Vec<Span>>,
    pub(crate) waiting: u32,
    pub(crate) disable_after: Span,
    pub(crate) disable_failures: u32,
    pub(crate) probe: bool,
    pub(crate) probe_after: Span,
    pub(crate) probe_longest: Span,
    pub(crate) catch_up: CatchUp,
    pub(crate) record: EndpointLog,
    pub(crate) retention: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) events_url: Option<String>,
}

/// Which attempts at endpoints are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EndpointLog {
    All,
    Failures,
}

/// How an endpoint that a probe has enabled gets what has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CatchUp {
    Parallel,
    InOrder,
}

impl Endpoints {
    /// The waits before the first probe of a disabled endpoint and at most between two probes, if there
    /// are probes.
    pub(crate) fn probe(&self) -> Option<(Duration, Duration)> {
        self.probe
            .then_some((self.probe_after.0, self.probe_longest.0))
    }

    /// The retry schedule.
    pub(crate) fn schedule(&self) -> Schedule {
        match &self.schedule {
            Some(waits) => Schedule::new(waits.iter().map(|wait| wait.0), 20),
            None => Schedule::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let (millisecond, second) = (Duration::from_millis(1), Duration::from_secs(1));
        let (minutes, years) = (Duration::from_mins(5), Duration::from_hours(24 * 3660));
        if !(1..=ENDPOINTS_PER_TENANT_MAX).contains(&self.per_tenant) {
            let problem = format!("must be 1 to {ENDPOINTS_PER_TENANT_MAX}");
            return Err(Wrong::at("endpoints.per_tenant", problem));
        }
        within("endpoints.timeout", self.timeout, second, minutes)?;
        within(
            "endpoints.patience",
            self.patience,
            millisecond,
            second * 10,
        )?;
        for (name, value) in [
            ("concurrency", self.concurrency),
            ("sends", self.sends),
            ("retries", self.retries),
        ] {
            if !(1..=AT_ONCE_MAX).contains(&value) {
                let problem = format!("must be 1 to {AT_ONCE_MAX}");
                return Err(Wrong::at(format!("endpoints.{name}"), problem));
            }
        }
        let attempts = self.schedule.as_ref().map_or(1, Vec::len);
        if !(1..=ATTEMPTS_MAX).contains(&attempts) {
            let problem = format!("must have 1 to {ATTEMPTS_MAX} waits, not {attempts}");
            return Err(Wrong::at("endpoints.schedule", problem));
        }
        if !(1..=ENDPOINT_WAITING_MAX).contains(&self.waiting) {
            let problem = format!("must be 1 to {ENDPOINT_WAITING_MAX}");
            return Err(Wrong::at("endpoints.waiting", problem));
        }
        if self.disable_failures == 0 {
            return Err(Wrong::at(
                "endpoints.disable_failures",
                "must be at least 1",
            ));
        }
        let is_link = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        if !self.events_url.as_ref().is_none_or(is_link) {
            return Err(Wrong::at(
                "endpoints.events_url",
                "must begin with https:// or http://",
            ));
        }
        within("endpoints.disable_after", self.disable_after, second, years)?;
        within("endpoints.probe_after", self.probe_after, second, years)?;
        within(
            "endpoints.probe_longest",
            self.probe_longest,
            self.probe_after.0,
            years,
        )?;
        within("endpoints.retention", self.retention, second, years)
    }
}
