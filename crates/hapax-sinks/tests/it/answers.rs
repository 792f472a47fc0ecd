//! Brokers whose response is not an acknowledgement or is cut off.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use hapax::{
    event::NewEvent,
    sink::{Sink, SinkError},
};
use hapax_testkit::{
    assert_matches,
    port::free_port,
    servers::Server,
    wait::{answered, eventually},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    events::{PATIENCE, any_offer, check_failure, deliver, offer, offers},
    redis::connection,
    sinks,
};

const BOUND: Duration = Duration::from_secs(2);

#[tokio::test]
async fn an_answer_without_the_id_of_an_entry_delivers_nothing() {
    for answer in [
        "+OK\r\n",
        "+QUEUED\r\n",
        "$0\r\n\r\n",
        "$2\r\nOK\r\n",
        "$-1\r\n",
        ":1\r\n",
        "*0\r\n",
    ] {
        let sink = sinks::redis(
            format!("redis://{}", answering(answer).await),
            sinks::destination(),
            |_| {},
        );
        let outcome = deliver(&sink, any_offer()).await;
        check_failure(&outcome, true, "answer", "an entry id");
    }
    let good = answering("$15\r\n1700000000000-0\r\n").await;
    let sink = sinks::redis(format!("redis://{good}"), sinks::destination(), |_| {});
    deliver(&sink, any_offer()).await.unwrap();
}

/// Each node of a cluster has some of the streams. Events for other streams do not delay the rest.
#[tokio::test]
async fn a_stream_of_another_node_is_its_events_own_trouble() {
    let (bus, other_bus) = (free_port().to_string(), free_port().to_string());
    let node = cluster_node(&bus).await;
    let other = cluster_node(&other_bus).await;
    let mut direct = connection(&node.address(), 0).await;
    let mut far = connection(&other.address(), 0).await;
    cluster(&mut direct, &["ADDSLOTSRANGE", "0", "8191"]).await;
    cluster(&mut far, &["ADDSLOTSRANGE", "8192", "16000"]).await;
    let (_, port) = other.address().rsplit_once(':').map(owned).unwrap();
    cluster(&mut direct, &["MEET", "127.0.0.1", &port, &other_bus]).await;
    let sink = sinks::redis(
        format!("redis://{}", node.address()),
        sinks::destination(),
        |it| it.stream = Some("{type}".to_owned()),
    );
    // `b` has slot 3300, `a` 15495 and `0` 13907; `z` 8157; `x` 16287, which no node has.
    let of = |kind: &str| offer(1, NewEvent::json(kind, &1));
    eventually(PATIENCE, async || deliver(&sink, of("b")).await.is_ok()).await;
    eventually(PATIENCE, async || {
        let outcome = deliver(&sink, of("a")).await;
        outcome.is_err_and(|error| error.error_chain().contains("MOVED"))
    })
    .await;
    let outcomes = sink.deliver(&["b", "a", "x", "b"].map(of)).await;
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok(), "{outcomes:?}");
    for outcome in &outcomes[1..3] {
        check_failure(outcome, true, "moved", "cluster");
        assert_matches!(outcome, Err(SinkError::Declined { .. }));
    }
}

/// The refusal contains the name of the user, which says nothing about a key.
#[tokio::test]
async fn a_user_who_may_add_nowhere_is_no_events_own_trouble() {
    let server = Server::redis(&[]).await;
    let mut direct = connection(&server.address(), 0).await;
    for (rights, is_of_event) in [
        (&["~*", "+@all", "-xadd"][..], false),
        (&["~orders", "+@all"][..], true),
    ] {
        let mut command = ::redis::cmd("ACL");
        command
            .arg("SETUSER")
            .arg("keymaster")
            .arg("reset")
            .arg("on");
        command.arg(">secret").arg(rights);
        command.exec_async(&mut direct).await.unwrap();
        let sink = sinks::redis(
            format!("redis://keymaster:secret@{}", server.address()),
            sinks::destination(),
            |it| it.stream = Some("{type}".to_owned()),
        );
        let outcome = deliver(&sink, any_offer()).await;
        check_failure(&outcome, true, "login", "");
        let is_declined = matches!(outcome, Err(SinkError::Declined { .. }));
        assert_eq!(is_declined, is_of_event, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_server_that_answers_nonsense_or_ends_in_mid_answer_costs_no_more_than_the_timeout() {
    for nonsense in [
        "",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\u{0}\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}",
        "$999999999999\r\nx",
        "*-7\r\n",
        "AMQP\u{0}\u{0}\u{9}\u{1}",
        "\u{1}\u{0}\u{0}\u{7f}\u{7f}\u{7f}\u{7f}",
    ] {
        let address = saying(nonsense).await;
        let redis = sinks::redis(format!("redis://{address}"), sinks::within(BOUND), |_| {});
        lost(&redis, nonsense).await;
        let amqp = sinks::amqp(
            format!("amqp://guest:guest@{address}"),
            sinks::within(BOUND),
            |_| {},
        );
        lost(&amqp, nonsense).await;
    }
}

async fn lost(sink: &impl Sink, nonsense: &str) {
    let outcomes = answered(4 * BOUND, sink.deliver(&offers(3, 10))).await;
    for outcome in outcomes {
        assert_matches!(outcome, Err(SinkError::Unavailable { .. }), "{nonsense:?}");
    }
}

/// A server that greets its client as Redis does and responds to each entry with `answer`.
async fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = vec![0; 64 * 1024];
                while let Ok(bytes @ 1..) = stream.read(&mut heard).await {
                    let text = String::from_utf8_lossy(&heard[..bytes]).into_owned();
                    let commands = text.matches("\r\n$6\r\nCLIENT\r\n").count();
                    let welcome = "+OK\r\n".repeat(commands);
                    let entries = answer.repeat(text.matches("\r\n$4\r\nXADD\r\n").count());
                    let said = format!("{welcome}{entries}");
                    if stream.write_all(said.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A server that responds with `nonsense` to all input and closes the connection.
async fn saying(nonsense: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = [0; 1024];
                let _heard = stream.read(&mut heard).await;
                let _said = stream.write_all(nonsense.as_bytes()).await;
            });
        }
    });
    address
}

async fn cluster_node(bus: &str) -> Server {
    Server::redis(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        bus,
        "--cluster-require-full-coverage",
        "no",
    ])
    .await
}

async fn cluster(direct: &mut MultiplexedConnection, arguments: &[&str]) {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg(arguments);
    command.exec_async(direct).await.unwrap();
}

fn owned((host, port): (&str, &str)) -> (String, String) {
    (host.to_owned(), port.to_owned())
}
