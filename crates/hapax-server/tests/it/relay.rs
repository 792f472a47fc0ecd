//! Tests of `hapax relay`: deliveries, metrics, shutdown and reload.

use std::{collections::HashSet, fs, io::Write as _, time::Duration};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    postgres::Database,
    wait::eventually,
};

use crate::hapax::{PATIENCE, emit, hapax, migrated, run, run_to_end, start_relay, webhook};

#[tokio::test]
async fn events_of_plain_sql_reach_a_webhook_and_a_file() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("events.jsonl");
    let configuration = format!(
        "{}events = [\"order.*\"]\n\
         [destinations.archive]\nsource = \"/shop\"\nsink.file.path = {lines:?}\n",
        webhook("orders", &receiver.url("/hook"))
    );
    let relay = start_relay(&database.url(), &configuration).await;
    let client = database.client().await;
    emit(&client, "order.created", 20).await;
    emit(&client, "user.created", 5).await;
    let taken = receiver.received_at_least(20).await;
    assert!(
        taken
            .iter()
            .all(|it| String::from_utf8_lossy(&it.body).contains("order.created"))
    );
    eventually(PATIENCE, async || written(&lines) == 25).await;
    let first = fs::read_to_string(&lines).unwrap();
    assert!(first.contains("\"source\":\"/shop\""), "{first}");
    relay.stop().await;
    assert_eq!(receiver.received().len(), 20);
}

