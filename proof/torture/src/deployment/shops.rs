//! The processes under test (shops and relays), and their clients.

use std::{fs, path::Path};

use anyhow::Context as _;
use hapax_testkit::port::free_port;
use tokio_postgres::NoTls;

use super::{
    Binaries, Deployment, LEASE, Ports, Program, Retention, Server, WEBHOOK_SECRET,
    silent_name_server::FEED_HOST,
};
use crate::{
    clients::{SOURCES, TENANTS},
    sql_contract_client,
    stored_rows::StoredRows,
};

/// Retry schedule: faults use up attempts, and an event must not run out of them.
const SCHEDULE: [&str; 2] = ["0s,50ms,200ms,500ms", ",1s"];
const ATTEMPTS: usize = 60;
const CLIENTS: u64 = 2;

/// The maximum number of descriptors of a relay, as in a small container.
const DESCRIPTORS: &str = "--nofile=256";

/// Key that encrypts declared destinations: 32 bytes, in Base64.
const ENCRYPTION_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The types of the events for the receiver that rejects some permanently.
pub(crate) const REJECTING_TYPES: [&str; 3] =
    ["user.signed_up", "payment.succeeded", "order.created"];

/// The table of the remote database, into which a relay delivers events.
const REMOTE_TABLE: &str = "
CREATE TABLE inbox_event (
    position       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id       uuid NOT NULL,
    type           text NOT NULL,
    tenant         text,
    aggregate_type text,
    aggregate_id   text,
    sequence       bigint,
    payload        jsonb NOT NULL,
    headers        jsonb NOT NULL,
    created_at     timestamptz NOT NULL
)";

/// The shops: one on SQLite, two on one server. On the server, the first one makes optimistic claims,
/// and the second one claims before its handlers start.
pub(super) fn shops(deployment: &Deployment, binaries: &Binaries) -> anyhow::Result<Vec<Program>> {
    let ports = deployment.ports.shops.iter().enumerate();
    ports
        .map(|(number, port)| shop(deployment, binaries, number, *port))
        .collect()
}

fn shop(
    deployment: &Deployment,
    binaries: &Binaries,
    number: usize,
    port: u16,
) -> anyhow::Result<Program> {
    let name = format!("shop-{number}");
    let home = deployment.home();
    fs::create_dir_all(&home)?;
    let Ports {
        mailbox,
        payment,
        shipping,
        ..
    } = &deployment.ports;
    let hook = deployment.links.receivers[0].address().to_string();
    let remotes = [*mailbox, *payment, *shipping].map(|port| format!("127.0.0.1:{port}"));
    let server = deployment.server.as_ref();
    let database = server.map(|it| deployment.links.databases[number].url(&it.url));
    let mut arguments = arguments(
        port,
        &home,
        [&hook, &remotes[0], &remotes[1], &remotes[2]],
        database,
    );
    let claims = if number == 0 { "optimistic" } else { "first" };
    arguments.push(format!("--claims={claims}"));
    let shop = binaries.path("shop");
    Ok(Program::new(&name, &deployment.folder, &shop, arguments))
}

/// A shop on a copy of the store, which can reach no receiver.
pub(crate) fn beside(
    deployment: &Deployment,
    binaries: &Binaries,
    port: u16,
    home: &Path,
    stored_rows: &StoredRows,
) -> Program {
    let unused = format!("127.0.0.1:{}", free_port());
    let database = match stored_rows {
        StoredRows::File(_) => None,
        StoredRows::Server(url) => Some(url.clone()),
    };
    let arguments = arguments(port, home, [&unused; 4], database);
    Program::new(
        "copy",
        &deployment.folder,
        &binaries.path("shop"),
        arguments,
    )
}

/// The addresses are those of the webhook receiver, the mailbox, and the payment and shipping
/// providers.
fn arguments(
    port: u16,
    home: &Path,
    [hook, mailbox, payment, shipping]: [&String; 4],
    database: Option<String>,
) -> Vec<String> {
    let mut arguments = vec![
        format!("--listen=127.0.0.1:{port}"),
        format!("--data-dir={}", home.display()),
        format!("--webhook=http://{hook}/hook"),
        format!("--webhook-secret={WEBHOOK_SECRET}"),
        format!("--webhook-schedule={}", schedule()),
        "--allow-net=127.0.0.0/8".to_owned(),
        format!("--smtp-schedule={}", schedule()),
        format!("--thumbnail-schedule={}", schedule()),
        format!("--smtp=smtp://{mailbox}"),
        format!("--payment-provider=http://{payment}"),
        format!("--shipping-provider=http://{shipping}"),
        format!("--inbox-tenant={}", TENANTS[0]),
        format!("--lease={}s", LEASE.as_secs()),
        "--no-demo".to_owned(),
        "--log=json".to_owned(),
    ];
    arguments.extend(TENANTS.map(|tenant| format!("--token=token-{tenant}={tenant}")));
    arguments.extend(SOURCES.map(|(source, secret)| format!("--inbox-secret={source}={secret}")));
    arguments.extend(database.map(|url| format!("--database={url}")));
    arguments
}

