//! Tests of `hapax listen`: what it forwards and prints, and that it is not a destination.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply, Received},
    postgres::Cluster,
    program::Program,
    wait::eventually,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    hapax::{PATIENCE, SECRET, emit, hapax, migrate, run},
    store::{Home, Store, on_both_stores},
    test_event::check_signature,
};

on_both_stores! {
    new_events_are_forwarded_with_a_new_secret_and_nothing_is_settled,
    a_forward_that_fails_is_repeated_and_then_the_next_event_is_forwarded,
    a_payload_is_printed_masked_and_only_on_request,
    csv_has_a_header_and_a_payload_is_one_of_its_columns,
    a_url_or_a_secret_that_cannot_work_is_refused,
    a_reader_that_closes_the_output_ends_the_command,
}

#[tokio::test]
async fn an_event_that_commits_after_hundreds_of_newer_ones_is_printed() {
    let database = Home::migrated(Store::Postgres).await;
    let Home::Server(server) = &database else {
        panic!("the database is not on a server");
    };
    let (mut late, client) = (server.client().await, server.client().await);
    let listen = Listen::start(&database, &["--type", "order.*"]).await;
    let open = late.transaction().await.unwrap();
    open.batch_execute("SELECT hapax.emit('order.late', '1', 'order', 'o1')")
        .await
        .unwrap();
    emit(&client, "order.created", 500).await;
    listen.lines("order.created", 500).await;
    open.commit().await.unwrap();
    listen.lines("order.late", 1).await;
    let log = listen.interrupt().await;
    assert_eq!(log.matches("order.created").count(), 500);
    assert_eq!(log.matches("order.late").count(), 1);
}

#[tokio::test]
async fn a_rare_event_is_printed_however_many_others_are_committed() {
    let database = Home::migrated(Store::Postgres).await;
    let Home::Server(server) = &database else {
        panic!("the database is not on a server");
    };
    let client = server.client().await;
    emit(&client, "rare.first", 1).await;
    // More than are read again each time.
    fill(&client).await;
    let listen = Listen::start(&database, &["--type", "rare.*"]).await;
    let recent = Listen::start(&database, &["--type", "rare.*", "--since", "1h"]).await;
    recent.lines("rare.first", 1).await;
    emit(&client, "rare.second", 1).await;
    fill(&client).await;
    emit(&client, "rare.third", 1).await;
    for (listen, first) in [(listen, 0), (recent, 1)] {
        listen.lines("rare.third", 1).await;
        let log = listen.interrupt().await;
        assert_eq!(log.matches("rare.first").count(), first, "{log}");
        assert_eq!(log.matches("rare.second").count(), 1, "{log}");
    }
}

#[tokio::test]
async fn after_a_restart_of_the_database_events_are_followed_without_a_loss() {
    let mut cluster = Cluster::start().await;
    migrate(&cluster.url());
    let folder = tempfile::tempdir().unwrap();
    let mut command = hapax(&["events", "tail", "--follow", "--database", &cluster.url()]);
    command.args(["--type", "order.*"]);
    let mut tail = Program::start(command, &folder.path().join("log"));
    let listen = Listen::on(&cluster.url(), &["--payload"]).await;
    emit(&cluster.client().await, "order.created", 1).await;
    listen.lines("order.created", 1).await;
    eventually(PATIENCE, async || tail.log().contains("order.created")).await;
    cluster.stop_immediate().await;
    for program in [&listen.program, &tail] {
        let says = "hapax: the database does not respond";
        eventually(PATIENCE, async || program.log().contains(says)).await;
    }
    cluster.start_again().await;
    emit(&cluster.client().await, "order.paid", 2).await;
    listen.lines("  order.paid  ", 2).await;
    eventually(PATIENCE, async || {
        tail.log().matches("  order.paid  ").count() == 2
    })
    .await;
    assert!(tail.log().contains("hapax: the database responds again"));
    tail.kill();
    let log = listen.interrupt().await;
    assert!(log.contains("hapax: the database responds again"), "{log}");
    assert_eq!(log.matches("order.created").count(), 1, "{log}");
}

