//! Fixture: the `hapax` binary as a process that runs to its end, or until the test ends it.

use std::{path::Path, process::Command, time::Duration};

use hapax::signature::{Received as Signed, Secret, Verifier, verify};
use hapax_testkit::{
    clock::system_clock,
    http::{HttpClient, HttpResponse, Received},
    postgres::Database,
};
pub(crate) use hapax_testkit::{
    program::{ProgramOutput, run_to_end},
    relay::{Relay, SECRET},
};
use http::Method;
use serde_json::Value;
use tokio_postgres::Client;

/// The maximum time that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const BINARY: &str = env!("CARGO_BIN_EXE_hapax");

/// The command of the binary with these arguments, in an empty environment, not started.
pub(crate) fn hapax(arguments: &[&str]) -> Command {
    hapax_testkit::relay::hapax(Path::new(BINARY), arguments)
}

/// Runs the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> ProgramOutput {
    run_to_end(hapax(arguments))
}

/// Creates the tables in a database.
#[track_caller]
pub(crate) fn migrate(url: &str) {
    run(&["migrate", "--database", url]).ended(0);
}

/// Creates a database with the tables.
pub(crate) async fn migrated() -> Database {
    let database = Database::fresh().await;
    migrate(&database.url());
    database
}

/// Emits events with plain SQL in one transaction, as any service would.
pub(crate) async fn emit(client: &Client, kind: &str, count: usize) {
    let emit = format!(
        "SELECT hapax.emit('{kind}', json_build_object('n', n)::text, 'order', 'o' || n)
         FROM generate_series(1, {count}) AS n"
    );
    client.batch_execute(&emit).await.unwrap();
}

/// The configuration of a webhook destination with this URL.
pub(crate) fn webhook(name: &str, url: &str) -> String {
    format!(
        "[destinations.{name}]\n\
         schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\"]\n\
         sink.webhook = {{ url = \"{url}\", secret = \"{SECRET}\", allow = [\"127.0.0.0/8\"] }}\n"
    )
}

/// Sends a request of JSON with a bearer token, or without a token if it is empty.
pub(crate) async fn ask(
    client: &HttpClient,
    (method, url): (Method, &str),
    token: &str,
    body: Option<&Value>,
) -> HttpResponse {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("content-type", "application/json")];
    if !token.is_empty() {
        headers.push(("authorization", &bearer));
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let sent = client.send(method, url, &headers, body.into());
    sent.await.unwrap()
}

/// Whether a request was signed with a secret.
pub(crate) fn is_signed(received: &Received, secret: &str) -> bool {
    let keys = [Verifier::V1(secret.parse::<Secret>().unwrap())];
    let header = |name: &str| received.header(name).unwrap();
    let signed = Signed {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: &received.body,
    };
    let tolerance = Duration::from_mins(5);
    verify(&signed, &keys, system_clock().now(), tolerance).is_ok()
}

/// Starts a relay with this configuration, and waits until it delivers.
pub(crate) async fn start_relay(database: &str, configuration: &str) -> Relay {
    start_relay_with(database, configuration, &[]).await
}

/// Starts a relay with environment variables.
pub(crate) async fn start_relay_with(
    database: &str,
    configuration: &str,
    environment: &[(&str, &str)],
) -> Relay {
    let mut command = hapax(&[]);
    command.envs(environment.iter().copied());
    Relay::start(command, database, configuration, &[]).await
}

/// Starts a relay that may open at most this many file descriptors.
pub(crate) async fn start_relay_within(
    descriptors: u32,
    database: &str,
    configuration: &str,
) -> Relay {
    let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    let shell = hapax_testkit::relay::hapax(Path::new("/bin/sh"), &["-c", &script, BINARY]);
    Relay::start(shell, database, configuration, &[]).await
}
