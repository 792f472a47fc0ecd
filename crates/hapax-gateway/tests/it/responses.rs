//! Complete responses: stored, replayed, and conflicts of keys.

use hapax_testkit::wait::eventually;

use crate::{
    stage::{PATIENCE, Stage, check_problem},
    upstream::{Reply, Upstream, ok},
};

const MISMATCH: &str = "CONFLICT.idempotency.payload_mismatch";

#[tokio::test]
async fn a_response_is_replayed_byte_for_byte() {
    let upstream = Upstream::start(|received| {
        let body = format!("{{ \"number\": {} }}\n", received.before);
        Reply::Bytes(ok("201 Created", &body))
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let first = stage.post("/orders", "k", "{\"a\":1}").await;
    assert_eq!(
        (first.status, first.text()),
        (201, "{ \"number\": 0 }\n".to_owned())
    );
    assert_eq!(
        first.header("idempotency-status"),
        Some("stored; upstream=opaque")
    );
    let again = stage.post("/orders", "k", "{ \"a\": 1 }").await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(
        again.header("idempotency-status"),
        Some("replayed; upstream=opaque")
    );
    for name in ["content-type", "x-from", "idempotency-key"] {
        assert_eq!(again.headers.get(name), first.headers.get(name), "{name}");
    }
    assert_eq!(upstream.ledger(), ["POST /orders HTTP/1.1"]);
}

#[tokio::test]
async fn another_request_with_the_same_key_is_refused() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let stage = Stage::new(&upstream, |_| {}).await;
    stage.post("/orders", "k", "{\"a\":1}").await;
    let other = stage.post("/orders", "k", "{\"a\":2}").await;
    check_problem(&other, 409, MISMATCH);
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn an_error_of_the_service_is_stored_as_it_is() {
    let upstream = Upstream::start(|_| {
        let head =
            "HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\n";
        Reply::Bytes(format!("{head}gone\n").into_bytes())
    })
    .await;
    let stage = Stage::new(&upstream, |_| {}).await;
    for status in ["stored; upstream=opaque", "replayed; upstream=opaque"] {
        let answer = stage.post("/orders", "k", "{}").await;
        assert_eq!((answer.status, answer.text()), (404, "gone\n".to_owned()));
        assert_eq!(answer.header("content-type"), Some("text/plain"));
        assert_eq!(answer.header("idempotency-status"), Some(status));
    }
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_status_after_which_nothing_happened_frees_the_key() {
    let upstream = Upstream::start(|received| {
        let status = [
            "503 Service Unavailable",
            "429 Too Many Requests",
            "201 Created",
        ];
        Reply::Bytes(ok(status[received.before.min(2)], "{}"))
    })
    .await;
    let stage = Stage::new(&upstream, |route| route.nothing_happened.push(503)).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(stage.post("/orders", "k", "{}").await.status);
    }
    assert_eq!(statuses, [503, 429, 201, 201]);
    assert_eq!(upstream.ledger().len(), 3);
}

#[tokio::test]
async fn of_many_requests_at_once_one_reaches_the_service() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let requests = (0..20).map(|_| stage.post("/orders", "k", "{}"));
    for answer in futures_util::future::join_all(requests).await {
        assert_eq!(answer.status, 201);
    }
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn a_response_is_stored_although_the_client_has_gone() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let stage = Stage::new(&upstream, |_| {}).await;
    let gone =
        "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 2\r\n\r\n{}";
    let mut client = tokio::net::TcpStream::connect(stage.address())
        .await
        .unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut client, gone.as_bytes())
        .await
        .unwrap();
    eventually(PATIENCE, async || upstream.ledger().len() == 1).await;
    drop(client);
    let url = format!("{}/orders", stage.url);
    let key = [("idempotency-key", "k")];
    let again = stage.client.post(&url, &key, "{}").await.unwrap();
    assert_eq!(again.status, 201);
    assert_eq!(upstream.ledger().len(), 1);
}

#[tokio::test]
async fn two_tenants_have_their_own_keys() {
    let upstream =
        Upstream::start(|received| Reply::Bytes(ok("201 Created", &received.before.to_string())))
            .await;
    let stage = Stage::new(&upstream, |route| {
        route.tenant = Some(hapax_gateway::tenant::TenantSettings::Header(
            "x-tenant".to_owned(),
        ));
    })
    .await;
    let url = format!("{}/orders", stage.url);
    let send = async |tenant| {
        let headers = [("idempotency-key", "k"), ("x-tenant", tenant)];
        stage
            .client
            .post(&url, &headers, "{}")
            .await
            .unwrap()
            .text()
    };
    assert_eq!(send("alice").await, "0");
    assert_eq!(send("bob").await, "1");
    assert_eq!(send("alice").await, "0");
    let without = stage.post("/orders", "k", "{}").await;
    check_problem(&without, 401, "AUTH.missing");
}
