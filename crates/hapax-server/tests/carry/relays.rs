//! Four relays and their faults: a relay is killed, paused for longer than its lease, or stopped.
//!
//! After a kill, a relay is started again either under the same name, with which it takes over its
//! partitions at once, or under a new name, with which it has to wait for the lease. Both happen.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hapax_testkit::{
    postgres::connect,
    wait::{Patience, eventually, pace},
};
use tempfile::TempDir;
use tokio_postgres::Client;

const RELAYS: usize = 4;
/// The time after which other relays take the partitions of a silent relay.
const LEASE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_mins(1);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SCHEDULE: &str = "schedule = [\"0s\", \"100ms\", \"200ms\", \"500ms\", \"1s\", \"1s\", \"2s\", \
    \"2s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\", \"5s\"]\n";

/// A fault of a relay, and its beginning and end.
#[derive(Clone, Debug)]
pub(crate) struct Blow {
    pub(crate) kind: &'static str,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

#[derive(Debug)]
struct Relay {
    number: usize,
    generation: u32,
    node: String,
    child: Child,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    url: String,
    database: Client,
    folder: TempDir,
    relays: Vec<Relay>,
    blows: Vec<Blow>,
    random: fastrand::Rng,
}

/// Creates the tables of the store.
pub(crate) fn migrate(url: &str) {
    let ran = hapax(&["migrate", "--database", url]).output().unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// The configuration of the webhook destination, which keeps the order of events per key.
pub(crate) fn webhook(url: &str) -> String {
    format!(
        "[destinations.hook]\norder = \"key\"\npartitions = 4\nconcurrency = 16\n{SCHEDULE}\
         sink.webhook = {{ url = \"{url}\", secret = \"{SECRET}\", allow = [\"127.0.0.0/8\"] }}\n"
    )
}

/// The configuration of a destination whose sink is a broker.
pub(crate) fn broker(sink: &str, settings: &str) -> String {
    format!("[destinations.{sink}]\npartitions = 2\n{SCHEDULE}sink.{sink} = {settings}\n")
}

impl Fleet {
    pub(crate) async fn start(url: &str, destinations: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "[relay]\nlease = \"{}s\"\n[database]\nconnections = 4\n{destinations}",
            LEASE.as_secs()
        );
        std::fs::write(folder.path().join("hapax.toml"), config).unwrap();
        let mut fleet = Self {
            url: url.to_owned(),
            database: connect(url).await,
            folder,
            relays: Vec::new(),
            blows: Vec::new(),
            random: fastrand::Rng::with_seed(4),
        };
        for number in 0..RELAYS {
            let relay = fleet.relay(number, 0);
            fleet.relays.push(relay);
        }
        for number in 0..RELAYS {
            fleet.carries(number).await;
        }
        fleet
    }

    /// Causes faults, one relay at a time, until this time has passed.
    pub(crate) async fn harass(&mut self, length: Duration) {
        let end = Instant::now() + length;
        let mut round = 0;
        loop {
            let pause = Duration::from_millis(self.random.u64(1_000..2_500));
            if Instant::now() + pause > end {
                return;
            }
            // The next fault interrupts the deliveries of this time.
            pace(pause).await;
            let number = self.random.usize(0..RELAYS);
            match round % 5 {
                2 => self.pause(number).await,
                4 => self.replace(number, "TERM").await,
                _ => self.replace(number, "KILL").await,
            }
            round += 1;
        }
    }

    /// Waits until all relays deliver.
    pub(crate) async fn leave_alone(&mut self) {
        for number in 0..RELAYS {
            self.carries(number).await;
        }
    }

    /// Stops all relays, and returns the faults of the run.
    pub(crate) async fn stop(mut self) -> Vec<Blow> {
        for relay in &self.relays {
            signal(&relay.child, "TERM");
        }
        for number in 0..RELAYS {
            let ended = self.ended(number).await;
            assert!(
                ended,
                "a relay failed when it was stopped: {}",
                self.log(number)
            );
        }
        std::mem::take(&mut self.blows)
    }

    async fn replace(&mut self, number: usize, name: &'static str) {
        let from = Instant::now();
        signal(&self.relays[number].child, name);
        let well = self.ended(number).await;
        assert!(
            well || name == "KILL",
            "a relay failed: {}",
            self.log(number)
        );
        self.blow(name, from);
        let generation = self.relays[number].generation + 1;
        self.relays[number] = self.relay(number, generation);
    }

    /// Pauses a relay for longer than its lease: other relays take its partitions, and it finds
    /// this out after it continues.
    async fn pause(&mut self, number: usize) {
        let from = Instant::now();
        let node = self.relays[number].node.clone();
        let partitions = self.partitions_of(&node).await;
        signal(&self.relays[number].child, "STOP");
        eventually(PATIENCE, async || {
            let left = self.partitions_of(&node).await;
            !partitions.iter().any(|partition| left.contains(partition))
        })
        .await;
        signal(&self.relays[number].child, "CONT");
        self.blow("STOP", from);
    }

    async fn partitions_of(&self, node: &str) -> Vec<String> {
        let query = "SELECT partition FROM hapax.lease WHERE starts_with(node, $1 || '#')";
        let rows = self.database.query(query, &[&node]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn blow(&mut self, kind: &'static str, from: Instant) {
        let until = Instant::now();
        self.blows.push(Blow { kind, from, until });
    }

    fn relay(&self, number: usize, generation: u32) -> Relay {
        let config = self.folder.path().join("hapax.toml");
        let log = File::create(self.file(number, generation)).unwrap();
        let mut command = hapax(&["relay", "--listen", "127.0.0.1:0", "--log", "json"]);
        command
            .args(["--database", &self.url, "--config"])
            .arg(config)
            .stdout(Stdio::null())
            .stderr(log);
        let node = node(number, generation);
        let child = command.args(["--node", &node]).spawn().unwrap();
        Relay {
            number,
            generation,
            node,
            child,
        }
    }

    async fn carries(&mut self, number: usize) {
        let patience = Patience::within(PATIENCE);
        while !self.log(number).contains("relay started") {
            let ended = self.relays[number].child.try_wait().unwrap();
            assert!(ended.is_none(), "a relay ended: {}", self.log(number));
            patience.pause().await;
        }
    }

    /// Waits until the process has ended, and returns whether it ended without an error.
    async fn ended(&mut self, number: usize) -> bool {
        let patience = Patience::within(PATIENCE);
        loop {
            if let Some(status) = self.relays[number].child.try_wait().unwrap() {
                return status.success();
            }
            patience.pause().await;
        }
    }

    fn log(&self, number: usize) -> String {
        let relay = &self.relays[number];
        let log = std::fs::read(self.file(relay.number, relay.generation));
        String::from_utf8_lossy(&log.unwrap_or_default()).into_owned()
    }

    fn file(&self, number: usize, generation: u32) -> PathBuf {
        self.folder
            .path()
            .join(format!("relay-{number}-{generation}.log"))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for relay in &mut self.relays {
            let _ended = relay.child.kill();
            let _reaped = relay.child.wait();
        }
    }
}

/// The name of a relay. It changes at every second start.
fn node(number: usize, generation: u32) -> String {
    format!("relay-{number}-{}", generation / 2)
}

fn hapax(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &id]).status();
    assert!(
        sent.unwrap().success(),
        "a relay was gone before its signal {name}"
    );
}
