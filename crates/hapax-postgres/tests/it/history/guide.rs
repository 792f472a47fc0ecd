//! The guide to moving to another server: its commands are executed as written, between real
//! servers.

use std::process::Command;

use hapax_postgres::Postgres;
use hapax_testkit::{
    postgres::{Cluster, programs},
    wait::eventually,
};
use tokio_postgres::Client;

use super::moved::{Far, SHOP, Scene, emit, settled, spawn};
use crate::fixture::{PATIENCE, settings};

const GUIDE: &str = include_str!("../../../../../docs/guides/move-to-another-server.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn by_dump_and_restore_every_event_arrives() {
    let [dump] = blocks("Dump and restore");
    let old = stopped(&[]).await;
    let new = Cluster::start().await;
    new.create(SHOP).await;
    run(&dump, &old, &new);
    check_goes_on(&old, &new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn by_logical_replication_every_event_arrives() {
    let [begin, copied, cut_over, raise] = blocks("Logical replication");
    let old = Scene::on(
        Cluster::start_with(&[("wal_level", "logical")]).await,
        Some("one"),
    )
    .await;
    let new = Cluster::start().await;
    new.create(SHOP).await;
    old.emit("first", 20).await;
    run(&begin, &old.cluster, &new);
    // The server is in use meanwhile.
    old.emit("first", 60).await;
    run(&copied, &old.cluster, &new);
    let old = ended(old).await;
    run(&cut_over, &old, &new);
    run(&raise, &old, &new);
    let low = "SELECT count(*) FROM hapax.low_sequences()";
    assert_eq!(number(&new.client_of(SHOP).await, low).await, 0);
    check_goes_on(&old, &new).await;
}

/// If the sequences are not raised, no event is lost either.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn by_logical_replication_without_the_sequences_every_event_arrives() {
    let [begin, copied, cut_over, _] = blocks("Logical replication");
    let old = stopped(&[("wal_level", "logical")]).await;
    // Events that were purged long ago leave ids that can be drawn a second time.
    let purge = "DELETE FROM hapax.outbox_event WHERE id <= 30";
    old.client_of(SHOP)
        .await
        .batch_execute(purge)
        .await
        .unwrap();
    let new = Cluster::start().await;
    new.create(SHOP).await;
    for block in [&begin, &copied, &cut_over] {
        run(block, &old, &new);
    }
    let client = new.client_of(SHOP).await;
    let low = "SELECT count(*) FROM hapax.low_sequences()";
    assert!(number(&client, low).await >= 2);
    emit(&client, "early", 10).await;
    let far = check_goes_on(&old, &new).await;
    eventually(PATIENCE, async || {
        far.iter().all(|far| far.count("early") == 10)
    })
    .await;
    assert_eq!(number(&client, low).await, 0);
    assert!(far.iter().all(|far| far.count("first") == 0), "{far:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn by_a_standby_that_is_promoted_every_event_arrives() {
    let [promote] = blocks("A standby that is promoted");
    let old = Scene::begin().await;
    old.emit("first", 20).await;
    let new = old.cluster.standby().await;
    let there = new.client_of(SHOP).await;
    old.emit("first", 60).await;
    let mut old = ended(old).await;
    eventually(PATIENCE, async || {
        number(&there, "SELECT count(*) FROM hapax.outbox_event").await == 60 + 20
    })
    .await;
    settled(&there).await;
    old.stop_immediate().await;
    run(&promote, &old, &new);
    old.start_again().await;
    check_goes_on(&old, &new).await;
}

/// A server whose relay has delivered everything and is stopped.
async fn stopped(settings: &[(&str, &str)]) -> Cluster {
    let scene = Scene::on(Cluster::start_with(settings).await, Some("one")).await;
    scene.emit("first", 60).await;
    ended(scene).await
}

/// Waits until every event is delivered, and stops the relay.
async fn ended(scene: Scene) -> Cluster {
    scene.arrived("first", 60).await;
    scene.settled().await;
    scene.end().await
}

/// Starts a relay on the new server. Requires that events emitted there are delivered, and that no
/// event is delivered twice.
async fn check_goes_on(old: &Cluster, new: &Cluster) -> [Far; 2] {
    assert_ne!(old.url_of(SHOP), new.url_of(SHOP));
    let store = Postgres::open(settings(&new.url_of(SHOP))).await.unwrap();
    let far = [Far::default(), Far::default()];
    let relay = spawn(&store, &far, Some("one"));
    let client = new.client_of(SHOP).await;
    // Until then the ids may be in use.
    let taken = "SELECT count(*) FROM hapax.lease WHERE node LIKE 'one#%'
        AND taken_at > now() - interval '1 minute'";
    eventually(PATIENCE, async || number(&client, taken).await == 3).await;
    emit(&client, "later", 50).await;
    eventually(PATIENCE, async || {
        far.iter().all(|far| far.count("later") == 50)
    })
    .await;
    assert!(far.iter().all(|far| far.count("first") == 0), "{far:?}");
    settled(&client).await;
    relay.drain().await;
    far
}

/// The shell blocks in a section of the guide.
fn blocks<const COUNT: usize>(section: &str) -> [String; COUNT] {
    let title = format!("\n## {section}\n");
    let (_, text) = GUIDE.split_once(&title).expect("the guide has the section");
    let text = text.split("\n## ").next().unwrap();
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    blocks.collect::<Vec<_>>().try_into().unwrap()
}

/// Runs lines of the guide as written.
fn run(block: &str, old: &Cluster, new: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", block]);
    bash.current_dir(folder.path()).env_clear();
    let path = format!("{}:/usr/bin:/bin", programs().display());
    bash.env("PATH", path);
    bash.env("OLD", old.url_of(SHOP))
        .env("NEW", new.url_of(SHOP));
    let ended = bash.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{block}\n{said}");
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}
