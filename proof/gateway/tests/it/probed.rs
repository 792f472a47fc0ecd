//! `hapax-probe` through two gateways on one database, in front of the service in Python.
//!
//! A gateway cannot commit the effect of a service together with the response. The checks that only
//! an atomic service passes are named here in advance, with the reason. Every other check has to pass.
//!
//! Most of the time of a probe is waiting. The groups that wait run at the same time, each with
//! its gateways, database and service.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf, process::Command, thread};

use hapax_probe::{Finding, Plan, Progress, Report, Verdict, checks, run};
use hapax_testkit::{port::free_port, postgres::Database, program::KILL_PIDS};
use tempfile::TempDir;

use crate::{gateway::binary, upstream::Upstream};

/// How long the gateways keep keys in seconds, so that checks of expiry need not wait long.
const RETENTION_S: &str = "12";
/// Checks of the profiles that have to pass.
const PASSED_MIN: usize = 50;

/// The checks that only an atomic service passes. They must not pass: a promise that is kept does not
/// belong here.
const NOT_ATOMIC: [(&str, &str); 4] = [
    (
        "restart.kill-in-request",
        "the request was sent, so its outcome is unknown until an operator decides",
    ),
    (
        "restart.key-free",
        "the request was sent, so a retry is refused until an operator decides",
    ),
    (
        "outcome.server-error",
        "an error of the service (5xx) does not say that nothing happened, so the outcome is unknown",
    ),
    (
        "outcome.caller-error",
        "a response such as 400 is stored: the gateway cannot know that the service did nothing",
    ),
];
/// The checks that the service or the plan has nothing for, and those that only report.
const LEFT_OUT: [(&str, &str); 6] = [
    ("header.uuid-version", "only profiles that require UUIDs"),
    ("replay.cookies", "the responses set no cookie"),
    ("scope.other-path", "the path has no parameter"),
    ("outcome.rate-limited", "the profile leaves it open"),
    ("time.expired", "the profile leaves open what is returned"),
    (
        "mismatch.duplicate-members-new",
        "the profile leaves it open",
    ),
];
/// The checks that are not run: a tenant has one credential, and one operation takes the payload.
const NOT_RUN: [&str; 2] = ["scope.rotated", "scope.other-operation"];

/// The groups of checks that wait. The groups of a line run one after the other, the lines at the same
/// time, and with them all other groups.
const WAITING: [&[&str]; 3] = [
    &["time"],
    &["restart"],
    &["in-flight", "lost", "broken", "nodes"],
];
/// The group that counts the effects at the end of a run, which is part of every run.
const EFFECTS: &str = "effects";

#[test]
fn the_gateway_keeps_the_promise_of_the_draft_of_the_ietf() {
    check("ietf");
}

/// Probes gateways with a profile.
pub(crate) fn check(profile: &str) {
    let findings: Vec<Finding> = thread::scope(|scope| {
        let running: Vec<_> = selections()
            .into_iter()
            .map(|selection| scope.spawn(move || probed(profile, &selection)))
            .collect();
        let findings = running.into_iter().map(|it| it.join().unwrap());
        findings.flatten().collect()
    });
    let may_be_silent = profile == "ietf";
    let wrong: Vec<String> = findings
        .iter()
        .filter(|finding| !is_fine(finding, may_be_silent))
        .map(|it| format!("{}: {} {}", it.id, it.verdict.name(), it.seen))
        .collect();
    assert!(wrong.is_empty(), "{profile}\n{}", wrong.join("\n"));
    let passed = findings.iter().filter(|it| it.verdict == Verdict::Pass);
    let passed: BTreeSet<&str> = passed.map(|it| it.id).collect();
    assert!(passed.len() >= PASSED_MIN, "{profile}: only {passed:?}");
    for check in checks() {
        let is_run = findings.iter().any(|it| it.id == check.id);
        assert!(is_run || NOT_RUN.contains(&check.id), "{}", check.id);
    }
}

/// The checks of each run, as lines of a plan.
fn selections() -> Vec<String> {
    let only = |groups: &&[&str]| format!("only = {:?}", [*groups, &[EFFECTS]].concat());
    let mut selections: Vec<String> = WAITING.iter().map(only).collect();
    let others = [&NOT_RUN[..], &WAITING.concat()[..]].concat();
    selections.push(format!("skip = {others:?}"));
    selections
}

fn probed(profile: &str, selection: &str) -> Vec<Finding> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(Database::fresh());
    let nodes = Nodes::start(profile, selection, database);
    nodes.probe().findings().to_vec()
}

