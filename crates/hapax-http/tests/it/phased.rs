//! Tests of phased operations: crashes, failures, fenced owners, and requests that are resumed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use hapax::{
    event::{Headers, NewEvent},
    idempotency::{KeyRecord, KeyState},
    key::Tenant,
    limits::{GRACE, LEASE},
    quota::Quota,
    store::{Keys, StoreError},
};
use hapax_http::{
    Completer, Derived, Disposition, Idempotency, Json, OperationLayer, Phased, Problem, Settings,
    problem,
};
use hapax_sqlite::Sqlite;
use hapax_testkit::wait::{eventually, pace};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tokio::{runtime::Runtime, sync::Semaphore};

use crate::{
    log::{self, check_line},
    stage::{Sent, Stage, post_json, scope, send},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// How long a slow handler keeps a phase open. A short lease is renewed within this time.
const DAWDLING: Duration = Duration::from_millis(200);

/// The state that the handler shares with its test: a remote system, and gates.
#[derive(Clone)]
struct Far {
    runs: Arc<AtomicU64>,
    /// The provider key of every call.
    calls: Arc<Mutex<Vec<String>>>,
    /// The results of `nothing_happened`.
    believed: Arc<Mutex<Vec<bool>>>,
    /// Whether each run was resumed after an earlier owner.
    resumed: Arc<Mutex<Vec<bool>>>,
    entered: Arc<Semaphore>,
    gate: Arc<Semaphore>,
    /// Has a permit for each handler that has ended or was dropped.
    left: Arc<Semaphore>,
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

/// One of several nodes on the stage's store.
struct Node {
    router: Router,
    /// The same routes without authentication.
    inside: Router,
    idempotency: Idempotency<Sqlite>,
}

#[derive(Deserialize)]
struct Payment {
    /// How the first run fails or waits, and where.
    #[serde(default)]
    first: String,
    /// How every run ends.
    #[serde(default)]
    end: String,
}

#[tokio::test]
async fn a_phased_request_is_stored_once_and_replays() {
    let (stage, far, node) = scene().await;
    let first = pay(&node, "k", "{}").await;
    assert_eq!(
        (first.status, first.idempotency()),
        (StatusCode::CREATED, Some("stored"))
    );
    pay(&node, "k", "{}").await.check_replays(&first);
    pay(&self::node(&stage, &far, |_| {}), "k", "{}")
        .await
        .check_replays(&first);
    check(&stage, &far, 1, 1, 2).await;
    let kept = "SELECT count(request) FROM hapax_idempotency_key";
    assert_eq!(
        stage.count(kept).await,
        0,
        "the request is deleted after it has completed"
    );
    let other = pay(&node, "k", "{\"end\":\"x\"}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn a_run_that_fails_behind_a_phase_is_resumed_there_at_once() {
    for first in ["503 behind", "panic behind", "429 behind"] {
        let (stage, far, node) = scene().await;
        let body = format!("{{\"first\":\"{first}\"}}");
        let failed = pay(&node, "k", &body).await;
        assert!(
            !failed.status.is_success() && failed.idempotency().is_none(),
            "{first}"
        );
        let other = pay(&node, "k", "{}").await;
        other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
        let retry = pay(&node, "k", &body).await;
        assert_eq!(
            (retry.status, retry.idempotency()),
            (StatusCode::CREATED, Some("stored"))
        );
        check(&stage, &far, 2, 1, 2).await;
    }
}

#[tokio::test]
async fn the_lines_of_a_request_that_is_resumed_contain_the_states_of_its_key() {
    log::listen();
    let (_stage, _far, node) = scene().await;
    drop(log::take());
    let body = "{\"first\":\"503 behind\"}";
    pay(&node, "k", body).await;
    let kept = "from_state=\"free\" to_state=\"in_progress\"";
    check_line(&["outcome=\"store_error\" status=503", kept]);
    pay(&node, "k", body).await;
    let completed = "from_state=\"in_progress\" to_state=\"completed\"";
    check_line(&["outcome=\"created\" status=201", completed]);
}

#[tokio::test]
async fn a_run_that_fails_before_its_first_phase_calls_out_under_the_same_key_again() {
    for first in ["503", "panic", "429"] {
        let (stage, far, node) = scene().await;
        let body = format!("{{\"first\":\"{first}\"}}");
        assert!(!pay(&node, "k", &body).await.status.is_success());
        stage.pass(Duration::from_millis(1));
        assert_eq!(pay(&node, "k", &body).await.idempotency(), Some("stored"));
        check(&stage, &far, 2, 2, 2).await;
        let calls = far.calls.lock().unwrap();
        assert_eq!(calls[0], calls[1]);
    }
}

#[tokio::test]
async fn a_run_that_outlives_its_clients_time_is_resumed_at_once() {
    let (stage, far, node) = scene().await;
    let body = "{\"first\":\"hang behind\"}";
    let mut request = post_json("/payments", "k", body);
    let headers = request.headers_mut();
    headers.insert("x-request-timeout", "2000".parse().unwrap());
    headers.insert("if-match", "\"7\"".parse().unwrap());
    let late = send(node.router.clone(), request).await;
    late.check_problem(504, "DEPENDENCY.timeout");
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("stored"));
    check(&stage, &far, 2, 1, 2).await;
}

#[tokio::test]
async fn a_callers_mistake_before_anything_happened_releases_the_key() {
    let (stage, _, node) = scene().await;
    let mistake = pay(&node, "k", "{\"first\":\"mistake\"}").await;
    mistake.check_problem(400, "VALIDATION.member");
    let unread = pay(&node, "k", "[]").await;
    assert_eq!(unread.status, StatusCode::BAD_REQUEST);
    assert!(row(&stage, "k").await.is_none());
    assert_eq!(pay(&node, "k", "{}").await.idempotency(), Some("stored"));
}

#[tokio::test]
async fn a_refusal_is_stored_and_drops_its_last_phase_alone() {
    let (stage, far, node) = scene().await;
    let first = pay(&node, "k", "{\"end\":\"decline\"}").await;
    first.check_problem(402, "CONFLICT.state");
    assert_eq!(first.idempotency(), Some("stored"));
    let again = pay(&node, "k", "{\"end\":\"decline\"}").await;
    assert_eq!(
        (again.idempotency(), &again.body),
        (Some("replayed"), &first.body)
    );
    check(&stage, &far, 1, 1, 1).await;
}

#[tokio::test]
async fn a_handlers_word_releases_a_key_that_was_used() {
    let (stage, _, node) = scene().await;
    let released = pay(&node, "k", "{\"end\":\"release\"}").await;
    assert_eq!(released.status, StatusCode::BAD_GATEWAY);
    assert!(row(&stage, "k").await.is_none());
}

#[tokio::test]
async fn a_failure_of_which_nothing_came_releases_the_key() {
    for end in ["nothing", "undone"] {
        let (stage, far, node) = scene().await;
        let body = format!("{{\"end\":\"{end}\"}}");
        let failed = pay(&node, "k", &body).await;
        failed.check_problem(503, "DEPENDENCY.unavailable");
        assert!(row(&stage, "k").await.is_none(), "{end}");
        assert_eq!(*far.believed.lock().unwrap(), [true]);
        stage.pass(Duration::from_millis(1));
        assert_eq!(pay(&node, "k", "{}").await.idempotency(), Some("stored"));
        let calls = far.calls.lock().unwrap();
        assert_ne!(calls[0], calls[1], "the provider keys are new");
    }
}

#[tokio::test]
async fn the_word_that_nothing_happened_does_not_outlive_what_happens_next() {
    for end in ["nothing, then a call", "nothing, then a phase"] {
        let (stage, _, node) = scene().await;
        let body = format!("{{\"end\":\"{end}\"}}");
        let failed = pay(&node, "k", &body).await;
        failed.check_problem(503, "DEPENDENCY.unavailable");
        check_in_progress(&stage).await;
    }
}

#[tokio::test]
async fn a_phase_that_cannot_be_opened_takes_back_the_word_that_nothing_happened() {
    let (stage, far, node) = scene().await;
    let failed = pay(&node, "k", "{\"end\":\"nothing, then no phase\"}").await;
    failed.check_problem(500, "TRANSIENT.internal");
    assert_eq!(*far.believed.lock().unwrap(), [true]);
    check_in_progress(&stage).await;
}

#[tokio::test]
async fn a_phase_that_is_cut_off_while_it_opens_takes_back_the_word_that_nothing_happened() {
    let (stage, far, node) = scene().await;
    let body = "{\"first\":\"gate\",\"end\":\"nothing, then a phase\"}";
    let mut request = post_json("/payments", "k", body);
    let headers = request.headers_mut();
    headers.insert("x-request-timeout", "3000".parse().unwrap());
    let running = tokio::spawn(send(node.router.clone(), request));
    far.entered(1).await;
    // Another transaction has the single writer until the handler is dropped.
    let mut busy = stage.store.begin(None, Headers::new()).await.unwrap();
    write(&mut busy).await.unwrap();
    far.gate.add_permits(1);
    far.left.acquire().await.unwrap().forget();
    hapax::store::Transaction::rollback(busy).await;
    let late = running.await.unwrap();
    late.check_problem(504, "DEPENDENCY.timeout");
    assert_eq!(*far.believed.lock().unwrap(), [true]);
    check_in_progress(&stage).await;
}

#[tokio::test]
async fn who_goes_on_knows_that_somebody_had_the_key_before() {
    let (_stage, far, node) = scene().await;
    let body = "{\"first\":\"503\"}";
    assert!(!pay(&node, "k", body).await.status.is_success());
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("stored"));
    assert_eq!(*far.resumed.lock().unwrap(), [false, true]);
}

#[tokio::test]
async fn nobody_says_that_nothing_happened_under_a_key_that_somebody_had_before() {
    let (stage, far) = stage().await;
    let body = "{\"first\":\"503\",\"end\":\"nothing\"}";
    let node = node(&stage, &far, |_| {});
    for _ in 0..2 {
        let failed = pay(&node, "k", body).await;
        failed.check_problem(503, "DEPENDENCY.unavailable");
        check_in_progress(&stage).await;
    }
    assert_eq!(*far.believed.lock().unwrap(), [false]);
    let calls = far.calls.lock().unwrap();
    assert_eq!(calls[0], calls[1]);
}

#[tokio::test]
async fn a_last_phase_that_is_kept_beyond_the_answer_is_a_failure() {
    let (stage, _, node) = scene().await;
    let kept = pay(&node, "k", "{\"end\":\"keep\"}").await;
    kept.check_problem(500, "TRANSIENT.internal");
    assert_eq!(row(&stage, "k").await.unwrap().state, KeyState::InProgress);
}

#[tokio::test]
async fn a_key_counts_for_its_quota_from_its_entry_and_once() {
    let (stage, far) = stage().await;
    let quota = Quota {
        keys: Some(2),
        bytes: None,
    };
    let node = node(&stage, &far, |settings| settings.quota = quota);
    let body = r#"{"first":"503"}"#;
    assert_eq!(pay(&node, "1", body).await.status, 503);
    // The key exists, and its request is resumed when it is sent again. It counts as one key.
    assert_eq!(pay(&node, "1", body).await.status, 201);
    assert_eq!(pay(&node, "2", "{}").await.status, 201);
    let refused = pay(&node, "3", "{}").await;
    refused.check_problem(429, "RATE_LIMIT.quota");
    node.idempotency.count_usage().await.unwrap();
    pay(&node, "3", "{}")
        .await
        .check_problem(429, "RATE_LIMIT.quota");
    assert_eq!(pay(&node, "1", body).await.idempotency(), Some("replayed"));
}

#[tokio::test]
async fn a_storm_of_phased_duplicates_runs_once() {
    let (stage, far) = stage().await;
    let wait = |it: &mut Settings| it.wait = PATIENCE;
    let nodes = [node(&stage, &far, wait), node(&stage, &far, wait)];
    let storm: Vec<_> = (0..100)
        .map(|n| tokio::spawn(sends(&nodes[n % 2], "k", "{\"first\":\"gate behind\"}")))
        .collect();
    far.entered(1).await;
    far.gate.add_permits(1);
    let mut stored = 0;
    for sent in storm {
        let sent = sent.await.unwrap();
        assert_eq!(sent.status, StatusCode::CREATED);
        stored += u32::from(sent.idempotency() == Some("stored"));
    }
    assert_eq!(stored, 1);
    check(&stage, &far, 1, 1, 2).await;
}

#[tokio::test]
async fn a_duplicate_on_another_node_waits_and_is_then_asked_to_retry() {
    let (stage, far) = stage().await;
    let first = node(&stage, &far, |_| {});
    let gated = "{\"first\":\"gate behind\"}";
    let running = tokio::spawn(sends(&first, "k", gated));
    far.entered(1).await;
    let short = node(&stage, &far, |it| it.wait = Duration::from_millis(50));
    let outcome = pay(&short, "k", gated).await;
    outcome.check_problem(409, "CONFLICT.idempotency.in_progress");
    assert_eq!(outcome.header("retry-after"), Some("1"));
    let other = pay(&short, "k", "{}").await;
    other.check_problem(409, "CONFLICT.idempotency.payload_mismatch");
    let long = node(&stage, &far, |it| it.wait = PATIENCE);
    let waiting = tokio::spawn(sends(&long, "k", gated));
    far.gate.add_permits(1);
    let response = running.await.unwrap();
    waiting.await.unwrap().check_replays(&response);
    check(&stage, &far, 1, 1, 2).await;
}

#[tokio::test]
async fn the_key_of_a_dead_owner_is_resumed_when_its_lease_has_lapsed() {
    let (stage, far) = stage().await;
    let body = "{\"first\":\"gate behind\"}";
    crash(&node(&stage, &far, |_| {}), &far, body).await;
    let node = node(&stage, &far, |it| it.wait = Duration::ZERO);
    let early = pay(&node, "k", body).await;
    early.check_problem(409, "CONFLICT.idempotency.in_progress");
    let kept = "SELECT count(request) FROM hapax_idempotency_key";
    assert_eq!(stage.count(kept).await, 1);
    stage.pass(LEASE);
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("stored"));
    check(&stage, &far, 2, 1, 2).await;
}

