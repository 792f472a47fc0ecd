//! The database with the endpoints, the relay, and what is cleared between two rounds.

use std::{fs, net::SocketAddr, process::Command, time::Duration};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use hapax::keyring::Keyring;
use hapax_testkit::postgres::Database;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, types::ToSql};

use crate::{
    receive::SECRET,
    run::{
        Bench,
        folder::Folder,
        postgres::connect,
        relay::Producer,
        service::{Service, free_address},
    },
};

use super::{
    plan::{self, Plan},
    receivers::Receivers,
};

/// The key that encrypts the secrets of endpoints.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Interval at which the queue is read.
const LOOK: Duration = Duration::from_millis(20);
/// Inserts endpoints as the admin API does, each with the next version.
const CREATE: &str = "\
WITH drawn AS (
    UPDATE hapax.endpoint_version
    SET version = version + cardinality($1::text[])
    RETURNING version
)
INSERT INTO hapax.endpoint
    (id, tenant, url, description, types, headers, sealed, created_at, created_by, changed_at,
     changed_by, version)
SELECT one.id, one.tenant, one.url, '', '[\"*\"]', '[]', one.sealed, now(), 'bench', now(), 'bench',
       drawn.version - cardinality($1::text[]) + one.place
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
         WITH ORDINALITY AS one (id, tenant, url, sealed, place),
     drawn";
/// Deletes the queue and the log. The endpoints are changed, so that the relay forgets which of them
/// have failed.
const CLEAR: [&str; 4] = [
    "TRUNCATE hapax.endpoint_delivery, hapax.endpoint_attempt",
    // The lock waits for transactions of the relay that count failures.
    "BEGIN;
    LOCK TABLE hapax.endpoint IN EXCLUSIVE MODE;
    WITH numbered AS (
        SELECT id, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS number
        FROM hapax.endpoint
    ), drawn AS (
        UPDATE hapax.endpoint_version
        SET version = version + (SELECT count(*) FROM hapax.endpoint)
        RETURNING version
    )
    UPDATE hapax.endpoint AS endpoint
    SET failures = 0,
        failing_since = NULL,
        failing_spans = 0,
        failing_span_at = NULL,
        slow_until = NULL,
        last_error = NULL,
        version = drawn.version - numbered.number + numbered.place
    FROM drawn, numbered
    WHERE endpoint.id = numbered.id;
    COMMIT",
    "VACUUM (ANALYZE) hapax.endpoint",
    "CHECKPOINT",
];
/// The rows of some endpoints.
const ROWS: &str = "SELECT count(*) FROM hapax.endpoint_delivery WHERE endpoint = ANY ($1::text[])";
const OTHER_ROWS: &str =
    "SELECT count(*) FROM hapax.endpoint_delivery WHERE endpoint <> ALL ($1::text[])";
const WAITING: &str = "SELECT count(*) FROM hapax.endpoint_delivery WHERE state = 'waiting'";

/// The parts of the measurement that run.
#[derive(Debug)]
pub(super) struct Stage {
    // The first field, so that the process has ended when its database is removed.
    relay: Service,
    pub(super) producer: Producer,
    client: Client,
    pub(super) receivers: Receivers,
    pub(super) plan: Plan,
    /// How long it took to insert the endpoints.
    pub(super) inserted_in: Duration,
    _database: Database,
}

/// The rows of the queue at the end of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Those that wait.
    pub(super) waiting: i64,
    /// Those of endpoints that are healthy in every round, in any state.
    pub(super) healthy: i64,
}

impl Stage {
    /// Creates the endpoints on an empty database, and starts the relay.
    pub(super) async fn start(bench: &Bench, folder: &Folder, plan: Plan) -> anyhow::Result<Self> {
        let database = bench.server().await?.database().await?;
        let url = database.url();
        let producer = Producer::open(&url).await?;
        let receivers = Receivers::start(plan).await?;
        let client = connect(&url).await?;
        let began = Instant::now();
        create(&client, &receivers, plan).await?;
        let inserted_in = began.elapsed();
        client
            .batch_execute("VACUUM (ANALYZE) hapax.endpoint")
            .await?;
        let address = free_address()?;
        let file = folder.path().join("hapax.toml");
        fs::write(&file, configuration(&url, address))?;
        let mut command = Command::new(bench.hapax()?);
        command.arg("--config").arg(&file).arg("relay");
        let relay = Service::start(command, address, &folder.path().join("hapax.log")).await?;
        Ok(Self {
            relay,
            producer,
            client,
            receivers,
            plan,
            inserted_in,
            _database: database,
        })
    }

