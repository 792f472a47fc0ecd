//! Headers of a request as the service receives it.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{COOKIE, EXPECT, HOST},
};
use ipnet::IpNet;

use super::{Client, forwarded, remove_hop_by_hop};

/// Prepares the headers of a request for the service. `protected` are headers that a client cannot
/// remove by naming them in `Connection`.
///
/// `Expect` is removed: the gateway asks the client for the body when it begins to send it.
pub fn outgoing(
    headers: &mut HeaderMap,
    client: &Client<'_>,
    trusted: &[IpNet],
    protected: &[HeaderName],
) {
    remove_hop_by_hop(headers, protected);
    headers.remove(EXPECT);
    forwarded(headers, client, trusted);
    join_cookies(headers);
    if let Ok(host) = HeaderValue::from_str(client.host) {
        // The target of a request of HTTP/2 names its host outside of the headers.
        if !client.host.is_empty() {
            headers.insert(HOST, host);
        }
    }
}

/// Removes the headers whose names contain an underscore, except for those that are protected.
pub fn remove_underscored(headers: &mut HeaderMap, protected: &[HeaderName]) {
    let is_underscored = |name: &&HeaderName| name.as_str().contains('_');
    let names: Vec<HeaderName> = headers.keys().filter(is_underscored).cloned().collect();
    for name in names.iter().filter(|name| !protected.contains(name)) {
        headers.remove(name);
    }
}

/// Joins cookies that HTTP/2 has sent in several headers, as RFC 9113, section 8.2.3, prescribes.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() < 2 {
        return;
    }
    if let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}
