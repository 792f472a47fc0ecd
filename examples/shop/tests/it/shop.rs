//! Fixture: a shop process with a folder and a database, which ends with the test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
pub(crate) use hapax_testkit::{both_stores::Store, on_both_stores};
use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    postgres::{Cluster, Database},
    program::{Program, run_to_end},
    wait::eventually,
};
use http::Method;
use serde_json::Value;
use tempfile::TempDir;

use crate::simulated_providers::Providers;

/// The maximum time that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The header of a JSON body.
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");
/// A valid order.
pub(crate) const ORDER: &str = r#"{"customer_id":"ann","amount":500,"currency":"EUR"}"#;

/// A valid payment.
pub(crate) const PAYMENT: &str = r#"{"amount":900,"currency":"EUR","card":"tok_ok"}"#;
/// A valid payment that the provider takes seconds for.
pub(crate) const SLOW: &str = r#"{"amount":900,"currency":"EUR","card":"tok_slow"}"#;
/// A valid checkout.
pub(crate) const CART: &str = r#"{"items":[{"sku":"sku_tea","quantity":1}],"card":"tok_ok","address":{"name":"Ann","line1":"Way 1","city":"Ulm","postal_code":"89073","country":"DE"}}"#;

/// A running shop.
pub(crate) struct Shop {
    program: Program,
    url: String,
    client: HttpClient,
    home: Home,
}

/// The folder and the database of a shop. Both are deleted when the last shop that uses them is
/// dropped.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    folder: Arc<TempDir>,
    /// A database on the tests' server, or `None` if the rows are in a file of the folder.
    database: Option<Arc<Database>>,
    /// The separate simulated providers, or `None` if the shop uses its built-in ones.
    providers: Option<Arc<Providers>>,
}

impl Home {
    /// An empty folder and an empty database.
    pub(crate) async fn fresh(on: Store) -> Self {
        let database = match on {
            Store::Sqlite => None,
            Store::Postgres => Some(Arc::new(Database::fresh().await)),
        };
        Self {
            folder: Arc::new(tempfile::tempdir().unwrap()),
            database,
            providers: None,
        }
    }

    /// An empty folder, an empty database, and providers that keep running when a shop ends.
    pub(crate) async fn with_providers(on: Store) -> Self {
        let providers = Some(Arc::new(Providers::start()));
        Self {
            providers,
            ..Self::fresh(on).await
        }
    }

    /// An empty folder, and an empty database on a private server.
    pub(crate) async fn on(cluster: &Cluster) -> Self {
        Self {
            folder: Arc::new(tempfile::tempdir().unwrap()),
            database: Some(Arc::new(Database::on(&cluster.url()).await)),
            providers: None,
        }
    }

