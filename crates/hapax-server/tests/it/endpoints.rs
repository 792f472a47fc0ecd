//! Endpoints of tenants: `hapax endpoints`, the admin API, and a relay with real receivers.

mod deliveries;
mod recovery;
mod relays;
mod operators;
mod missing;
mod set_back;
mod mappings;
mod large_payloads;
mod trials;

use std::{collections::BTreeSet, fs, process::Command};

use hapax::{
    event::{Headers, NewEvent},
    key::Tenant,
    store::{Keys as _, Transaction as _},
};
use hapax_testkit::{
    http::{HttpReceiver, HttpResponse, Received},
    program::ProgramOutput,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::{
    hapax::{Relay, hapax, run_to_end, start_relay},
    store::{Home, Store},
};

const SETTINGS: &str = "[relay]\nnode = \"one\"\nlease = \"1s\"\n\
    [secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
    [destinations.customers]\nsink.endpoints = {}\n\
    [endpoints]\nallow = [\"127.0.0.0/8\"]\ntimeout = \"1s\"\npatience = \"100ms\"\n";
const SCHEDULE: &str = "schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \
    \"1s\", \"1s\"]\n";

/// A database, and a configuration with a destination for endpoints.
pub(crate) struct Stage {
    pub(crate) home: Home,
    folder: TempDir,
    pub(crate) configuration: String,
}

impl Stage {
    async fn new(on: Store) -> Self {
        Self::with(on, SCHEDULE).await
    }

    /// A stage with more settings in the section `[endpoints]`.
    async fn with(on: Store, more: &str) -> Self {
        Self::of(on, format!("{SETTINGS}{more}")).await
    }

    /// A stage with this configuration.
    pub(crate) async fn of(on: Store, configuration: String) -> Self {
        let (home, folder) = (Home::migrated(on).await, tempfile::tempdir().unwrap());
        fs::write(folder.path().join("hapax.toml"), &configuration).unwrap();
        Self {
            home,
            folder,
            configuration,
        }
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        run_to_end(self.command(arguments))
    }

    /// A command that is not started.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = hapax(&["endpoints"]);
        command
            .args(arguments)
            .args(["--database", &self.home.url(), "--config"])
            .arg(self.folder.path().join("hapax.toml"));
        command
    }

    /// Creates an endpoint. Returns its id and its secret.
    pub(crate) fn create(&self, tenant: &str, url: &str, more: &[&str]) -> (String, String) {
        let mut arguments = vec!["create", "--tenant", tenant, "--url", url, "--json"];
        arguments.extend_from_slice(more);
        let created = self.run(&arguments).ended(0).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&created["endpoint"]["id"]), text(&created["secret"]))
    }

    pub(crate) async fn relay(&self) -> Relay {
        start_relay(&self.home.url(), &self.configuration).await
    }

    /// Emits an event. On SQLite, no relay may be running.
    pub(crate) async fn emit(&self, tenant: &str, kind: &str, n: usize) {
        self.emit_payload(tenant, kind, &json!({ "n": n })).await;
    }

    /// Emits an event with this payload. On SQLite, no relay may be running.
    async fn emit_payload(&self, tenant: &str, kind: &str, payload: &Value) {
        match &self.home {
            Home::Server(database) => {
                const EMIT: &str = "
                    INSERT INTO hapax.outbox_event
                        (event_id, type, tenant, payload, headers, created_at)
                    VALUES (gen_random_uuid(), $1, $2, $3, '{}', now())";
                let client = database.client().await;
                let payload = payload.to_string();
                client
                    .execute(EMIT, &[&kind, &tenant, &payload])
                    .await
                    .unwrap();
            }
            Home::File(_) => {
                let store = self.home.sqlite();
                let tenant = Some(Tenant::new(tenant).unwrap());
                let mut tx = store.begin(tenant, Headers::new()).await.unwrap();
                tx.emit(NewEvent::json(kind, payload)).unwrap();
                tx.commit().await.unwrap();
                store.close().await.unwrap();
            }
        }
    }

    /// A client of the server.
    pub(crate) async fn client(&self) -> Client {
        match &self.home {
            Home::Server(database) => database.client().await,
            Home::File(path) => panic!("{path:?} has no server"),
        }
    }

    /// An endpoint of the tenant `acme`, with its health.
    fn show(&self, id: &str) -> Value {
        let shown = self.run(&["show", id, "--tenant", "acme", "--json"]);
        shown.ended(0).json()
    }

    fn deliveries(&self, tenant: &str, id: &str, more: &[&str]) -> Vec<Value> {
        let mut arguments = vec!["deliveries", id, "--tenant", tenant, "--json"];
        arguments.extend_from_slice(more);
        let listed = self.run(&arguments).ended(0).json();
        listed["items"].as_array().unwrap().clone()
    }
}

/// Counts rows of a table, such as `endpoint_delivery WHERE attempt = 1`.
pub(crate) async fn count(client: &Client, rows: &str) -> i64 {
    let count = format!("SELECT count(*) FROM hapax.{rows}");
    client.query_one(&count, &[]).await.unwrap().get(0)
}

fn body(received: &Received) -> Value {
    serde_json::from_slice(&received.body).unwrap()
}

fn number(received: &Received) -> i64 {
    body(received)["data"]["n"].as_i64().unwrap()
}

/// The ids of the events that a receiver has received.
fn ids(receiver: &HttpReceiver) -> BTreeSet<String> {
    let requests = receiver.received();
    let ids = requests.iter().map(|it| it.header("webhook-id").unwrap());
    ids.map(str::to_owned).collect()
}

/// The ids of the events that a receiver has accepted.
fn accepted(receiver: &HttpReceiver) -> BTreeSet<String> {
    let requests = receiver.received();
    let accepted = requests.iter().filter(|it| it.answered == Some(200));
    let ids = accepted.map(|it| it.header("webhook-id").unwrap());
    ids.map(str::to_owned).collect()
}

#[track_caller]
fn check(answer: &HttpResponse, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["code"], code, "{}", answer.text());
}
