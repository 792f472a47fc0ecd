//! Fixture: a Prometheus process with a temporary folder and a free port, which ends with the test.

use std::{
    collections::BTreeSet, fmt::Write as _, fs, io::ErrorKind, process::Command, time::Duration,
};

use hapax_testkit::{
    http::HttpClient,
    port::free_port,
    program::{Program, guarded},
    wait::Patience,
};
use serde_json::Value;
use tempfile::TempDir;

use super::files::{ALERTS, place};

/// The maximum time for its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running Prometheus.
pub(super) struct Prometheus {
    program: Program,
    url: String,
    client: HttpClient,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts Prometheus with the alert rules and these scrape jobs, each with its address.
    pub(super) async fn start(targets: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        fs::write(&config, configuration(targets)).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        // Without this check, a missing program would only be reported in the log of the guard.
        let there = Command::new("prometheus").arg("--version").output();
        there.unwrap_or_else(|error| missing("prometheus", &error));
        let mut command = guarded("prometheus", "KILL");
        let data = folder.path().join("data");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"));
        let mut prometheus = Self {
            program: Program::start(command, &folder.path().join("log")),
            url: format!("http://{address}"),
            client: HttpClient::new(),
            _folder: folder,
        };
        prometheus.ready().await;
        prometheus
    }

    /// The current values of a query.
    pub(super) async fn query(&self, query: &str) -> Vec<f64> {
        let data = self.ask(&format!("query?query={}", encoded(query))).await;
        let found = data["result"].as_array().unwrap();
        let values = found.iter().map(|sample| &sample["value"][1]);
        values
            .map(|value| value.as_str().unwrap().parse().unwrap())
            .collect()
    }

    /// The values of a label in all series, or in those of a selector.
    pub(super) async fn label_values(
        &self,
        label: &str,
        selector: Option<&str>,
    ) -> BTreeSet<String> {
        let selector = selector.map(|it| format!("?match%5B%5D={}", encoded(it)));
        let path = format!("label/{label}/values{}", selector.unwrap_or_default());
        let values = self.ask(&path).await;
        let values = values.as_array().unwrap().iter();
        values
            .map(|value| value.as_str().unwrap().to_owned())
            .collect()
    }

    /// The expressions of all rules. Fails if the evaluation of a rule has failed.
    pub(super) async fn rules(&self) -> Vec<String> {
        let patience = Patience::within(PATIENCE);
        loop {
            let data = self.ask("rules").await;
            let groups = data["groups"].as_array().unwrap().iter();
            let rules: Vec<_> = groups
                .flat_map(|group| group["rules"].as_array().unwrap().clone())
                .collect();
            assert!(
                rules.iter().all(|rule| rule["health"] != "err"),
                "{rules:#?}"
            );
            if !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok") {
                let text = |rule: &Value| rule["query"].as_str().unwrap().to_owned();
                return rules.iter().map(text).collect();
            }
            patience.pause().await;
        }
    }

    /// The current alerts, by name and state.
    pub(super) async fn alerts(&self) -> BTreeSet<(String, String)> {
        let data = self.ask("alerts").await;
        let alerts = data["alerts"].as_array().unwrap().iter();
        alerts
            .map(|alert| {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                (text(&alert["labels"]["alertname"]), text(&alert["state"]))
            })
            .collect()
    }

    async fn ask(&self, path: &str) -> Value {
        let answer = self
            .client
            .get(&format!("{}/api/v1/{path}", self.url))
            .await;
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json().unwrap()["data"].clone()
    }

    async fn ready(&mut self) {
        let patience = Patience::within(PATIENCE);
        let url = format!("{}/-/ready", self.url);
        while !self
            .client
            .get(&url)
            .await
            .is_ok_and(|answer| answer.status == 200)
        {
            let has_ended = self.program.has_ended();
            assert!(
                !has_ended,
                "prometheus did not start: {}",
                self.program.log()
            );
            patience.pause().await;
        }
    }
}

/// Checks a file of the repository with promtool.
#[track_caller]
pub(super) fn promtool(arguments: &[&str], file: &str) {
    let mut command = Command::new("promtool");
    let output = command.args(arguments).arg(place(file)).output();
    let output = output.unwrap_or_else(|error| missing("promtool", &error));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{file}: {said}{complaint}");
}

fn missing(program: &str, error: &std::io::Error) -> ! {
    let hint = if error.kind() == ErrorKind::NotFound {
        ": install it (Debian: apt-get install prometheus)"
    } else {
        ""
    };
    panic!("cannot run {program}: {error}{hint}");
}

fn configuration(targets: &[(&str, String)]) -> String {
    let mut text = format!(
        "global: {{ scrape_interval: 500ms, evaluation_interval: 1s }}\n\
         rule_files: ['{}']\n\
         scrape_configs:\n",
        place(ALERTS).display()
    );
    for (job, address) in targets {
        let targets = format!("[{{ targets: ['{address}'] }}]");
        writeln!(text, "  - job_name: {job}\n    static_configs: {targets}").unwrap();
    }
    text
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").unwrap();
        }
    }
    encoded
}
