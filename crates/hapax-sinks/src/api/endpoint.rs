//! The URL of an API: where to connect, and which host is signed.

use http::{Uri, uri::Scheme};

use crate::{
    settings::SettingError,
    webhook::{Blocked, address, guard::Host},
};

/// The URL of an API.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) url: Uri,
    pub(super) host: Result<Host, Blocked>,
    pub(super) port: u16,
    /// The host, with the port unless it is that of the scheme: as clients send it.
    pub(crate) authority: String,
}

impl Endpoint {
    /// Parses the URL of a setting. It contains neither a user nor a query.
    pub(crate) fn parse(setting: &str, text: &str) -> Result<Self, SettingError> {
        let wrong = |problem: &str| SettingError::new(setting, problem);
        let (url, host, port) = address(text).map_err(|error| wrong(&error.problem))?;
        if url.query().is_some() {
            return Err(wrong("contains a query"));
        }
        let usual = if url.scheme() == Some(&Scheme::HTTPS) {
            443
        } else {
            80
        };
        let name = url.host().unwrap_or_default();
        let authority = if port == usual {
            name.to_owned()
        } else {
            format!("{name}:{port}")
        };
        Ok(Self {
            url,
            host,
            port,
            authority,
        })
    }

    /// Parses the URL of a service, which has no path.
    #[cfg(any(feature = "s3", feature = "sns", feature = "pubsub"))]
    pub(crate) fn of_service(setting: &str, text: &str) -> Result<Self, SettingError> {
        let endpoint = Self::parse(setting, text)?;
        if endpoint.path() != "/" {
            return Err(SettingError::new(setting, "contains a path"));
        }
        Ok(endpoint)
    }

    /// The path; `/` if the URL has none.
    pub(crate) fn path(&self) -> &str {
        self.url.path()
    }

    /// The URL without its path.
    pub(crate) fn origin(&self) -> String {
        let scheme = self.url.scheme_str().unwrap_or_default();
        format!("{scheme}://{}", self.authority)
    }

    /// Whether the host belongs to AWS.
    #[cfg(any(test, feature = "s3"))]
    pub(crate) fn is_amazon(&self) -> bool {
        let host = self.url.host().unwrap_or_default().to_ascii_lowercase();
        [".amazonaws.com", ".amazonaws.com.cn"]
            .iter()
            .any(|domain| host.ends_with(domain))
    }

    /// Whether the host is an address and not a name.
    #[cfg(any(test, feature = "s3"))]
    pub(crate) fn is_address(&self) -> bool {
        let host = self.url.host().unwrap_or_default();
        host.trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok()
    }

    /// The same endpoint with this name before the host, as in `bucket.s3.amazonaws.com`.
    #[cfg(any(test, feature = "s3"))]
    pub(crate) fn under(&self, setting: &str, name: &str) -> Result<Self, SettingError> {
        let scheme = self.url.scheme_str().unwrap_or_default();
        Self::parse(setting, &format!("{scheme}://{name}.{}", self.authority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_has_the_port_unless_it_is_that_of_the_scheme() {
        for (url, authority) in [
            ("https://s3.example.com", "s3.example.com"),
            ("https://s3.example.com:443/", "s3.example.com"),
            ("http://s3.example.com:80/", "s3.example.com"),
            ("http://s3.example.com:443/", "s3.example.com:443"),
            ("http://127.0.0.1:9000", "127.0.0.1:9000"),
            ("http://[::1]:9000", "[::1]:9000"),
        ] {
            assert_eq!(parsed(url).authority, authority, "{url}");
        }
    }

    #[test]
    fn a_name_is_put_before_the_host() {
        let under = parsed("https://s3.example.com:9000/").under("bucket", "logs");
        assert_eq!(under.unwrap().origin(), "https://logs.s3.example.com:9000");
    }

    #[test]
    fn a_url_with_a_user_or_a_query_is_refused_by_the_name_of_its_setting() {
        for url in ["https://u:p@h/", "https://h/?a=b", "s3://bucket", "h"] {
            assert_eq!(
                Endpoint::parse("endpoint", url).unwrap_err().setting,
                "endpoint"
            );
        }
    }

    #[test]
    fn the_hosts_of_amazon_are_known_by_their_domain() {
        assert!(parsed("https://s3.eu-central-1.amazonaws.com").is_amazon());
        assert!(parsed("https://s3.cn-north-1.amazonaws.com.cn").is_amazon());
        assert!(!parsed("https://amazonaws.com.example.com").is_amazon());
        assert!(parsed("http://[::1]:9000").is_address());
        assert!(!parsed("http://localhost:9000").is_address());
    }

    fn parsed(url: &str) -> Endpoint {
        Endpoint::parse("endpoint", url).unwrap()
    }
}
