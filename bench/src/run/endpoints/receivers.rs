//! The receivers of all endpoints: one HTTP server in a thread. The path of a request is the number of
//! the endpoint.
//!
//! It listens on several addresses of the loopback interface, because the number of connections to one
//! address is limited by the ports of the relay. The endpoints that refuse connections have a separate
//! address, which is closed while they do.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use hapax::signature::{self, TOLERANCE, Verifier};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::{oneshot, watch},
    task::{JoinSet, LocalSet, spawn_local},
    time::sleep,
};

use crate::{
    receive::{REQUEST_MAX, Request, SECRET, number},
    sources::clock,
};

use super::{
    ledger::Ledger,
    plan::{Plan, Sickness, sickness},
};

/// Number of addresses of the endpoints that accept connections.
const HOSTS: u8 = 10;
/// One delivery of so many is verified.
const CHECKED: usize = 1_000;
/// Interval at which the harness looks at the receivers.
const LOOK: Duration = Duration::from_millis(2);
const TAKEN: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const FAILED: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

/// The receivers. Their thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Receivers {
    shared: Arc<Shared>,
    addresses: Addresses,
    sick: watch::Sender<bool>,
}

/// State that the thread and the harness share.
#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    /// Number of requests that get no response.
    hanging: AtomicUsize,
    /// Whether connections are refused at present.
    is_closed: AtomicBool,
    deliveries: AtomicUsize,
    key: Verifier,
}

/// Addresses of the receivers.
#[derive(Clone, Debug)]
struct Addresses {
    open: Vec<SocketAddr>,
    /// The address that is closed while endpoints are sick.
    door: SocketAddr,
}

impl Receivers {
    /// Starts the receivers, all of them healthy.
    pub(super) async fn start(plan: Plan) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            ledger: Mutex::new(Ledger::new(plan)),
            hanging: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            deliveries: AtomicUsize::new(0),
            key: Verifier::V1(SECRET.parse()?),
        });
        let (sick, watched) = watch::channel(false);
        let (said, listening) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("receivers".to_owned())
            .spawn(move || {
                let tasks = LocalSet::new();
                tasks.block_on(&runtime, listen(of_thread, watched, said));
            })?;
        let addresses = listening.await.context("the receivers have ended")??;
        Ok(Self {
            shared,
            addresses,
            sick,
        })
    }

    /// The URL of an endpoint.
    pub(super) fn url(&self, endpoint: usize) -> String {
        let open = &self.addresses.open;
        let address = match sickness(endpoint) {
            Some(Sickness::Refuses) => self.addresses.door,
            _ => open[endpoint % open.len()],
        };
        format!("http://{address}/{endpoint}")
    }

    /// Makes the sick endpoints sick, or all endpoints healthy. Requests that wait for a response
    /// get one.
    pub(super) async fn turn(&self, is_sick: bool) -> anyhow::Result<()> {
        self.sick.send_replace(is_sick);
        let shared = &self.shared;
        let is_turned = || {
            let is_closed = shared.is_closed.load(Ordering::SeqCst);
            is_closed == is_sick && (is_sick || shared.hanging.load(Ordering::SeqCst) == 0)
        };
        let start = Instant::now();
        while !is_turned() {
            ensure!(
                start.elapsed() < Duration::from_secs(10),
                "the receivers have not changed"
            );
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// The ledger.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.shared.ledger()
    }

    /// Waits until every healthy endpoint has every event of the round.
    pub(super) async fn complete(&self, most: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let missing = self.ledger().missing()?;
            if missing == 0 {
                return Ok(());
            }
            if start.elapsed() > most {
                bail!("after {most:?} {missing} deliveries to healthy endpoints had not arrived");
            }
            sleep(LOOK).await;
        }
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a delivery.
    fn take(&self, delivery: Delivery) {
        self.ledger().arrived(delivery.endpoint, delivery.event);
    }

    /// Parses a request, and verifies the signature of some.
    fn read(&self, request: &Request<'_>) -> anyhow::Result<Delivery> {
        let line = str::from_utf8(request.line)?;
        let path = line.strip_prefix("POST /").context("it is not a POST")?;
        let endpoint = path.split(' ').next().unwrap_or_default().parse()?;
        let count = self.deliveries.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(CHECKED) {
            let keys = std::slice::from_ref(&self.key);
            signature::verify(&request.received()?, keys, clock().now(), TOLERANCE)?;
        }
        Ok(Delivery {
            endpoint,
            event: number(request.body)?,
        })
    }
}

/// A request that is read.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    endpoint: usize,
    event: usize,
}

/// Listens until the harness drops the receivers.
async fn listen(
    shared: Arc<Shared>,
    mut sick: watch::Receiver<bool>,
    said: oneshot::Sender<io::Result<Addresses>>,
) {
    let (open, door) = match bind().await {
        Ok(bound) => bound,
        Err(error) => {
            let _gone = said.send(Err(error));
            return;
        }
    };
    let addresses = open
        .iter()
        .map(TcpListener::local_addr)
        .collect::<io::Result<Vec<_>>>();
    let addresses = addresses.and_then(|open| {
        let door = door.local_addr()?;
        Ok(Addresses { open, door })
    });
    let Ok(place) = door.local_addr() else {
        return;
    };
    let _gone = said.send(addresses);
    for listener in open {
        spawn_local(accept(listener, Arc::clone(&shared), sick.clone()));
    }
    spawn_local(doorkeeper(door, place, Arc::clone(&shared), sick.clone()));
    while sick.changed().await.is_ok() {}
}

