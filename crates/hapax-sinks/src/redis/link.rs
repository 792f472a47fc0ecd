//! The Redis server and a connection to it.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    TlsCertificates, aio::MultiplexedConnection,
};
use secrecy::ExposeSecret as _;

use super::{RedisSettings, outcome::Failure};
use crate::{
    connection::Connection,
    limits::CONNECT,
    resolve::Resolver,
    settings::{SettingError, reveal},
    tls,
};

/// The settings of the server.
pub(super) struct Server {
    client: Client,
    resolver: Resolver,
}

/// One connection.
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    is_discarded: AtomicBool,
}

impl Server {
    pub(super) fn new(settings: &RedisSettings, resolver: Resolver) -> Result<Self, SettingError> {
        let url = reveal("url", &settings.url)?;
        let client = client(address(url.expose_secret())?, settings)?;
        Ok(Self { client, resolver })
    }

    pub(super) async fn connect(&self) -> Result<Link, Failure> {
        // The driver would look the name up on a shared thread and block it.
        if let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } =
            self.client.get_connection_info().addr()
        {
            let found = self.resolver.look_up(host).await;
            found.map_err(Failure::Resolve)?;
        }
        // The batch has a timeout for all its responses.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None);
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        Ok(Link {
            connection: connecting.await?,
            is_discarded: AtomicBool::new(false),
        })
    }
}

impl Connection for Link {
    fn is_alive(&self) -> bool {
        !self.is_discarded.load(Ordering::Acquire)
    }

    fn discard(&self) {
        self.is_discarded.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Server {
    /// Prints only the host: the URL may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                write!(f, "{host}:{port}")
            }
            _ => f.write_str("socket"),
        }
    }
}

fn address(url: &str) -> Result<ConnectionInfo, SettingError> {
    let schemes = ["redis://", "rediss://", "unix://"];
    let known = schemes.iter().any(|scheme| url.starts_with(scheme));
    let address = url.into_connection_info().ok().filter(|_| known);
    let address = address.ok_or_else(not_a_url)?;
    // A fragment of the URL can disable the verification of certificates, which is refused here.
    if matches!(
        address.addr(),
        ConnectionAddr::TcpTls { insecure: true, .. }
    ) {
        let problem = "disables the verification of certificates";
        return Err(SettingError::new("url", problem));
    }
    Ok(address)
}

fn client(address: ConnectionInfo, settings: &RedisSettings) -> Result<Client, SettingError> {
    let (_, ca) = tls::read(settings.ca.as_deref())?;
    if ca.is_empty() {
        return Client::open(address).map_err(|_| not_a_url());
    }
    if !matches!(address.addr(), ConnectionAddr::TcpTls { .. }) {
        let problem = "requires a url that begins with rediss://";
        return Err(SettingError::new("ca", problem));
    }
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(ca),
    };
    Client::build_with_tls(address, certificates).map_err(|_| tls::not_valid())
}

fn not_a_url() -> SettingError {
    let problem = "is not a url that begins with redis://, rediss:// or unix://";
    SettingError::new("url", problem)
}