    /// A new folder with the same database and the same providers, for another instance.
    pub(crate) fn beside(&self) -> Self {
        assert!(self.database.is_some(), "a database file cannot be shared");
        Self {
            folder: Arc::new(tempfile::tempdir().unwrap()),
            database: self.database.clone(),
            providers: self.providers.clone(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether the rows are in a file of the folder.
    pub(crate) fn is_in_a_file(&self) -> bool {
        self.database.is_none()
    }

    /// The separate simulated providers.
    pub(crate) fn providers(&self) -> Arc<Providers> {
        self.providers.clone().unwrap()
    }

    /// The number that a query returns, read directly from the database.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        if self.is_in_a_file() {
            let path = self.path().join("shop.db");
            let conn = hapax_sqlite::rusqlite::Connection::open(path).unwrap();
            return conn.query_row(sql, [], |row| row.get(0)).unwrap();
        }
        let client = self.database().client().await;
        client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// The rows of a tenant in a table of Hapax, as text.
    pub(crate) async fn rows_of(&self, tenant: &str, table: &str) -> Vec<String> {
        if self.is_in_a_file() {
            let path = self.path().join("shop.db");
            let conn = hapax_sqlite::rusqlite::Connection::open(path).unwrap();
            let sql = format!("SELECT * FROM hapax_{table} WHERE tenant = ?1 ORDER BY 1");
            let mut statement = conn.prepare(&sql).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([tenant]).unwrap();
            let mut found = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                let value = |it| row.get_unwrap::<usize, hapax_sqlite::rusqlite::types::Value>(it);
                let values: Vec<_> = (0..columns).map(value).collect();
                found.push(format!("{values:?}"));
            }
            return found;
        }
        let client = self.database().client().await;
        let sql = format!(
            "SELECT to_json(it)::text FROM hapax.{table} AS it WHERE tenant = $1 ORDER BY 1"
        );
        let rows = client.query(sql.as_str(), &[&tenant]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Executes SQL directly in the database.
    pub(crate) async fn change(&self, sql: &str) {
        if self.is_in_a_file() {
            let path = self.path().join("shop.db");
            let conn = hapax_sqlite::rusqlite::Connection::open(path).unwrap();
            return conn.execute_batch(sql).unwrap();
        }
        let client = self.database().client().await;
        client.batch_execute(sql).await.unwrap();
    }

    /// The URL of the database, for `hapax`.
    pub(crate) fn url(&self) -> String {
        match &self.database {
            None => format!("sqlite:{}", self.path().join("shop.db").display()),
            Some(database) => database.url(),
        }
    }

    /// The database on a server.
    pub(crate) fn database(&self) -> &Database {
        self.database.as_deref().unwrap()
    }
}

/// The command of the shop's binary with these flags, this folder and a free port, not started.
pub(crate) fn command(home: &Home, flags: &[&str]) -> Command {
    let mut command = command_in(home.path(), flags);
    if let Some(database) = &home.database {
        command.args(["--database", &database.url()]);
    }
    if let Some(providers) = &home.providers {
        command.args(providers.flags());
    }
    command
}

/// The command of the shop's binary with these flags and data directory, and a free port, not
/// started.
pub(crate) fn command_in(folder: &Path, flags: &[&str]) -> Command {
    command_at("127.0.0.1:0", folder, flags)
}

/// The command of the shop's binary with these flags, data directory and address, not started.
pub(crate) fn command_at(address: &str, folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    command
        .args(["--listen", address, "--data-dir"])
        .arg(folder)
        .args(flags)
        .env_clear()
        .stdin(Stdio::null());
    command
}

/// The words of the command that starts a shop at this port, for a shell.
pub(crate) fn command_line(home: &Home, port: u16, folder: &Path, flags: &[&str]) -> Vec<String> {
    let mut command = command_at(&format!("127.0.0.1:{port}"), folder, flags);
    if let Some(database) = &home.database {
        command.args(["--database", &database.url()]);
    }
    if let Some(providers) = &home.providers {
        command.args(providers.flags());
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|it| it.to_str().unwrap().to_owned()).collect()
}

/// Runs a shop that must fail to start, and returns its exit code and error message.
#[track_caller]
pub(crate) fn refused(command: Command) -> (Option<i32>, String) {
    let ran = run_to_end(command);
    (ran.code, ran.stderr)
}

impl Shop {
    /// Starts a shop with the demo, in a new folder with a new database.
    pub(crate) async fn start(on: Store, flags: &[&str]) -> Self {
        Self::start_in(Home::fresh(on).await, flags)
    }

    /// Starts a shop in a folder that another shop may have used before.
    pub(crate) fn start_in(home: Home, flags: &[&str]) -> Self {
        let command = command(&home, flags);
        Self::spawn(command, home)
    }

    /// Starts a shop with this command.
    pub(crate) fn spawn(command: Command, home: Home) -> Self {
        let (program, first) = Program::announced(command, &home.path().join("log"));
        let Some((_, url)) = first.split_once("listens on ") else {
            panic!("the shop did not start: {first:?} {}", program.log());
        };
        Self {
            url: url.to_owned(),
            program,
            client: HttpClient::new(),
            home,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) fn home(&self) -> Home {
        self.home.clone()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    /// Sends a request without changes.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let body = body.to_owned().into();
        self.client
            .send(method, &self.url(path), headers, body)
            .await
            .unwrap()
    }

    /// Sends JSON with POST as alice, with a key if there is one.
    pub(crate) async fn post(&self, path: &str, key: Option<&str>, body: &str) -> HttpResponse {
        self.post_as("demo-alice", path, key, body).await
    }

    /// Sends JSON with POST and this token.
    pub(crate) async fn post_as(
        &self,
        token: &str,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> HttpResponse {
        let token = format!("Bearer {token}");
        let mut headers = vec![JSON, ("authorization", token.as_str())];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        self.send(Method::POST, path, &headers, body).await
    }

    /// Sends GET as alice.
    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.get_as("demo-alice", path).await
    }

    /// Sends GET with this token.
    pub(crate) async fn get_as(&self, token: &str, path: &str) -> HttpResponse {
        let token = format!("Bearer {token}");
        self.send(Method::GET, path, &[("authorization", &token)], "")
            .await
    }

    /// Sends JSON with POST as alice, and repeats the request until the response is final.
    pub(crate) async fn until_answered(&self, path: &str, key: &str, body: &str) -> HttpResponse {
        let mut answer = None;
        eventually(PATIENCE, async || {
            let outcome = self.post(path, Some(key), body).await;
            let passing = outcome.status == 409 && outcome.header("retry-after").is_some();
            assert!(passing || outcome.status == 201, "{}", outcome.text());
            answer = Some(outcome);
            !passing
        })
        .await;
        answer.unwrap()
    }

    /// Sends JSON with POST as alice, under each of these keys at once.
    pub(crate) async fn at_once(
        &self,
        path: &str,
        keys: impl Iterator<Item = String>,
        body: &str,
    ) -> Vec<HttpResponse> {
        let posts = keys.map(|key| async move { self.post(path, Some(&key), body).await });
        join_all(posts).await
    }

    /// The entries of alice's ledger that fit this query, which may be empty.
    pub(crate) async fn entries(&self, query: &str) -> Vec<Value> {
        let ledger = self.get(&format!("/ledger{query}")).await.json().unwrap();
        ledger["entries"].as_array().unwrap().clone()
    }

    /// The number of entries of this kind in alice's ledger.
    pub(crate) async fn count_entries(&self, kind: &str) -> usize {
        let entries = self.entries("").await;
        entries.iter().filter(|it| it["kind"] == kind).count()
    }

    /// Waits until the demo's receiver has this many events of this type, and returns them.
    pub(crate) async fn received(&self, kind: &str, least: usize) -> Vec<Value> {
        let mut found = Vec::new();
        eventually(PATIENCE, async || {
            found = self.received_now(kind).await;
            found.len() >= least
        })
        .await;
        found
    }

    /// The events of this type that the demo's receiver has now.
    pub(crate) async fn received_now(&self, kind: &str) -> Vec<Value> {
        let answer = self.get("/demo/receiver").await.json().unwrap();
        let events = answer["events"].as_array().unwrap().iter();
        events
            .filter(|event| event["type"] == kind)
            .cloned()
            .collect()
    }

    /// Sets the behaviour of the demo's receiver.
    pub(crate) async fn misbehave(&self, fault: &str) {
        let answer = self
            .send(Method::POST, "/demo/receiver/fault", &[JSON], fault)
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// The caught mails, by file name.
    pub(crate) fn mails(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.file("mail")).unwrap();
        files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "eml"))
            .collect()
    }

    /// The sum of all values of a metric whose lines start with this text.
    pub(crate) async fn metric(&self, start: &str) -> f64 {
        let text = self.send(Method::GET, "/metrics", &[], "").await.text();
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// Sends the signal with this name.
    pub(crate) fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    /// Waits until the process has ended, and returns its status and its standard output.
    pub(crate) async fn ended(&mut self) -> (ExitStatus, String) {
        (self.program.ended().await, self.program.output())
    }

    /// Stops the shop as an operator would.
    pub(crate) async fn stop(mut self) {
        self.program.stop().await;
    }
}

/// Status, headers and body.
pub(crate) type Lasting = (u16, Vec<(String, Vec<u8>)>, Vec<u8>);

/// The part of a response that a replay repeats: everything except the headers of a single
/// exchange.
pub(crate) fn lasting(answer: &HttpResponse) -> Lasting {
    let own = [
        "date",
        "x-request-id",
        "idempotency-status",
        "idempotent-replayed",
    ];
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    headers.sort();
    (answer.status, headers, answer.body.to_vec())
}

/// Checks that a response is a replay of the first one.
#[track_caller]
pub(crate) fn check_replays(answer: &HttpResponse, first: &HttpResponse) {
    assert_eq!(answer.header("idempotency-status"), Some("replayed"));
    assert_eq!(lasting(answer), lasting(first));
}

/// Returns the state of a checkout that must succeed, and waits for it if necessary.
pub(crate) async fn bought(shop: &Shop, answer: &HttpResponse) -> Value {
    let outcome = match answer.status {
        202 => ended(shop, answer).await,
        status => {
            assert_eq!(status, 201, "{}", answer.text());
            answer.json().unwrap()
        }
    };
    assert_eq!(outcome["state"], "completed", "{outcome}");
    outcome
}

/// Waits for the end of a checkout whose response has a `Location`, and returns its state.
pub(crate) async fn ended(shop: &Shop, answer: &HttpResponse) -> Value {
    let location = answer.header("location").unwrap().to_owned();
    let mut outcome = Value::Null;
    eventually(3 * PATIENCE, async || {
        outcome = shop.get(&location).await.json().unwrap();
        outcome["state"] != "running"
    })
    .await;
    outcome
}

/// Checks that a response is a problem with this status and code, and returns it.
#[track_caller]
pub(crate) fn problem(answer: &HttpResponse, status: u16, code: &str) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let problem = answer.json().unwrap();
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["status"], status);
    assert_eq!(
        problem["request_id"],
        answer.header("x-request-id").unwrap()
    );
    problem
}

/// Checks that a response rejects this member.
#[track_caller]
pub(crate) fn refuses(answer: &HttpResponse, member: &str) {
    let problem = problem(answer, 400, "VALIDATION.member");
    assert_eq!(problem["member"], member, "{problem}");
}