    /// Waits until the queue has `expected` deliveries to the sick endpoints, which is all of a round.
    pub(super) async fn queued(&self, expected: usize, most: Duration) -> anyhow::Result<()> {
        let expected = i64::try_from(expected)?;
        let start = Instant::now();
        loop {
            let queued = self.count(ROWS).await?;
            if queued >= expected {
                return Ok(());
            }
            ensure!(
                start.elapsed() < most,
                "after {most:?} {queued} of {expected} deliveries to sick endpoints were in the queue"
            );
            sleep(LOOK).await;
        }
    }

    /// Counts the rows of the queue.
    pub(super) async fn rows(&self) -> anyhow::Result<Rows> {
        let waiting = self.client.query_one(WAITING, &[]).await?;
        Ok(Rows {
            waiting: waiting.try_get(0)?,
            healthy: self.count(OTHER_ROWS).await?,
        })
    }

    /// Makes all endpoints healthy, and removes what a round has left.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.receivers.turn(false).await?;
        for statement in CLEAR {
            let cleared = self.client.batch_execute(statement).await;
            cleared.context("cannot clear the queue")?;
        }
        Ok(())
    }

    /// The current memory of the relay, in mebibytes.
    pub(super) fn resident(&self) -> anyhow::Result<f64> {
        self.relay.resident()
    }

    /// The highest memory of the relay so far, in mebibytes.
    pub(super) fn peak(&self) -> anyhow::Result<f64> {
        self.relay.peak()
    }

    /// A number of rows by the ids of the sick endpoints.
    async fn count(&self, sql: &str) -> anyhow::Result<i64> {
        let sick: Vec<String> = self.plan.sick().map(plan::id).collect();
        Ok(self.client.query_one(sql, &[&sick]).await?.try_get(0)?)
    }
}

/// Inserts all endpoints.
async fn create(client: &Client, receivers: &Receivers, plan: Plan) -> anyhow::Result<()> {
    let keyring = Keyring::parse([KEY])?;
    let all = || 0..plan.endpoints();
    let ids: Vec<String> = all().map(plan::id).collect();
    let tenants: Vec<String> = all().map(plan::tenant_name).collect();
    let urls: Vec<String> = all().map(|it| receivers.url(it)).collect();
    let secrets = json!({ "secret": SECRET }).to_string();
    let sealed = all().map(|it| {
        // The place of the secrets of an endpoint in `hapax`.
        let name = format!("endpoint {} of {}", plan::id(it), plan::tenant_name(it));
        let sealed = keyring.encrypt(&["secrets", &name], Bytes::from(secrets.clone()));
        sealed.map(|it| it.to_vec())
    });
    let sealed: Vec<Vec<u8>> = sealed.collect::<Result<_, _>>()?;
    let columns: [&(dyn ToSql + Sync); 4] = [&ids, &tenants, &urls, &sealed];
    let created = client.execute(CREATE, &columns).await;
    let created = created.context("cannot insert the endpoints")?;
    ensure!(
        usize::try_from(created)? == plan.endpoints(),
        "{created} endpoints were inserted"
    );
    Ok(())
}

fn configuration(url: &str, address: SocketAddr) -> String {
    format!(
        "[database]\nurl = \"{url}\"\n\
         [relay]\nlisten = \"{address}\"\n\
         [log]\nlevel = \"warn\"\n\
         [secrets]\nkey = \"{KEY}\"\n\
         [endpoints]\nallow = [\"127.0.0.0/8\"]\n\
         [destinations.customers]\nsink.endpoints = {{}}\n"
    )
}
