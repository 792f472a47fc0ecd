//! A new configuration takes the place of the old one, for the next request.

use axum::body::{Body, to_bytes};
use hapax::failpoint::Failpoints;
use hapax_gateway::{
    Gateway, Peer,
    config::{Route, Settings},
};
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    wait::eventually,
};
use http::{Request, StatusCode};
use tempfile::TempDir;

use crate::{
    stage::{PATIENCE, settings},
    upstream::{Received, Reply, Upstream, ok},
};

#[tokio::test]
async fn a_new_configuration_replaces_the_old_one_as_a_whole() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("200 OK", "{}"))).await;
    let mut settings = settings(&[&upstream.url()]);
    settings.routes.clear();
    settings
        .routes
        .insert("old".to_owned(), Route::new("/old", "service"));
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(&folder, &settings);
    assert_eq!(get(&gateway, "/old").await, StatusCode::OK);
    assert_eq!(get(&gateway, "/new").await, StatusCode::NOT_FOUND);

    settings.routes.clear();
    settings
        .routes
        .insert("new".to_owned(), Route::new("/new", "service"));
    gateway.reload(&settings).unwrap();
    assert_eq!(get(&gateway, "/old").await, StatusCode::NOT_FOUND);
    assert_eq!(get(&gateway, "/new").await, StatusCode::OK);

    // A file that cannot be read: the configuration stays as it is.
    settings.routes.clear();
    let service = settings.upstreams.get_mut("service").unwrap();
    service.instances = vec!["https://127.0.0.1:1".to_owned()];
    service.ca = Some("/nowhere/ca.pem".into());
    let refused = gateway.reload(&settings).unwrap_err().to_string();
    assert!(
        refused.starts_with("gateway.upstreams.service.ca:"),
        "{refused}"
    );
    assert_eq!(get(&gateway, "/new").await, StatusCode::OK);
}

#[tokio::test]
async fn requests_in_flight_still_count_after_a_reload() {
    let upstream = Upstream::start(|_| Reply::Nothing).await;
    let mut settings = settings(&[&upstream.url()]);
    settings.upstreams.get_mut("service").unwrap().concurrency = 1;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(&folder, &settings);
    let running = get(&gateway, "/first");
    let refused = async {
        eventually(PATIENCE, async || upstream.ledger().len() == 1).await;
        gateway.reload(&settings).unwrap();
        get(&gateway, "/second").await
    };
    tokio::select! {
        status = running => panic!("the service does not respond: {status}"),
        status = refused => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE),
    }
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_route_that_keeps_its_operation_keeps_its_keys() {
    let count = |received: &Received| Reply::Bytes(ok("201 Created", &received.before.to_string()));
    let upstream = Upstream::start(count).await;
    let mut settings = settings(&[&upstream.url()]);
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(&folder, &settings);
    assert_eq!(post(&gateway, "/orders/7").await, "0");

    // A more specific route takes the request, and then its path is renamed.
    for path in ["/orders/{id}", "/orders/{order}"] {
        let mut orders = Route::new(path, "service");
        orders.operation = Some("/{*path}".to_owned());
        settings.routes.insert("orders".to_owned(), orders);
        settings.check().unwrap();
        gateway.reload(&settings).unwrap();
        assert_eq!(post(&gateway, "/orders/7").await, "0", "{path}");
    }
    // With the same key, the request of another path is a different one.
    assert!(post(&gateway, "/orders/8").await.contains("CONFLICT"));
    assert_eq!(upstream.ledger().len(), 1);

    // Without the setting, the key is not found.
    let orders = settings.routes.get_mut("orders").unwrap();
    orders.operation = None;
    gateway.reload(&settings).unwrap();
    assert_eq!(post(&gateway, "/orders/7").await, "1");
}

fn gateway(folder: &TempDir, settings: &Settings) -> Gateway<Sqlite> {
    let (clock, random) = (system_clock(), seeded_random(1));
    let file = folder.path().join("gateway.db");
    let opened = hapax_sqlite::Settings::new(file, clock.clone(), random.clone());
    let store = Sqlite::open(opened).unwrap();
    let base = hapax_http::Settings::new(clock, random);
    Gateway::new(store, base, Failpoints::none(), settings).unwrap()
}

async fn get(gateway: &Gateway<Sqlite>, path: &str) -> StatusCode {
    let request = Request::get(path).header("host", "a");
    let request = request.body(Body::empty()).unwrap();
    let peer = Peer::plain("127.0.0.1:1000".parse().unwrap());
    gateway.handle(request, &peer).await.status()
}

/// Sends a POST with a key, and returns the body of the response.
async fn post(gateway: &Gateway<Sqlite>, path: &str) -> String {
    let request = Request::post(path)
        .header("host", "a")
        .header("idempotency-key", "k")
        .header("content-type", "application/json");
    let request = request.body(Body::from("{}")).unwrap();
    let peer = Peer::plain("127.0.0.1:1000".parse().unwrap());
    let response = gateway.handle(request, &peer).await;
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.into()).unwrap()
}
