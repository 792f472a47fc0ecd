//! The objects that the gateway builds from its configuration: routes, upstreams, certificates and tasks.
//!
//! A new configuration is built completely before it replaces the old one. Requests in flight keep
//! the one with which they began. The new one continues with what is known of the upstreams that
//! stay: the requests in flight, the health of the instances, and their connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hapax::{Stopwatch, failpoint::Failpoints, store::Phases};
use hapax_http::{Idempotency, Settings};
use ipnet::IpNet;
use rustls::ServerConfig;
use tokio::task::JoinHandle;

use crate::{
    config::{self, CredentialRule, OnUnknown},
    entry::Entry,
    ingest::Ingest,
    protected::{LookUp, Sightings, Target},
    resume::Resume,
    routes::RouteTable,
    tenant::TenantSource,
    tls,
    upstream::Upstream,
};

/// How much longer a handler may take than the exchange with the service, so that the reason is
/// recorded before the handler is aborted.
const RESERVE: Duration = Duration::from_secs(10);

/// Why a configuration cannot be used, although its values are valid.
#[derive(Debug, thiserror::Error)]
#[error("gateway.{0}")]
pub struct SetUpError(String);

/// The current configuration, built.
pub(crate) struct State<K: Phases> {
    pub(crate) routes: Arc<RouteTable<Arc<Entry<K>>>>,
    /// The names of the protected operations.
    pub(crate) operations: BTreeSet<String>,
    pub(crate) trusted: Vec<IpNet>,
    /// The sources of webhooks, if there are any.
    pub(crate) ingest: Option<Ingest<K>>,
    pub(crate) tls: BTreeMap<String, Arc<ServerConfig>>,
    /// The proxies of the listeners that speak the PROXY protocol.
    pub(crate) proxies: BTreeMap<String, Arc<[IpNet]>>,
    upstreams: Upstreams,
    sightings: Arc<Sightings>,
    _tasks: Vec<Task>,
}

/// A task that ends when the value is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<K: Phases> State<K> {
    /// Builds a configuration, which was checked. `base` has the clock and the random numbers. What is
    /// known of the upstreams and of the requests of `earlier` is kept.
    pub(crate) fn new(
        store: &K,
        base: &Settings,
        failpoints: &Failpoints,
        settings: &config::Settings,
        earlier: Option<&Self>,
    ) -> Result<Self, SetUpError> {
        let idempotency = Idempotency::new(store.clone(), keys(base, settings));
        let known = earlier.map(|earlier| &earlier.upstreams);
        let upstreams = upstreams(settings, &base.stopwatch, known)?;
        let sightings = earlier.map(|earlier| Arc::clone(&earlier.sightings));
        let sightings = sightings.unwrap_or_default();
        let mut routes = Vec::new();
        for (name, route) in &settings.routes {
            let wrong = |problem: String| SetUpError(format!("routes.{name}.{problem}"));
            let upstream = upstreams.get(&route.upstream);
            let upstream = upstream.ok_or_else(|| wrong("upstream does not exist".to_owned()))?;
            let look_up = route.look_up.as_ref();
            let look_up = look_up.map(|it| LookUp::new(it, &sightings)).transpose();
            let target = Target {
                route: name.clone(),
                settings: route.clone(),
                upstream: Arc::clone(upstream),
                look_up: look_up.map_err(|error| wrong(error.to_string()))?,
                clock: base.clock.clone(),
                failpoints: failpoints.clone(),
            };
            let tenant = route.tenant.as_ref().unwrap_or(&settings.tenant);
            let rule = route.credential.unwrap_or(settings.credential);
            let needs_credential = tenant.has_credential() && rule == CredentialRule::Always;
            let tenant = TenantSource::new(tenant, &base.clock);
            let tenant = tenant.map_err(|problem| wrong(format!("tenant {problem}")))?;
            let bad = |(field, problem): (&str, String)| wrong(format!("{field} {problem}"));
            let entry = Entry::new(&idempotency, target, tenant, needs_credential);
            let entry = entry.map_err(bad)?;
            routes.push((route.rule().map_err(bad)?, Arc::new(entry)));
        }
        let routes = Arc::new(RouteTable::new(routes));
        let mut tasks: Vec<Task> = upstreams
            .values()
            .map(|upstream| Task(tokio::spawn(Arc::clone(upstream).watch())))
            .collect();
        if settings
            .routes
            .values()
            .any(|it| it.unknown == OnUnknown::LookUp)
        {
            let completer = Resume::completer(&idempotency, Arc::clone(&routes));
            tasks.push(Task(tokio::spawn(completer.run())));
        }
        Ok(Self {
            routes,
            operations: settings.operations(),
            trusted: settings.trusted_proxies.clone(),
            ingest: ingest(store, base, settings)?,
            tls: certificates(settings)?,
            proxies: proxies(settings),
            upstreams,
            sightings,
            _tasks: tasks,
        })
    }

    /// Reports the instances of upstreams that `later`, which replaces this configuration, lacks.
    pub(crate) fn report_removed(&self, later: &Self) {
        for (name, upstream) in &self.upstreams {
            upstream.report_removed(later.upstreams.get(name).map(Arc::as_ref));
        }
    }
}

