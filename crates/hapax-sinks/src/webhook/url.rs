//! URLs of webhooks and of other HTTP endpoints: where to connect, and how it is guarded.

use http::{Uri, uri::Scheme};
use ipnet::IpNet;

use super::guard::{Blocked, Guard, Host};
use crate::settings::SettingError;

/// The URL with its host and its port.
pub(crate) fn address(text: &str) -> Result<(Uri, Result<Host, Blocked>, u16), SettingError> {
    let wrong = |problem| SettingError::new("url", problem);
    let not_absolute = || wrong("is not an absolute url");
    let url: Uri = text.parse().map_err(|_| not_absolute())?;
    let default_port = match url.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(wrong("begins with neither https:// nor http://")),
    };
    let authority = url.authority().ok_or_else(not_absolute)?;
    if authority.as_str().contains('@') {
        return Err(wrong("contains a user or a password"));
    }
    let port = match authority.port_u16() {
        Some(port) => port,
        None if authority.as_str() == authority.host() => default_port,
        None => return Err(not_absolute()),
    };
    let host = Host::parse(authority.host());
    Ok((url, host, port))
}

/// The guard of connections that must be neither read nor changed on the way. Without TLS, only
/// permitted networks outside the public internet are open.
pub(crate) fn confidential(url: &Uri, allow: Vec<IpNet>) -> Guard {
    if url.scheme() == Some(&Scheme::HTTPS) {
        Guard::allowing(allow)
    } else {
        Guard::allowing_only(allow)
    }
}
