//! Tests of the console in a real browser: keyboard shortcuts, live figures, colours, and the
//! layout on a wide screen and on a phone. `drive.mjs` controls the browser. This program serves
//! the console, and pauses a destination, stops and starts the console when the driver asks for it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

use std::{collections::BTreeSet, net::SocketAddr, path::Path, sync::Arc};

use hapax::{
    Random,
    admin::{Actor, DestinationAdmin as _},
    catalogue::Catalogue,
};
use hapax_console::{Console, Given, Role, Setting, Settings, Tokens};
use hapax_postgres::{Postgres, Schema};
use hapax_testkit::{browser::Driver, clock::system_clock, port::free_port, postgres::Database};
use tokio::{net::TcpListener, task::JoinHandle};

const OPERATOR: &str = "operator-0123456789";
const VIEWER: &str = "viewer-0123456789";
const ROWS: &str = include_str!("rows.sql");
const CATALOGUE: &str = include_str!("catalogue.json");

/// A console that accepts connections until it is stopped.
struct Served {
    console: Console,
    serving: JoinHandle<()>,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_in_a_browser() {
    let database = Database::fresh().await;
    let store = store(&database).await;
    let local: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let guarded: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut open = Some(serve(&store, local, Tokens::default()).await);
    let _guarded = serve(&store, guarded, tokens()).await;

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/drive.mjs");
    let addresses = [local, guarded].map(|it| format!("http://{it}"));
    let arguments = [
        addresses[0].as_str(),
        addresses[1].as_str(),
        OPERATOR,
        VIEWER,
    ];
    let mut driver = Driver::start(env!("CARGO_TARGET_TMPDIR"), &script, "console", &arguments);
    loop {
        match &*driver.heard().await {
            "pause hooks" => {
                let actor = Actor::new("night shift");
                store.pause_destination(&actor, "hooks").await.unwrap();
            }
            "stop" => open.take().expect("it runs").stop().await,
            "start" => open = Some(serve(&store, local, Tokens::default()).await),
            "passed" => break,
            other => panic!("unexpected output of the browser driver: {other:?}"),
        }
        driver.answer("done");
    }
    driver.ended().await;
}

impl Served {
    async fn stop(self) {
        self.console.close();
        self.serving.abort();
        let _cut_off = self.serving.await;
    }
}

async fn serve(store: &Postgres, address: SocketAddr, tokens: Tokens) -> Served {
    let mut settings = Settings::new(system_clock());
    settings.tokens = tokens;
    settings.effective = [
        ("database.connections", "8", "default"),
        ("database.url", "***", "environment"),
        ("relay.lease", "5s", "default"),
        (
            "destinations.mail.schedule",
            "[\"0s\",\"5s\",\"5m\"]",
            "hapax.toml",
        ),
    ]
    .map(|(name, value, origin)| Setting {
        name: name.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
    })
    .into();
    settings.explained_in = Some("hapax-configuration");
    let metrics = || {
        "hapax_idempotency_requests_total{operation=\"POST /orders\",outcome=\"created\"} 900\n"
            .to_owned()
    };
    settings.metrics = Some(Arc::new(metrics));
    let catalogue = Catalogue::parse(CATALOGUE).unwrap();
    settings.catalogue = Some((catalogue, BTreeSet::new()));
    let console = Console::new(store.clone(), settings);
    let listener = TcpListener::bind(address).await.expect("the port is free");
    let router = console.router();
    let kept = console.clone();
    let serving = tokio::spawn(async move {
        let serving = async { axum::serve(listener, router).await };
        let _ended = tokio::join!(serving, kept.watch());
    });
    Served { console, serving }
}

async fn store(database: &Database) -> Postgres {
    let mut settings =
        hapax_postgres::Settings::new(database.url(), system_clock(), Random::new(|| 7));
    settings.schema = Schema::Apply;
    let store = Postgres::open(settings).await.unwrap();
    database.client().await.batch_execute(ROWS).await.unwrap();
    store
}

fn tokens() -> Tokens {
    let given = |name, token, role| Given {
        name,
        token,
        role,
        tenant: None,
    };
    let operator = given("alice", OPERATOR, Role::Operator);
    let viewer = given("vera", VIEWER, Role::Viewer);
    Tokens::of([operator, viewer]).unwrap()
}
