//! Tests of `hapax doctor` with databases that have problems.
//!
//! Tests that need a healthy database use a separate server, because the shared server of the tests
//! may run without `fsync`.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    thread,
};

use hapax_testkit::{
    http::HttpReceiver,
    postgres::{Cluster, Database, Pooler},
};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::hapax::{SECRET, emit, hapax, migrate, migrated, run, run_to_end, start_relay, webhook};

/// The page with the table of the checks.
const REFERENCE: &str = include_str!("../../../../docs/reference/cli.md");

#[tokio::test]
async fn a_healthy_database_has_no_errors() {
    let (_cluster, database) = private().await;
    let receiver = HttpReceiver::start().await;
    let (code, findings) = examined(&database.url(), &webhook("orders", &receiver.url("/")), &[]);
    // Other sessions may hold a transaction open or use most connections. This gives warnings at
    // most.
    assert!(code < 2, "{findings:#}");
    for check in [
        "version",
        "standby",
        "pooler",
        "grants",
        "schema",
        "contract",
        "clock",
        "fsync",
        "destinations",
    ] {
        has(&findings, "ok", check, "");
    }
}

#[tokio::test]
async fn a_database_without_the_schema_needs_a_migration() {
    let database = Database::empty().await;
    let (code, findings) = examined(&database.url(), "", &[]);
    assert_eq!(code, 2);
    let finding = has(&findings, "error", "schema", "no schema");
    assert!(
        finding["remedy"]
            .as_str()
            .unwrap()
            .contains("hapax migrate")
    );
}

#[tokio::test]
async fn a_doctor_makes_no_tables_whatever_the_configuration_says() {
    let database = Database::empty().await;
    let apply = "[database]\nschema = \"apply\"\n";
    let (code, findings) = examined(&database.url(), apply, &[]);
    assert_eq!(code, 2);
    has(&findings, "error", "schema", "no schema");
    let client = database.client().await;
    let there = "SELECT to_regnamespace('hapax') IS NOT NULL";
    let there: bool = client.query_one(there, &[]).await.unwrap().get(0);
    assert!(!there, "the doctor made the tables");
}

#[tokio::test]
async fn an_older_database_needs_a_migration() {
    let database = migrated().await;
    let client = database.client().await;
    client
        .batch_execute("DELETE FROM hapax.migration WHERE version = 5")
        .await
        .unwrap();
    let (code, findings) = examined(&database.url(), "", &[]);
    assert_eq!(code, 2);
    has(&findings, "error", "schema", "is at version 4");
}

#[tokio::test]
async fn a_database_with_an_older_sql_contract_needs_a_migration() {
    let database = migrated().await;
    let older = "DROP FUNCTION hapax.contract_version();
        DELETE FROM hapax.migration WHERE version >= 15";
    database.client().await.batch_execute(older).await.unwrap();
    let (code, findings) = examined(&database.url(), "", &[]);
    assert_eq!(code, 2);
    let found = "has version 1 of the SQL contract; this program expects version 2";
    let finding = has(&findings, "error", "contract", found);
    assert_eq!(finding["remedy"], "run `hapax migrate`, as the owner");
}

#[tokio::test]
async fn a_newer_sql_contract_is_a_warning() {
    let database = migrated().await;
    let newer = "CREATE OR REPLACE FUNCTION hapax.contract_version() RETURNS integer
        LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3";
    database.client().await.batch_execute(newer).await.unwrap();
    let (_, findings) = examined(&database.url(), "", &[]);
    has(&findings, "warning", "contract", "has version 3");
}

