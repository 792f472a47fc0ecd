//! Tests of the console in a real browser: keyboard shortcuts, live figures, colours, and the
//! layout on a wide screen and on a phone. `drive.mjs` controls the browser. This program serves
//! the console, and pauses a destination, stops and starts the console when the driver asks for it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue reports where"
)]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
};

use hapax::{
    Random,
    admin::{Actor, DestinationAdmin as _},
};
use hapax_console::{Console, Given, Role, Setting, Settings, Tokens};
use hapax_postgres::{Postgres, Schema};
use hapax_testkit::{clock::system_clock, port::free_port, postgres::Database};
use tokio::{net::TcpListener, task::JoinHandle};

const OPERATOR: &str = "operator-0123456789";
const VIEWER: &str = "viewer-0123456789";
const ROWS: &str = include_str!("rows.sql");

/// A console that accepts connections until it is stopped.
struct Served {
    console: Console,
    serving: JoinHandle<()>,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_in_a_browser() {
    let chromium = program(&["chromium", "chromium-browser", "google-chrome"]);
    let chromium = chromium.expect("no Chromium: apt-get install chromium");
    program(&["node"]).expect("no node: apt-get install nodejs npm");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    install(&folder);

    let database = Database::fresh().await;
    let store = store(&database).await;
    let local: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let guarded: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut open = Some(serve(&store, local, Tokens::default()).await);
    let _guarded = serve(&store, guarded, tokens()).await;

    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    let mut child = Command::new("node")
        .arg(folder.join("drive.mjs"))
        .args([format!("http://{local}"), format!("http://{guarded}")])
        .args([OPERATOR, VIEWER])
        .args([&chromium, &shots])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node starts");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut answer = child.stdin.take().expect("it is piped");
    loop {
        let (line, back) = heard(said).await;
        said = back;
        match line.trim() {
            "pause hooks" => {
                let actor = Actor::new("night shift");
                store.pause_destination(&actor, "hooks").await.unwrap();
            }
            "stop" => open.take().expect("it runs").stop().await,
            "start" => open = Some(serve(&store, local, Tokens::default()).await),
            "passed" => break,
            other => panic!("unexpected output of the browser driver: {other:?}"),
        }
        tell(&mut answer);
    }
    tell(&mut answer);
    ended(child, answer).await;
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

/// Returns the path of the first of these programs that is installed.
fn program(names: &[&str]) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    let path = std::env::var("PATH").unwrap_or_default();
    names
        .iter()
        .flat_map(|name| {
            path.split(':')
                .map(move |folder| Path::new(folder).join(name))
        })
        .find(|it| it.is_file())
}

/// Installs the npm packages of `drive.mjs`, with the versions of the lock file.
fn install(folder: &Path) {
    if folder.join("node_modules/playwright-core").is_dir() {
        return;
    }
    let ran = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .status()
        .expect("no npm: apt-get install npm");
    assert!(
        ran.success(),
        "npm ci in {} ended with {ran}",
        folder.display()
    );
}

/// Reads the next line of the driver's output.
async fn heard(mut from: BufReader<ChildStdout>) -> (String, BufReader<ChildStdout>) {
    let reading = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        from.read_line(&mut line).expect("it is text");
        (line, from)
    });
    reading.await.expect("reading does not panic")
}

fn tell(to: &mut ChildStdin) {
    to.write_all(b"done\n").expect("the driver listens");
}

async fn ended(mut child: Child, answer: ChildStdin) {
    let waiting = tokio::task::spawn_blocking(move || {
        drop(answer);
        child.wait()
    });
    let ended = waiting.await.expect("waiting does not panic").unwrap();
    assert!(ended.success(), "the browser driver ended with {ended}");
}
