//! TLS towards clients and towards the service: a gateway in front of another one.

use hapax::failpoint::Failpoints;
use hapax_gateway::{
    Gateway,
    config::{Protocol, ProxyProtocol, Tls},
    listener::{self, Listening},
};
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    certify::certify,
    clock::{seeded_random, system_clock},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::{
    stage::{Stage, check_problem, settings},
    upstream::{Reply, Upstream, ok},
};

#[tokio::test]
async fn requests_pass_over_tls_with_both_protocols() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let certificates = tempfile::tempdir().unwrap();
    let (port, _stop) = encrypted(&upstream, &certificates, None).await;
    let file = |name: &str| certificates.path().join(name);

    let url = format!("https://localhost:{port}");
    for (protocol, key) in [(Protocol::Http1, "one"), (Protocol::Http2, "two")] {
        let mut outer = settings(&[&url]);
        let service = outer.upstreams.get_mut("service").unwrap();
        service.protocol = protocol;
        service.ca = Some(file("ca.pem"));
        let stage = Stage::with(&outer).await;
        assert_eq!(stage.post("/orders", key, "{}").await.status, 201);
    }
    assert_eq!(upstream.ledger().len(), 2);

    // The public authorities have not signed this certificate.
    let stage = Stage::with(&settings(&[&url])).await;
    let refused = stage.post("/orders", "three", "{}").await;
    check_problem(&refused, 503, "DEPENDENCY.unavailable");
    assert_eq!(upstream.ledger().len(), 2);
}

#[tokio::test]
async fn the_header_of_a_proxy_comes_before_tls() {
    let upstream = Upstream::start(|received| {
        // The gateway in front is a client of the other one, and no trusted proxy.
        let client = received.header("x-forwarded-for").unwrap_or_default();
        Reply::Bytes(ok("201 Created", &format!("{client:?}")))
    })
    .await;
    let certificates = tempfile::tempdir().unwrap();
    let from = vec!["127.0.0.0/8".parse().unwrap()];
    let speaks = Some(ProxyProtocol { from });
    let (port, _stop) = encrypted(&upstream, &certificates, speaks).await;
    let proxy = proxy(port).await;
    let mut outer = settings(&[&format!("https://localhost:{proxy}")]);
    let service = outer.upstreams.get_mut("service").unwrap();
    service.ca = Some(certificates.path().join("ca.pem"));
    let stage = Stage::with(&outer).await;
    let answer = stage.post("/orders", "k", "{}").await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (201, "\"203.0.113.9\"")
    );
}

/// Starts a proxy that passes bytes to a port after a header. Returns its own port.
async fn proxy(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let header = b"PROXY TCP4 203.0.113.9 127.0.0.1 1000 443\r\n";
                server.write_all(header).await.unwrap();
                let _ended = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

/// Starts a gateway that speaks TLS, with its files in a folder. Returns its port.
async fn encrypted(
    upstream: &Upstream,
    certificates: &TempDir,
    proxy_protocol: Option<ProxyProtocol>,
) -> (u16, watch::Sender<bool>) {
    certify(certificates.path(), "localhost").unwrap();
    let file = |name: &str| certificates.path().join(name);
    let mut inner = settings(&[&upstream.url()]);
    let listener = inner.listeners.get_mut("http").unwrap();
    listener.proxy_protocol = proxy_protocol;
    listener.tls = Some(Tls {
        certificate: file("server.pem"),
        key: file("server.key"),
        client_ca: None,
    });
    let (clock, random) = (system_clock(), seeded_random(2));
    let opened = hapax_sqlite::Settings::new(file("inner.db"), clock.clone(), random.clone());
    let store = Sqlite::open(opened).unwrap();
    let base = hapax_http::Settings::new(clock, random);
    let gateway = Gateway::new(store, base, Failpoints::none(), &inner).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, stopping) = watch::channel(false);
    let listening = Listening {
        name: "http".to_owned(),
        listener,
        is_tls: true,
        connections: 100,
    };
    tokio::spawn(listener::serve(listening, gateway, stopping));
    (port, stop)
}
