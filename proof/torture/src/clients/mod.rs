//! Clients, which run as a process that is killed like all others.
//!
//! An operation is in the history, on disk, before its first request is sent. A client that was
//! killed repeats the request under the same key after its restart until it has a final response.

mod customer;
mod budgeted;
mod operation;
mod history;
mod wire;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax_testkit::wait::pace;
use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::Instant,
};

use customer::Customer;
use history::History;
pub(crate) use operation::{Kind, Operation, body, digest};
use wire::{Outcome, Wire};

/// How long after the last new operation clients still repeat requests.
pub(crate) const CLOSING: Duration = Duration::from_mins(1);
/// How long a running shop may take until it replays a response.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait before the same request is sent again.
const AGAIN: Duration = Duration::from_millis(40);
/// The maximum number of processes, which use different numbers.
pub(crate) const PROCESSES_MAX: u64 = 16;
/// The tenants: customers of both use the same keys.
pub(crate) const TENANTS: [&str; 2] = ["alice", "bob"];
/// The sources of the messages that the shop consumes, with their secrets. Both use the same ids.
pub(crate) const SOURCES: [(&str, &str); 2] = [
    ("provider", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"),
    ("market", "whsec_Zm91ciBodW5kcmVkIGFuZCB0d2VudHkgYnl0ZXM="),
];

/// Runs client operations until SIGTERM
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// The history to continue
    #[arg(long, value_name = "FILE")]
    history: PathBuf,
    /// Addresses of the shops
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    shops: Vec<String>,
    /// URL of the overloaded receiver, for requests of `hapax-client`
    #[arg(long, value_name = "URL")]
    overloaded: String,
    /// Number of this process, from 0: processes have different operations
    #[arg(long)]
    number: u64,
    /// Number of concurrent clients
    #[arg(long, default_value_t = 4)]
    customers: usize,
    /// Longest pause of a client between two operations, in milliseconds
    #[arg(long, default_value_t = 300)]
    pause: u64,
    /// Seed of the random choices
    #[arg(long)]
    seed: u64,
}

/// A client that repeats, at one shop, operations of other clients.
#[derive(Debug)]
pub(crate) struct Witness(Wire);

/// A client in this process, whose operations a scenario chooses; it has a history like others.
pub(crate) struct Script(Customer);

/// State shared by the clients of one process.
#[derive(Debug)]
pub(crate) struct Shared {
    history: History,
    wire: Wire,
    number: u64,
    pause: u64,
    /// The number of the next operation.
    next: AtomicU64,
    is_closing: AtomicBool,
}

/// Continues where the history ends, until stopped and all operations have a final response.
pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let (history, memory) = History::open(&flags.history)?;
    let shared = Arc::new(Shared {
        history,
        wire: Wire::to(flags.shops),
        number: flags.number,
        pause: flags.pause,
        next: AtomicU64::new(memory.next),
        is_closing: AtomicBool::new(false),
    });
    let mut customers = JoinSet::new();
    for index in 0..flags.customers {
        // A restarted process makes other choices.
        let seed = flags.seed ^ (memory.next << 8) ^ index as u64;
        let tenant = TENANTS[index % TENANTS.len()];
        let mine = |it: &&(u64, Operation)| it.1.tenant == tenant;
        let share = |operations: &[(u64, Operation)]| -> Vec<(u64, Operation)> {
            let of_tenant = operations.iter().filter(mine).skip(index / TENANTS.len());
            let step = flags.customers.div_ceil(TENANTS.len());
            of_tenant.step_by(step).cloned().collect()
        };
        let customer = Customer::new(&shared, tenant, seed, share(&memory.acknowledged));
        customers.spawn(customer.run(share(&memory.open)));
    }
    customers.spawn(budgeted::run(Arc::clone(&shared), flags.overloaded));
    terminated.recv().await;
    shared.is_closing.store(true, Ordering::Relaxed);
    while let Some(ended) = customers.join_next().await {
        ended??;
    }
    Ok(())
}

impl Witness {
    /// A client of the shop at this address.
    pub(crate) fn of(shop: &str) -> Self {
        Self(Wire::to(vec![shop.to_owned()]))
    }

    /// Repeats an operation until its response is final. Returns the response in the format of the
    /// history, or null if none arrived in time.
    pub(crate) async fn repeat(&self, operation: &Operation) -> anyhow::Result<Value> {
        let until = Instant::now() + REPLAY_TIMEOUT;
        while Instant::now() < until {
            if let Outcome::Responded(response) = self.0.send(operation).await?
                && !response.is_transient()
            {
                return Ok(response.json_line());
            }
            pace(AGAIN).await;
        }
        Ok(Value::Null)
    }

    /// Sends an operation once, and waits for as long as a shop may take. Returns the response in the
    /// format of the history, or null if none arrived.
    pub(crate) async fn exchange(&self, operation: &Operation) -> anyhow::Result<Value> {
        Ok(match self.0.send_patiently(operation).await? {
            Outcome::Responded(response) => response.json_line(),
            Outcome::Unsent | Outcome::Lost => Value::Null,
        })
    }
}

impl Script {
    /// Begins a history; the client uses this shop, and is the first of a run without others.
    pub(crate) fn begin(history: &Path, shop: String) -> anyhow::Result<Self> {
        let shared = Shared {
            history: History::open(history)?.0,
            wire: Wire::to(vec![shop]),
            number: 0,
            pause: 0,
            next: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
        };
        Ok(Self(Customer::new(
            &Arc::new(shared),
            TENANTS[0],
            0,
            Vec::new(),
        )))
    }

    /// A new operation.
    pub(crate) fn new_operation(&self, operation: impl Fn(&str, u64) -> Operation) -> Operation {
        self.0.new_operation(operation)
    }

    /// Repeats an operation until its response is final; returns the response in the format of the
    /// history.
    pub(crate) async fn until_final(&self, operation: &Operation) -> anyhow::Result<Value> {
        let response = self.0.until_final(operation, true, false).await?;
        Ok(response.map(|it| it.json_line()).unwrap_or_default())
    }
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// A number that is unique to this operation in the run.
    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) * PROCESSES_MAX + self.number
    }
}
