//! Traffic of a load: clients that go on with a new key after every attempt, and retriers for the keys
//! whose outcome is open.
//!
//! A key of a gateway that was killed stays in progress until its lease has expired. If its client
//! waited for that, the next fault would meet no request.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use futures_util::future::{join, join_all};
use hapax_testkit::wait::{answered, pace};
use tokio::task::JoinHandle;

use crate::{
    ledger::{History, Seen},
    wire::{Connection, PATIENCE, order},
};

/// How many clients send new keys at once.
const CLIENTS: usize = 8;
/// How many retriers send the keys again whose outcome is open.
const RETRIERS: usize = 4;
/// Pauses of a client and of a retrier, in milliseconds.
const CLIENT_MS: RangeInclusive<u64> = 20..=120;
const RETRIER_MS: RangeInclusive<u64> = 5..=30;

/// The faults of the service that clients ask for: errors, lies about the length, and slow answers.
pub(super) const FAULTS: [&str; 8] = [
    "status=500",
    "close",
    "cut=150",
    "long-length=9",
    "no-length",
    "endless",
    "slow-head=60",
    "slow-body=40",
];
/// One new key in this number asks for a fault: for each of them in turn.
const FAULT_PART: u8 = 5;
/// One new key in this number is sent twice at the same moment.
const TWIN_PART: u8 = 8;
/// One answered or unknown key in this number is sent again, long after its first attempt.
const AGAIN_PART: u8 = 4;

/// Clients and retriers that run until they are stopped.
#[derive(Debug)]
pub(super) struct Traffic {
    shared: Shared,
    tasks: Vec<JoinHandle<()>>,
}

impl Traffic {
    pub(super) fn start(gateways: Vec<SocketAddr>, random: &mut Rng) -> Self {
        let shared = Shared {
            gateways: gateways.into(),
            history: History::default(),
            open: Arc::default(),
            asked: Arc::default(),
            faults: Arc::default(),
            is_over: Arc::default(),
        };
        let mut client = |number| Client {
            number,
            random: random.fork(),
            shared: shared.clone(),
        };
        let clients: Vec<_> = (0..CLIENTS).map(&mut client).collect();
        let retriers: Vec<_> = (CLIENTS..CLIENTS + RETRIERS).map(client).collect();
        let clients = clients.into_iter().map(|it| tokio::spawn(it.run()));
        let retriers = retriers.into_iter().map(|it| tokio::spawn(it.retry()));
        let tasks = clients.chain(retriers).collect();
        Self { shared, tasks }
    }

    pub(super) fn history(&self) -> &History {
        &self.shared.history
    }

    /// Makes the next new key ask for a fault of the service.
    pub(super) fn ask(&self, fault: &'static str) {
        *self.shared.asked() = Some(fault);
    }

    /// Ends the clients. Keys whose outcome is open stay open.
    pub(super) async fn stop(self) -> History {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for task in join_all(self.tasks).await {
            task.unwrap();
        }
        self.shared.history
    }
}

/// What clients and retriers share.
#[derive(Clone, Debug)]
struct Shared {
    gateways: Arc<[SocketAddr]>,
    history: History,
    /// The keys that retriers send again, in turn.
    open: Arc<Mutex<VecDeque<String>>>,
    /// A fault that one client has to ask for.
    asked: Arc<Mutex<Option<&'static str>>>,
    /// How many faults clients have asked for on their own.
    faults: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one attempt, and records its result. `None` if the gateway does not listen: nothing was
    /// sent.
    async fn attempt(&self, gateway: usize, key: &str, fault: &str) -> Option<Seen> {
        let address = self.gateways[gateway];
        let connected = answered(PATIENCE, Connection::open(address)).await;
        let mut connection = connected.ok()?;
        let exchanged = async {
            connection.send(&order(key, fault)).await?;
            connection.answer().await
        };
        let answer = answered(PATIENCE, exchanged).await.ok();
        let seen = Seen::of(answer.as_ref());
        self.history.add(key, seen.clone());
        Some(seen)
    }
}

/// A client, or a retrier.
struct Client {
    number: usize,
    random: Rng,
    shared: Shared,
}

impl Client {
    /// Sends one new key after the other.
    async fn run(mut self) {
        let mut operation = 0_u32;
        while !self.shared.is_over() {
            operation += 1;
            let key = format!("key-{}-{operation}", self.number);
            if let Some(seen) = self.first(&key).await {
                self.keep(key, &seen);
            }
            pace(Duration::from_millis(self.random.u64(CLIENT_MS))).await;
        }
    }

    /// Sends open keys again.
    async fn retry(mut self) {
        while !self.shared.is_over() {
            let next = self.shared.open().pop_front();
            if let Some(key) = next {
                let gateway = self.gateway();
                match self.shared.attempt(gateway, &key, "").await {
                    Some(seen) => self.keep(key, &seen),
                    // The gateway is being started again.
                    None => self.shared.open().push_back(key),
                }
            }
            pace(Duration::from_millis(self.random.u64(RETRIER_MS))).await;
        }
    }

    /// Makes the first attempt of a key, now and then two at the same moment. Returns the result of the
    /// first one.
    async fn first(&mut self, key: &str) -> Option<Seen> {
        let (one, other) = (self.gateway(), self.gateway());
        let asked = self.shared.asked().take();
        if let Some(fault) = asked {
            return self.shared.attempt(one, key, fault).await;
        }
        let fault = if self.random.u8(..FAULT_PART) == 0 {
            FAULTS[self.shared.faults.fetch_add(1, Ordering::Relaxed) % FAULTS.len()]
        } else {
            ""
        };
        if self.random.u8(..TWIN_PART) > 0 {
            return self.shared.attempt(one, key, fault).await;
        }
        let first = self.shared.attempt(one, key, fault);
        let (first, second) = join(first, self.shared.attempt(other, key, fault)).await;
        first.or(second)
    }

    /// Leaves a key to the retriers if its outcome is open, and sometimes otherwise too.
    fn keep(&mut self, key: String, seen: &Seen) {
        let is_decided = seen.is_success() || seen.is_unknown();
        if !is_decided || self.random.u8(..AGAIN_PART) == 0 {
            self.shared.open().push_back(key);
        }
    }

    fn gateway(&mut self) -> usize {
        self.random.usize(..self.shared.gateways.len())
    }
}
