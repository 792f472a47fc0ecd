//! Tests of `hapax relay` with feeds: kills, destinations that are down, and gaps as operators see
//! them.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use hapax_testkit::{
    http::HttpReceiver,
    postgres::Cluster,
    program::ProgramOutput,
    wait::{eventually, pace},
};
use serde_json::Value;
use tokio_postgres::Client;

#[cfg(debug_assertions)]
use crate::hapax::start_relay_with;
use crate::hapax::{PATIENCE, hapax, migrate, run, run_to_end, start_relay, webhook};

const OUTBOX: &str = "
    CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text, payload text);
    CREATE PUBLICATION hapax_orders FOR TABLE outbox";
const FEED: &str = "
[feeds.orders.tables.outbox]
type = \"topic\"
payload = \"payload\"
";
const EVENTS: &str = "SELECT count(*) FROM hapax.outbox_event";
const STARTED: &str = "SELECT count(*) FROM hapax.feed WHERE confirmed_lsn IS NOT NULL";
/// A slot is also active while it is created, before `STARTED`, and rows of that time are not read.
const READ: &str = "SELECT count(*) FROM pg_replication_slots WHERE active";

/// A server with the tables of Hapax and an outbox table.
async fn server() -> (Cluster, Client) {
    let logical = [("wal_level", "logical"), ("wal_sender_timeout", "3s")];
    let cluster = Cluster::start_with(&logical).await;
    migrate(&cluster.url());
    let client = cluster.client().await;
    client.batch_execute(OUTBOX).await.unwrap();
    (cluster, client)
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn insert(client: &Client, rows: usize) {
    let insert = format!(
        "INSERT INTO outbox (topic, payload) SELECT 'order.created', n FROM generate_series(1, {rows}) AS n"
    );
    client.batch_execute(&insert).await.unwrap();
}

/// The distinct ids that a receiver has got.
fn ids(receiver: &HttpReceiver) -> BTreeSet<String> {
    let requests = receiver.received();
    let ids = requests.iter().filter_map(|it| it.header("webhook-id"));
    ids.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_relay_that_is_killed_appends_and_delivers_every_row() {
    let (cluster, client) = server().await;
    let receiver = HttpReceiver::start().await;
    let configuration = format!(
        "[relay]\nlease = \"1s\"\n{}{FEED}",
        webhook("billing", &receiver.url("/"))
    );
    let mut relay = start_relay(&cluster.url(), &configuration).await;
    eventually(PATIENCE, async || count(&client, STARTED).await == 1).await;
    for _ in 0..4 {
        insert(&client, 500).await;
        relay.kill();
        relay = start_relay(&cluster.url(), &configuration).await;
    }
    eventually(PATIENCE, async || ids(&receiver).len() == 2_000).await;
    assert_eq!(count(&client, EVENTS).await, 2_000);
    relay.stop().await;
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_death_before_and_after_a_commit_appends_every_row_once() {
    let (cluster, client) = server().await;
    // The position of the feed.
    let relay = start_relay(&cluster.url(), FEED).await;
    eventually(PATIENCE, async || count(&client, STARTED).await == 1).await;
    relay.stop().await;
    for (round, fatal) in (1..).zip([
        "feed.commit.before:1",
        "feed.commit.after:1",
        "feed.commit.before:1",
        "feed.commit.after:1",
    ]) {
        let environment = [("HAPAX_FAILPOINT", fatal)];
        let mut relay = start_relay_with(&cluster.url(), FEED, &environment).await;
        for _ in 0..4 {
            insert(&client, 5).await;
        }
        relay.ended().await;
        let relay = start_relay(&cluster.url(), FEED).await;
        eventually(PATIENCE, async || {
            count(&client, EVENTS).await == round * 20
        })
        .await;
        relay.stop().await;
    }
    assert_eq!(count(&client, EVENTS).await, 80);
}

#[tokio::test]
async fn a_destination_that_is_down_holds_back_no_log() {
    const RETAINED: &str = "
        SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 FROM pg_replication_slots";
    let (cluster, client) = server().await;
    let configuration = format!("{}{FEED}", webhook("billing", "http://127.0.0.1:9/"));
    let relay = start_relay(&cluster.url(), &configuration).await;
    eventually(PATIENCE, async || count(&client, STARTED).await == 1).await;
    insert(&client, 20_000).await;
    eventually(PATIENCE, async || count(&client, EVENTS).await == 20_000).await;
    eventually(PATIENCE * 2, async || {
        client.batch_execute("CHECKPOINT").await.unwrap();
        count(&client, RETAINED).await < 1024 * 1024
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_slot_that_is_dropped_is_reported_until_its_gap_is_accepted() {
    let (cluster, client) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    fs::write(&path, FEED).unwrap();
    let doctor = || doctor(&cluster, &path);
    let mut relay = start_relay(&cluster.url(), FEED).await;
    eventually(PATIENCE, async || count(&client, STARTED).await == 1).await;
    eventually(PATIENCE, async || count(&client, READ).await == 1).await;
    found(&doctor(), "ok", "orders: slot and publication can be read");
    let drop_it = "
        SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots;
        SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots";
    // The feeder connects again at once.
    eventually(PATIENCE, async || {
        client.batch_execute(drop_it).await.is_ok()
    })
    .await;
    let gap = "changes may be missing, so the feed has stopped: see `hapax feeds accept-gap`";
    let logged = relay.logged(gap).await;
    assert_eq!(logged["level"], "ERROR");
    let metrics = relay.get("/metrics").await.text();
    assert!(
        metrics.contains("hapax_feed_gap{feed=\"orders\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("hapax_feed_up{feed=\"orders\"} 0"),
        "{metrics}"
    );
    found(&doctor(), "error", "the replication slot is missing");

    let url = cluster.url();
    let show = ["feeds", "show", "orders", "--json", "--database", &url];
    let shown = run(&show).ended(0).json();
    assert!(shown["gap"].as_str().unwrap().contains("slot is missing"));
    let accept = [
        "feeds",
        "accept-gap",
        "orders",
        "--reason",
        "known",
        "--database",
        &url,
    ];
    // Without a terminal and without --yes.
    run(&accept).ended(4);
    run(&[&accept[..], &["--yes"]].concat()).ended(0);
    run(&[&accept[..], &["--yes"]].concat()).ended(4);
    run(&["feeds", "show", "other", "--database", &url]).ended(3);
    eventually(PATIENCE, async || count(&client, STARTED).await == 1).await;
    eventually(PATIENCE, async || count(&client, READ).await == 1).await;
    insert(&client, 3).await;
    eventually(PATIENCE, async || count(&client, EVENTS).await == 3).await;
    let listed = run(&["feeds", "list", "--json", "--database", &url]).ended(0);
    assert_eq!(listed.json()["items"][0]["gap"], Value::Null);
    relay.stop().await;
}

/// An append that fails always does so after the stream was opened.
#[tokio::test]
async fn a_feed_that_always_fails_is_never_up() {
    let (cluster, client) = server().await;
    let configuration = format!("[database]\nstatement_timeout = \"2s\"\n{FEED}");
    let mut relay = start_relay(&cluster.url(), &configuration).await;
    eventually(PATIENCE, async || count(&client, STARTED).await == 1).await;
    eventually(PATIENCE, async || count(&client, READ).await == 1).await;
    let locker = cluster.client().await;
    let lock = "BEGIN; LOCK TABLE hapax.outbox_event IN SHARE MODE";
    locker.batch_execute(lock).await.unwrap();
    insert(&client, 1).await;
    let failed = "the feed cannot append its events and will retry";
    relay.logged(failed).await;
    for _ in 0..50 {
        let metrics = relay.get("/metrics").await.text();
        assert!(
            metrics.contains("hapax_feed_up{feed=\"orders\"} 0"),
            "{metrics}"
        );
        pace(Duration::from_millis(100)).await;
    }
    locker.batch_execute("ROLLBACK").await.unwrap();
    eventually(PATIENCE, async || {
        let metrics = relay.get("/metrics").await.text();
        metrics.contains("hapax_feed_up{feed=\"orders\"} 1")
    })
    .await;
    assert_eq!(count(&client, EVENTS).await, 1);
    relay.stop().await;
}

/// The role of a feed needs no privilege on the tables, nor on their schema.
#[tokio::test]
async fn the_doctor_names_what_a_publication_lacks() {
    let (cluster, client) = server().await;
    client
        .batch_execute(
            "CREATE ROLE feeder LOGIN REPLICATION;
             CREATE SCHEMA shop;
             CREATE TABLE shop.orders (id int PRIMARY KEY);
             CREATE PUBLICATION hapax_shop FOR TABLE shop.orders WITH (publish = 'insert');
             INSERT INTO hapax.feed (name, slot, system_identifier, timeline, updated_at)
             VALUES ('old', 'hapax_old', '1', 1, now())",
        )
        .await
        .unwrap();
    let url = cluster.url().replace("postgres@", "feeder@");
    let feed = format!(
        "[feeds.shop]\ndatabase = \"{url}\"\n[feeds.shop.tables.orders]\nschema = \"shop\"\n\
         on = [\"insert\", \"delete\"]\ntype_constant = \"order.{{operation}}\"\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    fs::write(&path, feed).unwrap();
    let ran = doctor(&cluster, &path);
    let lacks = "publication hapax_shop does not publish changes of kind delete";
    found(&ran, "error", lacks);
    found(&ran, "note", "old: the feed is not configured here");
}

#[tokio::test]
async fn the_doctor_names_columns_that_a_delete_does_not_send() {
    const DELETES: &str = "replica identity of table public.orders lacks status, tenant, which the \
        feed reads: deletes are set aside";
    const UPDATES: &str = "lacks note, which the feed reads: an update that leaves a long value";
    let (cluster, client) = server().await;
    client
        .batch_execute(
            "CREATE TABLE orders (
                id int PRIMARY KEY, status text NOT NULL, tenant text NOT NULL, note text);
             CREATE PUBLICATION hapax_shop FOR TABLE orders",
        )
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    let configure = |on: &str, payload: &str| {
        let feed = format!(
            "[feeds.shop.tables.orders]\non = [{on}]\nwhen = {{ status = [\"paid\"] }}\n{payload}\
             type_constant = \"order.{{operation}}\"\ntenant = \"tenant\"\naggregate_id = \"id\"\n\
             aggregate_type_constant = \"order\"\n"
        );
        fs::write(&path, feed).unwrap();
    };
    configure("\"insert\", \"update\"", "");
    not_found(&doctor(&cluster, &path), "replica identity");
    configure("\"update\"", "payload = \"note\"\n");
    found(&doctor(&cluster, &path), "warning", UPDATES);
    configure("\"insert\", \"delete\"", "");
    let ran = doctor(&cluster, &path);
    found(&ran, "warning", DELETES);
    assert!(
        ran.stdout
            .contains("ALTER TABLE public.orders REPLICA IDENTITY FULL"),
        "{ran:?}"
    );
    let alter = "CREATE UNIQUE INDEX identity ON orders (id, status, tenant);
        ALTER TABLE orders REPLICA IDENTITY USING INDEX identity";
    client.batch_execute(alter).await.unwrap();
    not_found(&doctor(&cluster, &path), "replica identity");
    let alter = "ALTER TABLE orders REPLICA IDENTITY DEFAULT";
    client.batch_execute(alter).await.unwrap();
    found(&doctor(&cluster, &path), "warning", DELETES);
    let alter = "ALTER TABLE orders REPLICA IDENTITY FULL";
    client.batch_execute(alter).await.unwrap();
    not_found(&doctor(&cluster, &path), "replica identity");
    let alter = "ALTER TABLE orders REPLICA IDENTITY DEFAULT, DROP CONSTRAINT orders_pkey,
        ADD PRIMARY KEY (id) DEFERRABLE";
    client.batch_execute(alter).await.unwrap();
    let none = "table public.orders has no replica identity: its updates and deletes fail";
    found(&doctor(&cluster, &path), "error", none);
}

#[tokio::test]
async fn the_doctor_looks_at_the_identity_of_each_partition() {
    const LACKS: &str = "the replica identity of partitions public.orders_a, public.orders_c of table \
        public.orders lacks status, which the feed reads: deletes are set aside";
    const FAIL: &str = "updates and deletes fail in partition public.orders_b of table public.orders: \
        there is no replica identity";
    let (cluster, client) = server().await;
    client
        .batch_execute(
            "CREATE TABLE orders (id int, region text, status text, PRIMARY KEY (id, region))
                 PARTITION BY LIST (region);
             CREATE TABLE orders_a PARTITION OF orders FOR VALUES IN ('a');
             CREATE TABLE orders_b PARTITION OF orders FOR VALUES IN ('b');
             CREATE TABLE orders_x PARTITION OF orders FOR VALUES IN ('c')
                 PARTITION BY LIST (region);
             CREATE TABLE orders_c PARTITION OF orders_x FOR VALUES IN ('c');
             ALTER TABLE orders REPLICA IDENTITY FULL;
             ALTER TABLE orders_b REPLICA IDENTITY NOTHING;
             CREATE PUBLICATION hapax_shop FOR TABLE orders WITH (publish_via_partition_root = true)",
        )
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    let configure = |on: &str| {
        let feed = format!(
            "[feeds.shop.tables.orders]\non = [{on}]\nwhen = {{ status = [\"paid\"] }}\n\
             type_constant = \"order.{{operation}}\"\n"
        );
        fs::write(&path, feed).unwrap();
    };
    configure("\"insert\", \"delete\"");
    let ran = doctor(&cluster, &path);
    found(&ran, "warning", LACKS);
    found(&ran, "error", FAIL);
    not_found(&ran, "replica identity of table public.orders lacks");
    // The statements of the service fail whether or not the feed reads these changes.
    configure("\"insert\"");
    let ran = doctor(&cluster, &path);
    not_found(&ran, "which the feed reads");
    found(&ran, "warning", FAIL);
    let alter = "ALTER PUBLICATION hapax_shop SET (publish = 'insert')";
    client.batch_execute(alter).await.unwrap();
    not_found(&doctor(&cluster, &path), "replica identity");
    let alter = "ALTER PUBLICATION hapax_shop SET (publish = 'insert, update, delete');
        ALTER TABLE orders_a REPLICA IDENTITY FULL; ALTER TABLE orders_b REPLICA IDENTITY FULL;
        ALTER TABLE orders_c REPLICA IDENTITY FULL; ALTER TABLE orders REPLICA IDENTITY DEFAULT";
    client.batch_execute(alter).await.unwrap();
    configure("\"delete\"");
    let ran = doctor(&cluster, &path);
    found(
        &ran,
        "warning",
        "replica identity of table public.orders lacks status",
    );
    not_found(&ran, "replica identity of partition");
    let alter = "ALTER TABLE orders REPLICA IDENTITY NOTHING";
    client.batch_execute(alter).await.unwrap();
    let none = "table public.orders has no replica identity: no column of a delete is sent";
    found(&doctor(&cluster, &path), "warning", none);
    let alter = "ALTER TABLE orders REPLICA IDENTITY FULL";
    client.batch_execute(alter).await.unwrap();
    not_found(&doctor(&cluster, &path), "replica identity");
}

#[tokio::test]
async fn the_doctor_names_tables_whose_changes_have_another_name() {
    const PARTS: &str = "publication hapax_shop sends the changes of table public.orders under the \
        names of its partitions";
    const ROOT: &str = "publication hapax_shop sends the changes of table public.orders_a under the \
        name of public.orders";
    const IGNORED: &str = "the feed describes partitions of table public.orders, and ignores the \
        changes of partitions public.orders_b, public.orders_c, public.orders_d and 1 more";
    let (cluster, client) = server().await;
    client
        .batch_execute(
            "CREATE TABLE orders (id int, region text) PARTITION BY LIST (region);
             CREATE TABLE orders_a PARTITION OF orders FOR VALUES IN ('a');
             CREATE TABLE orders_b PARTITION OF orders FOR VALUES IN ('b');
             CREATE TABLE orders_c PARTITION OF orders FOR VALUES IN ('c');
             CREATE TABLE orders_d PARTITION OF orders FOR VALUES IN ('d');
             CREATE TABLE orders_e PARTITION OF orders FOR VALUES IN ('e');
             CREATE PUBLICATION hapax_shop FOR TABLE orders WITH (publish = 'insert')",
        )
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    let configure = |table: &str| {
        let feed = format!("[feeds.shop.tables.{table}]\ntype_constant = \"order.created\"\n");
        fs::write(&path, feed).unwrap();
    };
    configure("orders");
    let ran = doctor(&cluster, &path);
    found(&ran, "error", PARTS);
    not_found(&ran, "ignores the changes");
    configure("orders_a");
    let ran = doctor(&cluster, &path);
    found(&ran, "warning", IGNORED);
    not_found(&ran, "publication hapax_shop");
    let alter = "ALTER PUBLICATION hapax_shop SET (publish_via_partition_root = true)";
    client.batch_execute(alter).await.unwrap();
    let ran = doctor(&cluster, &path);
    found(&ran, "error", ROOT);
    not_found(&ran, "ignores the changes");
    configure("orders");
    not_found(&doctor(&cluster, &path), "publication hapax_shop");
}

/// The feed reads nothing more, as after each error of its source, and loses nothing.
#[tokio::test]
async fn a_table_that_is_renamed_is_reported_until_its_new_name_is_described() {
    const GONE: &str = "table public.outbox is not in publication hapax_orders, because it does not exist: \
        the feed stops at the first change of a table that it does not describe";
    const RENAMED: &str = "may be one of table public.outbox, which the feed describes";
    let (cluster, client) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    let mut relay = start_relay(&cluster.url(), FEED).await;
    eventually(PATIENCE, async || count(&client, STARTED).await == 1).await;
    eventually(PATIENCE, async || count(&client, READ).await == 1).await;
    let rename = "ALTER TABLE outbox RENAME TO letters;
        INSERT INTO letters (topic, payload) VALUES ('order.created', '1')";
    client.batch_execute(rename).await.unwrap();
    let logged = relay
        .logged("the feed cannot read its source and will retry")
        .await;
    assert_eq!(logged["level"], "ERROR");
    let error = logged["fields"]["error"].as_str().unwrap();
    assert!(error.contains(RENAMED), "{error}");
    eventually(PATIENCE, async || {
        let metrics = relay.get("/metrics").await.text();
        metrics.contains("hapax_feed_up{feed=\"orders\"} 0")
    })
    .await;
    fs::write(&path, FEED).unwrap();
    found(&doctor(&cluster, &path), "error", GONE);
    relay.stop().await;
    assert_eq!(count(&client, EVENTS).await, 0);
    let both = format!("{FEED}{}", FEED.replace("tables.outbox", "tables.letters"));
    let relay = start_relay(&cluster.url(), &both).await;
    eventually(PATIENCE, async || count(&client, EVENTS).await == 1).await;
    relay.stop().await;
}

#[test]
fn a_table_whose_changes_are_ignored_needs_no_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    let ignored = format!("{FEED}[feeds.orders.tables.letters]\non = []\n");
    fs::write(&path, ignored).unwrap();
    let mut check = hapax(&["config", "check", "--database", "postgres://db/a"]);
    check.arg("--config").arg(&path);
    run_to_end(check).ended(0);
}

#[test]
fn a_feed_that_cannot_work_is_refused_by_its_setting() {
    for (feed, problem) in [
        ("[feeds.a]\n", "feeds.a.tables is missing"),
        ("[feeds.a]\nmessages = \"\"\n", "feeds.a.messages must be"),
        (
            "[feeds.a]\nmessages = \"m\"\nslot = \"A\"\n",
            "feeds.a.slot must be",
        ),
        (
            "[feeds.a.tables.b]\npayload = \"c\"\n",
            "feeds.a.tables.b.type is missing",
        ),
        (
            "[feeds.a.tables.b]\ntype = \"c\"\ntable = \"\"\n",
            "feeds.a.tables.b.table must not be empty",
        ),
        (
            "[feeds.a.tables.b]\ntype = \"c\"\ntables = \"d\"\n",
            "feeds.a.tables.b.tables is unknown: did you mean table?",
        ),
        (
            "[feeds.a.tables.b]\ntype = \"c\"\non = [\"truncate\"]\n",
            "feeds.a.tables.b.on",
        ),
        (
            "[feeds.a.tables.outbox_event]\nschema = \"hapax\"\ntype = \"type\"\n",
            "feeds.a.tables.outbox_event.schema must not be",
        ),
        (
            "[feeds.a.tables.b]\ntype = \"c\"\n[feeds.a.tables.d]\ntable = \"b\"\ntype = \"c\"\n",
            "feeds.a.tables.d.table is also that of feeds.a.tables.b",
        ),
        (
            "[feeds.a-b]\nmessages = \"m\"\n[feeds.a_b]\nmessages = \"n\"\n",
            "feeds.a_b.slot is also the slot of feeds.a-b",
        ),
        (
            "[database]\npooled = true\n[feeds.a]\nmessages = \"m\"\n",
            "feeds.a.database is missing",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hapax.toml");
        fs::write(&path, feed).unwrap();
        let mut check = hapax(&["config", "check", "--database", "postgres://db/a"]);
        check.arg("--config").arg(&path);
        let ran = run_to_end(check).ended(2);
        assert!(ran.stderr.contains(problem), "{feed}: {}", ran.stderr);
    }
}

fn doctor(cluster: &Cluster, configuration: &Path) -> ProgramOutput {
    let mut command = hapax(&["doctor", "--json", "--database-only"]);
    command.args(["--database", &cluster.url(), "--config"]);
    command.arg(configuration);
    run_to_end(command)
}

/// Requires a finding of the doctor.
#[track_caller]
fn found(ran: &ProgramOutput, severity: &str, text: &str) {
    let findings = ran.json();
    let fits = |finding: &Value| {
        finding["severity"] == severity
            && finding["check"] == "feeds"
            && finding["found"].as_str().unwrap().contains(text)
    };
    let findings = findings.as_array().unwrap();
    assert!(findings.iter().any(fits), "{findings:#?}");
}

/// Requires that no finding of the doctor contains the text.
#[track_caller]
fn not_found(ran: &ProgramOutput, text: &str) {
    let findings = ran.json();
    let mut found = findings
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["found"].as_str());
    assert!(!found.any(|it| it.contains(text)), "{}", ran.stdout);
}
