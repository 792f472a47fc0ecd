//! Tests of two instances with the same name: the same host and port, on two loopback addresses.

use std::{collections::HashMap, time::Duration};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    port::free_port,
    wait::eventually,
};
use http::Method;

use crate::shop::{Home, ORDER, PATIENCE, Shop, Store, command_at};

/// The time until the receiver responds. A relay that took over would interrupt a request of this
/// length.
const SLOW: Duration = Duration::from_millis(1_500);
/// The maximum number of orders. After them, the test only waits.
const ORDERS: usize = 300;
/// Several times the lease. In each lease, one instance could take the other's partitions.
const LONG: Duration = Duration::from_secs(12);

#[tokio::test]
async fn two_shops_of_one_host_name_and_port_take_nothing_from_each_other_and_say_so() {
    let receiver = HttpReceiver::start().await;
    let shops = namesakes(&receiver).await;
    let begun = tokio::time::Instant::now();
    let mut sent = 0;
    eventually(3 * PATIENCE, async || {
        for shop in &shops {
            if sent == ORDERS {
                break;
            }
            let key = format!("k-{sent}");
            let answer = shop.post("/orders", Some(&key), ORDER).await;
            assert_eq!(answer.status, 201, "{}", answer.text());
            sent += 1;
        }
        begun.elapsed() > LONG
    })
    .await;
    eventually(PATIENCE, async || counted(&receiver).len() == sent).await;
    let repeated: Vec<_> = counted(&receiver)
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .collect();
    assert_eq!(
        repeated,
        [],
        "expected no duplicates of {sent} events, because nothing failed"
    );
    check_epochs(&shops[0]).await;
    for shop in &shops {
        eventually(PATIENCE, async || {
            shop.metric("hapax_relay_namesakes").await > 0.0
        })
        .await;
        let ready = shop.send(Method::GET, "/readyz", &[], "").await;
        assert_eq!(ready.status, 200, "{}", ready.text());
        assert_eq!(ready.json().unwrap()["relay"], "namesake");
    }
    let log = shops[0].log() + &shops[1].log();
    let said = log.lines().filter(|line| line.contains("ERROR"));
    let said: Vec<_> = said.collect();
    assert!(
        said.len() == 2
            && said
                .iter()
                .all(|line| line.contains("has the name of this relay")),
        "{said:?}"
    );
}

#[tokio::test]
async fn events_for_a_slow_receiver_arrive_once_though_two_shops_have_one_name() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).after(SLOW));
    let shops = namesakes(&receiver).await;
    for number in 0..5 {
        let key = format!("k-{number}");
        let answer = shops[number % 2].post("/orders", Some(&key), ORDER).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let begun = tokio::time::Instant::now();
    eventually(3 * PATIENCE, async || {
        counted(&receiver).len() == 5 && begun.elapsed() > LONG
    })
    .await;
    let counts: Vec<usize> = counted(&receiver).into_values().collect();
    assert_eq!(counts, [1; 5]);
    let dead = "SELECT count(*) FROM hapax.delivery WHERE state = 'dead'";
    assert_eq!(shops[0].home().number(dead).await, 0);
    let interrupted = "SELECT count(*) FROM hapax.attempt WHERE outcome = 'interrupted'";
    assert_eq!(shops[0].home().number(interrupted).await, 0);
}

/// Starts two shops on one database, with the same port on two addresses.
async fn namesakes(receiver: &HttpReceiver) -> [Shop; 2] {
    let home = Home::fresh(Store::Postgres).await;
    let url = receiver.url("/hook");
    let database = home.database().url();
    let port = free_port();
    let start = |home: Home, host: &str| {
        let address = format!("{host}:{port}");
        let flags = ["--webhook", &url, "--allow-net", "127.0.0.0/8"];
        let flags = [&flags[..], &["--database", &database]].concat();
        let command = command_at(&address, home.path(), &flags);
        Shop::spawn(command, home)
    };
    [
        start(home.clone(), "127.0.0.1"),
        start(home.beside(), "127.0.0.2"),
    ]
}

/// The number of arrivals of each event.
fn counted(receiver: &HttpReceiver) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for request in receiver.received() {
        let id = request.header("webhook-id").unwrap().to_owned();
        *counts.entry(id).or_default() += 1;
    }
    counts
}

/// Checks that partitions got a new owner when the second instance started, but not repeatedly.
async fn check_epochs(shop: &Shop) {
    let epochs = "SELECT max(epoch) FROM hapax.lease";
    let highest = shop.home().number(epochs).await;
    assert!(highest <= 3, "a partition was taken {highest} times");
}