/// Two relay processes, for the destinations that keep order; none without a server.
pub(super) async fn relays(
    deployment: &Deployment,
    binaries: &Binaries,
    retention: Option<Retention>,
) -> anyhow::Result<Vec<Program>> {
    let (Some(server), Some(link)) = (&deployment.server, &deployment.links.relay_database) else {
        return Ok(Vec::new());
    };
    let remote = make_databases(server, binaries).await?;
    let config = deployment.folder.join("hapax.toml");
    fs::write(&config, configuration(deployment, &remote, retention))?;
    let relay = |number: usize| {
        let name = format!("relay-{number}");
        let arguments = vec![
            "relay".to_owned(),
            format!("--listen=127.0.0.1:{}", deployment.ports.relays[number][0]),
            format!(
                "--admin-listen=127.0.0.1:{}",
                deployment.ports.relays[number][1]
            ),
            "--log=json".to_owned(),
            format!("--database={}", link.url(&server.url)),
            format!("--config={}", config.display()),
            format!("--node={name}"),
        ];
        let relay = Program::new(
            &name,
            &deployment.folder,
            &binaries.path("hapax"),
            arguments,
        );
        let wrapper = deployment
            .name_server
            .iter()
            .flat_map(|it| it.wrapper.clone());
        let bound = ["prlimit", DESCRIPTORS].map(str::to_owned);
        relay.behind(&wrapper.chain(bound).collect::<Vec<_>>())
    };
    Ok((0..2).map(relay).collect())
}

/// Creates the tables of the server, and the remote database with its table. Returns the URL of the
/// remote database.
async fn make_databases(server: &Server, binaries: &Binaries) -> anyhow::Result<String> {
    let remote = format!("{}_remote", server.url);
    let admin = server.cluster.client().await;
    let name = remote.rsplit('/').next().unwrap_or_default();
    admin
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .await?;
    for url in [&server.url, &remote] {
        binaries.migrate(url)?;
    }
    for (url, table) in [
        (&remote, REMOTE_TABLE),
        (&server.url, sql_contract_client::TABLE),
    ] {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let connection = tokio::spawn(connection);
        client.batch_execute(table).await?;
        drop(client);
        connection.await??;
    }
    Ok(remote)
}

/// The configuration of the relays.
fn configuration(deployment: &Deployment, remote: &str, retention: Option<Retention>) -> String {
    let waits: Vec<_> = schedule()
        .split(',')
        .map(|it| format!("\"{it}\""))
        .collect();
    let waits = waits.join(", ");
    let mut feed = format!("http://{}/feed", deployment.links.receivers[1].address());
    if deployment.name_server.is_some() {
        // Its name is resolved like that of any other destination.
        feed = feed.replace("127.0.0.1", FEED_HOST);
    }
    // The receiver of this destination rejects some events permanently. There is no proxy before it,
    // so network faults do not affect it.
    let rejecting = format!(
        "http://127.0.0.1:{}/rejecting",
        deployment.ports.receivers[1]
    );
    let stream = deployment.links.receivers[2].address();
    let lease = LEASE.as_secs();
    let text = format!(
        "[relay]\nlease = \"{lease}s\"\n[database]\nconnections = 4\n[secrets]\nkey = \"{ENCRYPTION_KEY}\"\n\
         [destinations.feed]\norder = \"key\"\npartitions = 4\nconcurrency = 8\nschedule = [{waits}]\n\
         sink.webhook = {{ url = \"{feed}\", secret = \"{WEBHOOK_SECRET}\", allow = [\"127.0.0.0/8\"] }}\n\
         [destinations.rejecting]\nevents = {REJECTING_TYPES:?}\n\
         schedule = [\"0s\", \"100ms\", \"200ms\"]\n\
         sink.webhook = {{ url = \"{rejecting}\", secret = \"{WEBHOOK_SECRET}\", allow = [\"127.0.0.0/8\"] }}\n\
         [destinations.remote]\norder = \"key\"\nschedule = [{waits}]\n\
         sink.postgres = {{ url = \"{remote}\", consumer = \"remote\", table = \"inbox_event\" }}\n\
         [destinations.stream]\norder = \"key\"\nschedule = [{waits}]\n\
         sink.redis = {{ url = \"redis://{stream}\", stream = \"events\" }}\n"
    );
    let retention = retention.map(|it| {
        let events = it.events.as_secs();
        format!("[retention]\nevery = \"1s\"\nevents = \"{events}s\"\n")
    });
    text + &retention.unwrap_or_default()
}

/// Two processes of clients, which reach the shops through the proxies.
pub(super) fn clients(deployment: &Deployment, seed: u64) -> anyhow::Result<Vec<Program>> {
    let this = std::env::current_exe().context("this program has a path")?;
    let shops = deployment
        .links
        .shops
        .iter()
        .map(|it| it.address().to_string());
    let shops = shops.collect::<Vec<_>>().join(",");
    let client = |number: u64| {
        let name = format!("clients-{number}");
        let history = deployment.folder.join(format!("{name}.jsonl"));
        let arguments = vec![
            "clients".to_owned(),
            format!("--history={}", history.display()),
            format!("--shops={shops}"),
            format!(
                "--overloaded=http://127.0.0.1:{}/",
                deployment.ports.counter
            ),
            format!("--number={number}"),
            format!("--seed={}", seed.wrapping_add(number)),
        ];
        Program::new(&name, &deployment.folder, &this, arguments)
    };
    Ok((0..CLIENTS).map(client).collect())
}

/// The SQL-contract client; none without a server.
pub(super) fn sql_contract_client(
    deployment: &Deployment,
    seed: u64,
) -> anyhow::Result<Option<Program>> {
    let this = std::env::current_exe().context("this program has a path")?;
    let history = deployment.folder.join("sql-client.jsonl");
    Ok(deployment.server.as_ref().map(|server| {
        let arguments = vec![
            "sql-client".to_owned(),
            format!("--history={}", history.display()),
            format!("--database={}", server.url),
            format!("--seed={seed}"),
        ];
        Program::new("sql-client", &deployment.folder, &this, arguments)
    }))
}

fn schedule() -> String {
    SCHEDULE[0].to_owned() + &SCHEDULE[1].repeat(ATTEMPTS)
}
