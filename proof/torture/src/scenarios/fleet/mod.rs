//! Fleet: a hundred clients, and a shop that is killed and stays down.
//!
//! Each client has a separate retry budget, as separate processes would have. If the operation of
//! an order fails, its client sends the order again later under the same key. The retries of each
//! client must stay within its budget in every window, requests must not arrive in waves, neither
//! during the outage nor after it, and each order must exist once at the end.

mod arrivals;
mod customer;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_testkit::{http::HttpClient, port::free_port, wait::pace};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    deployment::{Binaries, Program, is_ready},
    report::{Verdict, print},
    run::fresh,
    stored_rows::StoredRows,
};

use arrivals::Arrivals;
use customer::{Customer, TOKEN};

/// Number of clients, each with a separate retry budget.
const CLIENTS: usize = 100;
/// How long orders are placed before the outage, and after it.
const AROUND: Duration = Duration::from_secs(3);
/// How often this process looks whether it was delayed, and from which length a delay counts.
const LOOK: Duration = Duration::from_millis(10);
const DELAY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    /// Length of the outage
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Where the files of the run go [default: target/torture/fleet]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// A period, from the start of the load: of the outage, or one in which this process did not run.
#[derive(Clone, Copy, Debug)]
struct Period {
    from: Duration,
    to: Duration,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<Verdict> {
    let folder = fresh(flags.folder.as_deref(), "fleet")?;
    let mut shop = Shop::start(&folder).await?;
    let (start, closing) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let mut fleet = JoinSet::new();
    for number in 0..CLIENTS {
        let customer = Customer::new(number, format!("http://{}/orders", shop.address()), start)?;
        fleet.spawn(customer.buy(Arc::clone(&closing)));
    }
    let delays = Arc::<Mutex<Vec<Period>>>::default();
    let watching = tokio::spawn(watch(start, Arc::clone(&delays)));
    pace(AROUND).await;
    shop.program.kill()?;
    let from = start.elapsed();
    pace(Duration::from_secs(flags.seconds)).await;
    shop.program.start()?;
    shop.ready().await?;
    let to = start.elapsed();
    pace(AROUND).await;
    closing.store(true, Ordering::Relaxed);
    let logs = fleet.join_all().await;
    watching.abort();
    let delays = std::mem::take(&mut *delays.lock().unwrap_or_else(PoisonError::into_inner));
    let orders = shop.orders(&folder).await?;
    let arrivals = Arrivals::of(Period { from, to }, &logs, &orders, delays);
    print(&arrivals.to_string());
    let wrong = arrivals.wrong();
    print(&wrong.join("\n"));
    drop(shop);
    Ok(if wrong.is_empty() {
        Verdict::Holds
    } else {
        Verdict::Violated
    })
}

/// A shop that delivers nothing, on a file.
struct Shop {
    program: Program,
    port: u16,
}

impl Shop {
    async fn start(folder: &Path) -> anyhow::Result<Self> {
        let port = free_port();
        let arguments = vec![
            format!("--listen=127.0.0.1:{port}"),
            format!("--data-dir={}", folder.display()),
            "--no-demo".to_owned(),
            "--no-relay".to_owned(),
            format!("--token={TOKEN}=fleet"),
        ];
        let binary = Binaries::beside()?.path("shop");
        let mut program = Program::new("shop", folder, &binary, arguments);
        program.start()?;
        let mut shop = Self { program, port };
        shop.ready().await?;
        Ok(shop)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let http = HttpClient::new();
        if let Some(status) = is_ready(&http, &mut self.program, self.port).await? {
            anyhow::bail!("the shop ended before it was ready: {status}");
        }
        Ok(())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How often each order exists, by its customer id, which no other order has.
    async fn orders(&self, folder: &Path) -> anyhow::Result<BTreeMap<String, usize>> {
        let rows = StoredRows::File(folder.join("shop.db"));
        let mut orders = BTreeMap::new();
        for row in rows.read("SELECT customer_id FROM shop_order").await? {
            let customer = row["customer_id"].as_str().unwrap_or_default();
            *orders.entry(customer.to_owned()).or_default() += 1;
        }
        Ok(orders)
    }
}

/// Records delays of this process. After a delay all clients continue at the same time, which does not
/// happen with separate processes.
async fn watch(start: Instant, delays: Arc<Mutex<Vec<Period>>>) {
    let mut from = start.elapsed();
    loop {
        pace(LOOK).await;
        let to = start.elapsed();
        if to.saturating_sub(from) > DELAY {
            let mut delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
            delays.push(Period { from, to });
        }
        from = to;
    }
}
