//! Tests of the commands for operators, each run as a process.

use std::{fs, io, process::Stdio};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    program::Program,
    wait::eventually,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    hapax::{PATIENCE, ProgramOutput, Relay, SECRET, hapax, run, run_to_end, start_relay, webhook},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    destinations_are_declared_and_changed_and_removed_by_verbs,
    dead_letters_are_looked_at_replayed_and_discarded_by_verbs,
    a_dead_letter_is_edited_and_replayed_by_a_verb,
    a_name_under_which_a_relay_carries_is_not_free,
    a_pipe_that_is_closed_is_no_failure_and_tables_are_for_people,
    every_command_that_prints_a_table_prints_only_the_table_as_csv,
    new_events_are_followed,
    the_status_is_shown_at_a_glance,
}

/// A database, and the files that an operator gives to the commands.
struct Operator {
    database: Home,
    folder: TempDir,
    /// The path of a configuration file with an encryption key and one destination.
    config: String,
    /// The path of a file with a declaration of a webhook.
    spec: String,
}

impl Operator {
    async fn new(on: Store) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| write(&folder, name, text);
        let settings = "[secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
            [destinations.filed]\nsink.file.path = \"/tmp/x\"\n";
        let webhook =
            json!({"sink": {"webhook": {"url": "https://example.com/", "secret": SECRET}}});
        Self {
            database: Home::migrated(on).await,
            config: write("hapax.toml", settings),
            spec: write("spec.json", &webhook.to_string()),
            folder,
        }
    }

    /// Runs `hapax destinations` with these arguments.
    fn destinations(&self, arguments: &[&str]) -> ProgramOutput {
        let url = self.database.url();
        let database = ["destinations", "--database", &url, "--config", &self.config];
        run(&[&database[..], &["--json"], arguments].concat())
    }
}

async fn destinations_are_declared_and_changed_and_removed_by_verbs(on: Store) {
    let operator = Operator::new(on).await;
    create_and_change(&operator);
    pause_and_resume(&operator);
    replay_with_another_section(&operator);
    let call = |arguments: &[&str]| operator.destinations(arguments);
    call(&["show", "nobody"]).ended(3);
    let listed = call(&["list"]).ended(0).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        call(&["remove", "orders", "--yes"]).ended(0).json()["kind"],
        "remove_destination"
    );
    let log = call(&["log"]).ended(0).json();
    assert_eq!(log["items"][0]["action"], "remove");
    assert!(!log["items"][0]["actor"].as_str().unwrap().is_empty());

    let (url, config) = (operator.database.url(), &operator.config);
    let list = ["destinations", "list"];
    let table = run(&[&list[..], &["--database", &url, "--config", config]].concat()).ended(0);
    assert!(table.stdout.starts_with("NAME"), "{table:?}");
    let bad = format!("{{\"secret\": \"{SECRET}");
    let bad = write(&operator.folder, "bad.json", &bad);
    let outcome = call(&["create", "b", "--spec", &bad, "--yes"]).ended(2);
    assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");
}

async fn dead_letters_are_looked_at_replayed_and_discarded_by_verbs(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500));
    let configuration = webhook("orders", &receiver.url("/")).replace(
        "schedule = [\"0s\", \"50ms\", \"100ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\"]",
        "schedule = [\"0s\"]",
    );
    database.emit("order.created", 5).await;
    let relay = start_relay(&database.url(), &configuration).await;
    let url = database.url();
    let call = |arguments: &[&str]| call(&url, arguments);
    eventually(PATIENCE, async || {
        let dead = call(&["dead-letters", "list"]).ended(0).json();
        dead["items"].as_array().unwrap().len() == 5
    })
    .await;
    receiver.reply(HttpReply::status(200));
    let dead = call(&["dead-letters", "list", "--destination", "orders"])
        .ended(0)
        .json();
    let position = |number: usize| dead["items"][number]["position"].to_string();
    let event = dead["items"][0]["event_id"].as_str().unwrap();
    let shown = call(&["events", "show", event]).ended(0).json();
    assert_eq!(shown["destinations"][0]["attempts"][0]["status"], 500);
    let show = ["dead-letters", "show", "orders", &position(0)];
    let shown = call(&show).ended(0).json();
    assert_eq!(shown["destinations"][0]["state"], "dead", "{shown}");
    call(&["dead-letters", "show", "other", &position(0)]).ended(3);
    call(&["events", "show", "no-such"]).ended(3);
    replay_one(&url, &position(0));
    receiver.received_at_least(6).await;
    discard_one(&url, &position(1));
    replay_all(&url);
    receiver.received_at_least(9).await;
    eventually(PATIENCE, async || {
        let left = call(&["deliveries", "list", "--state", "retrying,dead"])
            .ended(0)
            .json();
        left["items"] == json!([])
    })
    .await;
    replay_events(&url, &relay);
    receiver.received_at_least(14).await;
    check_lists(&url);
    relay.stop().await;
}

