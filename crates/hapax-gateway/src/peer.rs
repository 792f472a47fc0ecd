//! The connection on which a request arrived.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

/// The client's end of a connection. It is in the extensions of every request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address of the client.
    pub address: SocketAddr,
    /// Whether the address is that of the client. If not, it is that of a load balancer that has not
    /// named its client, and the client is no trusted proxy.
    pub is_identified: bool,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// The verified certificate of the client.
    pub certificate: Option<Arc<CertificateDer<'static>>>,
}

impl Peer {
    /// A connection without TLS.
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address,
            is_identified: true,
            is_tls: false,
            certificate: None,
        }
    }
}