fn ingest<K: Phases>(
    store: &K,
    base: &Settings,
    settings: &config::Settings,
) -> Result<Option<Ingest<K>>, SetUpError> {
    let sources = settings.ingest.build();
    let sources = sources.map_err(|error| SetUpError(format!("ingest.{error}")))?;
    let (clock, log) = (base.clock.clone(), base.log);
    let ingest = || Ingest::new(store.clone(), clock, log, sources);
    Ok((!settings.ingest.sources.is_empty()).then(ingest))
}

/// The settings of the keys.
fn keys(base: &Settings, settings: &config::Settings) -> Settings {
    let longest = settings.routes.values().map(|route| {
        let look_up = route.look_up.as_ref().map(|it| it.timeout.0);
        route.timeout.0.saturating_add(look_up.unwrap_or_default())
    });
    Settings {
        service: Some(settings.service.clone()),
        wait: settings.wait.0,
        lease: settings.lease.0,
        retention: settings.retention.0,
        handler_max: longest.max().unwrap_or_default().saturating_add(RESERVE),
        ..base.clone()
    }
}

/// The upstreams by name.
type Upstreams = BTreeMap<String, Arc<Upstream>>;

fn upstreams(
    settings: &config::Settings,
    stopwatch: &Stopwatch,
    earlier: Option<&Upstreams>,
) -> Result<Upstreams, SetUpError> {
    let upstream = |(name, upstream): (&String, &config::Upstream)|
     -> Result<(String, Arc<Upstream>), SetUpError> {
        let earlier = earlier.and_then(|earlier| earlier.get(name));
        let built = Upstream::new(name, upstream, stopwatch, earlier.map(Arc::as_ref));
        let built = built.map_err(|error| SetUpError(format!("upstreams.{name}.{error}")))?;
        Ok((name.clone(), Arc::new(built)))
    };
    settings.upstreams.iter().map(upstream).collect()
}

fn certificates(
    settings: &config::Settings,
) -> Result<BTreeMap<String, Arc<ServerConfig>>, SetUpError> {
    let mut certificates = BTreeMap::new();
    for (name, listener) in &settings.listeners {
        let Some(tls) = &listener.tls else { continue };
        let server = tls::server(tls);
        let server = server.map_err(|error| SetUpError(format!("listeners.{name}.{error}")))?;
        certificates.insert(name.clone(), server);
    }
    Ok(certificates)
}

fn proxies(settings: &config::Settings) -> BTreeMap<String, Arc<[IpNet]>> {
    let proxies = |(name, listener): (&String, &config::Listener)| {
        let speaks = listener.proxy_protocol.as_ref()?;
        Some((name.clone(), Arc::<[IpNet]>::from(speaks.from.as_slice())))
    };
    settings.listeners.iter().filter_map(proxies).collect()
}