#[tokio::test]
async fn programs_that_call_the_sql_contract_are_listed_with_the_version_that_they_expect() {
    let (_cluster, database) = private().await;
    let (_, findings) = examined(&database.url(), "", &[]);
    has(&findings, "ok", "contract", "has version 2");
    has_none(&findings, "callers");
    let mut sessions = Vec::new();
    for name in [
        "hapax-node/0.1.0 contract=2",
        "hapax-node/0.1.0 contract=2",
        "hapax-py/0.1.0 contract=1",
        "a program without a contract=",
    ] {
        let session = database.client().await;
        let set = format!("SET application_name = '{name}'");
        session.batch_execute(&set).await.unwrap();
        sessions.push(session);
    }
    let (code, findings) = examined(&database.url(), "", &[]);
    assert!(code < 2, "{findings:#}");
    let node = "hapax-node/0.1.0 expects version 2 of the SQL contract (2 sessions)";
    has(&findings, "ok", "callers", node);
    let python = "hapax-py/0.1.0 expects version 1 of the SQL contract (1 session)";
    has(&findings, "ok", "callers", python);
    let callers = findings.as_array().unwrap().iter();
    assert_eq!(callers.filter(|it| it["check"] == "callers").count(), 2);
    let later = "SET application_name = 'hapax-py/9.0.0 contract=3'";
    sessions[0].batch_execute(later).await.unwrap();
    let (code, findings) = examined(&database.url(), "", &[]);
    assert_eq!(code, 2);
    let found = "hapax-py/9.0.0 expects version 3 of the SQL contract (1 session), but the \
                 database has version 2";
    has(&findings, "error", "callers", found);
}

#[tokio::test]
async fn a_missing_grant_is_named_with_the_statement_that_gives_it() {
    let (_cluster, database) = private().await;
    let (role, name) = (format!("{}_service", database.name()), database.name());
    let client = database.client().await;
    let roles = format!(
        "CREATE ROLE {role} LOGIN;
         GRANT USAGE ON SCHEMA hapax TO {role};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hapax TO {role};
         GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA hapax TO {role};
         REVOKE INSERT, UPDATE, DELETE ON hapax.migration FROM {role}"
    );
    client.batch_execute(&roles).await.unwrap();
    let url = format!("postgres://{role}@{}/{name}", database.address());
    let (code, findings) = examined(&url, "", &[]);
    assert!(code < 2, "{findings:#}");
    client
        .batch_execute(&format!("REVOKE INSERT ON hapax.attempt FROM {role}"))
        .await
        .unwrap();
    let (code, findings) = examined(&url, "", &[]);
    assert_eq!(code, 2);
    let finding = has(&findings, "error", "grants", "INSERT ON hapax.attempt");
    let remedy = finding["remedy"].as_str().unwrap();
    let statement = remedy.split_once(": ").unwrap().1;
    client.batch_execute(statement).await.unwrap();
    let (code, findings) = examined(&url, "", &[]);
    assert!(code < 2, "{findings:#}");
    let gone = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    client.batch_execute(&gone).await.unwrap();
}

/// A clone has the same rows in another database, as a restored dump has.
#[tokio::test]
async fn a_checkpoint_from_another_database_is_a_warning_until_a_relay_has_gone_on() {
    let (cluster, database) = private().await;
    let receiver = HttpReceiver::start().await;
    let configuration = webhook("orders", &receiver.url("/"));
    let relay = start_relay(&database.url(), &configuration).await;
    let client = database.client().await;
    emit(&client, "order.created", 3).await;
    receiver.received_at_least(3).await;
    relay.stop().await;
    let (_, findings) = examined(&database.url(), "", &[]);
    has_none(&findings, "history");
    drop(client);
    let url = database.url();
    let (server, name) = url.rsplit_once('/').unwrap();
    let clone = format!("CREATE DATABASE {name}_clone TEMPLATE {name}");
    cluster.client().await.batch_execute(&clone).await.unwrap();
    let clone = format!("{server}/{name}_clone");
    let (code, findings) = examined(&clone, "", &[]);
    assert_eq!(code, 1, "{findings:#}");
    has(&findings, "warning", "history", "the checkpoints of orders");
    let relay = start_relay(&clone, &configuration).await;
    let (clone_client, connection) = connect(&clone).await;
    emit(&clone_client, "order.created", 1).await;
    receiver.received_at_least(4).await;
    relay.stop().await;
    let (_, findings) = examined(&clone, "", &[]);
    has_none(&findings, "history");
    drop(clone_client);
    connection.abort();
}

