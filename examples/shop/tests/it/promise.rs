//! The promise of `Idempotency-Key`, judged from outside by `hapax-probe`, in every profile.
//!
//! The shops run as they would in production: on PostgreSQL two of them share a database. The restart
//! command kills all of them with SIGKILL and starts them at the same addresses. An order is created
//! by a write plan, and a payment in phases with a call to another process.

use std::{
    fmt::Write as _, fs, net::TcpStream, path::PathBuf, process::Command, thread, time::Duration,
};

use hapax_probe::{Finding, Plan, Progress, Report, Verdict, run};
use hapax_testkit::{port::free_port, program::KILL_PIDS, wait::eventually};

use crate::shop::{Home, Store, command_line};

/// How long the shops keep keys, so that checks of expiry need not wait long.
const RETENTION: &str = "18s";
/// The checks that need a request which takes long. The execution of an order takes a millisecond;
/// these checks are made with payments.
const SLOW: [&str; 8] = [
    "in-flight.refused",
    "in-flight.mismatch-while-running",
    "in-flight.retry-after",
    "in-flight.ends",
    "lost.client-timeout",
    "broken.client-gone-slow",
    "nodes.in-flight",
    "nodes.mismatch-while-running",
];
/// The connections of a shop to PostgreSQL.
const CONNECTIONS: &str = "8";
/// The fewest checks that pass in any profile.
const PASSED_MIN: usize = 30;
/// How many profiles are probed at once. Each has two shops and their connections.
const AT_ONCE: usize = 3;

/// How long a shop may take to start.
const STARTING: Duration = Duration::from_mins(1);

/// Runs a probe without reporting its progress.
#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: &str, _: &str) {}
    fn finding(&self, _: &Finding) {}
    fn would_send(&self, _: &str) {}
}

/// Shops of one profile on one store, and the script that restarts them.
struct Shops {
    home: Home,
    profile: &'static str,
    ports: Vec<u16>,
}

impl Shops {
    async fn start(store: Store, profile: &'static str) -> Self {
        let count = match store {
            Store::Sqlite => 1,
            Store::Postgres => 2,
        };
        let shops = Self {
            home: Home::with_providers(store).await,
            profile,
            ports: (0..count).map(|_| free_port()).collect(),
        };
        shops.write_script();
        let started = Command::new("sh").arg(shops.script()).status().unwrap();
        assert!(started.success());
        for port in &shops.ports {
            let address = format!("127.0.0.1:{port}");
            eventually(STARTING, async || TcpStream::connect(&address).is_ok()).await;
        }
        shops
    }

    fn script(&self) -> PathBuf {
        self.home.path().join("restart.sh")
    }

    fn pids(&self) -> PathBuf {
        self.home.path().join("pids")
    }

    /// The end of the log of each shop.
    fn logs(&self) -> Vec<String> {
        const END: usize = 2000;
        let end = |index| {
            let path = self.home.path().join(format!("shop-{index}.log"));
            let log = fs::read(path).unwrap_or_default();
            let end = &log[log.len().saturating_sub(END)..];
            format!("shop {index}: {}", String::from_utf8_lossy(end))
        };
        (0..self.ports.len()).map(end).collect()
    }

    fn write_script(&self) {
        let folder = self.home.path().display();
        let mut script = format!("cd '{folder}'\n{KILL_PIDS}rm -f pids\n");
        for (index, port) in self.ports.iter().enumerate() {
            let data = self.home.path().join(format!("shop-{index}"));
            fs::create_dir(&data).unwrap();
            let flags = [
                "--profile",
                self.profile,
                "--retention",
                RETENTION,
                "--database-connections",
                CONNECTIONS,
            ];
            let line: Vec<String> = command_line(&self.home, *port, &data, &flags)
                .into_iter()
                .map(|word| format!("'{word}'"))
                .collect();
            let line = line.join(" ");
            writeln!(
                script,
                "env -i {line} >>shop-{index}.log 2>&1 </dev/null &\necho $! >>pids"
            )
            .unwrap();
        }
        fs::write(self.script(), script).unwrap();
    }

