//! NATS JetStream on servers that are killed, full, without permission, or have small limits.

use std::time::Duration;

use async_nats::jetstream::{self, consumer::pull, stream};
use futures_util::StreamExt as _;
use hapax::{
    event::{NewEvent, Payload},
    sink::{Sink as _, SinkError},
};
use hapax_sinks::{
    format::Format,
    nats::{Nats, NatsSettings},
    settings::DestinationSettings,
};
use hapax_testkit::{assert_matches, port::free_port, servers::Server, wait::eventually};

use crate::{
    consumer::effects,
    events::{PATIENCE, check_failure, deliver, deliver_all, ids, offer, offers, unavailable},
    sinks,
    tls::CA,
};

const JETSTREAM: &str = "jetstream { store_dir: 'STORE' }\nmax_payload: 2MB";

#[tokio::test]
async fn a_server_that_is_killed_in_mid_batch_loses_nothing_and_keeps_no_duplicate() {
    let mut server = Server::nats(JETSTREAM).await;
    let direct = with_stream(&server).await;
    let sink = to(&server);
    let offers = offers(5_000, 1_000);
    let delivering = sink.deliver(&offers);
    let killing = async {
        eventually(PATIENCE, async || count(&direct).await >= 200).await;
        server.kill();
    };
    let (outcomes, ()) = tokio::join!(delivering, killing);
    let left = unavailable(&offers, outcomes);
    assert!(
        !left.is_empty(),
        "the server must be killed before the whole batch is stored"
    );
    assert!(sink.deliver(&left).await.iter().all(Result::is_err));

    server.start_again().await;
    deliver_all(&sink, &left).await;
    // Like a relay that died before it recorded the outcomes: it offers all events again.
    deliver_all(&sink, &offers).await;
    let messages = read(&context(&server.address()).await, "EVENTS").await;
    let (mut found, mut expected) = (names(&messages), ids(&offers));
    found.sort();
    expected.sort();
    // Printing both lists would fill a page.
    assert!(found == expected, "{} of {}", found.len(), expected.len());
    assert_eq!(effects(&messages).await, offers.len());
}

#[tokio::test]
async fn a_batch_of_5000_is_stored_in_order() {
    let server = Server::nats(JETSTREAM).await;
    let direct = with_stream(&server).await;
    let sink = to(&server);
    let offers = offers(5_000, 10);
    let outcomes = sink.deliver(&offers).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(names(&read(&direct, "EVENTS").await), ids(&offers));
}

#[tokio::test]
async fn the_attributes_are_headers_and_the_subject_is_spelt() {
    let server = Server::nats(JETSTREAM).await;
    let direct = with_stream(&server).await;
    let new = NewEvent::json("order.created", &1)
        .about("order", "a.b c")
        .header("correlation_id", "caf\u{e9} \"1\" x: y")
        .header("traceparent", "00-aa-bb-01");
    let subject = "events.{type}.{aggregate_id}.{tenant}";
    let sink = sinks::nats(url(&server), DestinationSettings::new("/shop"), |it| {
        it.subject = Some(subject.to_owned());
    });
    let offer = offer(1, new);
    deliver(&sink, offer.clone()).await.unwrap();
    let stream = direct.get_stream("EVENTS").await.unwrap();
    let message = stream.get_raw_message(1).await.unwrap();
    assert_eq!(&*message.subject, "events.order.created.a%2Eb%20c._");
    let header = |name: &str| message.headers.get(name).unwrap().as_str().to_owned();
    let id = offer.event().id.to_string();
    for (name, value) in [
        ("Nats-Msg-Id", id.as_str()),
        ("ce-id", &id),
        ("ce-specversion", "1.0"),
        ("ce-source", "/shop"),
        ("ce-type", "order.created"),
        ("ce-subject", "order/a.b%20c"),
        ("content-type", "application/json"),
        ("traceparent", "00-aa-bb-01"),
        ("correlation_id", "caf%C3%A9 \"1\" x: y"),
    ] {
        assert_eq!(header(name), value, "{name}");
    }

    let sink = with(&server, |it| it.format = Format::Structured);
    deliver(&sink, offer_number(2)).await.unwrap();
    let message = stream.get_raw_message(2).await.unwrap();
    let document: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
    assert_eq!(document["type"], "a");
}

#[tokio::test]
async fn a_missing_stream_says_what_to_create_and_is_found_when_it_is_there() {
    let server = Server::nats(JETSTREAM).await;
    let sink = to(&server);
    let offers = offers(3, 10);
    for outcome in sink.deliver(&offers).await {
        check_failure(
            &outcome,
            true,
            "no_stream",
            "no stream lists subject events.order.created",
        );
    }
    let direct = with_stream(&server).await;
    deliver_all(&sink, &offers).await;
    assert_eq!(count(&direct).await, 3);
}