/// A private server, and a database with the tables on it.
async fn private() -> (Cluster, Database) {
    let cluster = Cluster::start().await;
    let database = Database::on(&cluster.url()).await;
    migrate(&database.url());
    (cluster, database)
}

/// Checks that this check has no findings.
fn has_none(findings: &Value, check: &str) {
    let findings = findings.as_array().unwrap();
    assert!(
        findings.iter().all(|it| it["check"] != check),
        "{findings:#?}"
    );
}

async fn connect(url: &str) -> (Client, JoinHandle<()>) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(async move { drop(connection.await) });
    (client, connection)
}

#[tokio::test]
async fn a_sequence_below_what_was_given_is_an_error_with_the_statement_that_mends_it() {
    let (_cluster, database) = private().await;
    let client = database.client().await;
    let (_, findings) = examined(&database.url(), "", &[]);
    has(&findings, "ok", "sequence", "");
    let emit = "INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
        SELECT gen_random_uuid(), 'a', '{}', '{}', now() FROM generate_series(1, 30)";
    client.batch_execute(emit).await.unwrap();
    let set_back = "SELECT setval('hapax.outbox_event_id', 20)";
    client.batch_execute(set_back).await.unwrap();
    let (code, findings) = examined(&database.url(), "", &[]);
    assert_eq!(code, 2);
    let finding = has(&findings, "error", "sequence", "is at 20, but 30 was used");
    let remedy = finding["remedy"].as_str().unwrap();
    let statement = remedy
        .split_once(": ")
        .unwrap()
        .1
        .split(',')
        .next()
        .unwrap();
    client.batch_execute(statement).await.unwrap();
    let (code, findings) = examined(&database.url(), "", &[]);
    assert!(code < 2, "{findings:#}");
    has(&findings, "ok", "sequence", "");
}

#[tokio::test]
async fn a_standby_and_an_unsafe_primary_are_errors() {
    let cluster = Cluster::start().await;
    migrate(&cluster.url());
    let standby = cluster.standby().await;
    let (code, findings) = examined(&standby.url(), "", &[]);
    assert_eq!(code, 2);
    has(&findings, "error", "standby", "read-only standby");
    cluster
        .settings(&[("fsync", "off"), ("synchronous_commit", "off")])
        .await;
    let (code, findings) = examined(&cluster.url(), "", &[]);
    assert_eq!(code, 2);
    has(&findings, "error", "fsync", "off");
    has(&findings, "warning", "synchronous_commit", "off");
}

