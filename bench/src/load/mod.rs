//! Load generator that uses little CPU, because it shares its cores with the service under load.
//!
//! Each connection is kept alive and has one request in flight. A thread has one runtime, and its
//! connections share one counter and one tally without locks. A response that cannot be parsed, or
//! a connection that breaks, ends the run: incomplete figures would be wrong.

mod command;
pub(crate) mod request;
mod response;
mod connection;
mod tally;
mod burst;

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{
    runtime::Builder,
    sync::{Barrier, oneshot},
    task::{JoinSet, LocalSet},
    time::sleep_until,
};

pub(crate) use burst::burst;
pub(crate) use command::Flags;
pub(crate) use connection::Connection;
pub(crate) use request::Request;
use request::scatter;
pub(crate) use tally::Tally;

/// What to send, to which service, and how long.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The service under load.
    pub(crate) address: SocketAddr,
    /// Connections, each with one request in flight.
    pub(crate) connections: usize,
    /// Threads that share the connections.
    pub(crate) threads: usize,
    /// The request to send.
    pub(crate) request: Request,
    /// The keys of the requests.
    pub(crate) keys: Keys,
    /// Requests per second, regardless of the responses; `None` means as many as possible.
    pub(crate) pace: Option<f64>,
    /// When the run ends.
    pub(crate) until: Until,
}

/// The keys of the requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// A new key for each request.
    Fresh,
    /// The first keys of the sequence, in a cycle of this length.
    Cycle(u64),
    /// This number of first keys of the sequence, in a scattered order.
    Spread(u64),
}

impl Keys {
    /// The number of the key for the request with this number.
    fn of(self, number: u64) -> u64 {
        match self {
            Self::Fresh => number,
            Self::Cycle(keys) => number % keys,
            Self::Spread(keys) => scatter(number) % keys,
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this number of requests.
    Count(u64),
    /// At the end of the window that follows the warm-up.
    Elapsed {
        /// The time during which responses are not counted.
        warm_up: Duration,
        /// The time during which responses are counted.
        window: Duration,
    },
}

/// Runs the plan and returns the tally.
pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Tally> {
    let mut parts = Vec::new();
    for thread in 0..plan.threads {
        let (send, receive) = oneshot::channel();
        let plan = plan.clone();
        thread::Builder::new()
            .name(format!("load-{thread}"))
            .spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build();
                let tally = runtime
                    .context("cannot start a runtime")
                    .and_then(|runtime| LocalSet::new().block_on(&runtime, share(&plan, thread)));
                // The receiver may be gone because the run was cancelled.
                let _ = send.send(tally);
            })?;
        parts.push(receive);
    }
    let mut whole = Tally::new();
    for part in parts {
        whole.merge(
            &part
                .await
                .context("a thread of the load generator died")??,
        );
    }
    Ok(whole)
}

/// State that the connections of one thread share.
struct Shared {
    plan: Plan,
    /// The number of the next request, and the step to the one after it.
    next: Cell<u64>,
    step: u64,
    /// The time at which the first request was due.
    start: Cell<Option<Instant>>,
    tally: RefCell<Tally>,
    ready: Barrier,
}

impl Shared {
    /// The number of the next request.
    fn number(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number + self.step);
        number
    }

    /// The start of the run, which the first ready connection sets for all.
    fn start(&self) -> Instant {
        let start = self.start.get().unwrap_or_else(Instant::now);
        self.start.set(Some(start));
        start
    }

    /// Waits until a request is due, and returns the time from which its latency counts. If all
    /// connections were busy when the request was due, it has been waiting since then.
    async fn due(&self, start: Instant, number: u64) -> Instant {
        let now = Instant::now();
        let Some(pace) = self.plan.pace else {
            return now;
        };
        let due = start + Duration::from_secs_f64(to_f64(number) / pace);
        if due <= now {
            return due;
        }
        sleep_until(due.into()).await;
        Instant::now()
    }
}

async fn share(plan: &Plan, thread: usize) -> anyhow::Result<Tally> {
    let connections =
        plan.connections / plan.threads + usize::from(thread < plan.connections % plan.threads);
    let shared = Rc::new(Shared {
        plan: plan.clone(),
        next: Cell::new(thread as u64),
        step: plan.threads as u64,
        start: Cell::new(None),
        tally: RefCell::new(Tally::new()),
        ready: Barrier::new(connections),
    });
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        tasks.spawn_local(drive(Rc::clone(&shared)));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a connection panicked")??;
    }
    Ok(shared.tally.replace(Tally::new()))
}

#[expect(clippy::cast_precision_loss, reason = "requests stay far below 2^53")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

async fn drive(shared: Rc<Shared>) -> anyhow::Result<()> {
    let mut connection = Connection::open(shared.plan.address).await?;
    let mut request = shared.plan.request.clone();
    shared.ready.wait().await;
    let start = shared.start();
    let (from, to, last) = match shared.plan.until {
        Until::Count(count) => (start, None, count),
        Until::Elapsed { warm_up, window } => {
            (start + warm_up, Some(start + warm_up + window), u64::MAX)
        }
    };
    shared.tally.borrow_mut().window(from, to);
    loop {
        let number = shared.number();
        if number >= last {
            return Ok(());
        }
        request.take_key(shared.plan.keys.of(number));
        let sent = shared.due(start, number).await;
        if to.is_some_and(|to| sent >= to) {
            return Ok(());
        }
        let head = connection.exchange(request.bytes()).await?;
        let received = Instant::now();
        if to.is_some_and(|to| received >= to) {
            return Ok(());
        }
        if received >= from {
            shared.tally.borrow_mut().record(&head, sent, received);
        }
    }
}

#[cfg(test)]
mod tests;