async fn a_dead_letter_is_edited_and_replayed_by_a_verb(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(422));
    database.emit("order.created", 1).await;
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    let url = database.url();
    let call = |arguments: &[&str]| call(&url, arguments);
    let mut dead = json!(null);
    eventually(PATIENCE, async || {
        dead = call(&["dead-letters", "list"]).ended(0).json()["items"][0].clone();
        dead.is_object()
    })
    .await;
    receiver.reply(HttpReply::status(200));
    let before = receiver.received().len();
    let position = dead["position"].to_string();
    let edit = |patch: &'static str| {
        [
            "dead-letters",
            "replay",
            "orders",
            &position,
            "--patch",
            patch,
        ]
    };
    let sorry = edit("{\"said\": \"sorry\", \"n\": null}");
    let asked = call(&sorry).ended(4);
    assert!(asked.stderr.contains("of orders, edited?"), "{asked:?}");
    for none in ["", "[]", "{\"n\"}"] {
        let outcome = call(&[&edit(none)[..], &["--yes"]].concat()).ended(2);
        assert!(outcome.stderr.contains("patch"), "{outcome:?}");
    }
    call(&[&sorry[..], &["--yes"]].concat()).ended(0);
    let offers = receiver.received_at_least(before + 1).await;
    let last: Value = serde_json::from_slice(&offers[before].body).unwrap();
    assert_eq!(last["data"], json!({"said": "sorry"}), "{last}");
    let event = dead["event_id"].as_str().unwrap();
    assert_eq!(offers[before].header("webhook-id"), Some(event));
    let shown = call(&["events", "show", event]).ended(0).json();
    let edited = &shown["destinations"][0]["edited"];
    assert_eq!(edited, "{\"said\":\"sorry\"}", "{shown}");
    let again = call(&[&sorry[..], &["--yes"]].concat()).ended(4);
    assert!(again.stderr.contains("not dead"), "{again:?}");
    relay.stop().await;
}

async fn a_name_under_which_a_relay_carries_is_not_free(on: Store) {
    let database = Home::migrated(on).await;
    let configuration = "[destinations.orders]\nsink.file.path = \"/dev/null\"\n";
    let relay = start_relay(&database.url(), configuration).await;
    let url = database.url();
    let list = ["destinations", "list", "--json", "--database", &url];
    eventually(PATIENCE, async || {
        let listed = run(&list).ended(0).json();
        listed["items"].as_array().is_some_and(|it| it.len() == 1)
    })
    .await;
    let spec = relay.file("spec.json");
    let json = json!({"sink": {"webhook": {"url": "https://example.com/", "secret": SECRET}}});
    fs::write(&spec, json.to_string()).unwrap();
    let keys = relay.file("keys.toml");
    let key = "[secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n";
    fs::write(&keys, key).unwrap();
    let taken = run(&[
        "destinations",
        "create",
        "orders",
        "--yes",
        "--spec",
        spec.to_str().unwrap(),
        "--config",
        keys.to_str().unwrap(),
        "--database",
        &database.url(),
    ]);
    let taken = taken.ended(4);
    assert!(
        taken.stderr.contains("a relay delivers or delivered to it"),
        "{taken:?}"
    );
    relay.stop().await;
}

