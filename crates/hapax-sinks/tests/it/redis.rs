//! Redis Streams on servers that are killed, full, without permission, or read-only.

use std::{collections::HashMap, time::Duration};

use ::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use hapax::{
    event::NewEvent,
    sink::{Sink as _, SinkError},
};
use hapax_sinks::{
    format::Format,
    redis::{Redis, RedisSettings},
    settings::DestinationSettings,
};
use hapax_testkit::{
    port::free_port,
    proxy::Proxy,
    servers::Server,
    wait::{Patience, eventually},
};

use crate::{
    consumer::effects,
    events::{
        PATIENCE, any_offer, check_failure, deliver, deliver_all, ids, offer, offers, unavailable,
    },
    sinks,
    tls::CA,
};

#[tokio::test]
async fn a_server_that_is_killed_in_mid_batch_loses_nothing_and_each_effect_is_once() {
    let mut server = Server::redis(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let mut direct = connection(&server.address(), 0).await;
    let sink = to(&server);
    let offers = offers(5_000, 1_000);
    let delivering = sink.deliver(&offers);
    let killing = async {
        eventually(PATIENCE, async || length(&mut direct).await > 0).await;
        server.kill();
    };
    let (outcomes, ()) = tokio::join!(delivering, killing);
    let left = unavailable(&offers, outcomes);
    assert!(
        !left.is_empty(),
        "the server must be killed before the whole batch is stored"
    );
    assert!(sink.deliver(&left[..1]).await.iter().all(Result::is_err));

    server.start_again().await;
    deliver_all(&sink, &left).await;
    let mut direct = connection(&server.address(), 0).await;
    let entries = read(&mut direct, "events").await;
    assert!(entries.len() >= offers.len());
    let message = |entry: &HashMap<String, Vec<u8>>| (text(entry, "id"), entry["data"].clone());
    let messages: Vec<_> = entries.iter().map(message).collect();
    assert_eq!(effects(&messages).await, offers.len());
}

#[tokio::test]
async fn a_batch_of_5000_is_added_in_order() {
    let server = Server::redis(&[]).await;
    let sink = to(&server);
    let offers = offers(5_000, 10);
    assert!(sink.deliver(&offers).await.iter().all(Result::is_ok));
    let mut direct = connection(&server.address(), 0).await;
    let entries = read(&mut direct, "events").await;
    let found: Vec<_> = entries.iter().map(|entry| text(entry, "id")).collect();
    assert_eq!(found, ids(&offers));
}

#[tokio::test]
async fn an_entry_has_fixed_fields_and_a_stream_is_trimmed_where_that_was_asked() {
    let server = Server::redis(&[]).await;
    let mut direct = connection(&server.address(), 3).await;
    let new = NewEvent::json("order.created", &serde_json::json!({"n": 1}))
        .about("order", "o-1")
        .header("correlation_id", "c-1")
        .header("traceparent", "00-aa-bb-01");
    let offer = offer(1, new);
    let sink = sinks::redis(
        format!("{}/3", url(&server)),
        DestinationSettings::new("/shop"),
        |it| it.stream = Some("{type}".to_owned()),
    );
    deliver(&sink, offer.clone()).await.unwrap();
    let entry = read(&mut direct, "order.created").await.remove(0);
    let id = offer.event().id.to_string();
    for (name, value) in [
        ("id", id.as_str()),
        ("type", "order.created"),
        ("source", "/shop"),
        ("time", "2023-11-14T22:13:20.000Z"),
        ("subject", "order/o-1"),
        ("data", "{\"n\":1}"),
        ("datacontenttype", "application/json"),
        ("traceparent", "00-aa-bb-01"),
        ("correlation_id", "c-1"),
    ] {
        assert_eq!(text(&entry, name), value, "{name}");
    }

    let sink = sinks::redis(format!("{}/3", url(&server)), sinks::destination(), |it| {
        it.stream = Some("raw".to_owned());
        it.format = Format::Raw;
    });
    deliver(&sink, offer.clone()).await.unwrap();
    let entry = read(&mut direct, "raw").await.remove(0);
    assert_eq!(
        (text(&entry, "id"), entry.contains_key("type")),
        (id, false)
    );

    let sink = with(&server, |it| it.length_max = Some(100));
    assert!(
        sink.deliver(&offers(2_000, 10))
            .await
            .iter()
            .all(Result::is_ok)
    );
    let mut direct = connection(&server.address(), 0).await;
    assert!((100..400).contains(&length(&mut direct).await));
}

#[tokio::test]
async fn a_key_that_is_no_stream_fails_its_own_events_and_says_which_it_is() {
    let server = Server::redis(&[]).await;
    let mut direct = connection(&server.address(), 0).await;
    ::redis::cmd("SET")
        .arg("b")
        .arg(1)
        .exec_async(&mut direct)
        .await
        .unwrap();
    let sink = with(&server, |it| it.stream = Some("{type}".to_owned()));
    let kinds = ["a", "b", "c"];
    let batch = (1..)
        .zip(kinds)
        .map(|(n, kind)| offer(n, NewEvent::json(kind, &n)));
    let outcomes = sink.deliver(&batch.collect::<Vec<_>>()).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    check_failure(&outcomes[1], true, "wrong_type", "key b is not a stream");
    assert!(matches!(outcomes[1], Err(SinkError::Declined { .. })));
    // If all events go to one stream, the failure is not that of one event.
    let sink = with(&server, |it| it.stream = Some("b".to_owned()));
    let outcome = deliver(&sink, any_offer()).await;
    check_failure(&outcome, true, "wrong_type", "key b is not a stream");
    assert!(matches!(outcome, Err(SinkError::Unavailable { .. })));
}

#[tokio::test]
async fn a_full_server_is_unavailable_until_there_is_room() {
    let server = Server::redis(&["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]).await;
    let sink = to(&server);
    let offers = offers(600, 10_000);
    let outcomes = sink.deliver(&offers).await;
    let taken = outcomes.iter().filter(|it| it.is_ok()).count();
    assert!(taken > 0 && taken < 600, "{taken} were taken");
    check_failure(&outcomes[599], true, "full", "out of memory");
    let mut direct = connection(&server.address(), 0).await;
    configure(&mut direct, "maxmemory", "0").await;
    let left = unavailable(&offers, outcomes);
    deliver_all(&sink, &left).await;
    assert_eq!(length(&mut direct).await, 600);
}

#[tokio::test]
async fn a_replica_that_takes_no_writes_is_unavailable() {
    let server = Server::redis(&["--replicaof", "127.0.0.1 1"]).await;
    let sink = to(&server);
    check_failure(&deliver(&sink, any()).await, true, "read_only", "READONLY");
}

/// The demoted server keeps its clients, while the address leads to the new one.
#[tokio::test]
async fn after_a_failover_the_connection_is_replaced() {
    let (old, new) = (Server::redis(&[]).await, Server::redis(&[]).await);
    let proxy = Proxy::to(old.address());
    let sink = sinks::redis(
        format!("redis://{}", proxy.address()),
        sinks::destination(),
        |_| {},
    );
    deliver(&sink, any()).await.unwrap();
    let mut direct = connection(&old.address(), 0).await;
    let demoted: Result<(), _> = ::redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(1)
        .query_async(&mut direct)
        .await;
    demoted.unwrap();
    proxy.lead_to(new.address());
    check_failure(&deliver(&sink, any()).await, true, "read_only", "READONLY");
    deliver(&sink, any()).await.unwrap();
    let mut direct = connection(&new.address(), 0).await;
    assert_eq!(length(&mut direct).await, 1);
}

#[tokio::test]
async fn a_login_that_is_wrong_or_missing_says_so() {
    let server = Server::redis(&["--requirepass", "p@ss"]).await;
    let login = |login: &str| {
        let url = format!("redis://{login}@{}", server.address());
        sinks::redis(url, sinks::destination(), |_| {})
    };
    let outcome = deliver(&login("default:secret"), any()).await;
    check_failure(&outcome, true, "login", "");
    assert!(!outcome.unwrap_err().error_chain().contains("secret"));
    let outcome = deliver(&to(&server), any()).await;
    check_failure(&outcome, true, "login", "");
    deliver(&login("default:p%40ss"), any()).await.unwrap();
    deliver(&login(":p%40ss"), any()).await.unwrap();
}

#[tokio::test]
async fn an_event_of_a_mebibyte_is_taken() {
    let server = Server::redis(&[]).await;
    let batch = offers(2, 1024 * 1024 - 200);
    let sink = to(&server);
    assert!(sink.deliver(&batch).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_server_that_was_never_there_is_a_failure_to_connect() {
    let port = free_port();
    let sink = sinks::redis(
        format!("redis://127.0.0.1:{port}"),
        sinks::destination(),
        |_| {},
    );
    check_failure(
        &deliver(&sink, any()).await,
        true,
        "connect",
        "onnection refused",
    );
}

#[tokio::test]
async fn tls_is_spoken_to_a_server_that_the_given_authority_vouches_for() {
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls");
    let port = free_port().to_string();
    let certificate = format!("{files}/server.pem");
    let key = format!("{files}/server-key.pem");
    let _server = Server::redis(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
    ])
    .await;
    let address = format!("rediss://localhost:{port}");
    let trusting = sinks::redis(address.as_str(), sinks::destination(), |it| {
        it.ca = Some(CA.into());
    });
    deliver(&trusting, any()).await.unwrap();
    let other = sinks::redis(address, sinks::destination(), |_| {});
    check_failure(&deliver(&other, any()).await, true, "tls", "certificate");
}

/// A plain connection to a server.
pub(crate) async fn connection(address: &str, database: u32) -> MultiplexedConnection {
    let client = Client::open(format!("redis://{address}/{database}")).unwrap();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(10)))
        .set_response_timeout(Some(Duration::from_secs(10)));
    // A server that listens may still be loading its data.
    let patience = Patience::within(PATIENCE);
    loop {
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap_or_else(|error| panic!("no Redis at {address} ({error}): start one"));
        if ::redis::cmd("PING")
            .exec_async(&mut connection)
            .await
            .is_ok()
        {
            return connection;
        }
        patience.pause().await;
    }
}

/// The entries of a stream, in order.
pub(crate) async fn read(
    direct: &mut MultiplexedConnection,
    name: &str,
) -> Vec<HashMap<String, Vec<u8>>> {
    let reading = ::redis::cmd("XRANGE")
        .arg(name)
        .arg("-")
        .arg("+")
        .query_async(direct)
        .await;
    let entries: Vec<(String, HashMap<String, Vec<u8>>)> = reading.unwrap();
    entries.into_iter().map(|(_, fields)| fields).collect()
}

fn to(server: &Server) -> Redis {
    with(server, |_| {})
}

fn with(server: &Server, change: impl FnOnce(&mut RedisSettings)) -> Redis {
    sinks::redis(url(server), sinks::within(Duration::from_secs(10)), change)
}

fn url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

async fn length(direct: &mut MultiplexedConnection) -> usize {
    ::redis::cmd("XLEN")
        .arg("events")
        .query_async(direct)
        .await
        .unwrap()
}

async fn configure(direct: &mut MultiplexedConnection, name: &str, value: &str) {
    let mut command = ::redis::cmd("CONFIG");
    command.arg("SET").arg(name).arg(value);
    command.exec_async(direct).await.unwrap();
}

fn text(entry: &HashMap<String, Vec<u8>>, name: &str) -> String {
    String::from_utf8(entry[name].clone()).unwrap()
}

fn any() -> hapax::sink::Offer {
    offer(1, NewEvent::json("a", &1))
}
