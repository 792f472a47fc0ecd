//! Upstream: a service in one or several instances, to which requests are sent.
//!
//! A request is sent to the instance with the fewest requests in flight. It is sent again, to
//! another instance or on another connection, only if nothing of the first attempt left the gateway:
//! no connection could be established, no stream of HTTP/2 was free, or hyper handed the request back
//! because it had not begun to write it. A request that an instance refuses (`REFUSED_STREAM`) has no
//! effect either, but is not sent again, because its body may be consumed. After every other failure
//! the outcome is unknown, and the caller decides.

mod connect;
mod http2;
mod instance;
mod health;
mod tls;
mod bounds;
mod rates;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use hapax::{Stopwatch, key::Tenant, sink::BoxError};
use hapax_http::Problem;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::{
    config::{self, Protocol, parse_instance},
    metrics,
};
use bounds::{Bounds, Slot};
use connect::Dial;
use http2::Stream;
use instance::{Attempt, Instance, InstanceSlot};
use rates::Rates;
use tls::TlsError;

/// A service, shared by its routes.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    instances: Vec<Arc<Instance>>,
    bounds: Bounds,
    rates: Rates,
    next: AtomicUsize,
    health: Option<(String, Duration)>,
    /// How connections are made: by this protocol, to instances with certificates of this authority.
    way: (Protocol, Option<Vec<u8>>),
}

/// The places that a request in flight occupies until its response has ended.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The instance that has the request.
    pub(crate) instance: Arc<str>,
    _slots: (Slot, InstanceSlot, Option<Arc<Stream>>),
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Too many requests are in flight. Nothing was sent.
    #[error("too many requests of the {0} are in flight")]
    Full(&'static str),
    /// Nothing of the request left the gateway.
    #[error("no instance could be reached")]
    NotSent {
        /// The last failure.
        source: Option<BoxError>,
    },
    /// The instance has refused the request, and has not acted on it.
    #[error("{instance} has refused the request")]
    Refused {
        /// The instance.
        instance: Arc<str>,
        /// What it has sent.
        source: BoxError,
    },
    /// The request, or a part of it, may have left the gateway.
    #[error("no response from {instance}")]
    Unknown {
        /// The instance.
        instance: Arc<str>,
        /// Whether the time has run out.
        is_late: bool,
        /// The failure.
        source: BoxError,
    },
}

impl SendError {
    fn refused(instance: Arc<str>, source: BoxError) -> Self {
        Self::Refused { instance, source }
    }

    fn unknown(instance: Arc<str>, is_late: bool, source: BoxError) -> Self {
        Self::Unknown {
            instance,
            is_late,
            source,
        }
    }
}

impl Upstream {
    /// Builds an upstream from its settings, which were checked. It continues with the requests in flight,
    /// the health and the connections of `earlier`, which had the same name. `stopwatch` measures the rates.
    ///
    /// # Errors
    /// Fails if the file with the authority cannot be read.
    pub(crate) fn new(
        name: &str,
        settings: &config::Upstream,
        stopwatch: &Stopwatch,
        earlier: Option<&Self>,
    ) -> Result<Self, TlsError> {
        let authority = tls::authority(settings)?;
        let tls = tls::client(settings, authority.as_deref())?;
        let way = (settings.protocol, authority);
        let instance = |text: &String| -> Result<Arc<Instance>, TlsError> {
            let uri = parse_instance(text).map_err(TlsError::Instance)?;
            let dial = Dial::new(&uri, settings, tls.clone())?;
            let mut built = Instance::new(name, text, dial, settings);
            if let Some(earlier) = earlier
                && let Some(same) = earlier.instances.iter().find(|it| *it.name() == **text)
            {
                built = built.continuing(same, earlier.way == way);
            }
            Ok(Arc::new(built))
        };
        let instances: Result<Vec<_>, TlsError> = settings.instances.iter().map(instance).collect();
        let health = settings.health_path.clone();
        let bounds = Bounds::new(settings.concurrency, settings.tenant_concurrency);
        let rates = Rates::new(settings, stopwatch);
        Ok(Self {
            name: name.to_owned(),
            instances: instances?,
            bounds: match earlier {
                Some(earlier) => bounds.continuing(&earlier.bounds),
                None => bounds,
            },
            rates: match earlier {
                Some(earlier) => rates.continuing(&earlier.rates),
                None => rates,
            },
            next: AtomicUsize::new(0),
            health: health.map(|path| (path, settings.health_every.0)),
            way,
        })
    }

    /// Counts a request of a client. Call it before the key is claimed.
    ///
    /// # Errors
    /// 429 if the request exceeds the rate of its tenant or of the upstream.
    pub(crate) fn admit(&self, tenant: Option<&Tenant>) -> Result<(), Problem> {
        self.rates.admit(tenant).map_err(|(rate, problem)| {
            metrics::limited(&self.name, rate);
            problem
        })
    }

    /// Reserves a place for a request in flight.
    ///
    /// # Errors
    /// [`SendError::Full`] if there is none.
    pub(crate) fn slot(&self, tenant: Option<&Tenant>) -> Result<Slot, SendError> {
        self.bounds.slot(tenant).map_err(|bound| {
            metrics::full(&self.name, bound);
            SendError::Full(bound)
        })
    }

