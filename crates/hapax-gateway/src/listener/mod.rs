//! Listener for clients: HTTP/1.1 and HTTP/2, with or without TLS.
//!
//! The number of connections is limited: while all places are taken, new clients wait in the queue
//! of the system. The head of a request has a time limit, and so have the TLS handshake and an idle
//! connection. After a request to stop, the listener accepts no more connections, lets every request
//! in flight finish, and returns when the last connection is closed or the time limit has passed.
//!
//! An idle connection of HTTP/1.1 has no buffers. With the PROXY protocol, a connection begins with
//! the address of its client, and is closed if it does not, or if it does not come from a trusted proxy.

mod connection;
mod first;
mod proxy;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hapax::{limits::LISTENER_FINISH, store::Phases};
use ipnet::IpNet;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    gateway::Gateway,
    metrics,
    peer::Peer,
    wire::{Activity, Checked},
};
use connection::{Client, Protocol};
use proxy::Source;

/// How long the head of a request, a TLS handshake, or the next request of an idle connection may
/// take.
const HEAD: Duration = Duration::from_secs(30);
/// The wait if the system has no free descriptors.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// A listener of the configuration.
#[derive(Debug)]
pub struct Listening {
    /// The name in the configuration.
    pub name: String,
    /// The socket.
    pub listener: TcpListener,
    /// Whether it speaks TLS.
    pub is_tls: bool,
    /// The maximum number of connections.
    pub connections: usize,
}

/// Serves a gateway on a listener until `stop` is true.
pub async fn serve<K: Phases>(
    listening: Listening,
    gateway: Gateway<K>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(listening.connections));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned();
        let place = tokio::select! {
            () = stopped(&mut stop) => break,
            place = place => place,
        };
        // The places are never closed.
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = listening.listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(EXHAUSTED).await;
                continue;
            }
        };
        let open = Open::new(&listening.name);
        let (gateway, stop) = (gateway.clone(), stop.clone());
        let tls = listening.is_tls.then(|| gateway.tls(&listening.name));
        let proxies = gateway.proxies(&listening.name);
        connections.spawn(async move {
            let _ = stream.set_nodelay(true);
            let client = Box::pin(client_of(stream, address, proxies)).await;
            // Boxed, so that a connection without TLS does not have the size of one with TLS.
            match (client, tls) {
                (None, _) => {}
                (Some(client), None) => Box::pin(plain(client, gateway, stop)).await,
                (Some(client), Some(Some(server))) => {
                    Box::pin(encrypted(client, server, gateway, stop)).await;
                }
                // The listener of the new configuration speaks no TLS. It needs a restart.
                (_, Some(None)) => tracing::warn!("a listener has no certificate any more"),
            }
            drop((open, place));
        });
    }
    drop(listening);
    let closed = timeout(LISTENER_FINISH, async {
        while connections.join_next().await.is_some() {}
    });
    if closed.await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "connections that did not end in time were closed"
        );
    }
}

/// Finds out who the client is. A connection from one of `proxies` begins with its address, and any
/// other connection is then refused.
async fn client_of(
    mut stream: TcpStream,
    address: SocketAddr,
    proxies: Option<Arc<[IpNet]>>,
) -> Option<(TcpStream, Peer)> {
    let Some(proxies) = proxies else {
        return Some((stream, Peer::plain(address)));
    };
    let proxy = address.ip().to_canonical();
    if !proxies.iter().any(|net| net.contains(&proxy)) {
        tracing::debug!(%proxy, "closed a connection that does not come from a trusted proxy");
        return None;
    }
    match timeout(HEAD, proxy::read(&mut stream)).await {
        Ok(Ok(Source::Client(client))) => Some((stream, Peer::plain(client))),
        Ok(Ok(Source::Proxy)) => Some((stream, Peer::plain(address))),
        Ok(Ok(Source::Unidentified)) => {
            let mut peer = Peer::plain(address);
            peer.is_identified = false;
            Some((stream, peer))
        }
        Ok(Err(error)) => {
            tracing::debug!(%proxy, %error, "closed a connection");
            None
        }
        Err(_) => None,
    }
}

async fn plain<K: Phases>(
    (stream, peer): (TcpStream, Peer),
    gateway: Gateway<K>,
    stop: watch::Receiver<bool>,
) {
    serve_on(stream, None, (peer, gateway), stop).await;
}

async fn encrypted<K: Phases>(
    (stream, peer): (TcpStream, Peer),
    server: Arc<ServerConfig>,
    gateway: Gateway<K>,
    stop: watch::Receiver<bool>,
) {
    let Some(stream) = Box::pin(handshake(stream, server)).await else {
        return;
    };
    let (_, session) = stream.get_ref();
    let chain = session.peer_certificates();
    let peer = Peer {
        is_tls: true,
        certificate: chain.and_then(|chain| chain.first().cloned()).map(Arc::new),
        ..peer
    };
    let protocol = session.alpn_protocol().and_then(Protocol::of_alpn);
    serve_on(stream, protocol, (peer, gateway), stop).await;
}

/// Begins TLS on a connection.
async fn handshake(
    stream: TcpStream,
    server: Arc<ServerConfig>,
) -> Option<Box<TlsStream<TcpStream>>> {
    let acceptor = TlsAcceptor::from(server);
    match timeout(HEAD, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake has failed");
            None
        }
        Err(_) => None,
    }
}

/// Serves the requests of a connection. Without `protocol`, its first bytes say which one it is.
async fn serve_on<S, K>(
    stream: S,
    protocol: Option<Protocol>,
    (peer, gateway): (Peer, Gateway<K>),
    stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    K: Phases,
{
    let activity = Arc::<Activity>::default();
    let stream = Checked::new(stream, Arc::clone(&activity));
    let client = Client {
        gateway,
        peer: Arc::new(peer),
        activity,
    };
    client.serve(stream, protocol, stop).await;
}

/// An open connection, for the metrics.
struct Open(String);

impl Open {
    fn new(listener: &str) -> Self {
        metrics::connection(listener, 1.0);
        Self(listener.to_owned())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics::connection(&self.0, -1.0);
    }
}

/// Waits for the signal to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // If the sender is gone, the process is ending, which is a reason to stop as well.
    let _said = stop.wait_for(|stop| *stop).await;
}
