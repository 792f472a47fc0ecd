//! Guarded connections of a webhook: from the host to an open connection.
//!
//! The name is resolved here (`resolve`: one lookup at a time, shared by all deliveries), every
//! address is checked, and only a checked address is used to connect, so that nothing can change
//! between check and use. Addresses are tried in the resolver's order; the next one is tried when
//! the previous one has failed or is slow. Opening a connection, including TLS, has a timeout, even
//! if its caller is gone.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use hapax::sink::BoxError;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::guard::{Blocked, Guard, Host};
use crate::resolve::{LookupError, Resolver};

/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// How long an address may be silent before the next one is tried in parallel.
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to the host of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    place: Arc<RemoteHost>,
}

#[derive(Debug)]
struct RemoteHost {
    host: Result<Host, Blocked>,
    port: u16,
    guard: Guard,
    resolver: Resolver,
}

impl Dial {
    pub(crate) fn new(
        host: Result<Host, Blocked>,
        port: u16,
        guard: Guard,
        resolver: Resolver,
    ) -> Self {
        let place = Arc::new(RemoteHost {
            host,
            port,
            guard,
            resolver,
        });
        Self { place }
    }

    /// Why the host is blocked, if that is known without resolving it.
    pub(crate) fn refusal(&self) -> Option<Blocked> {
        match &self.place.host {
            Ok(Host::Address(address)) => self.place.guard.check_address(*address).err(),
            Ok(Host::Name(_)) => None,
            Err(spelling) => Some(spelling.clone()),
        }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<Self::Response, DialError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let place = Arc::clone(&self.place);
        Box::pin(async move {
            let stream = first_to_answer(place.open_addresses().await?).await?;
            // The sink makes one small write and awaits the response.
            stream.set_nodelay(true).map_err(DialError::Connect)?;
            Ok(TokioIo::new(stream))
        })
    }
}

impl RemoteHost {
    /// The addresses that are permitted; at least one.
    async fn open_addresses(&self) -> Result<Vec<SocketAddr>, DialError> {
        let found = match &self.host {
            Err(spelling) => return Err(DialError::Blocked(spelling.clone())),
            Ok(Host::Address(address)) => Arc::new([*address]),
            Ok(Host::Name(name)) => {
                let looked_up = self.resolver.look_up(name).await;
                looked_up.map_err(DialError::Resolve)?
            }
        };
        let mut blocked = None;
        let mut open = Vec::new();
        for address in found.iter().copied() {
            match self.guard.check_address(address) {
                Ok(()) => open.push(SocketAddr::new(address, self.port)),
                Err(reason) => blocked = Some(self.said(reason)),
            }
        }
        open.truncate(ADDRESSES_MAX);
        match blocked {
            _ if !open.is_empty() => Ok(open),
            Some(reason) => Err(DialError::Blocked(reason)),
            None => Err(DialError::Nowhere),
        }
    }

    /// Why an address is blocked, without the address if it is that of a name.
    fn said(&self, reason: Blocked) -> Blocked {
        match (&self.host, reason) {
            (Ok(Host::Name(_)), Blocked::Address { range, .. }) => Blocked::Name { range },
            (_, reason) => reason,
        }
    }
}

async fn first_to_answer(addresses: Vec<SocketAddr>) -> Result<TcpStream, DialError> {
    let mut waiting = addresses.into_iter();
    let mut dialled = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    loop {
        let more = match waiting.next() {
            Some(address) => {
                dialled.push(TcpStream::connect(address));
                waiting.len() > 0
            }
            None if dialled.is_empty() => return Err(DialError::Connect(last)),
            None => false,
        };
        let head_start = if more { HEAD_START } else { Duration::MAX };
        match tokio::time::timeout(head_start, dialled.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => last = error,
            Ok(None) | Err(_) => {}
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The guard blocked the address.
    #[error("connection is not allowed")]
    Blocked(#[source] Blocked),
    /// The name cannot be resolved.
    #[error("name cannot be resolved")]
    Resolve(#[source] LookupError),
    /// The name has no address.
    #[error("name has no address")]
    Nowhere,
    /// The connection failed.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
}

/// Limits how long `inner` may take to connect.
///
/// The client continues to connect in the background if another connection becomes free first.
/// Without the limit, a receiver that never finishes its handshake would keep the connection open.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<C> {
    pub(crate) inner: C,
    pub(crate) timeout: Duration,
}

impl<C> Service<Uri> for Bounded<C>
where
    C: Service<Uri, Future: Send + 'static, Response: 'static, Error: Into<BoxError>>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = tokio::time::timeout(self.timeout, self.inner.call(uri));
        Box::pin(async move { connected.await?.map_err(Into::into) })
    }
}