async fn a_pipe_that_is_closed_is_no_failure_and_tables_are_for_people(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 3).await;
    let url = database.url();
    let table = run(&["events", "list", "--database", &url]).ended(0);
    assert!(
        table.stdout.starts_with("ID ") && table.stdout.lines().count() == 4,
        "{table:?}"
    );
    assert!(table.stdout.contains("STATE"), "{table:?}");
    let csv = run(&["events", "list", "--csv", "--database", &url]).ended(0);
    let lines: Vec<_> = csv.stdout.lines().collect();
    assert!(lines[0].starts_with("id,"), "{csv:?}");
    let commas = |line: &&str| line.matches(',').count();
    let wide = commas(&lines[0]);
    assert!(
        lines.len() == 4 && lines.iter().all(|line| commas(line) == wide),
        "{csv:?}"
    );
    let tail = ["events", "tail", "--csv", "--database", &url];
    let columns = "created,id,state,type,about,tenant\n";
    let none = run(&[&tail[..], &["--type", "none"]].concat()).ended(0);
    assert_eq!(none.stdout, columns);
    let tail = run(&tail).ended(0);
    check_csv(&tail, columns, &["events", "tail"]);
    assert_eq!(tail.stdout.lines().count(), 4, "{tail:?}");
    assert!(!tail.stdout.contains(" ,"), "a cell is padded: {tail:?}");
    run(&["events", "list", "--csv", "--json", "--database", &url]).ended(2);
    let mut command = hapax(&["events", "list", "--database", &url]);
    command.stdin(Stdio::null());
    run_to_end(command).ended(0);
    // With CSV, `hapax status` writes its first lines to standard error.
    let (closed, stderr) = io::pipe().unwrap();
    drop(closed);
    let mut command = hapax(&["status", "--csv", "--database", &url]);
    let output = command.stderr(stderr).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(b"destination,"), "{output:?}");
}

async fn new_events_are_followed(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 3).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = hapax(&["events", "tail", "--follow", "--lines", "2", "--json"]);
    command.args(["--database", &database.url()]);
    let mut tail = Program::start(command, &folder.path().join("log"));
    let printed = |log: &str| {
        let numbers = log.lines().filter_map(|line| {
            let event: Value = serde_json::from_str(line).ok()?;
            let id = event["aggregate_id"].as_str()?.to_owned();
            Some((event["type"].as_str()?.to_owned(), id))
        });
        numbers.collect::<Vec<_>>()
    };
    let event = |kind: &str, id: &str| (kind.to_owned(), id.to_owned());
    let old = [event("order.created", "o2"), event("order.created", "o3")];
    eventually(PATIENCE, async || printed(&tail.log()) == old).await;
    database.emit("order.paid", 2).await;
    let new = [event("order.paid", "o1"), event("order.paid", "o2")];
    eventually(PATIENCE, async || {
        printed(&tail.log()) == [&old[..], &new].concat()
    })
    .await;
    tail.kill();
}

async fn the_status_is_shown_at_a_glance(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(422));
    database.emit("order.created", 2).await;
    let configuration = webhook("orders", &receiver.url("/"));
    let relay = start_relay(&database.url(), &configuration).await;
    let url = database.url();
    let mut status = json!(null);
    eventually(PATIENCE, async || {
        status = call(&url, &["status"]).ended(0).json();
        status["destinations"][0]["dead"]["number"] == 2
    })
    .await;
    assert_eq!(status["committed"]["number"], 2, "{status}");
    assert!(status["stalled"].is_array(), "{status}");
    let table = run(&["status", "--database", &url]).ended(0).stdout;
    let parts = ["2 events committed", "orders", "DEAD", "active"];
    for part in parts.into_iter().chain(["need a decision: 2"]) {
        assert!(table.contains(part), "{part}: {table}");
    }
    let refused = run(&["status", "--watch", "1ms", "--database", &url]).ended(2);
    assert!(refused.stderr.contains("at least 500ms"), "{refused:?}");
    relay.stop().await;
}

