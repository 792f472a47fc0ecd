//! The destination of a request, for its retry budget: scheme and authority.
//!
//! `https://Shop.example/a` and `https://shop.example:443/b` are the same destination. The path and
//! the caller do not matter, because the budget protects the server.

use std::sync::Arc;

use http::Uri;

/// The destination of a URL; `None` if the URL has no authority.
pub(crate) fn of(address: &Uri) -> Option<Arc<str>> {
    let scheme = address.scheme_str()?.to_ascii_lowercase();
    let host = address.host()?.to_ascii_lowercase();
    let port = address.port_u16().or(match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    });
    Some(match port {
        Some(port) => format!("{scheme}://{host}:{port}").into(),
        None => format!("{scheme}://{host}").into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_and_authority_make_a_destination_and_credentials_do_not() {
        let check = |address: &str, expected: Option<&str>| {
            let uri: Uri = address.parse().unwrap();
            assert_eq!(of(&uri).as_deref(), expected, "{address}");
        };
        check("https://Shop.example/a?b", Some("https://shop.example:443"));
        check(
            "https://ann:secret@shop.example:443/",
            Some("https://shop.example:443"),
        );
        check("http://shop.example", Some("http://shop.example:80"));
        check("http://[::1]:8080/", Some("http://[::1]:8080"));
        check("/orders", None);
    }
}
