//! Tests of the tables that are exported as CSV: the retries of a client, the outcomes of repeated
//! requests, and the messages of a consumer. A value that differs in every run has a placeholder.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    program::run_to_end,
};
use tokio::task::spawn_blocking;

use crate::{
    relay_process::hapax,
    shop::{ORDER, Shop, Store, on_both_stores, problem},
    webhooks::{SOURCE, refunded},
};

on_both_stores! {
    the_outcomes_of_repeated_requests_are_a_table,
    the_messages_of_a_consumer_are_a_table,
    the_demo_writes_what_it_observes_as_three_tables,
}

#[tokio::test]
async fn the_retries_of_a_client_are_a_table() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(201).after(Duration::from_hours(1)));
    receiver.reply_next(HttpReply::status(502));
    receiver.reply_next(HttpReply::status(201));
    let url = receiver.url("/refunds");
    let command = hapax(&["send", &url, "-d", "{}", "--attempt-timeout", "300ms"]);
    let ran = spawn_blocking(|| run_to_end(command)).await.unwrap();
    let ran = ran.ended(0);
    let lines = ran.stderr.lines().map(|line| {
        let mut cells: Vec<&str> = line.split(',').collect();
        if ["2", "3"].contains(&cells[0]) {
            cells[1] = "*";
        }
        cells.join(",")
    });
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            "attempt,delay_ms,status,code,notes",
            "1,0,timeout,,no response within 300 ms",
            "2,*,5xx,502,proxy error",
            "3,*,2xx,201,success",
        ]
    );
}

async fn the_outcomes_of_repeated_requests_are_a_table(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let other = ORDER.replace("500", "501");
    // The fingerprint of the refused request is not stored; it is that of the same request here.
    assert_eq!(shop.post("/orders", Some("k2"), &other).await.status, 201);
    let refused = exported(&shop, &["keys", "list", "--key", "k2"])["fingerprint"].clone();
    let mut table = Vec::new();
    for body in [ORDER, ORDER, other.as_str()] {
        let answer = shop.post("/orders", Some("k1"), body).await;
        let row = exported(&shop, &["keys", "list", "--key", "k1"]);
        assert_ne!(row["fingerprint"], refused);
        if answer.status == 409 {
            problem(&answer, 409, "CONFLICT.idempotency.payload_mismatch");
            table.push(format!("{},xyz,conflict,409,,payload mismatch", row["key"]));
            continue;
        }
        let id = answer.json().unwrap()["id"].clone();
        assert_eq!(id, row["resource"]);
        let notes = answer.header("idempotency-status").unwrap();
        let (key, state, status) = (&row["key"], &row["state"], &row["status"]);
        table.push(format!("{key},abc,{state},{status},ord_1,{notes}"));
    }
    assert_eq!(
        table,
        [
            "k1,abc,completed,201,ord_1,stored",
            "k1,abc,completed,201,ord_1,replayed",
            "k1,xyz,conflict,409,,payload mismatch",
        ]
    );
}

async fn the_messages_of_a_consumer_are_a_table(on: Store) {
    let shop = Shop::start(on, &SOURCE).await;
    let mut table = Vec::new();
    for _ in 0..2 {
        let answer = refunded(&shop, "ev_001").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let row = exported(&shop, &["inbox", "list", "--message-id", "ev_001"]);
        assert!(row["processed"] >= row["received"], "{row:?}");
        let repeated = answer.header("idempotency-status");
        let result = repeated.unwrap_or(&row["result"]);
        table.push(format!("{},{},*,*,{result}", row["id"], row["source"]));
    }
    assert_eq!(table, ["ev_001,psp,*,*,refund", "ev_001,psp,*,*,replayed"]);
}

async fn the_demo_writes_what_it_observes_as_three_tables(on: Store) {
    let shop = Shop::start(on, &["--webhook-schedule", "0s,50ms,50ms"]).await;
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(built("examples/demo"));
    demo.arg("--csv").arg(folder.path());
    demo.args(["--shop", &shop.url("")]);
    spawn_blocking(|| run_to_end(demo)).await.unwrap().ended(0);
    let written = |name: &str| rows(&fs::read_to_string(folder.path().join(name)).unwrap());

    let retries = written("retries.csv");
    assert_eq!(retries[0].join(","), "attempt,delay_ms,status,code,notes");
    assert_eq!(retries[1][..4], ["1", "0", "timeout", ""]);
    let last = retries.last().unwrap();
    assert_eq!(last[2..], ["2xx", "201", "success"], "{retries:?}");

    let replays = written("replays.csv");
    let header = "key,payload_hash,status,http_code,result_id,notes";
    assert_eq!(replays[0].join(","), header);
    let [_, first, again, other] = &replays[..] else {
        panic!("not three rows: {replays:?}");
    };
    assert_eq!((&first[0], &first[1]), (&again[0], &again[1]));
    assert_eq!(first[4], again[4]);
    assert_eq!(
        [&first[2], &first[3], &first[5]],
        ["completed", "201", "stored"]
    );
    assert_eq!(
        [&again[2], &again[3], &again[5]],
        ["completed", "201", "replayed"]
    );
    assert!(other[0] == first[0] && other[1] != first[1], "{replays:?}");
    let conflict = [
        "conflict",
        "409",
        "",
        "CONFLICT.idempotency.payload_mismatch",
    ];
    assert_eq!(other[2..], conflict);

    let inbox = written("inbox.csv");
    assert_eq!(
        inbox[0].join(","),
        "event_id,source,first_seen,processed,result"
    );
    let [_, first, again] = &inbox[..] else {
        panic!("not two rows: {inbox:?}");
    };
    assert_eq!(
        (&first[0], &first[1][..], &first[4][..]),
        (&again[0], "shop", "ok")
    );
    assert!(first[2] <= again[2] && again[4] == "replayed", "{inbox:?}");
}

/// A program of this package that is built beside the shop.
fn built(program: &str) -> PathBuf {
    let shop = Path::new(env!("CARGO_BIN_EXE_shop"));
    shop.with_file_name(program)
}

/// The cells of a table without quoted cells.
fn rows(csv: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.split(',').map(str::to_owned).collect();
    csv.lines().map(cells).collect()
}

/// The only row that a command prints as CSV: its cells by the names of their columns.
fn exported(shop: &Shop, list: &[&str]) -> HashMap<String, String> {
    let url = shop.home().url();
    let flags = ["--csv", "--database", url.as_str()];
    let ran = run_to_end(hapax(&[list, &flags].concat())).ended(0);
    let mut lines = ran.stdout.lines().map(|line| line.split(','));
    let (names, cells) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(lines.next().is_none(), "{}", ran.stdout);
    let row = names.zip(cells);
    row.map(|(name, cell)| (name.to_owned(), cell.to_owned()))
        .collect()
}
