//! The address of an operation: scheme, host, port, path and query.
//!
//! As text, for messages and reports, it has `***` in place of the values of query parameters that are
//! secrets.

use std::{fmt, str::FromStr};

use url::{Host, Url, form_urlencoded};

/// The ends of the names of query parameters whose values are secrets, such as `access_token`.
const SECRET: [&str; 8] = [
    "auth",
    "credential",
    "key",
    "password",
    "secret",
    "sig",
    "signature",
    "token",
];

/// The address of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    url: Url,
}

/// Why an address is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    // The URL is not repeated: it can contain a secret.
    #[error("expected a URL such as http://127.0.0.1:8080/orders: {0}")]
    Url(url::ParseError),
    #[error("expected an http or https URL with a host, got the scheme {0:?}")]
    Scheme(String),
    #[error(
        "expected a URL without a user name and a password; a credential belongs in a header, such as Authorization"
    )]
    Credential,
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

    /// Returns the path.
    pub(crate) fn path(&self) -> &str {
        self.url.path()
    }

    /// Returns path and query with secrets masked, for messages.
    pub(crate) fn masked_path_and_query(&self) -> String {
        self.masked().path_and_query()
    }

    /// Returns the values of the query that are secrets, as they are written in it.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let query = self.url.query().unwrap_or_default();
        query.split('&').filter_map(secret_value)
    }

    fn masked(&self) -> Self {
        let mut url = self.url.clone();
        let query = url.query().map(|query| {
            let pairs = query.split('&').map(|pair| match secret_value(pair) {
                Some(value) => format!("{}***", &pair[..pair.len() - value.len()]),
                None => pair.to_owned(),
            });
            pairs.collect::<Vec<_>>().join("&")
        });
        url.set_query(query.as_deref());
        Self { url }
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
        let mut url = Url::parse(given).map_err(TargetError::Url)?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(TargetError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credential);
        }
        url.set_fragment(None);
        Ok(Self { url })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.masked().url.fmt(f)
    }
}

/// Returns the value in a `name=value` of a query if it is a secret.
fn secret_value(pair: &str) -> Option<&str> {
    let (written, value) = pair.split_once('=')?;
    let (name, _) = form_urlencoded::parse(written.as_bytes()).next()?;
    let name = name.to_ascii_lowercase();
    let is_secret = SECRET.iter().any(|it| name.ends_with(it));
    (is_secret && !value.is_empty()).then_some(value)
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
    fn a_secret_in_the_query_is_not_shown() {
        let it = target("https://h/p?a=1&api_key=k&Access%5FToken=t%20u&keys=2&X-Amz-Signature=s");
        let masked = "/p?a=1&api_key=***&Access%5FToken=***&keys=2&X-Amz-Signature=***";
        assert_eq!(it.masked_path_and_query(), masked);
        assert_eq!(it.to_string(), format!("https://h{masked}"));
        assert!(it.path_and_query().contains("api_key=k&"));
        assert_eq!(it.secrets().collect::<Vec<_>>(), ["k", "t%20u", "s"]);
    }

    #[test]
    fn a_user_name_and_a_password_are_rejected_and_not_repeated() {
        for wrong in [
            "http://ann:hunter2@h/p",
            "http://hunter2@h/p",
            "http://:hunter2@h/p",
            "http://ann:hunter2@h:99999/p",
        ] {
            let error = wrong.parse::<Target>().expect_err("it has a credential");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn other_schemes_are_rejected() {
        assert!("ftp://h/p".parse::<Target>().is_err());
        assert!("orders".parse::<Target>().is_err());
    }
}