#[tokio::test]
async fn who_starts_on_an_unsafe_server_says_so() {
    const WARNING: &str = "this database can lose committed transactions in a crash";
    let cluster = Cluster::start().await;
    migrate(&cluster.url());
    let relay = start_relay(&cluster.url(), "").await;
    assert!(!relay.log().contains(WARNING), "{}", relay.log());
    relay.stop().await;
    cluster.settings(&[("synchronous_commit", "off")]).await;
    let relay = start_relay(&cluster.url(), "").await;
    let log = relay.log();
    let line = log.lines().find(|line| line.contains(WARNING));
    assert!(
        line.is_some_and(|line| line.contains("synchronous_commit")),
        "{log}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_pooler_is_found_whichever_server_connection_it_takes_next() {
    let (_cluster, database) = private().await;
    for connections in [1, 2, 3] {
        let pooler = Pooler::before(&database.url(), connections).await;
        let url = pooler.url(database.name());
        let (code, findings) = examined(&url, "", &[]);
        assert_eq!(code, 2, "{connections}: {findings:#}");
        let finding = has(&findings, "error", "pooler", "transaction mode");
        assert!(
            finding["remedy"]
                .as_str()
                .unwrap()
                .contains("pooled = true")
        );
        let (code, findings) = examined(&url, "[database]\npooled = true\n", &[]);
        assert!(code < 2, "{connections}: {findings:#}");
        has(&findings, "ok", "pooler", "as [database] pooled says");
    }
    let (_, findings) = examined(&database.url(), "[database]\npooled = true\n", &[]);
    has(&findings, "note", "pooler", "no pooler was detected");
}

#[tokio::test]
async fn a_destination_that_cannot_be_reached_is_a_warning_and_one_that_is_blocked_an_error() {
    let (_cluster, database) = private().await;
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let down = webhook("down", &format!("http://{closed}/"));
    let (code, findings) = examined(&database.url(), &down, &[]);
    assert_eq!(code, 1, "{findings:#}");
    has(&findings, "warning", "destinations", "down (webhook)");
    let blocked = format!(
        "[destinations.inside]\nsink.webhook = {{ url = \"http://{closed}/\", secret = \"{SECRET}\" }}\n"
    );
    let (code, findings) = examined(&database.url(), &blocked, &[]);
    assert_eq!(code, 2);
    has(&findings, "error", "destinations", "nothing will be sent");
    let (code, _) = examined(&database.url(), &blocked, &["--database-only"]);
    assert!(code < 2);
}

#[tokio::test]
async fn an_https_address_without_tls_is_a_warning() {
    let (_cluster, database) = private().await;
    let plain = webhook("plain", &format!("https://{}/hunter2", plain_server()));
    let (code, findings) = examined(&database.url(), &plain, &[]);
    assert_eq!(code, 1, "{findings:#}");
    let found = "the server does not speak TLS at this port";
    has(&findings, "warning", "destinations", found);
    assert!(!findings.to_string().contains("hunter2"), "{findings:#}");
}

#[tokio::test]
async fn a_queue_that_keeps_another_order_than_the_relay_is_a_warning() {
    let (_cluster, database) = private().await;
    let queue = TcpListener::bind("127.0.0.1:0").unwrap();
    let queue = queue.local_addr().unwrap();
    let ordered = |order: &str| {
        format!(
            "[destinations.billing]\n{order}[destinations.billing.sink.sqs]\n\
             queue_url = \"http://{queue}/1/billing.fifo\"\nregion = \"auto\"\n\
             access_key_id = \"key\"\nsecret_access_key = \"secret\"\n\
             allow = [\"127.0.0.0/8\"]\n"
        )
    };
    let (code, findings) = examined(&database.url(), &ordered(""), &[]);
    assert_eq!(code, 1, "{findings:#}");
    let found = "billing: order is \"none\"";
    let finding = has(&findings, "warning", "destinations", found);
    assert_eq!(finding["remedy"], "set order = \"key\"");
    let (_, findings) = examined(&database.url(), &ordered("order = \"key\"\n"), &[]);
    let all = findings.to_string();
    assert!(!all.contains("order is"), "{all}");
}

/// A server that responds to everything with a plain text.
fn plain_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The first connection is closed without a byte.
            if stream.read_exact(&mut [0; 5]).is_ok() {
                drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
                drop(stream.read_to_end(&mut Vec::new()));
            }
        }
    });
    address
}

#[tokio::test]
async fn the_routes_of_a_gateway_and_its_instances_are_looked_at() {
    let (_cluster, database) = private().await;
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let up = service.local_addr().unwrap();
    let gateway = |protect: &str| {
        format!(
            "[gateway]\ntenant = {{ header = \"x-account\" }}\n\
             [gateway.upstreams.orders]\ninstances = [\"http://{up}\"]\n\
             [gateway.routes.orders]\npath = \"/orders\"\nupstream = \"orders\"\nkey = \"required\"\n\
             protect = [\"{protect}\"]\n"
        )
    };
    let (code, findings) = examined(&database.url(), &gateway("POST"), &[]);
    assert!(code < 2, "{findings:#}");
    has(&findings, "ok", "gateway", "which can all be reached: 1");
    drop(service);
    let (code, findings) = examined(&database.url(), &gateway("GET"), &[]);
    assert_eq!(code, 1, "{findings:#}");
    has(
        &findings,
        "warning",
        "gateway",
        "gateway.routes.orders: protects GET",
    );
    has(
        &findings,
        "warning",
        "gateway",
        &format!("cannot connect to http://{up}"),
    );
    let (_, findings) = examined(&database.url(), &gateway("GET"), &["--database-only"]);
    has(
        &findings,
        "warning",
        "gateway",
        "gateway.routes.orders: protects GET",
    );
    let all = findings.to_string();
    assert!(!all.contains("cannot connect to"), "{all}");
}

