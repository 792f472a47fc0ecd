//! Rates of the requests to an upstream: of all tenants, and of one.
//!
//! A request that exceeds a rate is refused before its key is claimed. Its tenant's bucket is asked
//! first, so that a tenant that exceeds its own rate takes nothing from the others. The number of
//! buckets is bounded by `hapax-http`.

use hapax::{Stopwatch, key::Tenant};
use hapax_http::{Problem, Rate, RateLimit};

use crate::config;

/// The rates of an upstream, each with its buckets.
#[derive(Debug, Default)]
pub(super) struct Rates {
    all: Option<RateLimit>,
    tenant: Option<RateLimit>,
}

impl Rates {
    pub(super) fn new(settings: &config::Upstream, stopwatch: &Stopwatch) -> Self {
        let limit = |rate: &config::Rate| {
            let rate = Rate {
                requests: rate.requests,
                period: rate.per.0,
                burst: rate.burst.unwrap_or(rate.requests),
            };
            RateLimit::new(rate, stopwatch.clone())
        };
        Self {
            all: settings.rate.as_ref().map(limit),
            tenant: settings.tenant_rate.as_ref().map(limit),
        }
    }

    /// Keeps the buckets of an earlier configuration whose rates are the same.
    pub(super) fn continuing(self, earlier: &Self) -> Self {
        Self {
            all: kept(self.all, earlier.all.as_ref()),
            tenant: kept(self.tenant, earlier.tenant.as_ref()),
        }
    }

    /// Whether there is a rate for one tenant.
    pub(super) fn counts_tenants(&self) -> bool {
        self.tenant.is_some()
    }

    /// Counts a request. The error names the rate that it exceeds.
    pub(super) fn admit(&self, tenant: Option<&Tenant>) -> Result<(), (&'static str, Problem)> {
        if let Some(own) = &self.tenant {
            own.admit(tenant).map_err(|problem| ("tenant", problem))?;
        }
        let Some(all) = &self.all else {
            return Ok(());
        };
        all.admit(None).map_err(|problem| {
            if let Some(own) = &self.tenant {
                own.give_back(tenant);
            }
            ("upstream", problem)
        })
    }
}

fn kept(new: Option<RateLimit>, earlier: Option<&RateLimit>) -> Option<RateLimit> {
    let same = new
        .as_ref()
        .and_then(|new| earlier.filter(|it| it.rate() == new.rate()));
    same.cloned().or(new)
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZeroU32,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use hapax_runtime::config::Span;

    use super::*;

    #[test]
    fn a_tenant_that_exceeds_its_rate_takes_nothing_from_the_others() {
        let (rates, _) = rates(3, 2);
        let (alice, bob) = (Tenant::new("alice").unwrap(), Tenant::new("bob").unwrap());
        let admit = |tenant| rates.admit(Some(tenant)).map_err(|(rate, _)| rate);
        let first = [admit(&alice), admit(&alice), admit(&alice), admit(&alice)];
        assert_eq!(first, [Ok(()), Ok(()), Err("tenant"), Err("tenant")]);
        assert_eq!(
            [admit(&bob), admit(&bob), admit(&bob)],
            [Ok(()), Err("upstream"), Err("upstream")]
        );
    }

    #[test]
    fn a_request_that_the_upstream_refuses_costs_its_tenant_nothing() {
        let (rates, seconds) = rates(1, 2);
        let alice = Tenant::new("alice").unwrap();
        let admit = |second| {
            seconds.store(second, Ordering::SeqCst);
            rates.admit(Some(&alice)).map_err(|(rate, _)| rate)
        };
        assert_eq!(admit(0), Ok(()));
        for _ in 0..5 {
            assert_eq!(admit(0), Err("upstream"));
        }
        assert_eq!(admit(1), Ok(()));
    }

    #[test]
    fn a_new_configuration_keeps_the_buckets_of_a_rate_that_stays() {
        let (earlier, _) = rates(1, 5);
        assert!(earlier.admit(None).is_ok());
        let same = rates(1, 7).0.continuing(&earlier);
        assert!(same.admit(None).is_err());
        let other = rates(2, 5).0.continuing(&earlier);
        assert!(other.admit(None).is_ok());
    }

    /// Rates for each second, and the clock in seconds.
    fn rates(all: u32, tenant: u32) -> (Rates, Arc<AtomicU64>) {
        let rate = |requests| config::Rate {
            requests: NonZeroU32::new(requests).unwrap(),
            per: Span(Duration::from_secs(1)),
            burst: None,
        };
        let mut settings = config::Upstream::new(["http://10.0.0.1:80"]);
        (settings.rate, settings.tenant_rate) = (Some(rate(all)), Some(rate(tenant)));
        let seconds = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&seconds);
        let stopwatch = Stopwatch::new(move || Duration::from_secs(read.load(Ordering::SeqCst)));
        (Rates::new(&settings, &stopwatch), seconds)
    }
}