/// Emits more events than a read of new ones covers.
async fn fill(client: &tokio_postgres::Client) {
    for _ in 0..2 {
        emit(client, "order.created", 6_000).await;
    }
}

/// A running `hapax listen`. Its output and its errors are in one log.
struct Listen {
    program: Program,
    folder: TempDir,
}

impl Listen {
    /// Starts it with these arguments, and waits until it listens.
    async fn start(database: &Home, arguments: &[&str]) -> Self {
        Self::on(&database.url(), arguments).await
    }

    /// The same with the URL of a database.
    async fn on(url: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("hapax.toml");
        fs::write(&config, "[admin]\nmask = [\"n\"]\n").unwrap();
        let mut command = hapax(&["listen", "--database", url]);
        command.arg("--config").arg(&config).args(arguments);
        let program = Program::start(command, &folder.path().join("log"));
        let listen = Self { program, folder };
        let listens = ["listening for events\n", "forwarding events, signed with "];
        eventually(PATIENCE, async || {
            listens.iter().any(|it| listen.program.log().contains(it))
        })
        .await;
        listen
    }

    /// Waits until this number of lines contain a text, and returns them.
    async fn lines(&self, text: &str, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        eventually(PATIENCE, async || {
            let log = self.program.log();
            let lines = log.lines().filter(|line| line.contains(text));
            found = lines.map(str::to_owned).collect();
            found.len() == count
        })
        .await;
        found
    }

    /// Ends it as an operator does, with Ctrl-C. Returns its log.
    async fn interrupt(mut self) -> String {
        self.program.signal("INT");
        let (status, log) = (self.program.ended().await, self.program.log());
        assert!(status.success(), "{status}: {log}");
        drop(self.folder);
        log
    }
}

async fn new_events_are_forwarded_with_a_new_secret_and_nothing_is_settled(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 1).await;
    let receiver = HttpReceiver::start().await;
    let to = receiver.url("/hooks");
    let listen = Listen::start(&database, &["--to", &to, "--type", "order.*"]).await;
    let announced = listen.lines("signed with whsec_", 1).await;
    let secret = announced[0].split(' ').next_back().unwrap();
    database.emit("user.created", 1).await;
    database.emit("order.paid", 2).await;
    let forwarded = receiver.received_at_least(2).await;
    let lines = listen.lines("  200  ", 2).await;
    for (request, line) in forwarded.iter().zip(lines) {
        assert_eq!(request.path, "/hooks");
        check_signature(request, secret);
        assert_eq!(body(request)["type"], "order.paid");
        let id = request.header("webhook-id").unwrap();
        assert!(line.contains(&format!("  order.paid  {id}  ")), "{line}");
    }
    let list = ["destinations", "list", "--json", "--database"];
    let destinations = run(&[&list[..], &[&database.url()]].concat()).ended(0);
    assert_eq!(destinations.json()["items"], json!([]));
    let log = listen.interrupt().await;
    assert!(!log.contains("\"n\"") && !log.contains("user."), "{log}");
    assert_eq!(receiver.received().len(), 2);
}

async fn a_forward_that_fails_is_repeated_and_then_the_next_event_is_forwarded(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(|received| {
        let is_first = body(received)["data"]["n"] == 1;
        HttpReply::status(if is_first { 503 } else { 200 })
    });
    let to = receiver.url("/");
    let listen = Listen::start(&database, &["--to", &to, "--secret", SECRET]).await;
    database.emit("order.created", 2).await;
    let failed = listen.lines("  503  ", 4).await;
    for (line, next) in failed.iter().zip(["again in 1s", "2s", "4s", "given up"]) {
        assert!(line.contains(next), "{next}: {line}");
        assert!(line.contains("responded with 503"), "{line}");
    }
    listen.lines("  200  ", 1).await;
    let forwarded = receiver.received();
    let numbers: Vec<_> = forwarded
        .iter()
        .map(|it| body(it)["data"]["n"].clone())
        .collect();
    assert_eq!(numbers, [1, 1, 1, 1, 2]);
    for request in &forwarded {
        check_signature(request, SECRET);
    }
    let log = listen.interrupt().await;
    assert!(!log.contains(SECRET), "{log}");
}