/// If the server is unavailable, no event is declined for its subject. There are more subjects than
/// the sink looks up, and the outcome of those that it looked up applies to the others.
#[tokio::test]
async fn a_server_without_jetstream_declines_none_of_many_subjects() {
    let server = Server::nats("").await;
    check_many_away(&server, "JetStream does not respond").await;
}

/// If the other nodes of its cluster are gone, a node has JetStream but no leader.
#[tokio::test]
async fn a_cluster_without_a_leader_declines_nothing_and_is_unavailable() {
    let (own, gone) = (free_port(), free_port());
    let server = Server::nats(&format!(
        "server_name: one\njetstream {{ store_dir: 'STORE' }}\n\
         cluster {{ name: c, listen: 127.0.0.1:{own}, routes: [nats://127.0.0.1:{gone}] }}"
    ))
    .await;
    check_many_away(&server, "no leader").await;
}

async fn check_many_away(server: &Server, error_chain: &str) {
    let sink = with(server, |it| {
        it.subject = Some("s.{aggregate_id}".to_owned());
    });
    let of = |n: u64| offer(n, NewEvent::json("a", &n).about("order", format!("o-{n}")));
    let batch: Vec<_> = (1..=40).map(of).collect();
    for outcome in sink.deliver(&batch).await {
        check_failure(&outcome, true, "no_stream", error_chain);
        assert_matches!(outcome, Err(SinkError::Unavailable { .. }));
    }
}

#[tokio::test]
async fn a_server_without_jetstream_declines_nothing_and_is_unavailable() {
    let server = Server::nats("max_payload: 2MB").await;
    let sink = to(&server);
    for outcome in sink.deliver(&offers(3, 10)).await {
        check_failure(&outcome, true, "no_stream", "JetStream does not respond");
        assert!(matches!(outcome, Err(SinkError::Unavailable { .. })));
    }
}

/// A user who is not allowed to list streams learns nothing more, and waits for the response only
/// once.
#[tokio::test]
async fn a_user_that_may_not_ask_for_streams_has_its_events_declined() {
    let lines = format!(
        "{JETSTREAM}\nauthorization {{ users = [ {{ user: shop, password: p, permissions: {{ \
         publish: 'events.>', subscribe: '>' }} }} ] }}"
    );
    let server = Server::nats(&lines).await;
    let sink = with(&server, login("shop", "p"));
    for _ in 0..2 {
        let outcome = deliver(&sink, offer_number(1)).await;
        check_failure(&outcome, true, "no_stream", "no stream lists subject");
        assert!(matches!(outcome, Err(SinkError::Declined { .. })));
    }
}

#[tokio::test]
async fn one_event_that_is_too_large_fails_alone_and_one_of_a_mebibyte_fits_two() {
    let server = Server::nats(JETSTREAM).await;
    let direct = with_stream(&server).await;
    let sink = to(&server);
    let huge = |number, bytes| {
        let content_type = "application/octet-stream".to_owned();
        let bytes = vec![7; bytes].into();
        let payload = Payload::Binary {
            content_type,
            bytes,
        };
        offer(number, NewEvent::new("a", payload))
    };
    let mebibyte = 1024 * 1024;
    let batch = [offer_number(1), huge(2, mebibyte), offer_number(3)];
    assert!(sink.deliver(&batch).await.iter().all(Result::is_ok));

    let small = Server::nats("jetstream { store_dir: 'STORE' }").await;
    let there = with_stream(&small).await;
    let sink = to(&small);
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    check_failure(&outcomes[1], false, "too_large", "max_payload of 1048576");
    assert_eq!((count(&direct).await, count(&there).await), (3, 2));
}

#[tokio::test]
async fn a_full_disk_is_unavailable() {
    let limits = "jetstream { store_dir: 'STORE', max_file_store: 100KB }\nmax_payload: 2MB";
    let server = Server::nats(limits).await;
    let direct = with_stream(&server).await;
    let sink = to(&server);
    let offers = offers(50, 5_000);
    let outcomes = sink.deliver(&offers).await;
    let taken = outcomes.iter().filter(|it| it.is_ok()).count();
    assert!(taken > 0 && taken < 50, "{taken} were taken");
    check_failure(&outcomes[49], true, "refused", "resources");
    assert_eq!(count(&direct).await, taken);
}

