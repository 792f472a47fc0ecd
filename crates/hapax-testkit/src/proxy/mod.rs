//! A TCP proxy that turns a good network into a bad one, when it is told.
//!
//! It stands on loopback between a client and a server. Faults are switched while it runs, for
//! each direction: a delay, a black hole, a cut after so many bytes; connections can be refused
//! or reset. Before PostgreSQL it understands enough of what is said to act at a named moment,
//! such as: the server has committed, and the client never hears of it ([`Proxy::once`]).
//!
//! What it did is counted ([`Proxy::tally`]), so that a test can show that the fault was there.
//! Delays are precise to about a tenth of a millisecond, and the proxy runs on a thread of its
//! own: it can stand before a benchmark as the network does.

mod alarm;
mod dialogue;
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

/// What is done to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// They pass.
    #[default]
    None,
    /// They pass so much later.
    Delay(Duration),
    /// They vanish, and so does the end of the connection; the connection stays.
    BlackHole,
    /// So many of each connection pass, counted from now; then it ends.
    CutAfter(usize),
    /// They pass in pieces of so many, a millisecond apart.
    Slice(usize),
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the client says.
    ToServer,
    /// What the server says.
    ToClient,
}

/// What a proxy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that came.
    pub accepted: usize,
    /// Connections that were ended by a cut.
    pub cut: usize,
    /// Connections that were ended by a reset.
    pub reset: usize,
    /// Bytes that vanished.
    pub swallowed: usize,
    /// Connections that found no server behind the proxy.
    pub unserved: usize,
}

/// A proxy that runs until it is dropped; its connections end with it.
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
    /// Whether the listener is what it should be: `true` while it refuses.
    refuses: watch::Sender<bool>,
    resets: watch::Sender<u64>,
    alarm: OnceLock<Alarm>,
}

#[derive(Debug)]
struct Plan {
    server: String,
    /// To the server, to the client; each with the number of its change.
    faults: [(Fault, u64); 2],
    traps: Vec<Trap>,
}

impl Proxy {
    /// Stands before the server at `host:port`, which may speak anything.
    ///
    /// # Panics
    /// When there is no port or thread to be had.
    pub fn to(server: impl Into<String>) -> Self {
        Self::start(server.into(), false)
    }

    /// Stands before a PostgreSQL server at `host:port`, and listens for the moments of traps.
    ///
    /// # Panics
    /// When there is no port or thread to be had.
    pub fn to_postgres(server: impl Into<String>) -> Self {
        Self::start(server.into(), true)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same URL, by way of the proxy, and without encryption: traps must understand it.
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

    /// Leads connections that come from now on to another server.
    pub fn lead_to(&self, server: impl Into<String>) {
        self.shared.plan().server = server.into();
    }

    /// Does this to all bytes of one direction, of connections that are and that come.
    pub fn set(&self, direction: Direction, fault: Fault) {
        let mut plan = self.shared.plan();
        let (was, number) = &mut plan.faults[direction as usize];
        *was = fault;
        *number += 1;
    }

    /// Delays both directions by so much each.
    pub fn delay(&self, each_way: Duration) {
        self.set(Direction::ToServer, Fault::Delay(each_way));
        self.set(Direction::ToClient, Fault::Delay(each_way));
    }

    /// Swallows everything, both ways.
    pub fn black_hole(&self) {
        self.set(Direction::ToServer, Fault::BlackHole);
        self.set(Direction::ToClient, Fault::BlackHole);
    }

    /// Refuses connections from now on, or no longer; returns when that is so.
    ///
    /// # Panics
    /// When somebody else took its port meanwhile.
    pub async fn refuse(&self, is_refusing: bool) {
        let mut refuses = self.shared.refuses.subscribe();
        self.shared.is_refusing.send_replace(is_refusing);
        let done = refuses.wait_for(|refuses| *refuses == is_refusing).await;
        drop(done.expect("the proxy runs"));
    }

    /// Resets every connection there is.
    pub fn reset(&self) {
        self.shared.resets.send_modify(|resets| *resets += 1);
    }

    /// Does the deed when the moment comes first.
    ///
    /// # Panics
    /// When it does not stand before PostgreSQL.
    pub fn once(&self, moment: Moment, deed: Deed) -> Trap {
        self.trap(moment, deed, 1)
    }

    /// Does the deed whenever the moment comes.
    ///
    /// # Panics
    /// When it does not stand before PostgreSQL.
    pub fn always(&self, moment: Moment, deed: Deed) -> Trap {
        self.trap(moment, deed, usize::MAX)
    }

    /// Lets everything pass again: no fault, no trap, no refusal. What was swallowed stays lost,
    /// and with it the connections that lost it.
    ///
    /// # Panics
    /// When somebody else took its port while it refused.
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

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        *self.shared.lock_tally()
    }

    fn trap(&self, moment: Moment, deed: Deed, times: usize) -> Trap {
        assert!(self.shared.is_postgres, "only `to_postgres` has moments");
        let trap = Trap::new(moment, deed, times);
        self.shared.plan().traps.push(trap.clone());
        trap
    }

    fn start(server: String, is_postgres: bool) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listener = std::net::TcpListener::bind(address).expect("a port can be listened on");
        listener
            .set_nonblocking(true)
            .expect("a listener need not block");
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
            runtime.expect("a runtime can be built").block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener is a listener");
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
        // Without a sender the thread stops.
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
            listener = Some(bound.expect("the port is ours still"));
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
        // Where it cannot be set, small messages come later and nothing is wrong.
        let _set = stream.set_nodelay(true);
    }
    link::carry(client, server, &shared).await;
}

#[cfg(test)]
mod tests;