async fn a_payload_is_printed_masked_and_only_on_request(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 2).await;
    let json = Listen::start(&database, &["--json", "--since", "1h"]).await;
    let lines = json.lines("order.created", 2).await;
    let events = lines.iter().map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<Value> = events.collect();
    assert_eq!(events[0]["aggregate_id"], "o1", "{events:?}");
    for event in &events {
        let payload = event["payload"].as_str().unwrap();
        let payload: Value = serde_json::from_str(payload).unwrap();
        assert_eq!(payload, json!({"n": "***"}));
        assert_eq!(event["attempt"], Value::Null);
    }
    let text = Listen::start(&database, &["--payload"]).await;
    let plain = Listen::start(&database, &[]).await;
    database.emit("order.paid", 1).await;
    for listen in [&json, &text, &plain] {
        listen.lines("order.paid", 1).await;
    }
    text.lines("***", 1).await;
    json.interrupt().await;
    text.interrupt().await;
    let log = plain.interrupt().await;
    assert!(
        !log.contains("***") && !log.contains("order.created"),
        "{log}"
    );
}

async fn csv_has_a_header_and_a_payload_is_one_of_its_columns(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(422));
    let to = receiver.url("/");
    let forward = ["--csv", "--payload", "--to", &to, "--secret", SECRET];
    for (arguments, header) in [
        (&["--csv"][..], "created,type,id"),
        (&["--csv", "--payload"][..], "created,type,id,payload"),
        (
            &forward[..],
            "created,type,id,outcome,duration,error,payload",
        ),
    ] {
        let listen = Listen::start(&database, arguments).await;
        database.emit("order.created", 1).await;
        let rows = listen.lines("order.created", 1).await;
        let log = listen.interrupt().await;
        let headers = log.lines().filter(|line| line.starts_with("created,"));
        assert_eq!(headers.collect::<Vec<_>>(), [header], "{log}");
        let table = format!("{header}\n{}\n", rows[0]);
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        // A row with more or fewer cells than the header is an error.
        let row = reader.records().next().unwrap().unwrap();
        assert_eq!(&row[1], "order.created", "{table}");
        if arguments.contains(&"--payload") {
            let payload: Value = serde_json::from_str(&row[row.len() - 1]).unwrap();
            assert_eq!(payload, json!({"n": "***"}));
        }
        if arguments.contains(&"--to") {
            assert_eq!(&row[3], "422", "{table}");
            assert!(row[5].starts_with("again in 1s: "), "{table}");
        }
    }
}

async fn a_url_or_a_secret_that_cannot_work_is_refused(on: Store) {
    let database = Home::migrated(on).await;
    let url = database.url();
    let listen = |arguments: &[&str]| {
        let all = [&["listen", "--database", &url][..], arguments].concat();
        run(&all).ended(2).stderr
    };
    let to = "http://localhost:3000/";
    for (arguments, flag) in [
        (&["--to", "ftp://localhost/"][..], "--to"),
        (&["--to", to, "--secret", "hunter2"][..], "--secret"),
        (&["--secret", SECRET][..], "--to"),
        (&["--since", "yesterday"][..], "--since"),
    ] {
        let stderr = listen(arguments);
        assert!(
            stderr.contains(flag) && !stderr.contains("hunter2"),
            "{stderr}"
        );
    }
}

async fn a_reader_that_closes_the_output_ends_the_command(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 1).await;
    let url = database.url();
    for arguments in [
        &["listen", "--since", "1h"][..],
        &["listen", "--since", "1h", "--json"],
        &["events", "tail", "--follow"],
        &["status", "--watch", "500ms", "--json"],
    ] {
        let mut command = hapax(&[arguments, &["--database", &url]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{arguments:?}");
        drop(output);
        database.emit("order.paid", 2).await;
        eventually(PATIENCE, async || child.try_wait().unwrap().is_some()).await;
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("hapax:"), "{arguments:?}: {stderr}");
    }
}

/// The body of a webhook.
#[track_caller]
fn body(received: &Received) -> Value {
    serde_json::from_slice(&received.body).unwrap()
}
