//! Fixture of the tests: a fresh database, service processes, and a client that retries.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::Random;
use hapax_postgres::{Postgres, Settings, tokio_postgres::Client};
use hapax_testkit::{
    clock::system_clock,
    http::{HttpAnswer, HttpClient},
    postgres::{Database, connect, server},
    wait::Patience,
};

use crate::service::{Language, Service};

/// The time limit of every wait, long enough for a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

const TABLES: &str = include_str!("../../migrations/0001_shop.sql");

pub(crate) struct Shop {
    pub(crate) services: Vec<Service>,
    pub(crate) client: Client,
    pub(crate) http: HttpClient,
    database: Database,
}

impl Shop {
    /// Creates a database, and starts a process for each of `languages`.
    pub(crate) async fn open(languages: &[Language]) -> Self {
        let database = Database::fresh().await;
        let settings = Settings::new(database.url(), system_clock(), Random::new(|| 0));
        let store = Postgres::open(settings).await.expect("a new schema");
        store.close();
        let client = database.client().await;
        client.batch_execute(TABLES).await.expect("the tables");
        let start = |(number, language)| {
            Service::start(language, &database.url(), &format!("shop{number}"))
        };
        let services = languages.iter().copied().enumerate().map(start).collect();
        let shop = Self {
            services,
            client,
            http: HttpClient::new(),
            database,
        };
        join_all(shop.urls().iter().map(|url| shop.is_up(url))).await;
        shop
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.services.iter().map(|it| it.url.clone()).collect()
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

    async fn is_up(&self, url: &str) {
        let patience = Patience::within(LONG);
        while self.http.get(url).await.is_err() {
            patience.pause().await;
        }
    }

    /// Posts an order once.
    pub(crate) async fn order(&self, place: usize, key: &str, body: &str) -> HttpAnswer {
        order_once(&self.http, &self.urls()[place], key, body)
            .await
            .expect("the service responds")
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        let row = self.client.query_one(sql, &[]).await;
        row.expect("a count").get(0)
    }

    /// Checks that there are `count` orders, events and stored responses.
    pub(crate) async fn check_effects(&self, count: i64) {
        for (what, sql) in [
            ("orders", "SELECT count(*) FROM shop_order"),
            ("events", "SELECT count(*) FROM hapax.outbox_event"),
            ("keys", "SELECT count(*) FROM hapax.idempotency_key"),
            (
                "events of existing orders",
                "SELECT count(*) FROM hapax.outbox_event JOIN shop_order AS o ON o.id = aggregate_id",
            ),
        ] {
            assert_eq!(self.count(sql).await, count, "{what}");
        }
    }
}

async fn order_once(http: &HttpClient, url: &str, key: &str, body: &str) -> Option<HttpAnswer> {
    let headers = [
        ("idempotency-key", key),
        ("content-type", "application/json"),
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
) -> HttpAnswer {
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