/// Whether a check has passed, or does what is named above. A profile may be silent about a rule.
fn is_fine(finding: &Finding, may_be_silent: bool) -> bool {
    let is_in = |list: &[(&str, &str)]| list.iter().any(|(id, _)| *id == finding.id);
    match finding.verdict {
        Verdict::Pass => !is_in(&NOT_ATOMIC),
        Verdict::Note => may_be_silent || is_in(&LEFT_OUT),
        Verdict::Skipped => is_in(&LEFT_OUT),
        Verdict::Fail | Verdict::Unknown => is_in(&NOT_ATOMIC),
    }
}

/// Runs a probe without reporting its progress.
#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: &str, _: &str) {}
    fn finding(&self, _: &Finding) {}
    fn would_send(&self, _: &str) {}
}

/// Two gateways, and the script that restarts them.
struct Nodes {
    profile: String,
    selection: String,
    ports: [u16; 2],
    folder: TempDir,
    upstream: Upstream,
    database: Database,
}

impl Nodes {
    fn start(profile: &str, selection: &str, database: Database) -> Self {
        let nodes = Self {
            profile: profile.to_owned(),
            selection: selection.to_owned(),
            ports: [free_port(), free_port()],
            folder: tempfile::tempdir().unwrap(),
            upstream: Upstream::python(),
            database,
        };
        nodes.write_files();
        let started = Command::new("sh").arg(nodes.file("restart.sh")).status();
        assert!(started.unwrap().success());
        nodes
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configurations, and the script.
    fn write_files(&self) {
        let (binary, folder) = (binary(), self.folder.path().display());
        let binary = binary.display();
        let url = self.database.url();
        let mut script = format!("cd '{folder}'\n{KILL_PIDS}rm -f pids\n");
        for port in self.ports {
            fs::write(self.file(&format!("{port}.toml")), self.configuration(port)).unwrap();
            write!(
                script,
                ": >{port}.log\n\
                 env -i '{binary}' gateway --log json --database '{url}' --config {port}.toml \
                 >>{port}.log 2>&1 </dev/null &\n\
                 echo $! >>pids\n\
                 while ! grep -q 'gateway started' {port}.log; do sleep 0.02; done\n"
            )
            .unwrap();
        }
        fs::write(self.file("restart.sh"), script).unwrap();
    }

    fn configuration(&self, port: u16) -> String {
        let (profile, upstream) = (&self.profile, self.upstream.address());
        format!(
            r#"
[database]
schema = "apply"
[gateway]
lease = "2s"
retention = "{RETENTION_S}s"
tenant = {{ header = "x-tenant" }}
[gateway.listeners.http]
listen = "127.0.0.1:{port}"
[gateway.upstreams.service]
instances = ["http://{upstream}"]
[gateway.routes.orders]
path = "/orders"
upstream = "service"
profile = "{profile}"
key = "required"
"#
        )
    }

    fn plan(&self) -> String {
        let ([first, second], profile) = (self.ports, &self.profile);
        let selection = &self.selection;
        let script = self.file("restart.sh");
        format!(
            r#"
profile = "{profile}"
restart_command = "sh {script}"
{selection}
[[operation]]
name = "orders"
url = "http://127.0.0.1:{first}/orders"
second_url = "http://127.0.0.1:{second}/orders"
headers = {{ X-Tenant = "alice" }}
other_principal = {{ X-Tenant = "bob" }}
retention = "{RETENTION_S}s"
vary = "/amount"
body = '{{"item": "café {{{{uuid}}}}", "amount": {{{{n}}}}}}'
slow_body = '{{"item": "tea", "amount": {{{{n}}}}, "slow_ms": 1500}}'
refused_bodies = [
    '{{"item": "sold out", "amount": {{{{n}}}}}}',
    '{{"item": "tea", "amount": -1}}',
    '{{"item": "unreadable", "amount": {{{{n}}}}}}',
    '{{"item": "too many", "amount": {{{{n}}}}}}',
    '{{"item": "broken", "amount": {{{{n}}}}}}',
    '{{"item": "queued", "amount": {{{{n}}}}}}',
]
effects = {{ url = "http://{upstream}/orders", path = "$.items[*].n" }}
"#,
            script = script.display(),
            upstream = self.upstream.address(),
        )
    }

    fn probe(&self) -> Report {
        let path = self.file("plan.toml");
        fs::write(&path, self.plan()).unwrap();
        let plan = Plan::from_file(&path).unwrap();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(Box::pin(run(&plan, &Silent)))
            .unwrap()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Ok(pids) = fs::read_to_string(self.file("pids")) {
            let _ = Command::new("kill")
                .arg("-9")
                .args(pids.split_whitespace())
                .status();
        }
    }
}
