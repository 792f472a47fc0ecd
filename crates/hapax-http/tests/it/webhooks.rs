//! Tests of received webhooks, which are verified and accepted once.

use std::sync::{Arc, OnceLock, atomic::Ordering, mpsc};

use axum::{
    Extension,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use hapax::{
    failpoint::Failpoints,
    inbox::Message,
    signature::{Signer, Verifier, sign},
};
use hapax_http::{Tx, WebhookLayer};
use hapax_sqlite::Sqlite;
use http::{Request, StatusCode};
use tokio::sync::oneshot;

use crate::{
    log::{self, check_line},
    stage::{Props, Sent, Stage},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AAKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[tokio::test]
async fn a_signed_message_is_taken_once() {
    let stage = stage().await;
    let first = receive(&stage, "msg_1", "{\"n\":1}", SECRET).await;
    assert_eq!((first.status, first.idempotency()), (StatusCode::OK, None));
    assert_eq!(first.body, b"pay msg_1");
    let again = receive(&stage, "msg_1", "{\"n\":1}", SECRET).await;
    assert_eq!(
        (again.status, again.idempotency()),
        (StatusCode::OK, Some("replayed"))
    );
    assert_eq!((stage.runs(), stage.effects().await), (1, 1));
    assert_eq!(
        receive(&stage, "msg_2", "{\"n\":1}", SECRET)
            .await
            .idempotency(),
        None
    );
    assert_eq!(stage.effects().await, 2);
}

#[tokio::test]
async fn a_known_id_with_another_payload_is_refused() {
    let stage = stage().await;
    receive(&stage, "msg_1", "{\"n\":1}", SECRET).await;
    let other = receive(&stage, "msg_1", "{\"n\":2}", SECRET).await;
    other.check_problem(409, "CONFLICT.inbox.payload_mismatch");
    assert_eq!(stage.effects().await, 1);
}

#[tokio::test]
async fn two_sources_may_give_their_messages_one_id() {
    let stage = stage().await;
    for (id, of_pay, of_bank) in [
        ("evt_1", "{\"n\":1}", "{\"n\":2}"),
        ("evt_2", "{\"n\":3}", "{\"n\":3}"),
    ] {
        let sent = [("pay", of_pay, SECRET), ("bank", of_bank, OTHER)];
        for (source, body, secret) in sent {
            let first = receive_from(&stage, source, id, body, secret).await;
            assert_eq!((first.status, first.idempotency()), (StatusCode::OK, None));
            assert_eq!(first.body, format!("{source} {id}").into_bytes());
        }
        for (source, body, secret) in sent {
            let again = receive_from(&stage, source, id, body, secret).await;
            assert_eq!(again.idempotency(), Some("replayed"), "{source} {id}");
        }
    }
    assert_eq!((stage.runs(), stage.effects().await), (4, 4));
}

#[tokio::test]
async fn one_fact_under_several_ids_is_processed_once() {
    let by_fact = |layer: Layer| layer.dedupe("/data/id".parse().unwrap());
    let stage = stage_with(Stage::new().await, by_fact);
    let fact = r#"{"type":"refunded","data":{"id":"rf_1"}}"#;
    let again = r#"{"at": 2, "data": {"id": "rf_1"}, "type": "refunded"}"#;
    let other = r#"{"type":"refused","data":{"id":"rf_1"}}"#;
    for (source, id, body, secret, came) in [
        ("pay", "msg_1", fact, SECRET, None),
        ("pay", "msg_1", fact, SECRET, Some("replayed")),
        ("pay", "msg_2", again, SECRET, Some("replayed")),
        ("pay", "msg_3", other, SECRET, None),
        ("bank", "msg_1", fact, OTHER, None),
        ("bank", "msg_2", fact, OTHER, Some("replayed")),
    ] {
        let sent = receive_from(&stage, source, id, body, secret).await;
        assert_eq!(
            (sent.status, sent.idempotency()),
            (StatusCode::OK, came),
            "{source} {id}"
        );
    }
    assert_eq!((stage.runs(), stage.effects().await), (3, 3));
    let storm: Vec<_> = (0..50)
        .map(|number| {
            let (id, body) = (format!("storm_{number}"), r#"{"data":{"id":"rf_2"}}"#);
            let request = signed(&stage, "/webhooks/pay", &id, body, SECRET, 0);
            tokio::spawn(crate::stage::send(stage.router.clone(), request))
        })
        .collect();
    for sent in storm {
        assert_eq!(sent.await.unwrap().status, StatusCode::OK);
    }
    assert_eq!((stage.runs(), stage.effects().await), (4, 4));
}

#[tokio::test]
async fn a_message_whose_key_cannot_be_derived_is_refused() {
    let by_fact = |layer: Layer| layer.dedupe_type("refunded", "/data/id".parse().unwrap());
    let stage = stage_with(Stage::new().await, by_fact);
    for (body, code) in [
        (r#"{"type":"refunded"}"#, "VALIDATION.request"),
        (
            r#"{"type":"refunded","data":{"id":null}}"#,
            "VALIDATION.request",
        ),
        (
            r#"{"type":"refunded","data":{"id":1,"id":2}}"#,
            "VALIDATION.json",
        ),
    ] {
        let sent = receive(&stage, "msg_1", body, SECRET).await;
        sent.check_problem(400, code);
    }
    // Other types are recognized by the sender's id.
    for (id, came) in [
        ("msg_1", None),
        ("msg_2", None),
        ("msg_1", Some("replayed")),
    ] {
        let sent = receive(&stage, id, r#"{"type":"ping"}"#, SECRET).await;
        assert_eq!(
            (sent.status, sent.idempotency()),
            (StatusCode::OK, came),
            "{id}"
        );
    }
    assert_eq!((stage.runs(), stage.effects().await), (2, 2));
}

#[tokio::test]
async fn a_message_that_fails_leaves_nothing_and_comes_again() {
    let stage = stage().await;
    for body in ["fail", "refuse", "panic"] {
        let failed = receive(&stage, "msg_1", body, SECRET).await;
        assert!(!failed.status.is_success(), "{body}");
    }
    assert_eq!(stage.effects().await, 0);
    assert_eq!(
        receive(&stage, "msg_1", "{}", SECRET).await.status,
        StatusCode::OK
    );
    assert_eq!(stage.effects().await, 1);
}

#[tokio::test]
async fn a_storm_of_one_message_has_one_effect() {
    let stage = stage().await;
    let storm: Vec<_> = (0..100)
        .map(|_| {
            let request = signed(&stage, "/webhooks/pay", "msg_1", "{}", SECRET, 0);
            tokio::spawn(crate::stage::send(stage.router.clone(), request))
        })
        .collect();
    for sent in storm {
        assert_eq!(sent.await.unwrap().status, StatusCode::OK);
    }
    assert_eq!((stage.runs(), stage.effects().await), (1, 1));
}

#[tokio::test]
async fn what_is_not_signed_by_its_source_is_refused() {
    let stage = stage().await;
    let wrong = receive(&stage, "msg_1", "{}", OTHER).await;
    wrong.check_problem(401, "AUTH.signature");
    let mut altered = signed(&stage, "/webhooks/pay", "msg_1", "{}", SECRET, 0);
    *altered.body_mut() = Body::from("{ }");
    stage
        .send(altered)
        .await
        .check_problem(401, "AUTH.signature");
    for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut without = signed(&stage, "/webhooks/pay", "msg_1", "{}", SECRET, 0);
        without.headers_mut().remove(header);
        stage
            .send(without)
            .await
            .check_problem(401, "AUTH.signature");
    }
    let mut twice = signed(&stage, "/webhooks/pay", "msg_1", "{}", SECRET, 0);
    let other = "msg_2".parse().unwrap();
    twice.headers_mut().append("webhook-id", other);
    let sent = stage.send(twice).await;
    sent.check_problem(401, "AUTH.signature");
    assert_eq!((stage.runs(), stage.effects().await), (0, 0));
}

#[tokio::test]
async fn an_attempt_further_than_five_minutes_from_now_is_refused() {
    let stage = stage().await;
    for (offset, status) in [(-301, 401), (301, 401), (-299, 200), (299, 200)] {
        let id = format!("msg_{offset}");
        let request = signed(&stage, "/webhooks/pay", &id, "{}", SECRET, offset);
        assert_eq!(
            stage.send(request).await.status.as_u16(),
            status,
            "{offset}"
        );
    }
}

#[tokio::test]
async fn an_unknown_source_is_not_found_and_a_long_body_is_refused() {
    let stage = stage().await;
    let request = signed(&stage, "/webhooks/other", "msg_1", "{}", SECRET, 0);
    stage.send(request).await.check_problem(404, "NOT_FOUND");
    let long = "x".repeat(2_000);
    let sent = receive(&stage, "msg_1", &long, SECRET).await;
    sent.check_problem(413, "VALIDATION.body.too_large");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_store_that_cannot_be_used_has_the_sender_come_again() {
    let stage = stage().await;
    stage.store.close().await.unwrap();
    let sent = receive(&stage, "msg_1", "{}", SECRET).await;
    sent.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(sent.header("retry-after"), Some("1"));
}

/// Both messages are in one group, whose commit fails. Neither is accepted.
#[tokio::test]
async fn a_repeat_is_not_acknowledged_for_a_neighbour_whose_commit_fails() {
    for _ in 0..20 {
        let struck = Arc::new(OnceLock::<Sqlite>::new());
        let store = Arc::clone(&struck);
        let failpoints = Failpoints::calling(move |name| {
            let is_last = || store.get().is_some_and(|it| it.queued() == 0);
            let is_struck = name == "sqlite.commit.before" && is_last();
            assert!(!is_struck, "on purpose");
        });
        let stage = stage_on(Stage::failing(failpoints).await);
        let (let_go, waits) = mpsc::channel::<()>();
        let (begin, holds) = oneshot::channel();
        let hold = stage.store.write(move |_| {
            let _heard = begin.send(());
            let _let_go = waits.recv();
            Ok(())
        });
        let together = async {
            holds.await.unwrap();
            let first = receive(&stage, "msg_1", "{}", SECRET);
            let repeat = receive(&stage, "msg_1", "{}", SECRET);
            let strike = async {
                while stage.store.queued() < 2 {
                    tokio::task::yield_now().await;
                }
                assert!(struck.set(stage.store.clone()).is_ok());
                let_go.send(()).unwrap();
            };
            tokio::join!(first, repeat, strike)
        };
        let (_held, (first, repeat, ())) = tokio::join!(hold, together);
        let statuses = [first.status, repeat.status];
        let is_taken = statuses.contains(&StatusCode::OK);
        assert_eq!(stage.effects().await, i64::from(is_taken), "{statuses:?}");
        if !is_taken {
            return;
        }
        // The repeat was in a separate group.
    }
    panic!("the messages were never in one group");
}

#[tokio::test]
async fn every_message_writes_one_line_with_its_outcome() {
    log::listen();
    let stage = stage().await;
    drop(log::take());
    let ids = [
        "message consumer=\"test\" source=\"pay\" event_id=\"msg_1\"",
        "request_id=",
        "correlation_id=",
        "duration_us=",
    ];
    let check = |outcome: &str, words: &str| {
        let outcome = format!("outcome=\"{outcome}\"");
        check_line(&[&ids[..], &[outcome.as_str(), words]].concat());
    };
    receive(&stage, "msg_1", "fail", SECRET).await;
    check("released", "status=500 error_code=\"TRANSIENT.internal\"");
    receive(&stage, "msg_1", "lose the store", SECRET).await;
    let unavailable = "status=503 error_code=\"DEPENDENCY.unavailable\"";
    check("store_error", unavailable);
    let payload = "{\"planted\":1}";
    receive(&stage, "msg_1", payload, SECRET).await;
    let accepted = "status=200 from_state=\"new\" to_state=\"accepted\"";
    check("accepted", accepted);
    receive(&stage, "msg_1", payload, SECRET).await;
    let again = "status=200 from_state=\"accepted\" to_state=\"accepted\"";
    check("duplicate", again);
    receive(&stage, "msg_1", "{\"planted\":2}", SECRET).await;
    check("mismatch", "error_code=\"CONFLICT.inbox.payload_mismatch\"");
    receive(&stage, "msg_2", payload, OTHER).await;
    check_line(&["outcome=\"refused\" status=401 error_code=\"AUTH.signature\""]);
    stage.store.close().await.unwrap();
    receive(&stage, "msg_1", payload, SECRET).await;
    check("store_error", unavailable);
}

#[tokio::test]
async fn the_line_of_a_message_has_the_key_by_which_it_is_recognized() {
    log::listen();
    let by_fact = |layer: Layer| layer.dedupe("/id".parse().unwrap());
    let stage = stage_with(Stage::new().await, by_fact);
    drop(log::take());
    for (id, outcome) in [("msg_1", "accepted"), ("msg_2", "duplicate")] {
        receive(&stage, id, r#"{"id":"rf_1"}"#, SECRET).await;
        let outcome = format!("outcome=\"{outcome}\"");
        check_line(&[r#"event_id="[\"rf_1\"]""#, outcome.as_str()]);
    }
    receive(&stage, "msg_3", r#"{"id":null}"#, SECRET).await;
    check_line(&["outcome=\"refused\" status=400 error_code=\"VALIDATION.request\""]);
}

#[tokio::test]
async fn nothing_that_is_logged_of_a_message_contains_its_payload_or_its_secret() {
    log::listen();
    let stage = stage().await;
    for (body, secret) in [
        ("planted", SECRET),
        ("planted", SECRET),
        ("planted 2", OTHER),
    ] {
        receive(&stage, "msg_1", body, secret).await;
    }
    let log = log::take();
    assert_eq!(log::lines(&log).len(), 3, "{log}");
    assert!(!log.contains("planted") && !log.contains("whsec_"), "{log}");
    assert!(!log.contains("v1,"), "a signature: {log}");
}

async fn stage() -> Stage {
    stage_on(Stage::new().await)
}

type Layer = WebhookLayer<Sqlite>;

fn stage_on(stage: Stage) -> Stage {
    stage_with(stage, |layer| layer)
}

fn stage_with(mut stage: Stage, change: impl FnOnce(Layer) -> Layer) -> Stage {
    let keys = |source: &str| {
        let secret = match source {
            "pay" => SECRET,
            "bank" => OTHER,
            _ => return None,
        };
        Some(vec![secret.parse::<Verifier>().unwrap()])
    };
    let (store, clock, random) = (
        stage.store.clone(),
        stage.clock.clone(),
        stage.random.clone(),
    );
    let layer = WebhookLayer::new(store, clock, random, "test", keys).body_max(1_000);
    let handler = post(take)
        .layer(change(layer))
        .with_state(stage.props.clone());
    stage.route("/webhooks/{source}", handler);
    stage
}

#[tokio::test]
async fn a_handler_does_not_say_that_its_message_was_taken_before() {
    let stage = stage().await;
    let first = receive(&stage, "msg_1", "say replayed", SECRET).await;
    assert_eq!((first.status, first.idempotency()), (StatusCode::OK, None));
}

async fn take(
    State(props): State<Props>,
    Extension(message): Extension<Message>,
    mut tx: Tx<hapax_sqlite::Tx>,
    body: String,
) -> Result<Response, hapax_http::Problem> {
    props.runs.fetch_add(1, Ordering::SeqCst);
    tx.with(|db| db.execute("INSERT INTO effect DEFAULT VALUES", []))
        .await?;
    match &*body {
        "fail" => Err(hapax_http::Problem::internal("asked to")),
        "refuse" => Err(hapax_http::Problem::invalid("type", "is unknown")),
        "lose the store" => {
            let source = "asked to".into();
            Err(hapax::store::StoreError::Unavailable { source }.into())
        }
        "panic" => panic!("asked to"),
        "say replayed" => Ok([("idempotency-status", "replayed")].into_response()),
        _ => Ok(format!("{} {}", message.source, message.message_id).into_response()),
    }
}

async fn receive(stage: &Stage, id: &str, body: &str, secret: &str) -> Sent {
    receive_from(stage, "pay", id, body, secret).await
}

async fn receive_from(stage: &Stage, source: &str, id: &str, body: &str, secret: &str) -> Sent {
    let path = format!("/webhooks/{source}");
    stage.send(signed(stage, &path, id, body, secret, 0)).await
}

fn signed(
    stage: &Stage,
    path: &str,
    id: &str,
    body: &str,
    secret: &str,
    offset: i64,
) -> Request<Body> {
    let timestamp = stage.clock.now().as_secs() + offset;
    let signer: Signer = secret.parse().unwrap();
    Request::post(path)
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header(
            "webhook-signature",
            sign(id, timestamp, body.as_bytes(), &[signer]),
        )
        .body(Body::from(body.to_owned()))
        .unwrap()
}
