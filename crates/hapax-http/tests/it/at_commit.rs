//! Messages that are accepted at the commit: the handler starts before its message is accepted, and
//! a run that does not commit leaves nothing.
//!
//! Each node has its own store and its own connections.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    routing::{MethodRouter, post},
};
use futures_util::future::join_all;
use hapax::{
    event::NewEvent,
    signature::{Signer, Verifier, sign},
    store::Keys,
};
use hapax_http::{ConflictOn as _, Problem, Tx, WebhookLayer, problem};
use hapax_sqlite::Sqlite;
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    proxy::{Deed, Moment, Proxy},
};
use http::{Request, StatusCode};

use crate::{
    log,
    metrics::count,
    parcels::{ID, INSERT, Runs, Service, TABLE, check, open},
    stage::{Sent, send},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver of messages on PostgreSQL.
async fn service() -> Service {
    Service::new("inbox_message").await
}

/// A node whose messages are accepted at the commit.
async fn node_at_commit(service: &Service) -> Router {
    let layer = layer(service.store().await);
    router(post(layer.transaction(receive)), &service.runs)
}

/// A node whose messages are accepted before the handler starts.
async fn regular_node(service: &Service) -> Router {
    let layer = layer(service.store().await);
    router(post(receive).layer(layer), &service.runs)
}

fn layer<K: Keys>(store: K) -> WebhookLayer<K> {
    let keys = |source: &str| {
        let verifier = || vec![SECRET.parse::<Verifier>().unwrap()];
        (source == "pay").then(verifier)
    };
    WebhookLayer::new(store, system_clock(), seeded_random(1), "test", keys)
}

fn router(route: MethodRouter<Runs>, runs: &Runs) -> Router {
    Router::new()
        .route("/webhooks/{source}", route)
        .with_state(Arc::clone(runs))
}

/// Inserts the parcel that the body names after the act.
async fn receive(
    mut tx: Tx<hapax_postgres::Tx>,
    State(runs): State<Runs>,
    body: String,
) -> Result<(StatusCode, String), Problem> {
    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
    let (act, id) = body.split_once(' ').unwrap();
    if act == "skip" {
        tx.record_result("skipped").unwrap();
        return Ok((StatusCode::OK, format!("run {run}")));
    }
    let inserted = tx.execute(INSERT, &[&id]).await;
    tx.emit(NewEvent::json("parcel.received", &id))?;
    tx.record_result("received").unwrap();
    match act {
        "insert" => inserted.map(drop)?,
        "map" => inserted.map(drop).conflict_on(ID, problem::CONFLICT)?,
        "ignore" => drop(inserted),
        "end" => tx.execute("COMMIT", &[]).await.map(drop)?,
        "shrug" => assert!(tx.execute("ROLLBACK", &[]).await.is_err()),
        "refuse" => return Err(Problem::invalid("id", "is not valid")),
        "fail" => return Err(Problem::internal("asked to")),
        "panic" => panic!("asked to"),
        "hang" => std::future::pending().await,
        other => panic!("unknown act {other:?}"),
    }
    Ok((StatusCode::OK, format!("run {run}")))
}

/// The handler on SQLite.
async fn embedded(
    mut tx: Tx<hapax_sqlite::Tx>,
    State(runs): State<Runs>,
    body: String,
) -> Result<StatusCode, Problem> {
    runs.fetch_add(1, Ordering::SeqCst);
    tx.with(move |db| db.execute(INSERT, [body])).await?;
    Ok(StatusCode::OK)
}

async fn deliver(node: &Router, id: &str, body: &str) -> Sent {
    let timestamp = system_clock().now().as_secs();
    let signer: Signer = SECRET.parse().unwrap();
    let signature = sign(id, timestamp, body.as_bytes(), &[signer]);
    let request = Request::post("/webhooks/pay")
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(Body::from(body.to_owned()))
        .unwrap();
    send(node.clone(), request).await
}

#[tokio::test]
async fn a_new_message_runs_once_and_every_repetition_is_acknowledged() {
    let service = service().await;
    check(
        &deliver(&node_at_commit(&service).await, "m1", "insert a").await,
        200,
        None,
    );
    assert_eq!((service.runs(), service.stored().await), (1, [1, 1, 1]));
    // The first run of a repetition fails on the row of the first delivery.
    for node in [node_at_commit(&service).await, regular_node(&service).await] {
        let again = deliver(&node, "m1", "insert a").await;
        check(&again, 200, Some("replayed"));
    }
    assert_eq!((service.runs(), service.stored().await), (2, [1, 1, 1]));
    let results = "SELECT result FROM hapax.inbox_message WHERE processed_at IS NOT NULL";
    let client = service.database.client().await;
    let row = client.query_one(results, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "received");
}

#[tokio::test]
async fn a_repetition_is_acknowledged_whatever_the_handler_makes_of_the_first_delivery() {
    for act in ["map", "ignore", "skip"] {
        let service = service().await;
        let body = format!("{act} a");
        check(
            &deliver(&node_at_commit(&service).await, "m1", &body).await,
            200,
            None,
        );
        let before = service.stored().await;
        let again = deliver(&node_at_commit(&service).await, "m1", &body).await;
        check(&again, 200, Some("replayed"));
        assert_eq!(service.stored().await, before, "{act}");
        assert_eq!(before[2], 1, "{act}");
    }
}

#[tokio::test]
async fn another_payload_is_a_mismatch_and_leaves_nothing() {
    let service = service().await;
    let node = node_at_commit(&service).await;
    check(&deliver(&node, "m1", "insert a").await, 200, None);
    for body in ["insert b", "skip b", "refuse b", "fail b"] {
        let other = deliver(&node, "m1", body).await;
        other.check_problem(409, "CONFLICT.inbox.payload_mismatch");
    }
    assert_eq!(service.stored().await, [1, 1, 1]);
}

/// A failure says nothing of the message, so the handler runs again after its acceptance.
#[tokio::test]
async fn a_failure_comes_from_a_run_that_has_accepted_the_message() {
    let service = service().await;
    let node = node_at_commit(&service).await;
    for (act, status) in [("refuse", 400), ("fail", 500), ("panic", 500)] {
        let before = service.runs();
        let failed = deliver(&node, "m1", &format!("{act} a")).await;
        check(&failed, status, None);
        assert_eq!(service.runs(), before + 2, "{act}");
        assert_eq!(service.stored().await, [0, 0, 0], "{act}");
    }
    check(&deliver(&node, "m1", "insert a").await, 200, None);
    assert_eq!(service.stored().await, [1, 1, 1]);
}

#[tokio::test]
async fn a_handler_that_takes_too_long_runs_once() {
    let service = service().await;
    let layer = layer(service.store().await).handler_max(Duration::from_millis(300));
    let node = router(post(layer.transaction(receive)), &service.runs);
    let late = deliver(&node, "m1", "hang a").await;
    late.check_problem(504, "DEPENDENCY.timeout");
    assert_eq!((service.runs(), service.stored().await), (1, [0, 0, 0]));
    let node = node_at_commit(&service).await;
    check(&deliver(&node, "m1", "insert a").await, 200, None);
}

/// With both kinds of nodes there are few deliveries, because each pair that locks the handler's
/// row and the inbox in different orders waits for PostgreSQL to detect the deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_deliveries_to_four_nodes_one_has_an_effect() {
    for (deliveries, regular) in [(100, 0), (12, 2)] {
        let service = service().await;
        let mut nodes = Vec::new();
        for number in 0..4 {
            nodes.push(if number < regular {
                regular_node(&service).await
            } else {
                node_at_commit(&service).await
            });
        }
        let sent = (0..deliveries).map(|number| {
            let node = nodes[number % nodes.len()].clone();
            tokio::spawn(async move {
                loop {
                    let sent = deliver(&node, "m1", "insert a").await;
                    if sent.status.is_success() {
                        return sent;
                    }
                    // A deadlock, or a wait that took too long. The sender delivers it again.
                    let text = String::from_utf8_lossy(&sent.body);
                    assert!([503, 504].contains(&sent.status.as_u16()), "{text}");
                }
            })
        });
        let sent = join_all(sent).await.into_iter().map(Result::unwrap);
        let new = sent.filter(|one| one.idempotency().is_none());
        assert_eq!(new.count(), 1, "{regular} regular nodes");
        assert_eq!(service.stored().await, [1, 1, 1]);
    }
}

