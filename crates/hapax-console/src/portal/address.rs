//! Addresses in the settings: the base URL of the portal, and the origins that may show it.
//!
//! All of them get into headers, so each is a scheme, a host and a port of plain characters.

use super::brand::BadPortal;
use super::limits::PORTAL_EMBED_MAX;

/// The base URL, without a slash at its end.
pub(super) fn base(url: &str) -> Result<String, BadPortal> {
    let url = url.strip_suffix('/').unwrap_or(url);
    if is_origin(url) {
        return Ok(url.to_owned());
    }
    let problem = "must be like https://webhooks.example.com, without a path";
    Err(BadPortal::new("url", problem))
}

/// Checks an origin of `embed`.
pub(super) fn check_origin(origin: &str) -> Result<(), BadPortal> {
    if is_origin(origin) && is_safe(origin) {
        return Ok(());
    }
    let problem = "may contain origins such as https://app.example.com, without a path";
    Err(BadPortal::new("embed", problem))
}

/// Checks the number of origins.
pub(super) fn check_count(origins: &[String]) -> Result<(), BadPortal> {
    if origins.len() > PORTAL_EMBED_MAX {
        let problem = format!("has more than {PORTAL_EMBED_MAX} origins");
        return Err(BadPortal::new("embed", problem));
    }
    Ok(())
}

/// Checks that browsers accept a cookie of a frame: it has to be `Secure`.
pub(super) fn check_frame(url: &str) -> Result<(), BadPortal> {
    if is_safe(url) {
        return Ok(());
    }
    Err(BadPortal::new(
        "url",
        "must begin with https:// if embed is set",
    ))
}

/// The origin of an `https://` URL of plain characters.
pub(super) fn origin_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://")?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'<>\\`;,".contains(&byte);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let origin = &url[.."https://".len() + end];
    (url.bytes().all(is_plain) && is_origin(origin)).then_some(origin)
}

/// Whether a text is a scheme, a host and perhaps a port.
fn is_origin(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let Some(rest) = rest else { return false };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.contains(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    is_host(host) && is_port
}

fn is_host(host: &str) -> bool {
    let inside = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if let Some(address) = inside {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    (1..=253).contains(&host.len()) && host.bytes().all(is_plain)
}

/// Whether browsers treat the origin as secure: TLS, or the same machine.
fn is_safe(origin: &str) -> bool {
    let Some(rest) = origin.strip_prefix("http://") else {
        return origin.starts_with("https://");
    };
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_url_is_an_origin() {
        for (url, expected) in [
            ("https://a.example", "https://a.example"),
            ("https://a.example/", "https://a.example"),
            ("http://127.0.0.1:9480", "http://127.0.0.1:9480"),
            ("https://[::1]:9480", "https://[::1]:9480"),
        ] {
            assert_eq!(base(url).unwrap(), expected);
        }
        for url in [
            "",
            "a.example",
            "ftp://a.example",
            "https://",
            "https:///",
            "https://a.example/portal",
            "https://a.example?x",
            "https://user@a.example",
            "https://a.example:0",
            "https://a.example:port",
            "https://a b",
            "https://a\r\nx: y",
            "javascript:alert(1)",
        ] {
            assert!(base(url).is_err(), "{url:?}");
        }
    }

    #[test]
    fn an_origin_that_may_show_the_portal_is_secure_and_cannot_add_to_the_policy() {
        for origin in [
            "https://app.example.com",
            "https://app.example.com:8443",
            "http://localhost:3000",
            "http://127.0.0.1:3000",
        ] {
            assert!(check_origin(origin).is_ok(), "{origin}");
            assert!(check_frame(origin).is_ok(), "{origin}");
        }
        for origin in [
            "*",
            "https://*.example.com",
            "https:",
            "http://app.example.com",
            "https://a.example; script-src *",
            "https://a.example 'unsafe-inline'",
            "https://a.example,https://b.example",
            "https://a.example/",
        ] {
            assert!(check_origin(origin).is_err(), "{origin}");
        }
        assert!(check_frame("http://a.example").is_err());
        assert!(check_count(&vec![String::new(); PORTAL_EMBED_MAX]).is_ok());
        assert!(check_count(&vec![String::new(); PORTAL_EMBED_MAX + 1]).is_err());
    }

    #[test]
    fn the_origin_of_a_logo_cannot_add_to_the_policy() {
        let of = |url| origin_of(url);
        assert_eq!(
            of("https://a.example/x/y.svg?z=1"),
            Some("https://a.example")
        );
        assert_eq!(
            of("https://a.example:8443/y"),
            Some("https://a.example:8443")
        );
        for url in [
            "http://a.example/y",
            "https://a.example; script-src *",
            "https://a.example/;",
            "https://a.example/'x'",
            "https://a.example/ y",
            "//a.example/y",
            "javascript:alert(1)",
            "data:image/png;base64,AA",
        ] {
            assert_eq!(of(url), None, "{url}");
        }
    }
}
