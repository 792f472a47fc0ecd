//! Fault-injecting TCP proxy.
//!
//! It listens on loopback between a client and a server. Faults can be switched while it runs, for
//! each direction: a delay, a black hole, a cut after a number of bytes. Connections can be refused
//! or reset. For PostgreSQL it understands enough of the protocol to act at a given moment, for
//! example: the server has committed, and the client never receives the response ([`Proxy::once`]).
//!
//! Its actions are counted ([`Proxy::tally`]), so that a test can prove that the fault occurred.
//! Delays are precise to about a tenth of a millisecond. The proxy runs on its own thread, so it
//! can also simulate a network in a benchmark.

mod alarm;
mod protocol;
mod link;
mod trap;

use std::{
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::port::free_port;
use alarm::Alarm;
pub use trap::{Deed, Moment, Trap};

/// A fault for the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// The bytes are delayed.
    Delay(Duration),
    /// The bytes are swallowed, and so is the end of the connection. The connection stays open.
    BlackHole,
    /// This number of bytes passes per connection, counted from now; then the connection is closed.
    CutAfter(usize),
    /// The bytes pass in pieces of this size, with intervals of a millisecond.
    Slice(usize),
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The counted actions of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accepted connections.
    pub accepted: usize,
    /// Connections that were closed by a cut.
    pub cut: usize,
    /// Connections that were reset.
    pub reset: usize,
    /// Bytes that were swallowed.
    pub swallowed: usize,
    /// Connections for which the server could not be reached.
    pub unserved: usize,
}

/// A proxy that runs until it is dropped. Its connections end with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    is_postgres: bool,
    plan: Mutex<Plan>,
    tally: Mutex<Tally>,
    is_refusing: watch::Sender<bool>,
    /// Whether connections are refused; the listener follows this value.
    refuses: watch::Sender<bool>,
    resets: watch::Sender<u64>,
    alarm: OnceLock<Alarm>,
}

#[derive(Debug)]
struct Plan {
    server: String,
    /// The faults to the server and to the client, each with a sequence number.
    faults: [(Fault, u64); 2],
    traps: Vec<Trap>,
}

impl Proxy {
    /// Starts a proxy for the server at `host:port`, with any protocol.
    ///
    /// # Panics
    /// Panics if all ports are in use or a thread cannot be started.
    pub fn to(server: impl Into<String>) -> Self {
        Self::start(server.into(), false)
    }

    /// Starts a proxy for the PostgreSQL server at `host:port`, with support for traps.
    ///
    /// # Panics
    /// Panics if all ports are in use or a thread cannot be started.
    pub fn to_postgres(server: impl Into<String>) -> Self {
        Self::start(server.into(), true)
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same URL through the proxy, without encryption, because traps have to understand the
    /// protocol.
    pub fn url(&self, url: &str) -> String {
        let (head, query) = url.split_once('?').unwrap_or((url, ""));
        let start = head.find("://").map_or(0, |at| at + 3);
        let end = head[start..].find('/').map_or(head.len(), |at| start + at);
        let host = head[start..end]
            .rfind('@')
            .map_or(start, |at| start + at + 1);
        let query = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.starts_with("sslmode="));
        let query: Vec<_> = query.chain(["sslmode=disable"]).collect();
        let (before, address, after) = (&head[..host], self.address, &head[end..]);
        format!("{before}{address}{after}?{}", query.join("&"))
    }

    /// Connects future connections to another server.
    pub fn lead_to(&self, server: impl Into<String>) {
        self.shared.plan().server = server.into();
    }

    /// Sets the fault of one direction, for current and future connections.
    pub fn set(&self, direction: Direction, fault: Fault) {
        let mut plan = self.shared.plan();
        let (was, number) = &mut plan.faults[direction as usize];
        *was = fault;
        *number += 1;
    }

    /// Delays both directions by this duration each.
    pub fn delay(&self, each_way: Duration) {
        self.set(Direction::ToServer, Fault::Delay(each_way));
        self.set(Direction::ToClient, Fault::Delay(each_way));
    }

    /// Swallows everything in both directions.
    pub fn black_hole(&self) {
        self.set(Direction::ToServer, Fault::BlackHole);
        self.set(Direction::ToClient, Fault::BlackHole);
    }

