//! Endpoints of tenants, as configured: the sink and the dispatcher of the queue in a relay, the
//! requests, and the operations that need the secrets.

use std::sync::Arc;

use hapax::{
    Clock,
    admin::Admin,
    endpoint::{EndpointSettings, Endpoints, FanOut, Transport},
    failpoint::Failpoints,
    mask::Mask,
};
use hapax_sinks::{
    endpoints::{EndpointTransport, Keys, OperationsSettings, TenantEndpoints, TransportSettings},
    settings::SettingError,
};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    config::{CatchUp, Config, EndpointLog, Wrong},
    database::RelayStore,
    environment,
    listeners::stopped,
};

/// Binds the sink of the configuration to the endpoints of an open store.
pub(crate) fn bind<S: RelayStore>(
    store: &S,
    config: &Config,
    transport: Arc<dyn Transport>,
    failpoints: Failpoints,
    fan_out: &FanOut,
) -> Endpoints {
    let endpoints = Endpoints::new(
        Arc::new(store.clone()),
        transport,
        settings(config),
        store.clock(),
        environment::random(),
        failpoints,
    );
    fan_out.bind(endpoints.clone());
    endpoints
}

/// Sends what waits in the queue, once a destination has the sink, until the process stops.
pub(crate) fn dispatch(
    tasks: &mut JoinSet<()>,
    endpoints: Endpoints,
    fan_out: FanOut,
    stopping: &watch::Receiver<bool>,
) {
    let stopping = stopping.clone();
    tasks.spawn(async move { endpoints.run(&fan_out, stopped(stopping)).await });
}

/// The requests to endpoints, as configured.
pub(crate) fn transport_of(
    config: &Config,
    keys: Keys,
    clock: Clock,
) -> Result<EndpointTransport, Wrong> {
    let section = &config.endpoints;
    let settings = TransportSettings {
        allow: section.allow.clone(),
        timeout: section.timeout.0,
        ca: section.ca.clone(),
        events_url: section.events_url.clone(),
        mask: Mask::with(&config.admin.mask),
    };
    let transport = EndpointTransport::new(&settings, keys, clock);
    transport.map_err(|SettingError { problem, .. }| Wrong::at("endpoints.ca", problem))
}

/// The operations on the endpoints of a store, as configured.
pub(crate) fn operations_of(
    store: Arc<dyn Admin>,
    config: &Config,
    keys: Keys,
) -> Result<TenantEndpoints, Wrong> {
    let transport = transport_of(config, keys.clone(), environment::clock())?;
    let settings = OperationsSettings {
        per_tenant: config.endpoints.per_tenant,
        clock: environment::clock(),
        random: environment::random(),
        secret_bytes: environment::secret_bytes,
    };
    Ok(TenantEndpoints::new(store, keys, transport, settings))
}

/// How endpoints are delivered to, as configured.
fn settings(config: &Config) -> EndpointSettings {
    let section = &config.endpoints;
    EndpointSettings {
        concurrency: section.concurrency.into(),
        sends_max: section.sends.into(),
        retries_max: section.retries.into(),
        patience: section.patience.0,
        timeout: section.timeout.0,
        schedule: section.schedule(),
        waiting_max: section.waiting,
        disable_after: section.disable_after.0,
        disable_failures: section.disable_failures,
        probe: section.probe(),
        catches_up_in_order: section.catch_up == CatchUp::InOrder,
        retention: section.retention.0,
        logs_successes: section.record == EndpointLog::All,
    }
}
