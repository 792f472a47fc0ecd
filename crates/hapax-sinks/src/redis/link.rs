//! The Redis connection that the batches of one destination share.
//!
//! The first batch that needs the connection opens it. If a batch fails on it or is dropped before
//! its end, the connection is discarded: the outcome of its commands is then unknown, and the relay
//! delivers the events again.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, aio::MultiplexedConnection};
use tokio::sync::Mutex;

use super::answer::Failure;
use crate::{limits::CONNECT, resolve::Resolver};

/// The settings of the server and the current connection.
pub(super) struct Links {
    client: Client,
    resolver: Resolver,
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
    /// The number of the last discarded connection.
    given_up: AtomicU64,
}

/// The use of the connection by one batch. Unless the batch completes, the connection is not used
/// again.
pub(super) struct Link<'a> {
    pub(super) connection: MultiplexedConnection,
    number: u64,
    links: &'a Links,
    done: bool,
}

impl Links {
    pub(super) fn new(client: Client, resolver: Resolver) -> Self {
        Self {
            client,
            resolver,
            current: Mutex::new((0, None)),
            given_up: AtomicU64::new(0),
        }
    }

    /// The current connection, or a new one.
    pub(super) async fn get(&self) -> Result<Link<'_>, Failure> {
        let mut current = self.current.lock().await;
        let (number, known) = &mut *current;
        let lives = *number > self.given_up.load(Ordering::Acquire);
        let connection = match known.take() {
            Some(connection) if lives => connection,
            _ => {
                let connection = self.connect().await?;
                *number += 1;
                connection
            }
        };
        *known = Some(connection.clone());
        Ok(Link {
            connection,
            number: *number,
            links: self,
            done: false,
        })
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Failure> {
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
        Ok(connecting.await?)
    }
}

impl Link<'_> {
    /// Leaves the connection to the next batch.
    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.links.given_up.fetch_max(self.number, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for Links {
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
