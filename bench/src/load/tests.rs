//! Tests of the load generator, against a service that stores keys.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use axum::{Router, http::HeaderMap, routing};
use http::StatusCode;
use tokio::net::TcpListener;

use super::*;

type Seen = Arc<Mutex<HashSet<String>>>;

/// A service that stores keys and sends `Idempotency-Status: replayed` for a known one.
async fn service() -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let keys = Arc::clone(&seen);
    let order = move |headers: HeaderMap| async move {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        let status = if keys.lock().unwrap().insert(key) {
            "stored"
        } else {
            "replayed"
        };
        (
            StatusCode::CREATED,
            [("idempotency-status", status)],
            "x".repeat(20_000),
        )
    };
    let router = Router::new().route("/orders", routing::post(order));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, seen)
}

fn plan(address: SocketAddr, keys: Keys) -> Plan {
    Plan {
        address,
        connections: 5,
        threads: 2,
        request: Request::post("/orders", "t", "{}", 1),
        keys,
        pace: None,
        until: Until::Count(200),
    }
}

#[tokio::test]
async fn fresh_keys_are_all_different_across_connections_and_threads() {
    let (address, seen) = service().await;
    let tally = run(&plan(address, Keys::Fresh)).await.unwrap();
    tally.only(201).unwrap();
    assert_eq!((tally.count(), tally.replayed), (200, 0));
    assert_eq!(seen.lock().unwrap().len(), 200);
}

#[tokio::test]
async fn cycled_keys_are_replayed_after_their_first_time() {
    let (address, seen) = service().await;
    let tally = run(&plan(address, Keys::Cycle(8))).await.unwrap();
    assert_eq!((tally.count(), tally.replayed), (200, 192));
    assert_eq!(seen.lock().unwrap().len(), 8);
}

#[tokio::test]
async fn spread_keys_are_replays_if_the_first_keys_are_stored() {
    let (address, _) = service().await;
    let tally = run(&plan(address, Keys::Cycle(50))).await.unwrap();
    assert_eq!(tally.replayed, 150);
    let tally = run(&plan(address, Keys::Spread(50))).await.unwrap();
    assert_eq!((tally.count(), tally.replayed), (200, 200));
}

#[test]
fn spread_keys_reach_all_parts_of_the_stored_keys_soon() {
    let tenths: HashSet<u64> = (0..100)
        .map(|it| Keys::Spread(10_000).of(it) / 1_000)
        .collect();
    assert_eq!(tenths.len(), 10);
}

#[tokio::test]
async fn a_paced_run_sends_what_it_was_told() {
    let (address, _) = service().await;
    let mut plan = plan(address, Keys::Fresh);
    plan.pace = Some(100_000.0);
    assert_eq!(run(&plan).await.unwrap().count(), 200);
}

#[tokio::test]
async fn a_burst_sends_every_request_once_and_keeps_the_bodies() {
    let (address, _) = service().await;
    let requests = vec![Request::post("/orders", "t", "{}", 1); 50];
    let greeting = Request::get("/healthz", None);
    let (tally, bodies) = burst(address, &greeting, requests).await.unwrap();
    assert_eq!((tally.count(), tally.replayed), (50, 49));
    assert!(bodies.len() == 50 && bodies.iter().all(|body| body.len() == 20_000));
}

#[tokio::test]
async fn another_status_is_not_taken_for_the_one_that_was_wanted() {
    let (address, _) = service().await;
    let mut plan = plan(address, Keys::Fresh);
    plan.request = Request::post("/other", "t", "{}", 1);
    let tally = run(&plan).await.unwrap();
    assert!(tally.only(201).is_err());
    assert!(Tally::new().only(201).is_err());
}

#[tokio::test]
async fn a_service_that_hangs_up_ends_the_run() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    assert!(run(&plan(address, Keys::Fresh)).await.is_err());
}
