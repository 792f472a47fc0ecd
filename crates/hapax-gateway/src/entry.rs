//! A route with everything that its requests need.

use std::sync::Arc;

use hapax::store::Phases;
use hapax_http::{Idempotency, Protected};
use http::{HeaderMap, HeaderName, Method};

use crate::{
    config::KeyRule,
    protected::{Target, protect},
    tenant::TenantSource,
};

/// A route.
pub(crate) struct Entry<K: Phases> {
    pub(crate) target: Arc<Target>,
    pub(crate) tenant: TenantSource,
    /// Whether also a request that is not protected has to present a valid credential.
    pub(crate) needs_credential: bool,
    pub(crate) key: KeyRule,
    pub(crate) protected_methods: Vec<Method>,
    /// Headers that a client cannot remove by naming them in `Connection`.
    pub(crate) protected_headers: Vec<HeaderName>,
    pub(crate) protected: Protected<K>,
}

impl<K: Phases> Entry<K> {
    /// Builds a route. The error names the setting that is not valid.
    pub(crate) fn new(
        idempotency: &Idempotency<K>,
        target: Target,
        tenant: TenantSource,
        needs_credential: bool,
    ) -> Result<Self, (&'static str, String)> {
        let target = Arc::new(target);
        Ok(Self {
            protected: protect(idempotency, &target),
            key: target.settings.key,
            protected_methods: target.settings.protected_methods()?,
            protected_headers: tenant.headers(),
            tenant,
            needs_credential,
            target,
        })
    }

    /// Removes the credential that is for the gateway, and not for the service.
    pub(crate) fn remove_secret(&self, headers: &mut HeaderMap) {
        if let Some(name) = self.tenant.secret() {
            headers.remove(name);
        }
    }
}