#[tokio::test]
async fn a_destination_whose_receiver_was_gone_goes_on_when_it_is_resumed() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(410));
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    emit(&database.client().await, "order.created", 3).await;
    eventually(PATIENCE, async || relay.state("orders").await == "disabled").await;
    receiver.reply(HttpReply::status(200));
    let url = database.url();
    let resume = ["destinations", "resume", "orders", "--yes"];
    let outcome = run(&[&resume[..], &["--database", &url]].concat()).ended(0);
    assert!(outcome.stdout.contains("goes on"), "{outcome:?}");
    eventually(PATIENCE, async || {
        let taken = receiver
            .received()
            .into_iter()
            .filter(|it| it.answered == Some(200));
        let taken: HashSet<_> = taken.map(|it| it.body).collect();
        taken.len() == 3
    })
    .await;
    eventually(PATIENCE, async || {
        relay.state("orders").await == "delivering"
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn it_starts_quickly_is_small_and_shows_itself() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    let (ready, resident) = (relay.ready_ms(), relay.resident_kib() / 1024);
    // The limits are for a debug build on a busy machine. Usual values are a tenth of them.
    assert!(ready < 5_000, "ready after {ready} ms");
    assert!(resident < 200, "resident {resident} MiB");
    assert_eq!(relay.get("/healthz").await.status, 200);
    assert_eq!(relay.get("/readyz").await.status, 200);
    eventually(PATIENCE, async || {
        relay.state("orders").await == "delivering"
    })
    .await;
    emit(&database.client().await, "order.created", 3).await;
    receiver.received_at_least(3).await;
    let delivered = "hapax_relay_attempts_total{destination=\"orders\",outcome=\"delivered\"";
    eventually(PATIENCE, async || {
        relay.get("/metrics").await.text().contains(delivered)
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_signal_to_stop_waits_for_what_is_on_the_wire() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).after(Duration::from_millis(500)));
    let configuration = webhook("orders", &receiver.url("/"));
    let relay = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 10).await;
    receiver.received_at_least(10).await;
    relay.stop().await;
    // All events are settled, so the next relay delivers only the new event.
    receiver.reply(HttpReply::status(200));
    let relay = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.closed", 1).await;
    receiver.received_at_least(11).await;
    relay.stop().await;
    let ids: Vec<_> = receiver
        .received()
        .iter()
        .map(|it| it.header("webhook-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 11);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 11);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).after(Duration::from_secs(15)));
    let mut relay = start_relay(&database.url(), &webhook("orders", &receiver.url("/"))).await;
    emit(&database.client().await, "order.created", 1).await;
    receiver.received_at_least(1).await;
    relay.signal("TERM");
    relay.logged("relay stopping").await;
    assert_eq!(relay.get("/readyz").await.status, 503);
    relay.signal("TERM");
    relay.logged("stopping at once").await;
    assert!(relay.ended().await.success());
}

#[tokio::test]
async fn a_hang_up_reads_the_destinations_again_and_a_wrong_file_changes_nothing() {
    let database = migrated().await;
    let (first, second) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let one = webhook("first", &first.url("/"));
    let mut relay = start_relay(&database.url(), &one).await;
    let config = relay.file("hapax.toml");
    fs::write(&config, format!("{one}leese = 1\n")).unwrap();
    relay.signal("HUP");
    relay
        .logged("configuration is not valid: the previous one stays in effect")
        .await;
    fs::write(
        &config,
        format!("{one}{}", webhook("second", &second.url("/"))),
    )
    .unwrap();
    relay.signal("HUP");
    relay
        .logged("configuration reloaded: its destinations are in effect")
        .await;
    emit(&database.client().await, "order.created", 2).await;
    first.received_at_least(2).await;
    second.received_at_least(2).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_destination_that_is_down_holds_up_no_other_and_catches_up() {
    let database = migrated().await;
    let (up, down) = (HttpReceiver::start().await, HttpReceiver::start().await);
    down.reply(HttpReply::status(503));
    let configuration = format!(
        "{}{}",
        webhook("up", &up.url("/")),
        webhook("down", &down.url("/"))
    );
    let relay = start_relay(&database.url(), &configuration).await;
    emit(&database.client().await, "order.created", 50).await;
    up.received_at_least(50).await;
    down.reply(HttpReply::status(200));
    eventually(PATIENCE, async || {
        let taken = down
            .received()
            .into_iter()
            .filter(|it| it.answered == Some(200));
        taken.count() >= 50
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_client_that_stalls_does_not_hold_up_the_end() {
    let database = migrated().await;
    let mut relay = start_relay(&database.url(), "").await;
    let mut stalls = std::net::TcpStream::connect(relay.address()).unwrap();
    stalls.write_all(b"GET /metrics HTTP/1.1\r\nho").unwrap();
    // The relay has read the half request before it responds to this one.
    relay.get("/healthz").await;
    let began = tokio::time::Instant::now();
    relay.signal("TERM");
    assert!(relay.ended().await.success(), "{}", relay.log());
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test]
async fn what_is_wrong_is_found_before_anything_is_carried() {
    let database = Database::empty().await;
    let ran = run_to_end(hapax(&[
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--database",
        &database.url(),
    ]));
    let ran = ran.ended(1);
    assert!(ran.stderr.contains("run `hapax migrate`"), "{ran:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = run_to_end(hapax(&[
        "relay",
        "--listen",
        &address,
        "--database",
        &database.url(),
    ]));
    assert!(ran.ended(1).stderr.contains("cannot listen on"));
    let ran = run_to_end(hapax(&[
        "relay",
        "--listen",
        "here",
        "--database",
        &database.url(),
    ]));
    assert!(ran.ended(2).stderr.contains("--listen must be an address"));
}

#[tokio::test]
async fn what_is_past_its_retention_is_deleted() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let client = database.client().await;
    let accepted = "INSERT INTO hapax.inbox_message
            (consumer, message_id, source, payload_hash, received_at)
        SELECT 'c', 'm' || n, 's', '\\x00', now() - interval '1 hour'
        FROM generate_series(1, 700) AS n";
    client.batch_execute(accepted).await.unwrap();
    let ended = "INSERT INTO hapax.saga
            (id, name, version, input, headers, state, deadline_at, created_at, ended_at)
        SELECT 's' || n, 'checkout', 1, '', '{}', 'completed', now(), now(),
               CASE WHEN n > 0 THEN now() - interval '1 hour' END
        FROM generate_series(0, 700) AS n";
    client.batch_execute(ended).await.unwrap();
    let configuration = format!(
        "[retention]\nevents = \"1s\"\ninbox = \"1s\"\nsagas = \"1s\"\nevery = \"1s\"\n{}",
        webhook("orders", &receiver.url("/"))
    );
    let relay = start_relay(&database.url(), &configuration).await;
    for (table, stay) in [("inbox_message", 0), ("saga", 1)] {
        eventually(PATIENCE, async || {
            let count = format!("SELECT count(*) FROM hapax.{table}");
            let left: i64 = client.query_one(&count, &[]).await.unwrap().get(0);
            left == stay
        })
        .await;
    }
    relay.stop().await;
}

fn written(path: &std::path::Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}