/// What is not a row of the table goes to standard error, so that a program can read the output.
async fn every_command_that_prints_a_table_prints_only_the_table_as_csv(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(422));
    database.emit("order.created", 2).await;
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    let url = database.url();
    let mut dead = json!(null);
    eventually(PATIENCE, async || {
        dead = call(&url, &["dead-letters", "list"]).ended(0).json()["items"].clone();
        dead.as_array().unwrap().len() == 2
    })
    .await;
    let (event, position) = (
        dead[0]["event_id"].as_str().unwrap(),
        dead[0]["position"].to_string(),
    );
    let tables: [(&[&str], &str); 16] = [
        (&["status"], "destination,"),
        (
            &["doctor", "--database-only"],
            "severity,check,found,remedy",
        ),
        (&["keys", "list"], "operation,"),
        (&["events", "list"], "id,"),
        (&["events", "show", event], "destination,state,when,why"),
        (&["deliveries", "list"], ""),
        (&["dead-letters", "list"], ""),
        (
            &["dead-letters", "show", "orders", &position],
            "destination,state,when,why",
        ),
        (&["dead-letters", "jobs"], ""),
        (&["inbox", "list"], "id,"),
        (&["sagas", "list"], "id,"),
        (&["destinations", "list"], "name,"),
        (&["destinations", "show", "orders"], "name,sink,"),
        (&["destinations", "log"], "at,actor,"),
        (&["config", "show"], "setting,value,from"),
        (&["migrate", "--check"], ""),
    ];
    for (verb, header) in tables {
        let ran = run(&[verb, &["--csv", "--database", &url]].concat());
        check_csv(&ran, header, verb);
        let ran = run(&[verb, &["--json", "--database", &url]].concat());
        assert!(ran.code.is_some_and(|code| code < 3), "{verb:?}: {ran:?}");
        ran.json();
    }
    let ran = run(&["status", "--csv", "--database", &url]).ended(0);
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
    for beside in ["2 events committed", "need a decision: 2"] {
        assert!(ran.stderr.contains(beside), "{beside}: {ran:?}");
    }
    relay.stop().await;
}

/// Requires that the output is one table: each record has as many cells as the header, and no cell
/// is left over.
#[track_caller]
fn check_csv(ran: &ProgramOutput, header: &str, verb: &[&str]) {
    assert!(ran.stdout.starts_with(header), "{verb:?}: {ran:?}");
    let mut reader = csv::Reader::from_reader(ran.stdout.as_bytes());
    for record in reader.records() {
        let record = record.unwrap_or_else(|error| panic!("{verb:?}: {error}: {ran:?}"));
        assert!(!record.is_empty(), "{verb:?}: {ran:?}");
    }
}

/// Writes a file, and returns its path.
fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Creates a destination once, and changes it once.
fn create_and_change(operator: &Operator) {
    let call = |arguments: &[&str]| operator.destinations(arguments);
    let spec = operator.spec.as_str();
    let asked = call(&["create", "orders", "--spec", spec]).ended(4);
    assert!(asked.stderr.contains("give --yes"), "{asked:?}");
    let created = call(&["create", "orders", "--spec", spec, "--yes"]).ended(0);
    assert!(!created.stdout.contains(SECRET));
    let version = created.json()["version"].to_string();
    call(&["create", "orders", "--spec", spec, "--yes"]).ended(4);
    call(&["create", "filed", "--spec", spec, "--yes"]).ended(2);
    let change = ["change", "orders", "--version", &version];
    let change = [&change[..], &["--spec", spec, "--yes"]].concat();
    call(&change).ended(0);
    call(&change).ended(4);
}

fn pause_and_resume(operator: &Operator) {
    let call = |arguments: &[&str]| operator.destinations(arguments);
    call(&["pause", "orders", "--yes"]).ended(0);
    assert_eq!(call(&["show", "orders"]).ended(0).json()["state"], "paused");
    call(&["resume", "orders", "--yes"]).ended(0);
    call(&["pause", "nobody", "--yes"]).ended(3);
}

