//! Tests of shutdown: requests and events in flight, and clients that disconnect.

use std::{os::unix::process::ExitStatusExt as _, time::Duration};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::shop::{Home, ORDER, PATIENCE, Shop, Store, command, lasting, on_both_stores};

on_both_stores! {
    a_request_in_flight_is_answered_before_the_shop_ends,
    an_event_on_its_way_arrives_before_the_shop_ends_and_is_not_sent_again,
    a_client_that_leaves_finds_its_order_under_its_key,
    a_shop_that_dies_before_it_sends_delivers_after_its_restart,
    noise_on_the_port_affects_no_other,
}

async fn a_request_in_flight_is_answered_before_the_shop_ends(on: Store) {
    let mut shop = Shop::start(on, &[]).await;
    let mut stream = TcpStream::connect(shop.address()).await.unwrap();
    let (head, body) = request("k");
    let head = head.replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // After `100 Continue` the request is being processed.
    let mut outcome = [0; 25];
    stream.read_exact(&mut outcome).await.unwrap();
    assert_eq!(&outcome, b"HTTP/1.1 100 Continue\r\n\r\n");
    shop.signal("TERM");
    eventually(PATIENCE, async || shop.log().contains("draining")).await;
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let (status, _) = shop.ended().await;
    assert!(status.success());
    assert!(TcpStream::connect(shop.address()).await.is_err());
}

async fn an_event_on_its_way_arrives_before_the_shop_ends_and_is_not_sent_again(on: Store) {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(200).after(Duration::from_secs(1)));
    let url = receiver.url("/hook");
    let flags = ["--webhook", &url, "--allow-net", "127.0.0.0/8"];
    let shop = Shop::start(on, &flags).await;
    shop.post("/orders", Some("1"), ORDER).await;
    receiver.received_at_least(1).await;
    let home = shop.home();
    shop.stop().await;

    let shop = Shop::start_in(home, &flags);
    shop.post("/orders", Some("2"), ORDER).await;
    let deliveries = receiver.received_at_least(2).await;
    let ids: Vec<_> = deliveries
        .iter()
        .map(|it| it.header("webhook-id"))
        .collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

async fn a_client_that_leaves_finds_its_order_under_its_key(on: Store) {
    let shop = Shop::start(on, &["--wait", "20s"]).await;
    for number in 0..20 {
        let key = format!("k-{number}");
        let mut stream = TcpStream::connect(shop.address()).await.unwrap();
        let (head, body) = request(&key);
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
        drop(stream);
    }
    for number in 0..20 {
        let answer = shop
            .post("/orders", Some(&format!("k-{number}")), ORDER)
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let orders = shop.get("/orders").await.json().unwrap();
    assert_eq!(orders["items"].as_array().unwrap().len(), 20);
    assert_eq!(shop.received("order.created", 20).await.len(), 20);
}

async fn a_shop_that_dies_before_it_sends_delivers_after_its_restart(on: Store) {
    let home = Home::fresh(on).await;
    let mut deadly = command(&home, &[]);
    deadly.env("HAPAX_FAILPOINT", "relay.offer.before:1");
    let mut shop = Shop::spawn(deadly, home.clone());
    let first = shop.post("/orders", Some("k"), ORDER).await;
    let (status, _) = shop.ended().await;
    assert_eq!(status.signal(), Some(9));
    let shop = Shop::start_in(home, &[]);
    let again = shop.post("/orders", Some("k"), ORDER).await;
    assert_eq!(lasting(&again), lasting(&first));
    let events = shop.received("order.created", 1).await;
    assert_eq!((events.len(), &events[0]["effects"]), (1, &1.into()));
}

async fn noise_on_the_port_affects_no_other(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1024 * 1024));
    let lying = "POST /orders HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff0\r\n";
    for noise in [
        "\0\u{1}\u{2}",
        "GET",
        "GET / HTTP/9.9\r\n\r\n",
        lying,
        long.as_str(),
    ] {
        let mut stream = TcpStream::connect(shop.address()).await.unwrap();
        // The shop may close the connection before it has read everything.
        let _sent = stream.write_all(noise.as_bytes()).await;
    }
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
}

fn request(key: &str) -> (String, &'static str) {
    let head = format!(
        "POST /orders HTTP/1.1\r\nhost: shop\r\nauthorization: Bearer demo-alice\r\n\
         content-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n",
        ORDER.len()
    );
    (head, ORDER)
}
