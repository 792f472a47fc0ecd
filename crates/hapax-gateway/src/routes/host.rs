//! Hosts of a route: one host, all subdomains of a domain, or every host.

use std::cmp::Reverse;

/// Which hosts a route matches. The order is that of specificity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostRule {
    /// This host.
    Exact(String),
    /// Every host that ends with this text, which begins with a full stop. The longest first.
    Below(Reverse<usize>, String),
    /// Every host.
    Any,
}

impl HostRule {
    /// Parses the setting `host`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else {
            return Ok(Self::Any);
        };
        let lower = text.to_ascii_lowercase();
        let (domain, is_wildcard) = match lower.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (lower.as_str(), false),
        };
        let is_valid =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']');
        if domain.is_empty() || !domain.chars().all(is_valid) {
            return Err(format!(
                "expected a host such as \"api.example.com\" or \"*.example.com\", got {text:?}"
            ));
        }
        Ok(if is_wildcard {
            Self::Below(Reverse(domain.len()), format!(".{domain}"))
        } else {
            Self::Exact(lower)
        })
    }

    /// Whether a host in lower case, without a port, matches.
    pub(super) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Below(_, domain) => host.len() > domain.len() && host.ends_with(domain),
            Self::Any => true,
        }
    }
}
