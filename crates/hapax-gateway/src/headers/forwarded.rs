//! `Forwarded` (RFC 7239) and `X-Forwarded-*`: who sent the request to the gateway.
//!
//! Only a trusted proxy may say who its client is. What any other client sends in these headers is
//! removed, because services make decisions by them.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{FORWARDED, VIA},
};
use ipnet::IpNet;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Maximum length of a header to which the gateway adds an address. A longer one is replaced.
const HEADER_BYTES_MAX: usize = 4 * 1024;

/// The client of a request, as the gateway sees it.
#[derive(Clone, Debug)]
pub struct Client<'a> {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the address is that of the client. If not, the client is no trusted proxy.
    pub is_identified: bool,
    /// Whether it has used TLS.
    pub is_tls: bool,
    /// The host that it has asked for.
    pub host: &'a str,
    /// The version of its request.
    pub version: Version,
}

/// Sets the headers that say who has sent the request.
pub fn forwarded(headers: &mut HeaderMap, client: &Client<'_>, trusted: &[IpNet]) {
    let address = canonical(client.address.ip());
    let scheme = if client.is_tls { "https" } else { "http" };
    let is_trusted = client.is_identified && trusted.iter().any(|net| net.contains(&address));
    if !is_trusted {
        for name in [FORWARDED, FOR, PROTO, HOST, PORT, REAL_IP] {
            headers.remove(name);
        }
    }
    append(headers, &FOR, &address.to_string());
    append(headers, &FORWARDED, &element(address, scheme, client.host));
    append(headers, &VIA, via(client.version));
    keep_or_set(headers, &PROTO, scheme);
    keep_or_set(headers, &HOST, client.host);
}

/// The addition of the gateway to `Via` (RFC 9110, section 7.6.3).
fn via(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2 hapax",
        Version::HTTP_10 => "1.0 hapax",
        _ => "1.1 hapax",
    }
}

/// An IPv4 address that is written as IPv6 is the IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// An element of `Forwarded`.
fn element(address: IpAddr, scheme: &str, host: &str) -> String {
    let mut text = match address {
        IpAddr::V4(address) => format!("for={address};proto={scheme}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\";proto={scheme}"),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if !host.is_empty() && host.chars().all(is_plain) {
        let _ = write!(text, ";host=\"{host}\"");
    }
    text
}

fn append(headers: &mut HeaderMap, name: &HeaderName, item: &str) {
    let sent: Vec<&[u8]> = headers
        .get_all(name)
        .iter()
        .map(|value| value.as_bytes().trim_ascii())
        .filter(|value| !value.is_empty())
        .collect();
    let mut joined = sent.join(&b", "[..]);
    if joined.len() > HEADER_BYTES_MAX {
        joined.clear();
    }
    if !joined.is_empty() {
        joined.extend_from_slice(b", ");
    }
    joined.extend_from_slice(item.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&joined) {
        headers.insert(name, value);
    }
}

fn keep_or_set(headers: &mut HeaderMap, name: &HeaderName, value: &str) {
    if headers.contains_key(name) {
        return;
    }
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_of_itself_is_replaced() {
        let mut headers = HeaderMap::new();
        for name in [FOR, PROTO, HOST, PORT, REAL_IP, FORWARDED] {
            headers.insert(name, HeaderValue::from_static("10.0.0.1"));
        }
        forwarded(&mut headers, &client("192.0.2.7:1000"), &[]);
        assert_eq!(headers[&FOR], "192.0.2.7");
        assert_eq!(headers[&PROTO], "https");
        assert_eq!(headers[&HOST], "api.example.com");
        let element = "for=192.0.2.7;proto=https;host=\"api.example.com\"";
        assert_eq!(headers[FORWARDED], element);
        assert_eq!(headers[VIA], "2 hapax");
        assert!(!headers.contains_key(&REAL_IP) && !headers.contains_key(&PORT));
    }

    #[test]
    fn what_a_trusted_proxy_says_is_kept_and_extended() {
        let mut headers = HeaderMap::new();
        headers.append(FOR, HeaderValue::from_static("198.51.100.2"));
        headers.append(FOR, HeaderValue::from_static("10.0.0.9"));
        headers.insert(PROTO, HeaderValue::from_static("http"));
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        forwarded(&mut headers, &client("[::ffff:10.0.0.1]:1000"), &trusted);
        assert_eq!(headers[&FOR], "198.51.100.2, 10.0.0.9, 10.0.0.1");
        assert_eq!(headers.get_all(&FOR).iter().count(), 1);
        assert_eq!(headers[&PROTO], "http");
    }

    #[test]
    fn what_a_client_behind_a_trusted_proxy_says_is_replaced_if_the_proxy_does_not_name_it() {
        let mut headers = HeaderMap::new();
        for name in [FOR, PROTO, HOST, PORT, REAL_IP, FORWARDED] {
            headers.insert(name, HeaderValue::from_static("198.51.100.2"));
        }
        let mut client = client("10.0.0.1:1000");
        client.is_identified = false;
        forwarded(&mut headers, &client, &["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(headers[&FOR], "10.0.0.1");
        assert_eq!(headers[&PROTO], "https");
        assert!(!headers.contains_key(&REAL_IP) && !headers.contains_key(&PORT));
    }

    fn client(address: &str) -> Client<'static> {
        Client {
            address: address.parse().unwrap(),
            is_identified: true,
            is_tls: true,
            host: "api.example.com",
            version: Version::HTTP_2,
        }
    }
}
