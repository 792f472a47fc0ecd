//! Protected requests: the phased mode of `hapax-http` around a handler that sends the request to
//! the upstream.
//!
//! The layer reads the key and the body, claims the key, replays, refuses mismatches and lets
//! duplicates wait. The handler ([`forward`]) runs only for the owner of the key.

mod body;
mod exchange;
mod forward;
mod key;
mod look_up;
mod mcp;
mod response;
mod sightings;

use std::sync::Arc;

use hapax::{Clock, failpoint::Failpoints, store::Phases};
use hapax_http::{Idempotency, Protected};
use http::{Method, header::HOST};
use tower_layer::Layer as _;

use crate::{
    config::{self, OnUnknown},
    upstream::Upstream,
};
pub(crate) use body::timed;
use exchange::first_record;
use forward::Forward;
pub(crate) use forward::{Budget, Unattended};
pub(crate) use look_up::LookUp;
pub(crate) use mcp::Call;
pub(crate) use sightings::Sightings;

/// Where the requests of a route go, and how their responses are treated.
#[derive(Debug)]
pub(crate) struct Target {
    /// The name of the route.
    pub(crate) route: String,
    pub(crate) settings: config::Route,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) look_up: Option<LookUp>,
    pub(crate) clock: Clock,
    /// Reached before and after a request is sent, and when its response is complete.
    pub(crate) failpoints: Failpoints,
}

/// Builds the protected service of a route, whose settings were checked.
pub(crate) fn protect<K: Phases>(
    idempotency: &Idempotency<K>,
    target: &Arc<Target>,
) -> Protected<K> {
    let route = &target.settings;
    let mut operation = idempotency.operation(&route.template());
    if let Ok(profile) = route.parsed_profile() {
        operation = operation.profile(profile);
    }
    if let Ok(Some(mode)) = route.parsed_fingerprint() {
        operation = operation.fingerprint(mode);
    }
    // A request without a key does not arrive here, unless the route requires one.
    operation = operation
        .required()
        .body_max(route.body_max)
        .json_max(route.json_max);
    if let Some(wait) = route.wait {
        operation = operation.wait(wait.0);
    }
    if let Some(retention) = route.retention {
        operation = operation.retention(retention.0);
    }
    let own = [Method::POST, Method::PATCH];
    let methods = route.protected_methods().unwrap_or_default();
    for method in methods.into_iter().filter(|method| !own.contains(method)) {
        operation = operation.also(method);
    }
    operation = operation.phased().kept_headers([HOST]);
    let sending = Arc::clone(target);
    // The commit that enters a new key also says that its request is sent.
    operation = operation.first_phase(move |parts| {
        let record = first_record(&sending, parts);
        Some(record.to_string())
    });
    // Without its client, the gateway has no credentials for the service. It can only ask the
    // service what has happened.
    if route.unknown != OnUnknown::LookUp {
        operation = operation.left_to_client();
    }
    operation.layer(Forward::<K>::new(Arc::clone(target)))
}