/// If the database declares a destination, its section in a configuration file is ignored.
fn replay_with_another_section(operator: &Operator) {
    let other = "[destinations.orders]\ntenant = \"other\"\nsink.file.path = \"/tmp/x\"\n";
    let stale = write(&operator.folder, "stale.toml", other);
    let url = operator.database.url();
    let mut replay = vec!["events", "replay", "--destination", "orders", "--dry-run"];
    replay.extend(["--tenant", "acme", "--database", &url]);
    replay.extend(["--config", &stale]);
    run(&replay).ended(0);
}

/// Runs a command for this database with output in JSON.
fn call(url: &str, arguments: &[&str]) -> ProgramOutput {
    run(&[arguments, &["--database", url, "--json"]].concat())
}

/// Replays a dead letter, which must be confirmed.
fn replay_one(url: &str, position: &str) {
    let call = |arguments: &[&str]| call(url, arguments);
    call(&["dead-letters", "replay", "orders", position]).ended(4);
    call(&["dead-letters", "replay", "orders", position, "--yes"]).ended(0);
}

/// Discards a dead letter, which can be done only once.
fn discard_one(url: &str, position: &str) {
    let call = |arguments: &[&str]| call(url, arguments);
    let discard = [
        "dead-letters",
        "discard",
        "orders",
        position,
        "--reason",
        "test",
        "--yes",
    ];
    call(&discard).ended(0);
    call(&discard).ended(4);
}

/// Counts the dead letters of a destination, and replays them.
fn replay_all(url: &str) {
    let call = |arguments: &[&str]| call(url, arguments);
    let all = ["dead-letters", "replay-all", "--destination", "orders"];
    let counted = call(&[&all[..], &["--dry-run"]].concat()).ended(0).json();
    assert_eq!(counted["count"], 3);
    call(&all[..2]).ended(2);
    call(&all).ended(4);
    let job = call(&[&all[..], &["--yes", "--wait"]].concat())
        .ended(0)
        .json();
    assert_eq!((&job["state"], &job["done"]), (&json!("done"), &json!(3)));
}

/// Replays delivered events, for which the command needs the configuration of the relay.
fn replay_events(url: &str, relay: &Relay) {
    let call = |arguments: &[&str]| call(url, arguments);
    let again = [
        "events",
        "replay",
        "--destination",
        "orders",
        "--type",
        "order.*",
        "--yes",
    ];
    // Without the relay's configuration, the command does not know the tenant of the destination.
    let outcome = call(&again).ended(4);
    assert!(outcome.stderr.contains("declared neither"), "{outcome:?}");
    let configured = relay.file("hapax.toml");
    let configured = ["--config", configured.to_str().unwrap()];
    // An event has no error; a delivery has.
    let refused = [&again[..], &configured, &["--error", "500"]].concat();
    let outcome = call(&refused).ended(2);
    assert!(outcome.stderr.contains("--error"), "{outcome:?}");
    call(&[&again[..], &configured].concat()).ended(0);
}

/// Checks the bounds and the filters of lists.
fn check_lists(url: &str) {
    let call = |arguments: &[&str]| call(url, arguments);
    let outcome = call(&["dead-letters", "list", "--state", "delivered"]).ended(2);
    assert!(outcome.stderr.contains("--state"), "{outcome:?}");
    let listed = call(&["events", "list", "--limit", "2"]).ended(0).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert!(listed["next"].is_string());
    call(&["events", "list", "--since", "yesterday"]).ended(2);
    call(&["events", "list", "--limit", "0"]).ended(2);
    let count = |since: &str| {
        let listed = call(&["events", "list", "--since", since]).ended(0).json();
        listed["items"].as_array().unwrap().len()
    };
    assert_eq!((count("1h"), count("0s")), (5, 0));
    call(&["deliveries", "list", "--state", "nonsense"]).ended(2);
    let jobs = call(&["dead-letters", "jobs"]).ended(0).json();
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2);
}
