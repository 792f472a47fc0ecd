//! Test of a key that an operator purges while two instances have its response in memory.

use std::time::Duration;

use hapax_testkit::{http::HttpResponse, wait::Patience};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    relay_process::hapax,
    shop::{Home, ORDER, PATIENCE, Shop, Store, check_replays, lasting},
};

/// The maximum time for which an instance replays a key after it was purged.
const FRESH: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_purge_reaches_every_instance_within_a_second() {
    let (home, shops) = two().await;
    let first = remembered_by(&shops).await;
    purge(&home);
    let purged = Instant::now();
    let patience = Patience::within(PATIENCE);
    loop {
        let mut anew = Vec::new();
        for shop in &shops {
            let after = purged.elapsed();
            let answer = order(shop).await;
            if answer.body == first.body {
                assert!(
                    after <= FRESH,
                    "a purged response was replayed after {after:?}"
                );
            } else {
                anew.push(lasting(&answer));
            }
        }
        if let [one, other] = anew.as_slice() {
            assert_eq!(one, other, "the instances disagree");
            break;
        }
        patience.pause().await;
    }
    assert_eq!(home.number("SELECT count(*) FROM shop_order").await, 2);
}

#[tokio::test]
async fn an_instance_that_was_stopped_meanwhile_does_not_replay_what_was_purged() {
    let (home, shops) = two().await;
    let first = remembered_by(&shops).await;
    let [stopped, other] = &shops;
    stopped.signal("STOP");
    purge(&home);
    let purged = Instant::now();
    let patience = Patience::within(PATIENCE);
    while purged.elapsed() <= FRESH {
        patience.pause().await;
    }
    let anew = order(other).await;
    assert_ne!(anew.body, first.body);
    stopped.signal("CONT");
    let answer = order(stopped).await;
    check_replays(&answer, &anew);
    assert_eq!(home.number("SELECT count(*) FROM shop_order").await, 2);
}

async fn two() -> (Home, [Shop; 2]) {
    let home = Home::fresh(Store::Postgres).await;
    let one = Shop::start_in(home.clone(), &[]);
    let other = Shop::start_in(home.beside(), &[]);
    (home, [one, other])
}

/// Places an order that both instances have replayed, so that both have its response in memory.
async fn remembered_by(shops: &[Shop; 2]) -> HttpResponse {
    let first = order(&shops[0]).await;
    assert_eq!(first.header("idempotency-status"), Some("stored"));
    for _ in 0..3 {
        for shop in shops {
            let again = order(shop).await;
            assert_eq!(again.header("idempotency-status"), Some("replayed"));
            assert_eq!(again.body, first.body);
        }
    }
    first
}

async fn order(shop: &Shop) -> HttpResponse {
    shop.post("/orders", Some("k"), ORDER).await
}

/// Purges the key as an operator does, with the `hapax` binary.
#[track_caller]
fn purge(home: &Home) {
    let database = home.database().url();
    let run = |arguments: &[&str]| {
        let ran = hapax(arguments).args(["--database", &database]).output();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            ran.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        said
    };
    let shown = run(&["keys", "show", "POST /orders", "k", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let version = shown["version"].as_str().unwrap();
    let purge = ["keys", "purge", "POST /orders", "k", "--yes"];
    let because = ["--reason", "a test", "--if-version", version];
    run(&[&purge[..], &because].concat());
}
