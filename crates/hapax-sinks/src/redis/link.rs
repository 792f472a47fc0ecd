//! The connection to Redis that the batches of one destination share.
//!
//! It is made by the batch that finds none, and given up by the first that
//! fails on it, or is dropped half-way: what came of its commands is not known
//! then, and the relay offers them again.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, aio::MultiplexedConnection};
use tokio::sync::Mutex;

use super::answer::Failure;
use crate::{limits::CONNECT, resolve::Resolver};

/// The way to the server, and the connection while there is one.
pub(super) struct Links {
    client: Client,
    resolver: Resolver,
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
    /// The last connection that is good for nothing any more.
    given_up: AtomicU64,
}

/// One batch's use of the connection; unless it is done with, it is the connection's last.
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

    /// The connection, made if there is none.
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
        // The driver would look the name up on a thread that nobody else can have meanwhile.
        if let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } =
            self.client.get_connection_info().addr()
        {
            let found = self.resolver.look_up(host).await;
            found.map_err(Failure::Resolve)?;
        }
        // The batch has a bound of its own for all its answers.
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
    /// Names the host alone: an address may carry a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                write!(f, "{host}:{port}")
            }
            _ => f.write_str("socket"),
        }
    }
}
