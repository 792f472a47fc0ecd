//! The customer portal: a tenant's own pages over its endpoints, below [`BASE`].
//!
//! A signed link opens it; there are no accounts. The token of the link becomes the cookie of a
//! session, so no state is kept, and every process with the same key serves every session. A session
//! ends with its time or with the key, and cannot be revoked alone.
//!
//! The tenant and the rights come from the verified token alone, never from a path or a form. Every
//! read and change passes an actor to the store that is limited to the tenant. The pages are built
//! with the HTML, the style sheet and the script of the console.

mod limits;
mod claims;
mod links;
mod brand;
mod address;
mod guard;
mod layout;
mod form;
mod refusal;
mod pages;

use std::{num::NonZeroU32, sync::Arc};

use axum::{Router, middleware};
use hapax::{
    Clock,
    admin::{Admin, EndpointOperations},
    buckets::Buckets,
    limits::{ENDPOINT_TESTS, TRIALS},
    mask::Mask,
    places::Places,
};
use http::HeaderValue;

pub use brand::BadPortal;
pub use claims::Rights;
pub use links::{LinkRequest, PortalLink, PortalLinks};

use crate::html::Html;
use brand::Brand;
use limits::{PORTAL_FORMS, PORTAL_PAGES};

/// The path of the portal.
pub const BASE: &str = "/portal";
/// The path that a link opens.
pub(crate) const OPEN: &str = "/portal/open";
/// The path of the static files, which need no session.
pub(crate) const FOLDER: &str = "/portal/assets/";

/// How the portal looks, and where it may be shown, as it is written in a configuration.
#[derive(Clone, Debug, Default)]
pub struct PortalOptions {
    /// The name of the product; `Webhooks` if absent.
    pub name: Option<String>,
    /// The `https://` URL of an image, or the path of a file.
    pub logo: Option<String>,
    /// A color, `#rrggbb`.
    pub colour: Option<String>,
    /// The origins whose pages may show the portal in a frame.
    pub embed: Vec<String>,
}

impl PortalOptions {
    /// Checks what can be checked without reading a file.
    ///
    /// # Errors
    /// Fails with the first option that is not valid.
    pub fn check(&self) -> Result<(), BadPortal> {
        brand::check(self)?;
        self.embed
            .iter()
            .try_for_each(|it| address::check_origin(it))?;
        address::check_count(&self.embed)
    }

    /// Checks everything, and reads the file of the logo.
    ///
    /// # Errors
    /// Fails with the first option that is not valid.
    pub fn read(&self) -> Result<(), BadPortal> {
        self.check()?;
        Brand::read(self).map(drop)
    }
}

/// Checks the base URL of a portal. `embed` are the origins whose pages may show it in a frame.
///
/// # Errors
/// Fails if `url` is not a scheme, a host and perhaps a port, or if there are such origins and the
/// URL has no TLS: browsers accept the cookie of a frame only if it is secure.
pub fn check_url(url: &str, embed: &[String]) -> Result<(), BadPortal> {
    let base = address::base(url)?;
    if embed.is_empty() {
        return Ok(());
    }
    address::check_frame(&base)
}

/// A portal over the endpoints of a store. Clones share their rate limits.
#[derive(Clone)]
pub struct Portal(Arc<Inner>);

struct Inner {
    admin: Arc<dyn Admin>,
    operations: Arc<dyn EndpointOperations>,
    links: PortalLinks,
    brand: Brand,
    mask: Mask,
    clock: Clock,
    offers_thin: bool,
    event_types: EventTypes,
    /// The content security policy.
    policy: HeaderValue,
    /// Whether a page of another origin may show the portal in a frame.
    is_embedded: bool,
    /// The rate limit of forms, by tenant.
    form_rates: Buckets,
    /// The rate limit of pages, by tenant.
    page_rates: Buckets,
    /// Limits the test events that are sent at the same time.
    test_places: Places,
    /// Limits the trials of filters and mappings that run at the same time.
    trial_places: Places,
}

/// The event types that the portal offers and describes.
#[derive(Clone, Default)]
struct EventTypes {
    /// The types, in the order of the catalogue.
    names: Vec<String>,
    /// The content of the page; none without a catalogue.
    listing: Option<Html>,
}

impl std::fmt::Debug for Portal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Portal").finish_non_exhaustive()
    }
}

/// The parts of a portal.
pub struct PortalParts {
    /// The store.
    pub admin: Arc<dyn Admin>,
    /// The operations on endpoints that need their secrets.
    pub operations: Arc<dyn EndpointOperations>,
    /// Signs and verifies links.
    pub links: PortalLinks,
    /// The names whose values are masked in payloads and responses.
    pub mask: Mask,
    /// The wall clock.
    pub clock: Clock,
    /// Whether customers can choose thin payloads. That needs a URL from which events are fetched.
    pub offers_thin: bool,
}

impl std::fmt::Debug for PortalParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortalParts").finish_non_exhaustive()
    }
}

impl Portal {
    /// Creates a portal without an event catalogue.
    ///
    /// # Errors
    /// Fails with the first option that is not valid, or if the file of the logo cannot be read.
    pub fn new(parts: PortalParts, options: &PortalOptions) -> Result<Self, BadPortal> {
        Self::build(parts, options, EventTypes::default())
    }

    /// Creates a portal that offers and describes the types of a catalogue that are visible with
    /// `flags`.
    ///
    /// # Errors
    /// Fails with the first option that is not valid, or if the file of the logo cannot be read.
    #[cfg(feature = "catalogue")]
    pub fn with_catalogue(
        parts: PortalParts,
        options: &PortalOptions,
        catalogue: &hapax::catalogue::Catalogue,
        flags: &std::collections::BTreeSet<String>,
    ) -> Result<Self, BadPortal> {
        let visible = catalogue.visible(flags);
        let event_types = EventTypes {
            names: visible.iter().map(|it| it.kind.clone()).collect(),
            listing: Some(crate::catalogue::listing(catalogue, flags)),
        };
        Self::build(parts, options, event_types)
    }

    fn build(
        parts: PortalParts,
        options: &PortalOptions,
        event_types: EventTypes,
    ) -> Result<Self, BadPortal> {
        options.check()?;
        check_url(parts.links.url(), &options.embed)?;
        let brand = Brand::read(options)?;
        let PortalParts {
            admin,
            operations,
            links,
            mask,
            clock,
            offers_thin,
        } = parts;
        Ok(Self(Arc::new(Inner {
            admin,
            operations,
            links,
            policy: guard::policy(brand.logo_origin(), &options.embed),
            brand,
            mask,
            clock,
            offers_thin,
            event_types,
            is_embedded: !options.embed.is_empty(),
            form_rates: buckets(PORTAL_FORMS),
            page_rates: buckets(PORTAL_PAGES),
            test_places: Places::new(ENDPOINT_TESTS),
            trial_places: Places::new(TRIALS),
        })))
    }

    /// All routes, below [`BASE`], with the verification of sessions. The base URL of the links must
    /// lead to them.
    pub fn router(&self) -> Router {
        let pass = middleware::from_fn_with_state(self.clone(), guard::pass);
        pages::routes().layer(pass).with_state(self.clone())
    }

    fn store(&self) -> &dyn Admin {
        &*self.0.admin
    }
}

/// A rate limit: so many per second in the long run, and so many at once.
fn buckets((per_second, burst): (u32, u32)) -> Buckets {
    let at_least_one = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    Buckets::new(at_least_one(per_second), at_least_one(burst))
}
