//! Four relays and their faults: a relay is killed, paused for longer than its lease, or stopped.
//!
//! After a kill, a relay is started again either under the same name, with which it takes over its
//! partitions at once, or under a new name, with which it has to wait for the lease. Both happen.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use hapax_testkit::{
    postgres::connect,
    wait::{Patience, eventually, pace},
};
use tokio_postgres::Client;

use crate::deployment::{LEASE, Program, WEBHOOK_SECRET};

const RELAYS: usize = 4;
const PATIENCE: Duration = Duration::from_mins(1);
const SCHEDULE: &str = "schedule = [\"0s\", \"100ms\", \"200ms\", \"500ms\", \"1s\", \"1s\", \"2s\", \
    \"2s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\"]\n";

/// A fault of a relay, and its beginning and end.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) kind: &'static str,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

#[derive(Debug)]
struct Relay {
    generation: u32,
    node: String,
    program: Program,
}

#[derive(Debug)]
pub(super) struct Relays {
    url: String,
    database: Client,
    hapax: PathBuf,
    folder: PathBuf,
    running: Vec<Relay>,
    faults: Vec<Fault>,
    random: fastrand::Rng,
}

/// The configuration of the webhook destination, which keeps the order of events per key.
pub(super) fn webhook(url: &str) -> String {
    format!(
        "[destinations.hook]\norder = \"key\"\npartitions = 4\nconcurrency = 16\n{SCHEDULE}\
         sink.webhook = {{ url = \"{url}\", secret = \"{WEBHOOK_SECRET}\", allow = [\"127.0.0.0/8\"] }}\n"
    )
}

/// The configuration of a destination whose sink is a broker.
pub(super) fn broker(sink: &str, settings: &str) -> String {
    format!("[destinations.{sink}]\npartitions = 2\n{SCHEDULE}sink.{sink} = {settings}\n")
}

impl Relays {
    pub(super) async fn start(
        folder: &Path,
        hapax: &Path,
        url: &str,
        destinations: &str,
    ) -> anyhow::Result<Self> {
        let lease = LEASE.as_secs();
        let config =
            format!("[relay]\nlease = \"{lease}s\"\n[database]\nconnections = 4\n{destinations}");
        std::fs::write(folder.join("hapax.toml"), config)?;
        let mut all = Self {
            url: url.to_owned(),
            database: connect(url).await,
            hapax: hapax.to_owned(),
            folder: folder.to_owned(),
            running: Vec::new(),
            faults: Vec::new(),
            random: fastrand::Rng::with_seed(4),
        };
        for number in 0..RELAYS {
            let relay = all.relay(number, 0)?;
            all.running.push(relay);
        }
        all.until_all_deliver().await?;
        Ok(all)
    }

    /// Causes faults, one relay at a time, until this time has passed.
    pub(super) async fn inject_faults(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        for round in 0.. {
            let pause = Duration::from_millis(self.random.u64(1_000..2_500));
            if Instant::now() + pause > end {
                break;
            }
            // The next fault interrupts the deliveries of this time.
            pace(pause).await;
            let number = self.random.usize(0..RELAYS);
            match round % 5 {
                2 => self.pause(number).await?,
                4 => self.replace(number, "TERM").await?,
                _ => self.replace(number, "KILL").await?,
            }
        }
        Ok(())
    }

    /// Waits until all relays deliver.
    pub(super) async fn until_all_deliver(&mut self) -> anyhow::Result<()> {
        let patience = Patience::within(PATIENCE);
        for relay in &mut self.running {
            while !relay.program.log_contains(0, "relay started")? {
                if let Some(status) = relay.program.ended()? {
                    anyhow::bail!("{} ended before it delivered: {status}", relay.node);
                }
                patience.pause().await;
            }
        }
        Ok(())
    }

    /// Stops all relays, and returns the faults of the run.
    pub(super) async fn stop(mut self) -> anyhow::Result<Vec<Fault>> {
        for relay in &mut self.running {
            relay.program.stop().await?;
        }
        Ok(self.faults)
    }

    async fn replace(&mut self, number: usize, kind: &'static str) -> anyhow::Result<()> {
        let from = Instant::now();
        let Relay {
            program,
            generation,
            ..
        } = &mut self.running[number];
        match kind {
            "KILL" => program.kill()?,
            _ => program.stop().await?,
        }
        let generation = *generation + 1;
        self.record(kind, from);
        self.running[number] = self.relay(number, generation)?;
        Ok(())
    }

    /// Pauses a relay for longer than its lease: other relays take its partitions, and it finds
    /// this out after it continues.
    async fn pause(&mut self, number: usize) -> anyhow::Result<()> {
        let from = Instant::now();
        let Relay { program, node, .. } = &self.running[number];
        let partitions = self.partitions_of(node).await;
        program.signal("STOP")?;
        eventually(PATIENCE, async || {
            let left = self.partitions_of(node).await;
            !partitions.iter().any(|partition| left.contains(partition))
        })
        .await;
        program.signal("CONT")?;
        self.record("STOP", from);
        Ok(())
    }

    async fn partitions_of(&self, node: &str) -> Vec<String> {
        let query = "SELECT partition FROM hapax.lease WHERE starts_with(node, $1 || '#')";
        let rows = self.database.query(query, &[&node]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn record(&mut self, kind: &'static str, from: Instant) {
        let until = Instant::now();
        self.faults.push(Fault { kind, from, until });
    }

    /// Starts a relay, whose name changes at every second start.
    fn relay(&self, number: usize, generation: u32) -> anyhow::Result<Relay> {
        let node = format!("relay-{number}-{}", generation / 2);
        let arguments = vec![
            "relay".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            "--log=json".to_owned(),
            format!("--database={}", self.url),
            format!("--config={}", self.folder.join("hapax.toml").display()),
            format!("--node={node}"),
        ];
        let log = format!("relay-{number}-{generation}");
        let mut program = Program::new(&log, &self.folder, &self.hapax, arguments);
        program.start()?;
        Ok(Relay {
            generation,
            node,
            program,
        })
    }
}
