//! `[gateway.listeners.NAME]`: an address for clients.

use std::{net::SocketAddr, path::PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A listener. It speaks HTTP/1.1 and HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The address.
    pub listen: SocketAddr,
    /// The certificate, if the listener speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Expects the PROXY protocol, version 1 or 2, at the beginning of every connection. Without it, the
    /// client is the other end of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
}

impl Listener {
    /// Creates a listener without TLS.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            proxy_protocol: None,
        }
    }
}

/// The PROXY protocol: a proxy that passes bytes sends the address of its client first. It is read
/// again when the configuration is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyProtocol {
    /// The addresses of the proxies. Connections from other addresses are closed, because a client could
    /// otherwise claim to be another one.
    pub from: Vec<IpNet>,
}

/// The certificate of a listener. The files are read again when the configuration is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The PEM file with the certificate, followed by those of its authorities.
    pub certificate: PathBuf,
    /// The PEM file with the private key.
    pub key: PathBuf,
    /// The PEM file with the authorities of clients. If it is set, a client may present a
    /// certificate, and one that is not valid is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
}