    /// Starts or stops refusing connections. Returns when it is in effect.
    ///
    /// # Panics
    /// Panics if another process has taken the port in the meantime.
    pub async fn refuse(&self, is_refusing: bool) {
        let mut refuses = self.shared.refuses.subscribe();
        self.shared.is_refusing.send_replace(is_refusing);
        let done = refuses.wait_for(|refuses| *refuses == is_refusing).await;
        drop(done.expect("the proxy runs"));
    }

    /// Resets all current connections.
    pub fn reset(&self) {
        self.shared.resets.send_modify(|resets| *resets += 1);
    }

    /// Resets all connections and refuses new ones, as a server that is down.
    pub async fn shut(&self) {
        self.refuse(true).await;
        self.reset();
    }

    /// Sets a trap that acts at the first occurrence of a moment.
    ///
    /// # Panics
    /// Panics if the proxy is not for PostgreSQL.
    pub fn once(&self, moment: Moment, deed: Deed) -> Trap {
        self.trap(moment, deed, 1)
    }

    /// Sets a trap that acts at every occurrence of a moment.
    ///
    /// # Panics
    /// Panics if the proxy is not for PostgreSQL.
    pub fn always(&self, moment: Moment, deed: Deed) -> Trap {
        self.trap(moment, deed, usize::MAX)
    }

    /// Removes all faults, traps and refusals. Swallowed bytes remain lost, and with them their
    /// connections.
    ///
    /// # Panics
    /// Panics if another process has taken the port while connections were refused.
    pub async fn heal(&self) {
        let traps = {
            let mut plan = self.shared.plan();
            for (fault, number) in &mut plan.faults {
                *fault = Fault::None;
                *number += 1;
            }
            mem::take(&mut plan.traps)
        };
        traps.iter().for_each(Trap::release);
        self.refuse(false).await;
    }

    /// The actions so far.
    pub fn tally(&self) -> Tally {
        *self.shared.lock_tally()
    }

    fn trap(&self, moment: Moment, deed: Deed, times: usize) -> Trap {
        assert!(
            self.shared.is_postgres,
            "traps require a proxy made with `to_postgres`"
        );
        let trap = Trap::new(moment, deed, times);
        self.shared.plan().traps.push(trap.clone());
        trap
    }

    fn start(server: String, is_postgres: bool) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listener = std::net::TcpListener::bind(address).expect("the port is free");
        listener
            .set_nonblocking(true)
            .expect("the listener can be non-blocking");
        let shared = Arc::new(Shared {
            is_postgres,
            plan: Mutex::new(Plan {
                server,
                faults: [(Fault::None, 0); 2],
                traps: Vec::new(),
            }),
            tally: Mutex::default(),
            is_refusing: watch::Sender::new(false),
            refuses: watch::Sender::new(false),
            resets: watch::Sender::new(0),
            alarm: OnceLock::new(),
        });
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("the runtime can be built").block_on(async {
                let listener =
                    TcpListener::from_std(listener).expect("the listener can be registered");
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, address, serving) => {}
                }
            });
        });
        Self {
            address,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Dropping the sender stops the thread.
        self.stop.take();
        let _joined = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn fault(&self, direction: Direction) -> (Fault, u64) {
        self.plan().faults[direction as usize]
    }

    fn traps(&self) -> Vec<Trap> {
        self.plan().traps.clone()
    }

    fn alarm(&self) -> &Alarm {
        self.alarm.get_or_init(Alarm::start)
    }

    fn note(&self, note: impl FnOnce(&mut Tally)) {
        note(&mut self.lock_tally());
    }

    fn lock_tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut is_refusing = shared.is_refusing.subscribe();
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        if *is_refusing.borrow_and_update() {
            listener = None;
        } else if listener.is_none() {
            let bound = TcpListener::bind(address).await;
            listener = Some(bound.expect("the port is still free"));
        }
        shared.refuses.send_replace(listener.is_none());
        tokio::select! {
            changed = is_refusing.changed() => drop(changed),
            Some(_) = connections.join_next() => {}
            Ok((client, _)) = accept(listener.as_ref()) => {
                shared.note(|tally| tally.accepted += 1);
                connections.spawn(lead(client, Arc::clone(&shared)));
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn lead(client: TcpStream, shared: Arc<Shared>) {
    let server = shared.plan().server.clone();
    let Ok(server) = TcpStream::connect(server).await else {
        shared.note(|tally| tally.unserved += 1);
        return;
    };
    for stream in [&client, &server] {
        // If this fails, small messages are only delayed.
        let _set = stream.set_nodelay(true);
    }
    link::forward(client, server, &shared).await;
}

#[cfg(test)]
mod tests;