/// The completer may send a derived key, although clients may not.
#[tokio::test]
async fn a_completer_resumes_a_request_whose_key_was_derived() {
    let derived = |layer: OperationLayer<Sqlite>| {
        // `If-Match` is always kept; naming it has no further effect.
        let layer = layer.kept_headers([http::header::IF_MATCH]);
        layer.derived(|view| Ok(Derived::new().part("body", format!("{:?}", view.body()))))
    };
    let (stage, far) = stage().await;
    let body = "{\"first\":\"gate behind\"}";
    let dead = node_with(&stage, &far, |_| {}, derived);
    crash_under(&dead, &far, "", body).await;
    let node = node_with(&stage, &far, |_| {}, derived);
    let completing = tokio::spawn(completer(&node, Duration::from_millis(200)).run());
    stage.pass(LEASE + Duration::from_millis(200));
    let completed = "SELECT count(*) FROM hapax_idempotency_key WHERE state = 'completed'";
    eventually(PATIENCE, async || stage.count(completed).await == 1).await;
    completing.abort();
    assert_eq!(pay(&node, "", body).await.idempotency(), Some("replayed"));
    check(&stage, &far, 2, 1, 2).await;
}

#[tokio::test]
async fn a_completer_resumes_what_no_client_comes_for() {
    let (stage, far) = stage().await;
    let body = "{\"first\":\"gate behind\"}";
    crash(&node(&stage, &far, |_| {}), &far, body).await;
    let node = node(&stage, &far, |_| {});
    let completing = tokio::spawn(completer(&node, Duration::from_millis(200)).run());
    stage.pass(LEASE + Duration::from_millis(200));
    eventually(PATIENCE, async || {
        row(&stage, "k").await.unwrap().state == KeyState::Completed
    })
    .await;
    completing.abort();
    assert_eq!(pay(&node, "k", body).await.idempotency(), Some("replayed"));
    check(&stage, &far, 2, 1, 2).await;
    let seen = far.seen.lock().unwrap();
    let (tenant, headers) = &seen[1];
    assert_eq!(tenant, "alice");
    assert_eq!(headers["x-mine"], "kept");
    assert_eq!(headers["content-type"], "application/json");
    assert!(seen[0].1.contains_key("authorization"));
    assert!(!headers.contains_key("authorization") && !headers.contains_key("x-other"));
}

