//! An application on a public framework, unchanged: Flask with the gateway in front.

use std::net::SocketAddr;

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    gateway::Gateway,
    upstream::Packaged,
    wire::{exchange, request},
};

#[tokio::test]
async fn flask_creates_one_order_for_a_key() {
    let flask = Packaged::start("upstream/public.py", &[]).await;
    let gateway = Gateway::before(flask.address).await;
    let mut bodies = Vec::new();
    for key in ["a", "b", "a", "b", "a"] {
        let answer = exchange(gateway.address(), &order(key)).await.unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
        bodies.push(answer.body);
    }
    assert_eq!(bodies[0], bodies[2]);
    assert_eq!(bodies[0], bodies[4]);
    assert_eq!(bodies[1], bodies[3]);
    assert_eq!(orders(gateway.address()).await, 2);
}

#[tokio::test]
async fn flask_creates_one_order_for_two_hundred_duplicates_at_once() {
    let flask = Packaged::start("upstream/public.py", &[]).await;
    let gateway = Gateway::before(flask.address).await;
    let order = order("all");
    let duplicates = (0..200).map(async |_| {
        // A duplicate that has waited for the first one in vain is sent again.
        loop {
            let answer = exchange(gateway.address(), &order).await.unwrap();
            if answer.status != 409 {
                break answer;
            }
        }
    });
    let answers = join_all(duplicates).await;
    for answer in &answers {
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(answer.body, answers[0].body);
    }
    assert_eq!(orders(gateway.address()).await, 1);
}

#[tokio::test]
async fn a_retry_has_the_answer_of_flask_that_was_cut_on_the_way() {
    let flask = Packaged::start("upstream/public.py", &[]).await;
    let gateway = Gateway::before(flask.address).await;
    let order = order("cut");
    let mut connection = TcpStream::connect(gateway.address()).await.unwrap();
    connection.write_all(&order).await.unwrap();
    connection.read_u8().await.unwrap();
    drop(connection);
    let retried = exchange(gateway.address(), &order).await.unwrap();
    assert_eq!(retried.status, 201, "{}", retried.text());
    assert_eq!(retried.json()["id"], 1);
    assert_eq!(orders(gateway.address()).await, 1);
}

fn order(key: &str) -> Vec<u8> {
    let headers = [
        ("Content-Type", "application/json"),
        ("Idempotency-Key", key),
    ];
    let body = format!(r#"{{"for": "{key}"}}"#);
    request("POST", "/orders", &headers, &body)
}

/// The number of orders that the application has.
async fn orders(gateway: SocketAddr) -> usize {
    let list = request("GET", "/orders", &[], "");
    let list = exchange(gateway, &list).await.unwrap().json();
    list["items"].as_array().unwrap().len()
}
