//! The address of an operation: scheme, host, port, path and query.

use std::{fmt, str::FromStr};

use url::{Host, Url};

/// The address of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    url: Url,
}

/// Why an address is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("expected a URL such as http://127.0.0.1:8080/orders, got {given:?}")]
    Url {
        given: String,
        source: url::ParseError,
    },
    #[error("expected an http or https URL with a host, got {0:?}")]
    Scheme(String),
}

impl Target {
    /// Whether the connection uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns the host, an IPv6 address without brackets.
    pub(crate) fn host(&self) -> String {
        match self.url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => String::new(),
        }
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(80)
    }

    /// Returns the value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Returns path and query, as in the request line.
    pub(crate) fn path_and_query(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }

    /// Returns the address with a query parameter set to another value, or added.
    #[must_use]
    pub(crate) fn with_query(&self, name: &str, value: &str) -> Self {
        let mut url = self.url.clone();
        let others: Vec<(String, String)> = url
            .query_pairs()
            .filter(|(key, _)| key != name)
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect();
        url.query_pairs_mut()
            .clear()
            .extend_pairs(others)
            .append_pair(name, value);
        Self { url }
    }

    /// Returns the value of a query parameter.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let (_, value) = self.url.query_pairs().find(|(key, _)| key == name)?;
        Some(value.into_owned())
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(given: &str) -> Result<Self, TargetError> {
        let mut url = Url::parse(given).map_err(|source| TargetError::Url {
            given: given.to_owned(),
            source,
        })?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(TargetError::Scheme(given.to_owned()));
        }
        url.set_fragment(None);
        Ok(Self { url })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        url.parse().expect("a valid URL")
    }

    #[test]
    fn a_url_is_taken_apart() {
        let it = target("http://[::1]:8080/orders?a=1#top");
        assert_eq!((it.host().as_str(), it.port()), ("::1", 8080));
        assert_eq!(it.authority(), "[::1]:8080");
        assert_eq!(it.path_and_query(), "/orders?a=1");
        assert_eq!(target("https://example.org").port(), 443);
        assert_eq!(target("https://example.org").path_and_query(), "/");
    }

    #[test]
    fn a_query_parameter_is_replaced() {
        let it = target("http://h/p?a=1&b=2").with_query("a", "3 4");
        assert_eq!(it.path_and_query(), "/p?b=2&a=3+4");
        assert_eq!(it.query("a").as_deref(), Some("3 4"));
    }

    #[test]
    fn other_schemes_are_rejected() {
        assert!("ftp://h/p".parse::<Target>().is_err());
        assert!("orders".parse::<Target>().is_err());
    }
}