/// The statement is refused before it is sent. The sender delivers the message again, and it is
/// processed when the handler is repaired.
#[tokio::test]
async fn a_handler_that_would_end_its_transaction_commits_nothing_and_loses_no_message() {
    let service = service().await;
    for node in [node_at_commit(&service).await, regular_node(&service).await] {
        for body in ["end a", "shrug a"] {
            let refused = deliver(&node, "m1", body).await;
            refused.check_problem(500, "INTERNAL.statement");
            assert_eq!(service.stored().await, [0, 0, 0], "{body}");
        }
    }
    let repaired = deliver(&node_at_commit(&service).await, "m1", "insert a").await;
    check(&repaired, 200, None);
    assert_eq!(service.stored().await, [1, 1, 1]);
}

/// The commit may arrive late, so the node does not accept the message in another transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_result_of_the_commit_is_found_out_by_the_next_delivery() {
    for (deed, idempotency) in [(Deed::CutBefore, None), (Deed::CutAfter, Some("replayed"))] {
        let service = service().await;
        let proxy = Proxy::to_postgres(service.database.address());
        let store = open(proxy.url(&service.database.url())).await;
        let node = router(post(layer(store).transaction(receive)), &service.runs);
        let trap = proxy.once(Moment::commit(), deed);
        let lost = deliver(&node, "m1", "insert a").await;
        lost.check_problem(503, "DEPENDENCY.unavailable");
        assert_eq!((trap.count(), service.runs()), (1, 1), "{deed:?}");
        let again = deliver(&node, "m1", "insert a").await;
        check(&again, 200, idempotency);
        assert_eq!(service.stored().await, [1, 1, 1], "{deed:?}");
    }
}

