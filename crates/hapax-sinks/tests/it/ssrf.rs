//! The SSRF guard, with a real listener that would notice a connection.

use std::net::SocketAddr;

use hapax_sinks::webhook::Webhook;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    events::{any_offer, deliver, error_type},
    sinks,
};

/// Targets that would reach this machine, its network or its cloud provider if the sink connected
/// to them.
const SPELLINGS: [&str; 51] = [
    "127.0.0.1",
    "127.0.0.2",
    "127.255.255.254",
    "localhost",
    "LOCALHOST",
    "0.0.0.0",
    "0.1.2.3",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:0:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[2001:10::1]",
    "[2001:20::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[::1%25lo]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[2001:2::1]",
    "[100::1]",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "017700000001",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "0",
    "10.0.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
];

#[tokio::test]
async fn every_spelling_of_a_private_address_is_refused_and_nothing_is_dialled() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // On a machine without IPv6, the sink cannot connect there either.
    let listener_v6 = TcpListener::bind(("::1", port)).await.ok();

    for host in SPELLINGS {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{port}/");
            let outcome = deliver(&webhook(&url, &[]), any_offer()).await;
            assert_eq!(error_type(outcome), "blocked", "{url}");
        }
    }
    check_only_caller(&listener).await;
    if let Some(listener) = listener_v6 {
        check_only_caller(&listener).await;
    }
}

#[tokio::test]
async fn a_spelling_is_opened_on_purpose_where_it_is_an_address_plainly_written() {
    let loopback = ["127.0.0.0/8", "0.0.0.0/8"];
    for host in [
        "127.0.0.1",
        "127.0.0.2",
        "localhost",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ] {
        check_opened("0.0.0.0", host, &loopback).await;
    }
    if TcpListener::bind("[::1]:0").await.is_ok() {
        check_opened("::1", "[::1]", &["::1/128"]).await;
    }
}

#[tokio::test]
async fn a_disguise_stays_refused_whatever_is_opened() {
    let everything = ["0.0.0.0/0", "::/0"];
    for host in [
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::1%25lo]",
    ] {
        let webhook = webhook(&format!("http://{host}:9/"), &everything);
        assert_eq!(
            error_type(deliver(&webhook, any_offer()).await),
            "blocked",
            "{host}"
        );
        assert!(webhook.refusal().is_some());
    }
}

#[tokio::test]
async fn opening_one_net_opens_no_other() {
    for host in ["10.0.0.1", "169.254.169.254", "[::1]", "[fd00::1]"] {
        let webhook = webhook(&format!("http://{host}:9/"), &["127.0.0.0/8"]);
        assert_eq!(
            error_type(deliver(&webhook, any_offer()).await),
            "blocked",
            "{host}"
        );
        assert!(webhook.refusal().is_some());
    }
}

#[tokio::test]
async fn the_address_of_a_name_is_not_said() {
    let webhook = webhook("http://localhost:9/", &[]);
    let error = deliver(&webhook, any_offer()).await.unwrap_err();
    let said = error.error_chain();
    assert!(
        said.contains("an address of the host is loopback"),
        "{said}"
    );
    assert!(
        !said.contains("127.0.0.1") && !said.contains("::1"),
        "{said}"
    );
}

async fn check_opened(bind: &str, host: &str, allow: &[&str]) {
    let listener = TcpListener::bind((bind, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let read = stream.read(&mut request).await.unwrap();
        assert!(request[..read].starts_with(b"POST / HTTP/1.1"));
        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    });
    let webhook = webhook(&format!("http://{host}:{port}/"), allow);
    let outcome = deliver(&webhook, any_offer()).await;
    assert!(outcome.is_ok(), "{host}: {outcome:?}");
    answering.await.unwrap();
    assert_eq!(webhook.refusal(), None);
}

/// Checks that the connection made here is the first one that the listener sees.
async fn check_only_caller(listener: &TcpListener) {
    let address = listener.local_addr().unwrap();
    let address = SocketAddr::new(
        match address.ip() {
            any if any.is_unspecified() => "127.0.0.1".parse().unwrap(),
            ip => ip,
        },
        address.port(),
    );
    let mine = TcpStream::connect(address).await.unwrap();
    let (_, caller) = listener.accept().await.unwrap();
    assert_eq!(
        caller,
        mine.local_addr().unwrap(),
        "another connection was opened before"
    );
}

fn webhook(url: &str, allow: &[&str]) -> Webhook {
    sinks::webhook(url, sinks::destination(), |it| {
        it.allow = allow.iter().map(|net| net.parse().unwrap()).collect();
    })
}
