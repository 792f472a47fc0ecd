//! The customer portal of the configuration: its routes, which have a separate listener, so that it can
//! be open to customers while the admin API is not.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Router, response::Redirect, routing::get};
use hapax::{admin::Admin, mask::Mask};
use hapax_console::portal::{BASE, Portal, PortalParts};
use hapax_sinks::endpoints::Keys;

use crate::{
    catalogue,
    config::{Config, Wrong, wrong_portal},
    endpoints::operations_of,
    environment,
};

/// The routes of the portal over a store; none if it is not served.
pub(crate) fn router(config: &Config, admin: &Arc<dyn Admin>, keys: Keys) -> Result<Router, Wrong> {
    let Some(links) = config
        .portal
        .links(environment::clock())?
        .filter(|_| config.portal.listen.0.is_some())
    else {
        return Ok(Router::new());
    };
    let parts = PortalParts {
        admin: Arc::clone(admin),
        operations: Arc::new(operations_of(Arc::clone(admin), config, keys)?),
        links,
        mask: Mask::with(&config.admin.mask),
        clock: environment::clock(),
        offers_thin: config.endpoints.events_url.is_some(),
    };
    let options = config.portal.options();
    let flags: BTreeSet<String> = config.catalogue.flags.iter().cloned().collect();
    let portal = match catalogue::configured(config)? {
        Some(catalogue) => Portal::with_catalogue(parts, &options, &catalogue, &flags),
        None => Portal::new(parts, &options),
    };
    let portal = portal.map_err(wrong_portal)?;
    let home = get(|| async { Redirect::to(BASE) });
    Ok(portal.router().route("/", home))
}

/// Finds the first setting that is not valid, and reads the key and the logo.
pub(crate) fn check(config: &Config) -> Result<(), Wrong> {
    config.portal.links(environment::clock())?;
    config.portal.options().read().map_err(wrong_portal)
}
