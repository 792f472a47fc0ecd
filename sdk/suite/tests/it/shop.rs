//! Fixture of the tests: a fresh database, service processes, and a client that retries.

use std::time::Duration;

use futures_util::future::join_all;
use hapax_postgres::{Postgres, Settings, tokio_postgres::Client};
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    http::{HttpClient, HttpResponse},
    postgres::{Database, connect, server},
    wait::Patience,
};

use crate::{kind::Kind, service::Service};

/// The time limit of every wait, long enough for a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);
/// The tenant of all orders.
pub(crate) const TENANT: &str = "alice";

const TABLES: &str = include_str!("../../../../examples/sql-contract/migrations/0001_shop.sql");
const CREDENTIAL: &str = "Bearer alice";

pub(crate) struct Shop {
    pub(crate) services: Vec<Service>,
    pub(crate) client: Client,
    pub(crate) http: HttpClient,
    database: Database,
}

/// Creates a database with the tables of Hapax and of the services.
pub(crate) async fn database() -> Database {
    let database = Database::fresh().await;
    let settings = Settings::new(database.url(), system_clock(), seeded_random(0));
    let store = Postgres::open(settings).await.expect("a new schema");
    store.close();
    let client = database.client().await;
    client.batch_execute(TABLES).await.expect("the tables");
    database
}

impl Shop {
    /// Creates a database, and starts a process for each of `kinds`.
    pub(crate) async fn open(kinds: &[Kind]) -> Self {
        let database = database().await;
        let url = database.url();
        Self::on(database, &url, kinds).await
    }

    /// Starts a process for each of `kinds`. They reach the database at `url`.
    pub(crate) async fn on(database: Database, url: &str, kinds: &[Kind]) -> Self {
        let client = database.client().await;
        let start = |(number, kind)| Service::start(kind, url, &format!("shop{number}"));
        let services = kinds.iter().copied().enumerate().map(start).collect();
        let mut shop = Self {
            services,
            client,
            http: HttpClient::new(),
            database,
        };
        shop.are_up().await;
        shop
    }

    /// Waits until every service responds.
    pub(crate) async fn are_up(&mut self) {
        let http = &self.http;
        let waits = self.services.iter_mut().map(|service| async move {
            let patience = Patience::within(LONG);
            while http.get(&service.url).await.is_err() {
                assert!(!service.has_ended(), "{}", service.log());
                patience.pause().await;
            }
        });
        join_all(waits).await;
    }

    /// Kills the service with SIGKILL, and starts it again on the same port.
    pub(crate) fn kill_and_restart(&mut self, name: &str) {
        let mut services = self.services.iter_mut();
        let service = services.find(|service| service.name == name);
        let service = service.expect("a service has this name");
        service.kill();
        service.start_again();
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let urls = self.services.iter().map(|service| service.url.clone());
        urls.collect()
    }

    /// The URL of the database.
    pub(crate) fn database_url(&self) -> String {
        self.database.url()
    }

    pub(crate) async fn another_client(&self) -> Client {
        self.database.client().await
    }

    /// Allows or forbids new sessions of the database.
    pub(crate) async fn allow_connections(&self, allow: bool) {
        let name = self.database.name();
        let alter = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allow}");
        let server = connect(&server()).await;
        server.batch_execute(&alter).await.expect("valid DDL");
    }

    /// Posts an order once.
    pub(crate) async fn order(&self, place: usize, key: &str, body: &str) -> HttpResponse {
        order_once(&self.http, &self.urls()[place], key, body)
            .await
            .expect("the service responds")
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        let row = self.client.query_one(sql, &[]).await;
        row.expect("a count").get(0)
    }

    /// Checks that there are `count` orders, events and stored responses.
    pub(crate) async fn check_effects(&self, count: usize) {
        let expected = i64::try_from(count).expect("few");
        for (what, sql) in [
            ("orders", "SELECT count(*) FROM shop_order"),
            ("events", "SELECT count(*) FROM hapax.outbox_event"),
            ("keys", "SELECT count(*) FROM hapax.idempotency_key"),
            (
                "events of existing orders",
                "SELECT count(*) FROM hapax.outbox_event JOIN shop_order AS o ON o.id = aggregate_id",
            ),
        ] {
            assert_eq!(self.count(sql).await, expected, "{what}");
        }
    }
}

/// Posts an order once. The result is absent if there is no complete response.
pub(crate) async fn order_once(
    http: &HttpClient,
    url: &str,
    key: &str,
    body: &str,
) -> Option<HttpResponse> {
    let headers = [
        ("idempotency-key", key),
        ("content-type", "application/json"),
        ("authorization", CREDENTIAL),
    ];
    let url = format!("{url}/orders");
    http.post(&url, &headers, body.to_owned()).await.ok()
}

/// Posts an order to one process after the other, until a response has no `Retry-After`.
pub(crate) async fn order_until_answered(
    http: &HttpClient,
    urls: &[String],
    first: usize,
    key: &str,
    body: &str,
) -> HttpResponse {
    let patience = Patience::within(LONG);
    for url in urls.iter().cycle().skip(first % urls.len()) {
        match order_once(http, url, key, body).await {
            Some(answer) if answer.header("retry-after").is_none() => return answer,
            _ => patience.pause().await,
        }
    }
    unreachable!("the iterator over the processes is endless")
}

pub(crate) fn body(item: &str, amount: u32) -> String {
    format!(r#"{{"item": "{item}", "amount": {amount}}}"#)
}