    /// Sends a request, and returns the head of the response. Directly before every attempt,
    /// `may_send` is asked.
    ///
    /// # Errors
    /// Says whether the request may have left the gateway.
    pub(crate) async fn send(
        &self,
        mut request: Request<Body>,
        slot: Slot,
        deadline: Instant,
        may_send: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Response<Incoming>, InFlight), SendError> {
        let mut tried = vec![false; self.instances.len()];
        let mut is_fresh = false;
        let mut last = None;
        let mut is_repeated = false;
        while let Some(at) = self.choose(&tried) {
            if is_repeated {
                metrics::resent(&self.name);
            }
            is_repeated = true;
            let instance = &self.instances[at];
            let taken = instance.slot();
            let connecting = timeout_at(deadline, instance.connection(is_fresh));
            let connection = match connecting.await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => {
                    instance.failed();
                    (tried[at], is_fresh, last) = (true, false, Some(error));
                    continue;
                }
                Err(late) => {
                    let source = Some(late.into());
                    return Err(SendError::NotSent { source });
                }
            };
            // From here to the first write, nothing is asked again: a process that is stopped in this
            // window for longer than its lease may send what another one has decided.
            if !may_send() {
                let source = Some("another process may have the key".into());
                return Err(SendError::NotSent { source });
            }
            let is_pooled = connection.is_pooled();
            let name = instance.name();
            match timeout_at(deadline, instance.send(connection, request)).await {
                Ok(Attempt::Answered(response, stream)) => {
                    let in_flight = InFlight {
                        instance: name,
                        _slots: (slot, taken, stream),
                    };
                    return Ok((response, in_flight));
                }
                // A connection that was idle may be stale; the instance need not be down.
                Ok(Attempt::NotSent(back, error)) => {
                    request = *back;
                    tried[at] = !is_pooled;
                    is_fresh = is_pooled;
                    last = Some(error);
                }
                Ok(Attempt::Refused(source)) => return Err(SendError::refused(name, source)),
                Ok(Attempt::Failed(source)) => return Err(SendError::unknown(name, false, source)),
                Err(late) => return Err(SendError::unknown(name, true, late.into())),
            }
        }
        Err(SendError::NotSent { source: last })
    }

    /// The host of the first instance, for requests that come from no client.
    pub(crate) fn authority(&self) -> &str {
        self.instances
            .first()
            .map_or("localhost", |instance| instance.authority())
    }

    /// Whether requests are counted by tenant.
    pub(crate) fn counts_tenants(&self) -> bool {
        self.bounds.counts_tenants() || self.rates.counts_tenants()
    }

    /// Checks the health of the instances until it is dropped, if that is configured.
    pub(crate) async fn watch(self: Arc<Self>) {
        if let Some((path, every)) = &self.health {
            health::watch(&self.instances, path, *every).await;
        }
    }

    /// Reports the instances that `later`, the same upstream in a new configuration, does not have.
    pub(crate) fn report_removed(&self, later: Option<&Self>) {
        for instance in &self.instances {
            let name = instance.name();
            let is_same = |it: &Arc<Instance>| it.name() == name;
            if later.is_none_or(|later| !later.instances.iter().any(is_same)) {
                metrics::instance_removed(&self.name, &name);
            }
        }
    }

    /// The instance with the fewest requests in flight among those that were not tried. An instance
    /// that is avoided is chosen only if there is no other one.
    fn choose(&self, tried: &[bool]) -> Option<usize> {
        let now = Instant::now();
        let count = self.instances.len();
        // Among equals, each one in turn.
        let first = self.next.fetch_add(1, Ordering::Relaxed) % count.max(1);
        (0..count)
            .map(|offset| (first + offset) % count)
            .filter(|at| !tried[*at])
            .min_by_key(|at| {
                let instance = &self.instances[*at];
                (!instance.is_up(now), instance.in_flight())
            })
    }
}

#[cfg(test)]
mod tests {
    use hapax_runtime::config::Span;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_new_configuration_keeps_what_is_known_of_the_instances_that_stay() {
        let (stays, goes) = ("http://10.0.0.1:80", "http://10.0.0.2:80");
        let comes = "http://10.0.0.3:80";
        let mut settings = config::Upstream::new([stays, goes]);
        settings.concurrency = 1;
        settings.eject = Span(Duration::from_mins(5));
        settings.eject_max = settings.eject;
        let stopwatch = Stopwatch::new(|| Duration::ZERO);
        let before = Upstream::new("service", &settings, &stopwatch, None).unwrap();
        for instance in &before.instances {
            instance.failed();
        }
        let in_flight = (before.slot(None).unwrap(), before.instances[0].slot());
        settings.instances = vec![comes.to_owned(), stays.to_owned()];
        let after = Upstream::new("service", &settings, &stopwatch, Some(&before)).unwrap();
        let now = Instant::now();
        let known: Vec<_> = after
            .instances
            .iter()
            .map(|it| (it.name().to_string(), it.is_up(now), it.in_flight()))
            .collect();
        assert_eq!(
            known,
            [(comes.to_owned(), true, 0), (stays.to_owned(), false, 1)]
        );
        assert!(after.slot(None).is_err());
        drop((in_flight, before));
        assert!(after.slot(None).is_ok());
    }

    #[test]
    fn a_removed_instance_is_reported_as_neither_up_nor_down() {
        let (stays, goes) = ("http://10.0.0.1:80", "http://10.0.0.2:80");
        let stopwatch = Stopwatch::new(|| Duration::ZERO);
        let recorder = PrometheusBuilder::new().build_recorder();
        ::metrics::with_local_recorder(&recorder, || {
            let mut settings = config::Upstream::new([stays, goes]);
            let before = Upstream::new("service", &settings, &stopwatch, None).unwrap();
            settings.instances = vec![stays.to_owned()];
            let after = Upstream::new("service", &settings, &stopwatch, Some(&before)).unwrap();
            before.report_removed(Some(&after));
        });
        let page = recorder.handle().render();
        for (instance, value) in [(stays, "1"), (goes, "NaN")] {
            let line = format!("upstream_instance=\"{instance}\"}} {value}");
            assert!(page.contains(&line), "{line} is not in {page}");
        }
    }
}
