//! A server with one bug under the probe: a plan with everything that a check can need.
//!
//! The restart command kills the process with SIGKILL and starts it at the same addresses.

use std::{fs, path::Path, process::Command};

use hapax_probe::{Finding, Plan, Progress, Report, run};
use hapax_testkit::program::KILL_PIDS;

use crate::server::Server;

/// How long the server keeps keys, so that checks of expiry need not wait long.
const RETENTION: &str = "10s";

/// Runs a probe without reporting its progress.
#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: &str, _: &str) {}
    fn finding(&self, _: &Finding) {}
    fn would_send(&self, _: &str) {}
}

/// A server and its plan.
pub(crate) struct Probed {
    server: Server,
}

impl Probed {
    pub(crate) fn start(profile: &str, bug: Option<&str>) -> Self {
        let server = Server::start_with(profile, bug, &["--retention", RETENTION]);
        let probed = Self { server };
        probed.write_restart();
        probed
    }

    fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// Writes the command that kills the process and starts it again.
    fn write_restart(&self) {
        let arguments: Vec<String> = self
            .server
            .command_line()
            .into_iter()
            .map(|it| format!("'{it}'"))
            .collect();
        let script = format!(
            "set -e\ncd '{}'\n{KILL_PIDS}{} > restarted 2>&1 < /dev/null &\necho $! > pids\n",
            self.folder().display(),
            arguments.join(" ")
        );
        fs::write(self.folder().join("restart.sh"), script).expect("the script is written");
        let pid = self.server.pid().to_string();
        fs::write(self.folder().join("pids"), pid).expect("the pid is written");
    }

    /// Runs the checks that `only` names, or all, except those that `skip` names.
    pub(crate) fn report(&self, profile: &str, only: &[String], skip: &[String]) -> Report {
        let [first, second] = self.server.addresses();
        let folder = self.folder().display();
        let names = |names: &[String]| serde_json::to_string(names).expect("names are JSON");
        let plan = format!(
            r#"
profile = "{profile}"
restart_command = "sh {folder}/restart.sh"
wait = "5s"
only = {only}
skip = {skip}
[[operation]]
name = "notes"
url = "http://{first}/orders/1/notes?currency=EUR"
second_url = "http://{second}/orders/1/notes?currency=EUR"
other_path_url = "http://{first}/orders/2/notes?currency=EUR"
other_url = "http://{first}/refunds"
headers = {{ Authorization = "Bearer alice" }}
other_principal = {{ Authorization = "Bearer bob" }}
rotated_credential = {{ Authorization = "Bearer alice-rotated" }}
body = '{{"amount": 5000{{{{n}}}}, "note": "café {{{{uuid}}}}"}}'
slow_body = '{{"amount": 5000{{{{n}}}}, "item": "slow"}}'
refused_bodies = [{refused}]
vary = "/amount"
retention = "{RETENTION}"
[operation.effects]
url = "http://{first}/notes"
path = "$[*].id"
"#,
            only = names(only),
            skip = names(skip),
            refused = refused(),
        );
        let path = self.folder().join("plan.toml");
        fs::write(&path, plan).expect("the plan is written");
        let plan = Plan::from_file(&path).expect("the plan is valid");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(run(&plan, &Silent))
            .expect("the plan can be carried out")
    }
}

impl Drop for Probed {
    fn drop(&mut self) {
        // The process that the restart command has started is not a child of the test.
        if let Ok(pid) = fs::read_to_string(self.folder().join("pids")) {
            let _ = Command::new("kill").args(["-9", pid.trim()]).status();
        }
    }
}

/// Returns payloads for every kind of response, as items of a TOML array.
fn refused() -> String {
    let items = [
        "declined", "missing", "busy", "limited", "crash", "empty", "accepted", "chunked", "binary",
    ];
    let mut bodies: Vec<String> = items
        .iter()
        .map(|item| format!(r#"'{{"amount": 5000{{{{n}}}}, "item": "{item}"}}'"#))
        .collect();
    bodies.push(r#"'{"amount": 0}'"#.to_owned());
    bodies.join(", ")
}