#[tokio::test]
async fn a_login_that_is_wrong_or_a_subject_that_is_forbidden_says_so() {
    let lines = format!(
        "{JETSTREAM}\nauthorization {{ users = [ \
         {{ user: shop, password: 'p%40ss' }}, \
         {{ user: reader, password: r, permissions: {{ publish: 'none', subscribe: '>' }} }} ] }}"
    );
    let server = Server::nats(&lines).await;
    let wrong = with(&server, login("shop", "secret"));
    let outcome = deliver(&wrong, offer_number(1)).await;
    check_failure(&outcome, true, "login", "authorization violation");
    assert!(!outcome.unwrap_err().error_chain().contains("secret"));
    let right = with(&server, login("shop", "p%40ss"));
    check_failure(
        &deliver(&right, offer_number(1)).await,
        true,
        "no_stream",
        "",
    );
    let forbidden = sinks::nats(
        url(&server),
        sinks::within(Duration::from_secs(1)),
        login("reader", "r"),
    );
    let outcome = deliver(&forbidden, offer_number(1)).await;
    let error_chain = "does not permit this user to publish to subject events.a";
    check_failure(&outcome, true, "forbidden", error_chain);
    assert!(matches!(outcome, Err(SinkError::Declined { .. })));
    // If all events go to one subject, the failure is not that of one event.
    let forbidden = sinks::nats(url(&server), sinks::within(Duration::from_secs(1)), |it| {
        login("reader", "r")(it);
        it.subject = Some("events.all".to_owned());
    });
    let outcome = deliver(&forbidden, offer_number(1)).await;
    check_failure(&outcome, true, "timeout", "Permissions Violation");
    assert!(matches!(outcome, Err(SinkError::Unavailable { .. })));
}

#[tokio::test]
async fn a_server_that_was_never_there_is_found_when_it_comes() {
    let port = free_port();
    let address = format!("nats://127.0.0.1:{port}");
    let sink = sinks::nats(address, sinks::destination(), |_| {});
    let outcome = deliver(&sink, offer_number(1)).await;
    check_failure(&outcome, true, "connect", "Connection refused");
}

#[tokio::test]
async fn tls_is_spoken_to_a_server_that_the_given_authority_vouches_for() {
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls");
    let lines = format!(
        "{JETSTREAM}\ntls {{ cert_file: '{files}/server.pem', key_file: '{files}/server-key.pem' }}"
    );
    let server = Server::nats(&lines).await;
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let address = format!("tls://localhost:{port}");
    let trust = |it: &mut NatsSettings| it.ca = Some(CA.into());
    let trusting = sinks::nats(address.as_str(), sinks::destination(), trust);
    check_failure(
        &deliver(&trusting, offer_number(1)).await,
        true,
        "no_stream",
        "",
    );
    let other = sinks::nats(address, sinks::destination(), |_| {});
    check_failure(
        &deliver(&other, offer_number(1)).await,
        true,
        "tls",
        "certificate",
    );
}

/// The JetStream context of a plain client.
pub(crate) async fn context(address: &str) -> jetstream::Context {
    let connected = async_nats::connect(address).await;
    jetstream::new(connected.unwrap_or_else(|error| {
        panic!("no NATS at {address} ({error}): start nats-server --jetstream")
    }))
}

/// The content of a stream: ids and payloads, in order.
pub(crate) async fn read(direct: &jetstream::Context, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut stream = direct.get_stream(name).await.unwrap();
    let count = usize::try_from(stream.info().await.unwrap().state.messages).unwrap();
    let settings = pull::Config {
        ack_policy: jetstream::consumer::AckPolicy::None,
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(settings).await.unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let batch = consumer.fetch().max_messages(count - found.len());
        let mut messages = batch.messages().await.unwrap();
        while let Some(message) = messages.next().await {
            let message = message.unwrap();
            let headers = message.headers.as_ref().unwrap();
            let id = headers.get("Nats-Msg-Id").unwrap().as_str().to_owned();
            found.push((id, message.payload.to_vec()));
        }
    }
    found
}

fn to(server: &Server) -> Nats {
    with(server, |_| {})
}

fn with(server: &Server, change: impl FnOnce(&mut NatsSettings)) -> Nats {
    sinks::nats(url(server), sinks::within(Duration::from_secs(5)), change)
}

fn login(user: &str, password: &str) -> impl FnOnce(&mut NatsSettings) {
    move |settings| {
        settings.user = Some(user.to_owned());
        settings.password = Some(password.into());
    }
}

fn url(server: &Server) -> String {
    format!("nats://{}", server.address())
}

async fn with_stream(server: &Server) -> jetstream::Context {
    let direct = context(&server.address()).await;
    let settings = stream::Config {
        name: "EVENTS".to_owned(),
        subjects: vec!["events.>".to_owned()],
        ..stream::Config::default()
    };
    direct.create_stream(settings).await.unwrap();
    direct
}

async fn count(direct: &jetstream::Context) -> usize {
    let mut stream = direct.get_stream("EVENTS").await.unwrap();
    let info = stream.info().await.unwrap();
    usize::try_from(info.state.messages).unwrap()
}

fn names(messages: &[(String, Vec<u8>)]) -> Vec<String> {
    messages.iter().map(|(id, _)| id.clone()).collect()
}

fn offer_number(number: u64) -> hapax::sink::Offer {
    offer(number, NewEvent::json("a", &number))
}