    /// Returns the plan of one operation. `body` and the others are texts of TOML.
    fn plan(&self, operation: &str, skip: &str) -> String {
        let first = self.ports[0];
        let second = self.ports.get(1).map_or_else(String::new, |port| {
            format!("second_url = \"http://127.0.0.1:{port}/{operation}\"")
        });
        let common = format!(
            r#"
profile = "{}"
restart_command = "sh {}"
skip = {skip}
[[operation]]
name = "{operation}"
url = "http://127.0.0.1:{first}/{operation}"
{second}
headers = {{ Authorization = "Bearer demo-alice" }}
other_principal = {{ Authorization = "Bearer demo-bob" }}
retention = "{RETENTION}"
vary = "/amount"
"#,
            self.profile,
            self.script().display(),
        );
        let own = match operation {
            "orders" => format!(
                r#"
body = '{{"customer_id": "ann-{{{{uuid}}}}", "amount": {{{{n}}}}, "currency": "EUR", "note": "café"}}'
refused_bodies = ['{{"customer_id": "ann", "amount": -1, "currency": "EUR"}}']
effects = {{ url = "http://127.0.0.1:{first}/orders?limit=200", path = "$.items[*].id", next = "/next", cursor = "after" }}
"#
            ),
            _ => format!(
                r#"
body = '{{"amount": {{{{n}}}}, "currency": "EUR", "card": "tok_ok"}}'
slow_body = '{{"amount": {{{{n}}}}, "currency": "EUR", "card": "tok_slow"}}'
refused_bodies = ['{{"amount": {{{{n}}}}, "currency": "EUR", "card": "tok_declined"}}', '{{"amount": -1, "currency": "EUR", "card": "tok_ok"}}']
effects = {{ url = "http://127.0.0.1:{first}/ledger?limit=200", path = "$.entries[*].id", next = "/next", cursor = "after" }}
"#
            ),
        };
        common + &own
    }

    fn probe(&self, operation: &str, skip: &str) -> Report {
        let path = self.home.path().join(format!("{operation}.toml"));
        fs::write(&path, self.plan(operation, skip)).unwrap();
        let plan = Plan::from_file(&path).unwrap();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(run(&plan, &Silent))
            .unwrap()
    }
}

impl Drop for Shops {
    fn drop(&mut self) {
        if let Ok(pids) = fs::read_to_string(self.pids()) {
            let _ = Command::new("kill")
                .arg("-9")
                .args(pids.split_whitespace())
                .status();
        }
    }
}

/// Returns what does not hold, as lines.
fn broken(report: &Report, what: &str) -> Vec<String> {
    report
        .findings()
        .iter()
        .filter(|it| matches!(it.verdict, Verdict::Fail | Verdict::Unknown))
        .map(|it| format!("{what} {}: {} {}", it.id, it.verdict.name(), it.seen))
        .collect()
}

/// Returns the checks that are skipped, as a list of TOML.
fn skipped(store: Store, profile: &str, operation: &str) -> String {
    // The shop has one credential for each tenant, and no operation with the payload of another one.
    let mut skip = vec!["scope.rotated", "scope.other-operation"];
    if store == Store::Sqlite {
        skip.push("nodes");
    }
    if profile != "hapax" {
        // Expiry takes half a minute, and does not depend on the profile.
        skip.push("time");
    }
    match (profile, operation) {
        (_, "orders") => skip.extend(SLOW),
        // A phased operation needs a key under every profile.
        ("iceberg", "payments") => skip.push("header.missing"),
        // Once the provider was called, its refusal is stored under every profile.
        ("adcp", "payments") => skip.push("outcome.refusal"),
        _ => {}
    }
    format!("{skip:?}")
}

/// Probes orders and payments of a shop under one profile.
fn probed(store: Store, profile: &'static str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shops = runtime.block_on(Shops::start(store, profile));
    let mut lines = Vec::new();
    for operation in ["orders", "payments"] {
        let report = shops.probe(operation, &skipped(store, profile, operation));
        let what = format!("{profile} {operation}");
        if report.count(Verdict::Pass) < PASSED_MIN {
            lines.push(format!("{what}: too few checks passed"));
        }
        lines.extend(broken(&report, &what));
    }
    if !lines.is_empty() {
        lines.extend(shops.logs());
    }
    lines
}

/// Probes a shop under each profile, some at the same time.
#[track_caller]
fn check(store: Store, profiles: &'static [&'static str]) {
    let mut lines = Vec::new();
    for some in profiles.chunks(AT_ONCE) {
        let probes: Vec<_> = some
            .iter()
            .map(|profile| thread::spawn(move || probed(store, profile)))
            .collect();
        lines.extend(probes.into_iter().flat_map(|it| it.join().unwrap()));
    }
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

#[test]
fn the_contract_is_kept_on_postgres_by_two_shops() {
    check(Store::Postgres, &["hapax"]);
}

/// The same on SQLite, and all other profiles, which takes some minutes. `cargo x probe` runs them.
mod whole {
    use super::{Store, check};

    const PROFILES: [&str; 6] = ["ietf", "stripe", "acp", "ucp", "adcp", "iceberg"];

    #[test]
    fn the_contract_is_kept_on_sqlite() {
        check(Store::Sqlite, &["hapax"]);
    }

    #[test]
    fn every_profile_is_kept_on_sqlite() {
        check(Store::Sqlite, &PROFILES);
    }

    #[test]
    fn every_profile_is_kept_on_postgres_by_two_shops() {
        check(Store::Postgres, &PROFILES);
    }

    #[test]
    fn no_profile_is_left_out() {
        let names: Vec<&str> = hapax_probe::profiles().iter().map(|it| it.name).collect();
        assert!(
            names
                .iter()
                .all(|it| *it == "hapax" || PROFILES.contains(it))
        );
    }
}