#[tokio::test]
async fn what_holds_back_the_others_is_named() {
    let cluster = Cluster::start_with(&[("max_prepared_transactions", "4")]).await;
    migrate(&cluster.url());
    let client = cluster.client().await;
    let prepared = "CREATE TABLE public.t (); BEGIN; INSERT INTO public.t DEFAULT VALUES;
        PREPARE TRANSACTION 'lost'";
    client.batch_execute(prepared).await.unwrap();
    let idle = cluster.client().await;
    idle.batch_execute("SET application_name = 'sleeper'; BEGIN; SELECT 1")
        .await
        .unwrap();
    // A transaction that began a short time ago is not reported.
    let (code, findings) = examined(&cluster.url(), "", &[]);
    assert!(code < 1, "{findings:#}");
    let (code, findings) = examined(&cluster.url(), "", &["--open-max", "0s"]);
    assert_eq!(code, 1);
    has(&findings, "warning", "prepared", "'lost'");
    has(&findings, "warning", "sessions", "(sleeper)");
}

#[test]
fn a_database_that_is_not_there_is_an_error_and_no_failure() {
    let ran = run(&[
        "doctor",
        "--json",
        "--database",
        "postgres://postgres@127.0.0.1:1/none",
    ])
    .ended(2);
    has(&ran.json(), "error", "connection", "cannot be reached");
}

#[test]
fn the_portal_is_examined_without_a_database() {
    let portal = "[portal]\nurl = \"http://127.0.0.1:8080\"\n\
                  key = \"0123456789abcdef0123456789abcdef\"\n";
    let (code, findings) = examined("postgres://postgres@127.0.0.1:1/none", portal, &[]);
    assert_eq!(code, 2, "{findings:#}");
    has(
        &findings,
        "error",
        "portal",
        "secrets.key is missing: no endpoint can be created",
    );
    has(&findings, "note", "portal", "without TLS");
}

#[tokio::test]
async fn people_get_lines_with_remedies() {
    let database = Database::empty().await;
    let said = run(&["doctor", "--database", &database.url()])
        .ended(2)
        .stdout;
    assert!(
        said.contains("error    schema: there is no schema"),
        "{said}"
    );
    assert!(said.contains("-> run `hapax migrate`"), "{said}");
}

fn examined(url: &str, configuration: &str, arguments: &[&str]) -> (i32, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    fs::write(&path, configuration).unwrap();
    let mut command = hapax(&["doctor", "--json", "--database", url]);
    command.args(arguments).arg("--config").arg(path);
    let ran = run_to_end(command);
    (ran.code.unwrap(), ran.json())
}

/// Checks that there is such a finding, and that the reference lists its check. Returns the finding.
#[track_caller]
fn has(findings: &Value, severity: &str, check: &str, found: &str) -> Value {
    let (_, listed) = REFERENCE
        .split_once("## Findings of the doctor")
        .expect("a table of the checks");
    assert!(
        listed.contains(&format!("`{check}`")),
        "docs/reference/cli.md does not list the check {check}"
    );
    let all = findings.as_array().unwrap();
    let fits = |finding: &&Value| {
        finding["severity"] == severity
            && finding["check"] == check
            && finding["found"].as_str().unwrap().contains(found)
    };
    let finding = all.iter().find(fits);
    finding
        .unwrap_or_else(|| panic!("no {severity} {check} {found}: {findings:#}"))
        .clone()
}
