//! A connection to the broker and its idle channels.
//!
//! A connection that hangs is closed at its socket, in any state: the driver's thread ends, and the
//! next delivery opens a new connection. A connection that the broker blocks is kept and reports
//! the reason.

use std::{
    io,
    net::{Shutdown, TcpStream},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use lapin::{
    AsyncTcpStream, Channel, Connection, ConnectionProperties, Error, Event,
    options::ConfirmSelectOptions,
    tcp::{AMQPUriTcpExt as _, OwnedTLSConfig},
    uri::{AMQPScheme, AMQPUri},
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::{Failure, Server};
use crate::limits::{AMQP_IDLE_CHANNELS, CONNECT};

/// A connection.
pub(super) struct Link {
    connection: Connection,
    socket: Arc<Socket>,
    idle: Mutex<Vec<Channel>>,
    /// The reason while the broker blocks publishers.
    pub(super) blocked: watch::Receiver<Option<String>>,
    listener: JoinHandle<()>,
}

/// A second handle of the connection's socket.
#[derive(Default)]
struct Socket {
    is_cut: AtomicBool,
    handle: Mutex<Option<TcpStream>>,
}

/// Closes a connection that is being opened if its future is dropped.
struct CutOnDrop(Option<Arc<Socket>>);

impl Link {
    /// Connects within the shorter of `within` and the timeout for connections.
    pub(super) async fn open(server: &Server, within: Duration) -> Result<Self, Failure> {
        let socket = Arc::new(Socket::default());
        let guard = CutOnDrop(Some(Arc::clone(&socket)));
        let within = within.min(CONNECT);
        let connection = match timeout(within, connect(server, &socket)).await {
            Ok(connected) => connected.map_err(Failure::Connect)?,
            Err(elapsed) => return Err(Failure::not_connected(elapsed)),
        };
        guard.keep();
        let (sender, blocked) = watch::channel(None);
        let mut events = connection.events_listener();
        let listener = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => drop(sender.send(Some(reason))),
                    Event::ConnectionUnblocked => drop(sender.send(None)),
                    _ => {}
                }
            }
        });
        Ok(Self {
            connection,
            socket,
            idle: Mutex::default(),
            blocked,
            listener,
        })
    }

    /// The maximum size of a frame in bytes.
    pub(super) fn frame_max(&self) -> usize {
        let max = self.connection.configuration().frame_max();
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// A channel in confirm mode, used by one pipeline at a time so that messages returned on it
    /// belong to that pipeline.
    pub(super) async fn channel(&self) -> Result<Channel, Failure> {
        if let Some(reason) = &*self.blocked.borrow() {
            return Err(Failure::Blocked(reason.clone()));
        }
        while let Some(channel) = self.take_idle() {
            if channel.status().connected() {
                return Ok(channel);
            }
        }
        let channel = self.connection.create_channel().await;
        let channel = channel.map_err(Failure::Closed)?;
        let select = channel.confirm_select(ConfirmSelectOptions::default());
        select.await.map_err(Failure::Closed)?;
        Ok(channel)
    }

    /// Returns a channel on which nothing is in flight.
    pub(super) fn put_back(&self, channel: Channel) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < AMQP_IDLE_CHANNELS {
            idle.push(channel);
        }
    }

    fn take_idle(&self) -> Option<Channel> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }
}

impl crate::connection::Connection for Link {
    fn is_alive(&self) -> bool {
        !self.socket.is_cut.load(Ordering::SeqCst) && self.connection.status().connected()
    }

    /// Closes the connection at once, and with it all pipelines on it.
    fn discard(&self) {
        self.socket.cut();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Socket {
    fn hold(&self, stream: &impl AsFd) -> io::Result<()> {
        let handle: OwnedFd = stream.as_fd().try_clone_to_owned()?;
        *self.handle() = Some(handle.into());
        if self.is_cut.load(Ordering::SeqCst) {
            self.cut();
        }
        Ok(())
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        if let Some(handle) = self.handle().take() {
            // The socket may already be closed.
            let _closed = handle.shutdown(Shutdown::Both);
        }
    }

    fn handle(&self) -> std::sync::MutexGuard<'_, Option<TcpStream>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CutOnDrop {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            socket.cut();
        }
    }
}

async fn connect(server: &Server, socket: &Arc<Socket>) -> Result<Connection, Error> {
    let tls = OwnedTLSConfig {
        cert_chain: server.roots.clone(),
        ..OwnedTLSConfig::default()
    };
    let socket = Arc::clone(socket);
    let properties = ConnectionProperties::default().with_connection_name("hapax".into());
    let runtime = lapin::runtime::default_runtime()?;
    Connection::connector(
        server.uri(),
        runtime,
        async move |uri: AMQPUri, runtime| {
            let dialled = async {
                let plain = AMQPUri {
                    scheme: AMQPScheme::AMQP,
                    ..uri.clone()
                };
                let stream = plain
                    .connect_with_config_async(tls.as_ref(), &runtime)
                    .await?;
                if let AsyncTcpStream::Plain(stream) = &stream {
                    socket.hold(stream.get_ref())?;
                }
                match uri.scheme {
                    AMQPScheme::AMQP => Ok(stream),
                    AMQPScheme::AMQPS => stream.into_tls(&uri.authority.host, tls.as_ref()).await,
                }
            };
            // The driver uses a thread for this, which would otherwise never end.
            match timeout(CONNECT, dialled).await {
                Ok(stream) => stream.map_err(Error::from),
                Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed).into()),
            }
        },
        properties,
    )
    .await
}
