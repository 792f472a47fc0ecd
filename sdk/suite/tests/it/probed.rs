//! The promise of `Idempotency-Key`, judged by `hapax-probe`: two nodes of a kind on one database,
//! with a count of the effects, and with restarts by SIGKILL.

use std::{fmt::Write as _, fs, net::TcpStream, path::PathBuf, process::Command};

use hapax_probe::{Finding, Plan, Progress, Report, Verdict, run};
use hapax_testkit::{port::free_port, postgres::Database, program::KILL_PIDS, wait::eventually};
use tempfile::TempDir;

use crate::{
    kind::{EXPRESS, FASTAPI, Kind},
    shop::{LONG, database},
};

/// How long the services keep keys in seconds, so that checks of expiry need not wait long.
const RETENTION_S: &str = "18";
/// The checks that do not pass, with the reason. Every other check of the profile has to.
const LEFT_OUT: [(&str, &str); 11] = [
    ("header.uuid-version", "only profiles that require UUIDs"),
    ("replay.cookies", "the responses set no cookie"),
    (
        "mismatch.number-large",
        "JavaScript has no integers from 9007199254740992 on, and its service refuses them",
    ),
    (
        "mismatch.duplicate-members-new",
        "a note: the profile leaves open whether they are refused",
    ),
    ("scope.rotated", "a tenant has one credential"),
    (
        "scope.other-operation",
        "no other operation takes this payload",
    ),
    ("scope.other-path", "the path has no parameter"),
    ("outcome.rate-limited", "the services have no rate limit"),
    ("outcome.success-effect", "there is one kind of success"),
    ("outcome.success-kinds", "there is one kind of success"),
    (
        "time.expired",
        "a note: the profile leaves open what a request with an expired key gets",
    ),
];
/// Checks of the profile that have to pass.
const PASSED_MIN: usize = 75;

#[test]
fn express_with_pg_keeps_the_promise() {
    check_promise(EXPRESS);
}

#[test]
fn fastapi_with_psycopg_keeps_the_promise() {
    check_promise(FASTAPI);
}

/// Probes two nodes of a kind.
#[track_caller]
pub(crate) fn check_promise(kind: Kind) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let nodes = runtime.block_on(Nodes::start(kind));
    let report = nodes.probe();
    let wrong: Vec<String> = report.findings().iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{kind:?}\n{}", wrong.join("\n"));
    let passed = report.count(Verdict::Pass);
    assert!(
        passed >= PASSED_MIN,
        "{kind:?}: only {passed} checks passed"
    );
    drop(nodes);
}

/// Describes a check that neither passed nor is left out.
fn wrong(finding: &Finding) -> Option<String> {
    let is_left_out = LEFT_OUT.iter().any(|(id, _)| *id == finding.id);
    let is_fine = match finding.verdict {
        Verdict::Pass => true,
        Verdict::Skipped | Verdict::Note => is_left_out,
        Verdict::Fail | Verdict::Unknown => false,
    };
    let Finding {
        id, verdict, seen, ..
    } = finding;
    (!is_fine).then(|| format!("{id}: {} {seen}", verdict.name()))
}

/// Runs a probe without reporting its progress.
#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: &str, _: &str) {}
    fn finding(&self, _: &Finding) {}
    fn would_send(&self, _: &str) {}
}

/// Two nodes, and the script that restarts them.
struct Nodes {
    kind: Kind,
    ports: [u16; 2],
    folder: TempDir,
    database: Database,
}

impl Nodes {
    async fn start(kind: Kind) -> Self {
        let nodes = Self {
            kind,
            ports: [free_port(), free_port()],
            folder: tempfile::tempdir().unwrap(),
            database: database().await,
        };
        nodes.write_script();
        let started = Command::new("sh").arg(nodes.script()).status().unwrap();
        assert!(started.success());
        for port in nodes.ports {
            let address = format!("127.0.0.1:{port}");
            eventually(LONG, async || TcpStream::connect(&address).is_ok()).await;
        }
        nodes
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("restart.sh")
    }

    fn write_script(&self) {
        let folder = self.folder.path().display();
        let mut script = format!("cd '{folder}'\n{KILL_PIDS}rm -f pids\n");
        for port in self.ports {
            let mut command = self.kind.command(&self.database.url(), port);
            command.env("HAPAX_RETENTION_S", RETENTION_S);
            let line = shell_line(&command);
            writeln!(
                script,
                "({line} >>'{folder}/{port}.log' 2>&1 </dev/null) &\necho $! >>pids"
            )
            .unwrap();
        }
        fs::write(self.script(), script).unwrap();
    }

    fn plan(&self) -> String {
        let [first, second] = self.ports;
        format!(
            r#"
profile = "hapax"
restart_command = "sh {script}"
skip = ["scope.rotated", "scope.other-operation"]
[[operation]]
name = "orders"
url = "http://127.0.0.1:{first}/orders"
second_url = "http://127.0.0.1:{second}/orders"
headers = {{ Authorization = "Bearer alice" }}
other_principal = {{ Authorization = "Bearer bob" }}
retention = "{RETENTION_S}s"
vary = "/amount"
body = '{{"item": "café {{{{uuid}}}}", "amount": {{{{n}}}}}}'
slow_body = '{{"item": "tea", "amount": {{{{n}}}}, "slow_ms": 2500}}'
refused_bodies = [
    '{{"item": "sold out", "amount": {{{{n}}}}}}',
    '{{"item": "tea", "amount": -1}}',
    '{{"item": "throw after", "amount": {{{{n}}}}}}',
]
effects = {{ url = "http://127.0.0.1:{first}/orders", path = "$.items[*].id" }}
"#,
            script = self.script().display(),
        )
    }

    fn probe(&self) -> Report {
        let path = self.folder.path().join("plan.toml");
        fs::write(&path, self.plan()).unwrap();
        let plan = Plan::from_file(&path).unwrap();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(run(&plan, &Silent))
            .unwrap()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Ok(pids) = fs::read_to_string(self.folder.path().join("pids")) {
            let _ = Command::new("kill")
                .arg("-9")
                .args(pids.split_whitespace())
                .status();
        }
    }
}

/// A command as a line of a shell script, which the shell replaces itself with.
fn shell_line(command: &Command) -> String {
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap());
    let mut line = String::new();
    if let Some(folder) = command.get_current_dir() {
        write!(line, "cd {} && ", quoted(folder.as_os_str())).unwrap();
    }
    line.push_str("exec env");
    for (name, value) in command.get_envs() {
        let value = quoted(value.unwrap_or_default());
        write!(line, " {}={value}", name.to_str().unwrap()).unwrap();
    }
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        write!(line, " {}", quoted(word)).unwrap();
    }
    line
}
