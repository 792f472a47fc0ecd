//! Checks of the customer portal: whether its links work, and whether endpoints can be used.

use super::{Context, Finding};
use crate::portal;

const CHECK: &str = "portal";

/// Checks the portal of the configuration, if there is one.
pub(super) fn check(context: &Context) -> Vec<Finding> {
    let config = &context.config;
    let Some(url) = &config.portal.url else {
        return Vec::new();
    };
    if let Err(wrong) = portal::check(config) {
        let remedy = "correct the setting: links cannot be made or opened";
        return vec![Finding::error(CHECK, wrong.to_string(), remedy)];
    }
    let mut findings = Vec::new();
    if config.secrets.key.is_none() {
        let found = "secrets.key is missing: no endpoint can be created";
        findings.push(Finding::error(CHECK, found, "set secrets.key"));
    }
    let mut destinations = config.destinations.values();
    if !destinations.any(crate::destination::Spec::is_for_endpoints) {
        let found = "no destination of this configuration sends to endpoints";
        let remedy = "add [destinations.customers] with sink.endpoints = {} to that of a relay";
        findings.push(Finding::warning(CHECK, found, remedy));
    }
    if url.starts_with("http://") {
        let found = "portal.url begins with http://: links and sessions are sent without TLS";
        let remedy = "put a proxy with TLS in front of the portal, and set its address";
        findings.push(Finding::note(CHECK, found, remedy));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "links can be made and opened"));
    }
    findings
}