/// Binds all addresses: the open ones, and the one that is closed at times.
async fn bind() -> io::Result<(Vec<TcpListener>, TcpListener)> {
    let mut open = Vec::new();
    for host in 1..=HOSTS {
        open.push(TcpListener::bind((Ipv4Addr::new(127, 0, 0, host), 0)).await?);
    }
    let door = TcpListener::bind((Ipv4Addr::new(127, 0, 0, HOSTS + 1), 0)).await?;
    Ok((open, door))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, sick: watch::Receiver<bool>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                spawn_local(connection(stream, Arc::clone(&shared), sick.clone()));
            }
            Err(error) => {
                let problem = format!("the receivers cannot accept a connection: {error}");
                return shared.ledger().refuse(problem);
            }
        }
    }
}

/// Accepts connections while the endpoints are healthy, and closes them and the address while they
/// are not.
async fn doorkeeper(
    first: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    mut sick: watch::Receiver<bool>,
) {
    let mut listener = Some(first);
    let mut connections = JoinSet::new();
    loop {
        let is_sick = *sick.borrow_and_update();
        if is_sick {
            drop(listener.take());
            connections.shutdown().await;
        } else if listener.is_none() {
            listener = match TcpListener::bind(address).await {
                Ok(bound) => Some(bound),
                Err(error) => {
                    let problem = format!("the receivers cannot listen on {address}: {error}");
                    return shared.ledger().refuse(problem);
                }
            };
        }
        shared.is_closed.store(is_sick, Ordering::SeqCst);
        loop {
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = sick.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                Some(_) = connections.join_next() => {}
                accepted = accepted => if let Ok((stream, _)) = accepted {
                    connections.spawn_local(connection(stream, Arc::clone(&shared), sick.clone()));
                },
            }
        }
    }
}

/// Serves a connection, and notes a request that cannot be read.
async fn connection(mut stream: TcpStream, shared: Arc<Shared>, sick: watch::Receiver<bool>) {
    if let Err(error) = serve(&mut stream, &shared, sick).await {
        let problem = format!("a delivery cannot be read: {error:#}");
        shared.ledger().refuse(problem);
    }
}

/// Serves requests until the relay closes the connection.
async fn serve(
    stream: &mut TcpStream,
    shared: &Shared,
    mut sick: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let _unset = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(2 * 1024);
    loop {
        let (delivery, length) = loop {
            if let Some(request) = Request::parse(&buffer)? {
                break (shared.read(&request)?, request.length);
            }
            ensure!(buffer.len() < REQUEST_MAX, "a request is too long");
            buffer.reserve(1024);
            match stream.read_buf(&mut buffer).await {
                Ok(read) if read > 0 => {}
                // The relay may close a connection at any time.
                _ => return Ok(()),
            }
        };
        buffer.drain(..length);
        let sickness = sickness(delivery.endpoint);
        let sickness = sickness.filter(|_| *sick.borrow());
        let reply = match sickness {
            Some(Sickness::Fails) => FAILED,
            Some(Sickness::Hangs) => {
                if !hang(stream, shared, &mut sick).await {
                    return Ok(());
                }
                shared.take(delivery);
                TAKEN
            }
            Some(Sickness::Refuses) | None => {
                shared.take(delivery);
                TAKEN
            }
        };
        if stream.write_all(reply).await.is_err() {
            return Ok(());
        }
    }
}

/// Waits until the endpoint is healthy. Returns false if the relay closes the connection before.
async fn hang(stream: &mut TcpStream, shared: &Shared, sick: &mut watch::Receiver<bool>) -> bool {
    let _counted = Hanging::new(&shared.hanging);
    let mut ignored = [0];
    tokio::select! {
        healthy = sick.wait_for(|is_sick| !is_sick) => healthy.is_ok(),
        // No request follows before the response.
        _ = stream.read(&mut ignored) => false,
    }
}

/// A request that is counted as hanging until this is dropped.
struct Hanging<'a>(&'a AtomicUsize);

impl<'a> Hanging<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Connection, Request as Sent};

    #[tokio::test]
    async fn a_sick_endpoint_refuses_connections_until_it_is_healthy() {
        let plan = Plan { tenants: 40 };
        let receivers = Receivers::start(plan).await.unwrap();
        let door = receivers.addresses.door;
        let refusing = plan
            .sick()
            .find(|it| sickness(*it) == Some(Sickness::Refuses));
        let url = receivers.url(refusing.unwrap());
        assert!(url.starts_with(&format!("http://{door}/")), "{url}");
        assert!(TcpStream::connect(door).await.is_ok());
        receivers.turn(true).await.unwrap();
        assert!(TcpStream::connect(door).await.is_err());
        receivers.turn(false).await.unwrap();
        assert!(TcpStream::connect(door).await.is_ok());
    }

    #[tokio::test]
    async fn a_request_that_is_not_a_delivery_fails_the_run() {
        let receivers = Receivers::start(Plan { tenants: 1 }).await.unwrap();
        let mut connection = Connection::open(receivers.addresses.open[0]).await.unwrap();
        let closed = connection.exchange(Sent::get("/0", None).bytes()).await;
        assert!(closed.is_err());
        let error = receivers.ledger().missing().unwrap_err().to_string();
        assert!(error.contains("it is not a POST"), "{error}");
    }
}
