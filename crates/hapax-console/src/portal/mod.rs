//! The customer portal: a tenant's own pages over its endpoints, below [`BASE`].
//!
//! A signed link opens it; there are no accounts. The token of the link becomes the cookie of the
//! session, so no state is kept, and every process with the same key serves every session. The tenant
//! and the rights come from the verified token alone, and every read and change passes the tenant on to
//! the store. Pages are rendered with the layout, the styles and the policy of the console.

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
/// The path of the static files.
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

/// Checks the base URL of a portal, which pages of the origins in `embed` may show.
///
/// # Errors
/// Fails if it is not one without a path, or if a frame needs TLS.
pub fn check_url(url: &str, embed: &[String]) -> Result<(), BadPortal> {
    let url = address::base(url)?;
    if embed.is_empty() {
        return Ok(());
    }
    address::check_frame(&url)
}

/// A portal over the endpoints of a store.
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
    is_embedded: bool,
    forms: Buckets,
    loads: Buckets,
    tests: Places,
    trials: Places,
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
    /// Whether customers can choose thin payloads: the transport has a URL from which events are fetched.
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
            forms: buckets(PORTAL_FORMS),
            loads: buckets(PORTAL_PAGES),
            tests: Places::new(ENDPOINT_TESTS),
            trials: Places::new(TRIALS),
        })))
    }

    /// All routes, below [`BASE`], with the verification of sessions.
    pub fn router(&self) -> Router {
        let pass = middleware::from_fn_with_state(self.clone(), guard::pass);
        pages::routes().layer(pass).with_state(self.clone())
    }

    fn store(&self) -> &dyn Admin {
        &*self.0.admin
    }
}

fn buckets((per_second, burst): (u32, u32)) -> Buckets {
    let number = |it| NonZeroU32::new(it).unwrap_or(NonZeroU32::MIN);
    Buckets::new(number(per_second), number(burst))
}
