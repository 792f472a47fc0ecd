//! A gateway on a fresh SQLite file and a free port.

use std::time::Duration;

use hapax::{Clock, failpoint::Failpoints};
use hapax_gateway::{
    Gateway,
    config::{Listener, Route, Settings, Upstream as UpstreamSettings},
    listener::{self, Listening},
};
use hapax_postgres::Postgres;
use hapax_runtime::config::Span;
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    http::{HttpClient, HttpResponse},
};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch};

use crate::upstream::Upstream;

/// How long a test waits for something that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running gateway.
pub(crate) struct Stage {
    pub(crate) store: Sqlite,
    pub(crate) url: String,
    pub(crate) client: HttpClient,
    _stop: watch::Sender<bool>,
    _folder: TempDir,
}

impl Stage {
    /// Starts a gateway in front of an upstream, with other settings of its route.
    pub(crate) async fn new(upstream: &Upstream, change: impl FnOnce(&mut Route)) -> Self {
        let mut settings = settings(&[&upstream.url()]);
        let route = settings.routes.get_mut("all").unwrap();
        change(route);
        Self::with(&settings).await
    }

    /// Starts a gateway with these settings.
    pub(crate) async fn with(settings: &Settings) -> Self {
        Self::failing(settings, Failpoints::none()).await
    }

    /// Starts a gateway with these settings, whose store has these failpoints.
    pub(crate) async fn failing(settings: &Settings, failpoints: Failpoints) -> Self {
        settings.check().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let clock = system_clock();
        let file = folder.path().join("gateway.db");
        let mut opened = hapax_sqlite::Settings::new(file, clock.clone(), seeded_random(2));
        opened.failpoints = failpoints;
        let store = Sqlite::open(opened).unwrap();
        Self::on(store, clock, settings, folder).await
    }

    /// Starts another gateway on the same store, with another clock.
    pub(crate) async fn beside(&self, clock: Clock, settings: &Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::on(self.store.clone(), clock, settings, folder).await
    }

    async fn on(store: Sqlite, clock: Clock, settings: &Settings, folder: TempDir) -> Self {
        let base = hapax_http::Settings::new(clock, seeded_random(1));
        let gateway = Gateway::new(store.clone(), base, Failpoints::none(), settings).unwrap();
        let (listening, url) = listening().await;
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(listener::serve(listening, gateway, stopping));
        Self {
            store,
            url,
            client: HttpClient::new(),
            _stop: stop,
            _folder: folder,
        }
    }

    /// Sends a POST with a key.
    pub(crate) async fn post(&self, path: &str, key: &str, body: &str) -> HttpResponse {
        let url = format!("{}{path}", self.url);
        let headers = [
            ("idempotency-key", key),
            ("content-type", "application/json"),
        ];
        self.client
            .post(&url, &headers, body.to_owned())
            .await
            .unwrap()
    }

    /// The host and port of the gateway.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }
}

/// A listener at a free port, without TLS, and its URL.
pub(crate) async fn listening() -> (Listening, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let listening = Listening {
        name: "http".to_owned(),
        listener,
        is_tls: false,
        connections: 100,
    };
    (listening, url)
}

/// A gateway on the PostgreSQL database with this URL. Its random numbers depend on `seed`.
pub(crate) async fn on_postgres(url: String, seed: u64, settings: &Settings) -> Gateway<Postgres> {
    let (clock, random) = (system_clock(), seeded_random(seed));
    let opened = hapax_postgres::Settings::new(url, clock, random.clone());
    let store = Postgres::open(opened).await.unwrap();
    let base = hapax_http::Settings::new(store.database_clock(), random);
    Gateway::new(store, base, Failpoints::none(), settings).unwrap()
}

/// The settings of a gateway in front of these instances, with a short time-out.
pub(crate) fn settings(instances: &[&str]) -> Settings {
    let mut settings = Settings::quick_start("127.0.0.1:0".parse().unwrap(), instances[0]);
    let mut upstream = UpstreamSettings::new(instances.iter().copied());
    upstream.connect_timeout = Span(Duration::from_secs(2));
    settings.upstreams.insert("service".to_owned(), upstream);
    settings.listeners.insert(
        "http".to_owned(),
        Listener::new("127.0.0.1:0".parse().unwrap()),
    );
    settings
}

/// Checks that a response is a problem with this code, and returns its detail.
#[track_caller]
pub(crate) fn check_problem(answer: &HttpResponse, status: u16, code: &str) -> String {
    let problem = answer
        .json()
        .unwrap_or_else(|_| panic!("no problem: {answer:?}"));
    assert_eq!(
        (answer.status, &problem["code"]),
        (status, &code.into()),
        "{problem}"
    );
    problem["detail"].as_str().unwrap_or_default().to_owned()
}
