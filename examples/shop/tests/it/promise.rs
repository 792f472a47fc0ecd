//! The promise of `Idempotency-Key`, judged from outside by `hapax-probe`, in every profile.
//!
//! The shops run as they would in production: on PostgreSQL two of them share a database. The restart
//! command kills all of them with SIGKILL and starts them at the same addresses. An order is created
//! by a write plan, and a payment in phases with a call to another process.

use std::{
    fmt::Write as _, fs, net::TcpStream, path::PathBuf, process::Command, thread, time::Duration,
};

use hapax_probe::{Finding, Plan, Progress, Report, Verdict, profiles, run};
use hapax_testkit::{port::free_port, wait::eventually};

use crate::shop::{Home, Store, command_line};

/// How long the shops keep keys, so that checks of expiry need not wait long.
const RETENTION: &str = "10s";
/// The checks that need a request which takes long. The execution of an order takes a millisecond;
/// these checks are made with payments.
const SLOW: &str = r#"["in-flight.refused", "in-flight.mismatch-while-running", "in-flight.retry-after", "in-flight.ends", "lost.client-timeout", "broken.client-gone-slow", "nodes.in-flight", "nodes.mismatch-while-running"]"#;

/// How long a shop may take to start.
const STARTING: Duration = Duration::from_secs(30);

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

    fn write_script(&self) {
        let folder = self.home.path().display();
        let mut script =
            format!("cd '{folder}'\n[ ! -f pids ] || kill -9 $(cat pids)\nrm -f pids\n");
        for (index, port) in self.ports.iter().enumerate() {
            let data = self.home.path().join(format!("shop-{index}"));
            fs::create_dir(&data).unwrap();
            let flags = ["--profile", self.profile, "--retention", RETENTION];
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

/// Probes orders and payments of a shop under each profile, all at the same time.
fn check(store: Store) {
    let nodes = match store {
        Store::Sqlite => "\"nodes\", ",
        Store::Postgres => "",
    };
    // The shop has one credential for each tenant, and no operation with the payload of another one.
    let skip = format!("[{nodes}\"scope.rotated\", \"scope.other-operation\"]");
    let of_orders = skip.replace(']', &format!(", {}", &SLOW[1..]));
    let probes: Vec<_> = profiles()
        .into_iter()
        .map(|profile| {
            let (skip, of_orders) = (skip.clone(), of_orders.clone());
            thread::spawn(move || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let shops = runtime.block_on(Shops::start(store, profile.name));
                let mut lines = Vec::new();
                for (operation, skip) in [("orders", &of_orders), ("payments", &skip)] {
                    let report = shops.probe(operation, skip);
                    let what = format!("{} {operation}", profile.name);
                    assert!(
                        report.count(Verdict::Pass) >= 30,
                        "{what}: too few checks passed"
                    );
                    lines.extend(broken(&report, &what));
                }
                lines
            })
        })
        .collect();
    let lines: Vec<String> = probes
        .into_iter()
        .flat_map(|it| it.join().unwrap())
        .collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

#[test]
fn every_profile_is_kept_on_sqlite() {
    check(Store::Sqlite);
}

#[test]
fn every_profile_is_kept_on_postgres_by_two_shops() {
    check(Store::Postgres);
}