#[tokio::test]
async fn a_completer_gives_back_what_its_routes_do_not_take() {
    let (stage, far) = stage().await;
    crash(
        &node(&stage, &far, |_| {}),
        &far,
        "{\"first\":\"gate behind\"}",
    )
    .await;
    let node = node(&stage, &far, |_| {});
    let nowhere = Router::new().fallback(problem::not_found);
    let completer = Completer::new(&node.idempotency, nowhere).grace(GRACE);
    stage.pass(LEASE + GRACE);
    let before = row(&stage, "k").await.unwrap();
    let completing = tokio::spawn(completer.run());
    eventually(PATIENCE, async || {
        let now = row(&stage, "k").await.unwrap();
        now.epoch > before.epoch && now.lease_until <= Some(now.read_at)
    })
    .await;
    completing.abort();
    assert_eq!(far.runs(), 1);
}

#[tokio::test]
async fn a_fenced_owner_commits_nothing_and_its_client_gets_the_winners_answer() {
    for first in ["gate", "gate behind"] {
        let (stage, far) = stage().await;
        let (late, next) = (node(&stage, &far, |_| {}), node(&stage, &far, |_| {}));
        let body = format!("{{\"first\":\"{first}\"}}");
        let stalled = tokio::spawn(sends(&late, "k", &body));
        far.entered(1).await;
        stage.pass(LEASE);
        let winner = pay(&next, "k", &body).await;
        assert_eq!(
            (winner.status, winner.idempotency()),
            (StatusCode::CREATED, Some("stored"))
        );
        far.gate.add_permits(1);
        stalled.await.unwrap().check_replays(&winner);
        assert_eq!(
            (stage.effects().await, stage.events().await),
            (2, 2),
            "{first}"
        );
        let calls = far.calls.lock().unwrap();
        assert!(calls.iter().all(|call| *call == calls[0]));
    }
}

