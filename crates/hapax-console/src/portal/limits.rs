//! Default values and upper limits of the portal, each with its unit and the reason for its value.

use std::time::Duration;

/// Minimum time for which a link to the customer portal is valid: opening it takes a moment.
pub(crate) const PORTAL_LINK_MIN: Duration = Duration::from_mins(1);
/// Default time for which a link to the portal and the session that it opens are valid.
pub(crate) const PORTAL_LINK: Duration = Duration::from_hours(1);
/// Maximum of that time. A session cannot be ended before, except by a change of the key.
pub(crate) const PORTAL_LINK_MAX: Duration = Duration::from_hours(24);
/// How far the clocks of two processes that serve one portal may differ.
pub(crate) const PORTAL_CLOCK_SKEW: Duration = Duration::from_mins(1);
/// Minimum length of the key that signs links to the portal, in bytes.
pub(crate) const PORTAL_KEY_BYTES_MIN: usize = 32;
/// Maximum length of the token in a link to the portal, in bytes. It is a cookie, for which browsers
/// accept 4 KiB.
pub(crate) const PORTAL_TOKEN_BYTES_MAX: usize = 3 * 1024;
/// Maximum length of the name of a user in a link to the portal, and of the name of the product, in
/// bytes.
pub(crate) const PORTAL_NAME_BYTES_MAX: usize = 100;
/// Maximum size of the file of a logo in bytes. It is kept in memory.
pub(crate) const PORTAL_LOGO_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of origins that may show the portal in a frame. All are in a header.
pub(crate) const PORTAL_EMBED_MAX: usize = 32;
/// Forms per second that a tenant may send to the portal of one process, in the long run and at once.
pub(crate) const PORTAL_FORMS: (u32, u32) = (2, 60);
/// Pages per second that a tenant may load, in the long run and at once. A page of endpoints reads the
/// attempts of each.
pub(crate) const PORTAL_PAGES: (u32, u32) = (10, 200);
/// Number of endpoints on a page of the portal.
pub(crate) const PORTAL_ENDPOINTS: usize = 20;
/// Number of stored events on which the portal tries a filter and a mapping.
pub(crate) const PORTAL_TRIAL_EVENTS: usize = 50;
