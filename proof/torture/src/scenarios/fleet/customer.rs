//! Client of the fleet: places orders at a fixed mean rate, and sends failed orders again later.
//!
//! Failed orders are sent again one at a time, with a longer pause after each failure. The client
//! ends when all its orders are placed.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{Clock, key::IdempotencyKey, retry::Delays, sink::BoxError};
use hapax_client::{Attempt, Begun, Client, Intent, Journal, Request, Settings, Watch};
use hapax_testkit::{clock::seeded_random, wait::pace};
use tokio::{task::JoinSet, time::Instant};

/// The token that all clients use.
pub(super) const TOKEN: &str = "fleet";
/// The mean time between two new orders of a client.
const PACE: Duration = Duration::from_millis(500);
/// The mean time before a failed order is sent again: the initial and the maximum value.
const LATER: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));

/// The reason for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first attempt of a new order.
    New,
    /// The first attempt of an operation that sends a failed order again.
    Later,
    /// A retry.
    Retry,
}

/// The requests and orders of one client, with their times.
#[derive(Debug, Default)]
pub(super) struct ClientLog {
    pub(super) sent: Vec<(Duration, Kind)>,
    pub(super) orders: Vec<String>,
    /// The number of operations that failed.
    pub(super) failed: usize,
    /// Responses that the outage does not explain.
    pub(super) unexpected: Vec<String>,
}

/// A client of the fleet.
pub(super) struct Customer {
    number: usize,
    url: String,
    start: Instant,
    client: Client,
    log: Arc<Mutex<ClientLog>>,
    unfinished: Mutex<VecDeque<String>>,
}

impl Customer {
    pub(super) fn new(number: usize, url: String, start: Instant) -> anyhow::Result<Arc<Self>> {
        let log: Arc<Mutex<ClientLog>> = Arc::default();
        let mut settings = Settings::new(Clock::system(), seeded_random(number as u64));
        settings.policy.backoff.total = Duration::from_secs(90);
        settings.policy.backoff.attempts_max = 100;
        settings.journal = Some(Arc::new(MemoryJournal::default()));
        let watched = Arc::clone(&log);
        settings.watch = Some(Watch::new(move |attempt: &Attempt, _| {
            if attempt.attempt > 1 {
                let took = Duration::from_millis(attempt.took_ms);
                let sent = (start.elapsed().saturating_sub(took), Kind::Retry);
                lock(&watched).sent.push(sent);
            }
        }));
        Ok(Arc::new(Self {
            number,
            url,
            start,
            client: Client::new(settings)?,
            log,
            unfinished: Mutex::default(),
        }))
    }

    /// Places orders until the fleet closes, and returns when all of them are placed.
    pub(super) async fn buy(self: Arc<Self>, closing: Arc<AtomicBool>) -> ClientLog {
        let random = seeded_random(!(self.number as u64));
        let mut sending = JoinSet::new();
        let all_placed = Arc::new(AtomicBool::new(false));
        let later = tokio::spawn(Arc::clone(&self).catch_up(Arc::clone(&all_placed)));
        for count in 0.. {
            pace(PACE.mul_f64(2.0 * random.unit())).await;
            if closing.load(Ordering::Relaxed) {
                break;
            }
            let order = format!("c{}-{count}", self.number);
            lock(&self.log).orders.push(order.clone());
            let customer = Arc::clone(&self);
            sending.spawn(async move {
                if !customer.place(&order, Kind::New).await {
                    lock(&customer.unfinished).push_back(order);
                }
            });
        }
        sending.join_all().await;
        all_placed.store(true, Ordering::Relaxed);
        later.await.expect("it does not panic");
        std::mem::take(&mut *lock(&self.log))
    }

    /// Sends failed orders again until none is left.
    async fn catch_up(self: Arc<Self>, all_placed: Arc<AtomicBool>) {
        let random = seeded_random(self.number as u64 + 1_000_000);
        let mut delays = Delays::new(LATER);
        loop {
            pace(delays.next_delay().mul_f64(2.0 * random.unit())).await;
            let done = all_placed.load(Ordering::Relaxed);
            let next = lock(&self.unfinished).pop_front();
            match next {
                None if done => return,
                None => {}
                Some(order) if self.place(&order, Kind::Later).await => delays.reset(),
                Some(order) => {
                    lock(&self.unfinished).push_front(order);
                    delays.advance();
                }
            }
        }
    }

    /// Places an order, and returns whether it succeeded.
    async fn place(&self, order: &str, kind: Kind) -> bool {
        let body = format!(r#"{{"customer_id":"{order}","amount":500,"currency":"EUR"}}"#);
        let request = Request::post(&self.url).expect("the address is valid");
        let request = request.json(body).named(order);
        let request = request.header("authorization", &format!("Bearer {TOKEN}"));
        let request = request.expect("the token is valid");
        lock(&self.log).sent.push((self.start.elapsed(), kind));
        let response = self.client.send(request).await;
        let mut log = lock(&self.log);
        match response {
            Ok(response) if response.status == 201 => return true,
            Ok(response) if ![500, 502, 503, 504, 409].contains(&response.status.as_u16()) => {
                log.unexpected
                    .push(format!("{order}: {} {:?}", response.status, response.code));
            }
            _ => {}
        }
        log.failed += 1;
        false
    }
}

/// A journal in memory, because the clients end with the run.
#[derive(Debug, Default)]
struct MemoryJournal(Mutex<HashMap<String, IdempotencyKey>>);

impl Journal for MemoryJournal {
    fn begin<'a>(
        &'a self,
        intent: &'a Intent,
        fresh: IdempotencyKey,
    ) -> BoxFuture<'a, Result<Begun, BoxError>> {
        let name = name(intent);
        let mut keys = lock(&self.0);
        let is_resumed = keys.contains_key(&name);
        let key = keys.entry(name).or_insert(fresh).clone();
        // A run is much shorter than the retention of keys.
        let age = Some(Duration::ZERO);
        let begun = Begun {
            key,
            is_resumed,
            age,
        };
        Box::pin(async move { Ok(begun) })
    }

    fn finish<'a>(
        &'a self,
        intent: &'a Intent,
        _: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        lock(&self.0).remove(&name(intent));
        Box::pin(async { Ok(()) })
    }

    fn withdraw<'a>(
        &'a self,
        intent: &'a Intent,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        // Each order is sent by one client only.
        self.finish(intent, key)
    }
}

fn name(intent: &Intent) -> String {
    intent.name.clone().expect("each order has a name")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