#[test]
fn each_message_is_counted_once_and_a_run_that_loses_is_no_failure() {
    log::listen();
    let counted = count(async {
        let service = service().await;
        // Opening a store may log a warning, for instance if `fsync` is off in PostgreSQL.
        let node = node_at_commit(&service).await;
        drop(log::take());
        deliver(&node, "m1", "insert a").await;
        deliver(&node, "m1", "insert a").await;
        deliver(&node, "m1", "skip a").await;
        assert_eq!(service.runs(), 3);
    });
    let log = log::take();
    for failure in ["ERROR", "otel.status_code="] {
        assert!(!log.contains(failure), "{failure} in\n{log}");
    }
    for outcome in ["accepted", "duplicate", "mismatch"] {
        let line = format!("hapax_inbox_messages_total{{consumer=\"test\",outcome=\"{outcome}\"}}");
        let value = counted.get(&line).map(String::as_str);
        assert_eq!(value, Some("1"), "{line}: {counted:#?}");
    }
}

/// SQLite accepts no messages at the commit. They are accepted first there.
#[tokio::test]
async fn the_same_layer_runs_a_handler_once_for_each_message_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let settings = hapax_sqlite::Settings::new(path, system_clock(), seeded_random(1));
    let store = Sqlite::open(settings).unwrap();
    let made = store.write(|db| db.execute(TABLE, [])).await;
    made.unwrap();
    let runs = Runs::default();
    let node = router(post(layer(store).transaction(embedded)), &runs);
    check(&deliver(&node, "m1", "a").await, 200, None);
    check(&deliver(&node, "m1", "a").await, 200, Some("replayed"));
    deliver(&node, "m1", "b")
        .await
        .check_problem(409, "CONFLICT.inbox.payload_mismatch");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