#[tokio::test]
async fn a_fenced_owner_that_only_answers_is_not_believed() {
    let (stage, far) = stage().await;
    let (late, next) = (node(&stage, &far, |_| {}), node(&stage, &far, |_| {}));
    let body = "{\"first\":\"gate\",\"end\":\"ignore\"}";
    let stalled = tokio::spawn(sends(&late, "k", body));
    far.entered(1).await;
    stage.pass(LEASE);
    let winner = pay(&next, "k", body).await;
    far.gate.add_permits(1);
    stalled.await.unwrap().check_replays(&winner);
}

#[tokio::test]
async fn a_fenced_owner_is_cut_off_by_its_next_renewal() {
    let (stage, far) = stage().await;
    let lease = |it: &mut Settings| {
        it.lease = Duration::from_millis(300);
        it.handler_max = Duration::MAX;
    };
    let (late, next) = (node(&stage, &far, lease), node(&stage, &far, |_| {}));
    // The handler never returns.
    let body = "{\"first\":\"hang\"}";
    let stalled = tokio::spawn(sends(&late, "k", body));
    far.entered(1).await;
    let winner = loop {
        stage.pass(Duration::from_secs(1));
        let sent = pay(&next, "k", body).await;
        if sent.status == StatusCode::CREATED {
            break sent;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, stalled).await;
    outcome
        .expect("it is aborted")
        .unwrap()
        .check_replays(&winner);
}

#[tokio::test]
async fn a_slow_handler_keeps_its_key_as_long_as_it_lives() {
    let (stage, far) = stage().await;
    let lease = |it: &mut Settings| it.lease = Duration::from_millis(300);
    let slow = node(&stage, &far, lease);
    let body = "{\"first\":\"gate\"}";
    let running = tokio::spawn(sends(&slow, "k", body));
    far.entered(1).await;
    let next = node(&stage, &far, |it| it.wait = Duration::ZERO);
    for _ in 0..5 {
        let before = row(&stage, "k").await.unwrap().lease_until;
        stage.pass(Duration::from_millis(290));
        eventually(PATIENCE, async || {
            row(&stage, "k").await.unwrap().lease_until > before
        })
        .await;
        let outcome = pay(&next, "k", body).await;
        outcome.check_problem(409, "CONFLICT.idempotency.in_progress");
    }
    far.gate.add_permits(1);
    assert_eq!(running.await.unwrap().idempotency(), Some("stored"));
    check(&stage, &far, 1, 1, 2).await;
}

#[tokio::test]
async fn a_renewal_that_waits_for_an_open_phase_is_not_waited_for() {
    let (stage, far) = stage().await;
    let node = node(&stage, &far, |it| it.lease = DAWDLING / 2);
    // The phase has the single writer, so a renewal waits until the phase has ended.
    let outcome = pay(&node, "k", "{\"first\":\"dawdle\"}").await;
    assert_eq!(outcome.status, StatusCode::CREATED);
    let outcome = pay(&node, "k2", "{\"end\":\"dawdle\"}").await;
    assert_eq!(outcome.status, StatusCode::CREATED);
    check(&stage, &far, 2, 2, 4).await;
}

#[tokio::test]
async fn a_phased_operation_needs_a_key_and_a_handler_its_phases() {
    let (mut stage, far) = stage().await;
    let layer = stage.idempotency.operation("/payments").phased().optional();
    let routes = post(payment).with_state(far.clone()).layer(layer);
    stage.route("/payments", routes);
    let missing = stage.send(post_json("/payments", "", "{}")).await;
    missing.check_problem(400, "VALIDATION.idempotency_key.missing");
    let atomic = stage.idempotency.operation("/atomic");
    stage.route("/atomic", post(payment).with_state(far).layer(atomic));
    let unmarked = stage.send(post_json("/atomic", "k", "{}")).await;
    unmarked.check_problem(500, "TRANSIENT.internal");
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_runs_no_phases() {
    let (stage, far) = stage().await;
    let open = |it: &mut Settings| it.on_store_error = hapax::idempotency::OnStoreError::Open;
    let node = node(&stage, &far, open);
    stage.lose_the_keys().await;
    pay(&node, "k", "{}")
        .await
        .check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(far.runs(), 0);
}

#[tokio::test]
#[should_panic(expected = "is a credential")]
async fn a_credential_is_never_kept() {
    let stage = Stage::new().await;
    let phased = stage.idempotency.operation("/payments").phased();
    let _layer = phased.kept_headers([http::header::COOKIE]);
}

/// Charges in a remote system, then writes one row and one event in a phase, and again in the last
/// phase.
async fn payment(
    State(far): State<Far>,
    Extension(tenant): Extension<Tenant>,
    mut phased: Phased<hapax_sqlite::Tx>,
    headers: HeaderMap,
    Json(payment): Json<Payment>,
) -> Result<Response, Problem> {
    let is_first = far.runs.fetch_add(1, Ordering::SeqCst) == 0;
    let seen = (tenant.as_str().to_owned(), headers);
    far.seen.lock().unwrap().push(seen);
    far.resumed.lock().unwrap().push(phased.is_resumed());
    let _leaving = Leaving(Arc::clone(&far.left));
    let first = if is_first { payment.first.as_str() } else { "" };
    if first == "mistake" {
        return Err(Problem::invalid("amount", "is too much"));
    }
    if phased.recovery_point().is_none() {
        let key = phased.provider_key("charge");
        far.calls.lock().unwrap().push(key);
        far.strike(first).await?;
        if payment.end.starts_with("nothing") {
            far.deny(&phased, &payment.end)?;
        }
        let name = match payment.end.as_str() {
            "nothing, then no phase" => "",
            _ => "charged",
        };
        let dawdles = first == "dawdle";
        let charged = phased.phase(name, async |tx| {
            write(tx).await?;
            if dawdles {
                pace(DAWDLING).await;
            }
            Ok(())
        });
        let charged: Result<(), Problem> = charged.await;
        if payment.end != "ignore" {
            charged?;
        }
    }
    assert!(payment.end == "ignore" || phased.recovery_point().as_deref() == Some("charged"));
    far.strike(first.strip_suffix(" behind").unwrap_or_default())
        .await?;
    if payment.end == "nothing, then a phase" {
        return Err(Problem::new(problem::UNAVAILABLE));
    }
    if payment.end == "undone" {
        far.deny(&phased, "nothing")?;
    }
    if payment.end == "ignore" {
        return Ok(StatusCode::CREATED.into_response());
    }
    let mut last = phased.last().await?;
    write(&mut last).await?;
    match payment.end.as_str() {
        "dawdle" => {
            pace(DAWDLING).await;
            Ok(StatusCode::CREATED.into_response())
        }
        "decline" => Err(Problem::new(problem::CONFLICT).status(StatusCode::PAYMENT_REQUIRED)),
        "release" => Ok((Extension(Disposition::Release), StatusCode::BAD_GATEWAY).into_response()),
        "keep" => {
            std::mem::forget(last);
            Ok(StatusCode::CREATED.into_response())
        }
        _ => Ok((StatusCode::CREATED, [("location", "/payments/1")], "paid").into_response()),
    }
}

async fn write(tx: &mut hapax_sqlite::Tx) -> Result<(), Problem> {
    tx.with(|db| db.execute("INSERT INTO effect DEFAULT VALUES", []))
        .await?;
    hapax::store::Transaction::emit(tx, NewEvent::json("effect.done", &1))?;
    Ok(())
}

impl Far {
    /// Fails or waits in the middle of a run, as `what` says.
    async fn strike(&self, what: &str) -> Result<(), Problem> {
        match what {
            "503" => {
                return Err(StoreError::unavailable("asked to").into());
            }
            "429" => return Err(Problem::new(problem::RATE_LIMIT)),
            "panic" => panic!("asked to"),
            "gate" => {
                self.entered.add_permits(1);
                self.gate.acquire().await.unwrap().forget();
            }
            "hang" => {
                self.entered.add_permits(1);
                std::future::pending::<()>().await;
            }
            _ => {}
        }
        Ok(())
    }

    /// Declares that nothing happened, and fails unless a phase is to follow.
    fn deny(&self, phased: &Phased<hapax_sqlite::Tx>, end: &str) -> Result<(), Problem> {
        let is_believed = phased.nothing_happened();
        self.believed.lock().unwrap().push(is_believed);
        if end == "nothing, then a call" {
            phased.provider_key("refund");
        }
        if end.ends_with("phase") {
            return Ok(());
        }
        Err(Problem::new(problem::UNAVAILABLE))
    }

    fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    async fn entered(&self, runs: u32) {
        self.entered.acquire_many(runs).await.unwrap().forget();
    }
}

/// Adds a permit when the handler ends or is dropped.
struct Leaving(Arc<Semaphore>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

async fn scene() -> (Stage, Far, Node) {
    let (stage, far) = stage().await;
    let node = node(&stage, &far, |_| {});
    (stage, far, node)
}

async fn stage() -> (Stage, Far) {
    let far = Far {
        runs: Arc::default(),
        calls: Arc::default(),
        believed: Arc::default(),
        resumed: Arc::default(),
        entered: Arc::new(Semaphore::new(0)),
        gate: Arc::new(Semaphore::new(0)),
        left: Arc::new(Semaphore::new(0)),
        seen: Arc::default(),
    };
    (Stage::new().await, far)
}

/// Creates a node on the stage's store, with a separate single-flight map and cache.
fn node(stage: &Stage, far: &Far, set: impl FnOnce(&mut Settings)) -> Node {
    node_with(stage, far, set, |layer| layer)
}

fn node_with(
    stage: &Stage,
    far: &Far,
    set: impl FnOnce(&mut Settings),
    policy: impl FnOnce(OperationLayer<Sqlite>) -> OperationLayer<Sqlite>,
) -> Node {
    let mut settings = Settings::new(stage.clock.clone(), stage.random.clone());
    set(&mut settings);
    let idempotency = Idempotency::new(stage.store.clone(), settings);
    let layer = policy(idempotency.operation("/payments").phased());
    let layer = layer.kept_headers([http::HeaderName::from_static("x-mine")]);
    let inside = Router::new()
        .route("/payments", post(payment).layer(layer))
        .with_state(far.clone());
    Node {
        router: stage.named(inside.clone()),
        inside,
        idempotency,
    }
}

fn completer(node: &Node, grace: Duration) -> Completer<Sqlite, Router> {
    Completer::new(&node.idempotency, node.inside.clone()).grace(grace)
}

async fn pay(node: &Node, key: &str, body: &str) -> Sent {
    sends(node, key, body).await
}

fn sends(node: &Node, key: &str, body: &str) -> impl Future<Output = Sent> + Send + 'static {
    let mut request = post_json("/payments", key, body);
    let headers = request.headers_mut();
    headers.insert("authorization", "alice/secret".parse().unwrap());
    headers.insert("x-mine", "kept".parse().unwrap());
    headers.insert("x-other", "not kept".parse().unwrap());
    headers.insert("if-match", "\"7\"".parse().unwrap());
    send(node.router.clone(), request)
}

/// Sends a request to a node, and stops all tasks of the node in the middle of it.
async fn crash(node: &Node, far: &Far, body: &str) {
    crash_under(node, far, "k", body).await;
}

async fn crash_under(node: &Node, far: &Far, key: &str, body: &str) {
    let request = sends(node, key, body);
    let runtime = Runtime::new().unwrap();
    runtime.spawn(request);
    far.entered(1).await;
    thread::spawn(move || runtime.shutdown_background())
        .join()
        .unwrap();
}

async fn row(stage: &Stage, key: &str) -> Option<KeyRecord> {
    let scope = scope("alice", "POST /payments", key);
    stage.store.look_up(&scope).await.unwrap()
}

/// Checks that the key `k` is kept for a run that resumes it.
async fn check_in_progress(stage: &Stage) {
    let kept = row(stage, "k").await.map(|row| row.state);
    assert_eq!(kept, Some(KeyState::InProgress));
}

async fn check(stage: &Stage, far: &Far, runs: u64, calls: usize, effects: i64) {
    assert_eq!(far.runs(), runs, "runs");
    assert_eq!(far.calls.lock().unwrap().len(), calls, "calls");
    assert_eq!(
        (stage.effects().await, stage.events().await),
        (effects, effects)
    );
}
