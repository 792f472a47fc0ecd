//! Tests of stores that cannot be used, in every mode: the same suite on each store.
//!
//! A store that cannot be used is 503 with `Retry-After`, and is counted and logged as such. In a
//! service that fails open, a request whose key cannot be claimed runs once without it; a handler
//! that has started never runs again. An error of the handler's own statement is neither.

mod sqlite;
mod postgres;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    routing::{post, put},
};
use hapax::{
    idempotency::{OnFailure, OnStoreError},
    key::Tenant,
    store::{Keys, Phases, StoreError},
};
use hapax_http::{
    Derived, Idempotency, Phased, Problem, RequestIds, Settings, Tx, View, WritePlan,
};
use hapax_testkit::clock::{ManualClock, seeded_random};
use http::{HeaderValue, Method, StatusCode};

use crate::{
    log::{self, check_line},
    metrics::count,
    stage::{Sent, post_json, send},
};

/// The routes whose handlers use a transaction that the layer has opened.
const IN_TRANSACTION: [&str; 4] = ["/atomic", "/pipelined", "/conditional", "/derived"];
/// The routes that need the store, and never fail open.
const CLOSED: [&str; 2] = ["/planned", "/phased"];
/// The line of a request that is refused because the store cannot be used.
const UNAVAILABLE: &str =
    "outcome=\"store_error\" status=503 error_code=\"DEPENDENCY.unavailable\"";

/// The state of the handlers: how often they have run.
type Runs = Arc<AtomicUsize>;

type TxOf<F> = <<F as Fixture>::Store as Keys>::Tx;

/// A database that a test can break.
pub(crate) trait Fixture: Sized + 'static {
    type Store: Phases;

    /// Opens a node's store.
    async fn store(&self) -> Self::Store;

    /// Runs SQL that breaks or repairs the database.
    async fn run(&self, sql: &'static str);

    /// The number of rows that handlers have committed.
    async fn effects(&self) -> usize;

    /// Writes a handler's row.
    fn insert(tx: &mut TxOf<Self>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Runs a statement of a handler that the database always refuses.
    fn fail(tx: &mut TxOf<Self>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The plan's statement that writes a handler's row.
    fn statement() -> <Self::Store as Keys>::Statement;

    /// A plan's statement that violates a constraint.
    fn refused() -> <Self::Store as Keys>::Statement;
}

/// A way in which a store cannot be used.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) breaks: &'static str,
    /// Empty if the database cannot be repaired.
    pub(crate) repairs: &'static str,
    /// Whether a transaction without a key can still be committed.
    pub(crate) only_claims_fail: bool,
}

/// Outcomes that were counted, or should have been.
#[derive(Debug, Default, PartialEq)]
struct Outcomes {
    store_error: usize,
    failed_open: usize,
    released: usize,
}

/// Runs the suite.
pub(crate) fn check<F: Fixture>(made: impl Future<Output = F>, faults: &[Fault]) {
    log::listen();
    let mut expected = Outcomes::default();
    let counted = count(async {
        let fixture = made.await;
        for fault in faults {
            for on_store_error in [OnStoreError::Closed, OnStoreError::Open] {
                check_fault(&fixture, fault, on_store_error, &mut expected).await;
            }
        }
    });
    assert_eq!(outcomes(&counted), expected, "{counted:#?}");
}

/// Checks that a handler's mistake is neither a failure of the store nor a reason to fail open.
pub(crate) fn check_mistake<F: Fixture>(made: impl Future<Output = F>) {
    let counted = count(async {
        let fixture = made.await;
        for on_store_error in [OnStoreError::Closed, OnStoreError::Open] {
            for path in ["/mistaken", "/mistaken-plan"] {
                let (node, runs) = node(&fixture, on_store_error).await;
                let sent = ask(&node, path, "k").await;
                sent.check_problem(500, "INTERNAL.statement");
                assert_eq!(sent.idempotency(), None, "{path}");
                assert_eq!(runs.load(Ordering::SeqCst), 1, "{path}");
            }
        }
    });
    let released = Outcomes {
        released: 4,
        ..Outcomes::default()
    };
    assert_eq!(outcomes(&counted), released, "{counted:#?}");
}

/// Checks a handler that stores something outside the database and cannot: it says so with the error
/// of a store as the cause, and the request counts like any other failure of the store.
pub(crate) fn check_outside<F: Fixture>(made: impl Future<Output = F>) {
    log::listen();
    let counted = count(async {
        let fixture = made.await;
        for on_store_error in [OnStoreError::Closed, OnStoreError::Open] {
            let (node, runs) = node(&fixture, on_store_error).await;
            for path in ["/outside", "/outside-phased"] {
                let sent = ask_once(&node, &runs, path, &format!("{on_store_error:?}")).await;
                check_unavailable(&sent, path, "outside");
                check_line(&[UNAVAILABLE]);
            }
        }
        assert_eq!(fixture.effects().await, 0);
    });
    let failed = Outcomes {
        store_error: 4,
        ..Outcomes::default()
    };
    assert_eq!(outcomes(&counted), failed, "{counted:#?}");
}

/// Checks that a service that stores failures stores that of a plan whose statement is refused.
pub(crate) async fn check_kept_mistake<F: Fixture>(fixture: &F) {
    let (node, _) = node_with(fixture, |settings| {
        settings.on_failure = OnFailure::Store;
    })
    .await;
    let first = ask(&node, "/mistaken-plan", "k").await;
    first.check_problem(500, "INTERNAL.statement");
    assert_eq!(first.idempotency(), Some("stored"));
    // Without a cache the handler makes its plan again, and the store does not execute it.
    ask(&node, "/mistaken-plan", "k")
        .await
        .check_replays(&first);
    assert_eq!(fixture.effects().await, 0);
}

async fn check_fault<F: Fixture>(
    fixture: &F,
    fault: &Fault,
    on_store_error: OnStoreError,
    expected: &mut Outcomes,
) {
    let key = format!("{}-{on_store_error:?}", fault.name);
    let (node, runs) = node(fixture, on_store_error).await;
    let before = fixture.effects().await;
    fixture.run(fault.breaks).await;
    let opens = fault.only_claims_fail && on_store_error == OnStoreError::Open;
    for path in IN_TRANSACTION {
        let sent = ask_once(&node, &runs, path, &key).await;
        if opens {
            check_bypassed(&sent, path, fault.name);
            check_line(&["outcome=\"failed_open\" status=201"]);
            expected.failed_open += 1;
        } else {
            check_unavailable(&sent, path, fault.name);
            check_line(&[UNAVAILABLE]);
            expected.store_error += 1;
        }
    }
    for path in CLOSED {
        let sent = ask_once(&node, &runs, path, &key).await;
        check_unavailable(&sent, path, fault.name);
        check_line(&[UNAVAILABLE]);
        expected.store_error += 1;
    }
    let bypassed = if opens { IN_TRANSACTION.len() } else { 0 };
    if fault.repairs.is_empty() {
        return;
    }
    fixture.run(fault.repairs).await;
    assert_eq!(fixture.effects().await, before + bypassed, "{}", fault.name);
    let (node, _) = self::node(fixture, on_store_error).await;
    for path in IN_TRANSACTION.into_iter().chain(CLOSED) {
        let sent = ask(&node, path, &key).await;
        let outcome = (sent.status, sent.idempotency());
        let stored = (StatusCode::CREATED, Some("stored"));
        assert_eq!(outcome, stored, "{path} after {}: {sent:?}", fault.name);
    }
    let all = before + bypassed + IN_TRANSACTION.len() + CLOSED.len();
    assert_eq!(fixture.effects().await, all, "{}", fault.name);
}

/// Sends a request, whose handler must not run more than once.
async fn ask_once(node: &Router, runs: &Runs, path: &str, key: &str) -> Sent {
    drop(log::take());
    let before = runs.load(Ordering::SeqCst);
    let sent = ask(node, path, key).await;
    let ran = runs.load(Ordering::SeqCst) - before;
    assert!(ran <= 1, "{path} {key}: the handler ran {ran} times");
    sent
}

#[track_caller]
fn check_unavailable(sent: &Sent, path: &str, fault: &str) {
    assert_eq!(sent.status.as_u16(), 503, "{path} while {fault}: {sent:?}");
    sent.check_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(sent.json()["retryable"], true, "{path} while {fault}");
    assert_eq!(
        sent.header("retry-after"),
        Some("1"),
        "{path} while {fault}"
    );
    assert_eq!(sent.idempotency(), None, "{path} while {fault}");
}

#[track_caller]
fn check_bypassed(sent: &Sent, path: &str, fault: &str) {
    let outcome = (sent.status, sent.idempotency());
    let bypassed = (StatusCode::CREATED, Some("bypassed"));
    assert_eq!(outcome, bypassed, "{path} while {fault}: {sent:?}");
}

/// A node of a service with a route for each mode.
async fn node<F: Fixture>(fixture: &F, on_store_error: OnStoreError) -> (Router, Runs) {
    node_with(fixture, |settings| settings.on_store_error = on_store_error).await
}

async fn node_with<F: Fixture>(fixture: &F, set: impl FnOnce(&mut Settings)) -> (Router, Runs) {
    let (runs, random) = (Runs::default(), seeded_random(1));
    let mut settings = Settings::new(ManualClock::new().clock(), random.clone());
    settings.tenant = Some(Tenant::new("all").unwrap());
    settings.cache_bytes = 0;
    set(&mut settings);
    let idempotency = Idempotency::new(fixture.store().await, settings);
    let operation = |path| idempotency.operation(path);
    let pipelined = |path| operation(path).claim_pipelined();
    let conditional = pipelined("/conditional").also(Method::PUT).optional();
    let derived = pipelined("/derived").derived(|view: &View<'_>| {
        let who = view.parts.headers.get("x-who");
        let who = who.and_then(|who| who.to_str().ok()).unwrap_or_default();
        Ok(Derived::new().part("who", who))
    });
    let router = Router::new()
        .route("/atomic", post(write::<F>).layer(operation("/atomic")))
        .route(
            "/pipelined",
            post(write::<F>).layer(pipelined("/pipelined")),
        )
        .route("/conditional", put(write::<F>).layer(conditional))
        .route("/derived", post(write::<F>).layer(derived))
        .route(
            "/mistaken",
            post(mistake::<F>).layer(pipelined("/mistaken")),
        )
        .route(
            "/planned",
            post(plan::<F>).layer(operation("/planned").single_shot()),
        )
        .route(
            "/mistaken-plan",
            post(mistaken_plan::<F>).layer(operation("/mistaken-plan").single_shot()),
        )
        .route(
            "/phased",
            post(phases::<F>).layer(operation("/phased").phased()),
        )
        .route("/outside", post(outside).layer(operation("/outside")))
        .route(
            "/outside-phased",
            post(outside).layer(operation("/outside-phased").phased()),
        )
        .with_state(Arc::clone(&runs))
        .layer(RequestIds::new(random));
    (router, runs)
}

async fn ask(node: &Router, path: &str, key: &str) -> Sent {
    let sent = if path == "/derived" { "" } else { key };
    let mut request = post_json(path, sent, "{}");
    if path == "/conditional" {
        *request.method_mut() = Method::PUT;
    }
    let who = HeaderValue::from_str(key).unwrap();
    request.headers_mut().insert("x-who", who);
    send(node.clone(), request).await
}

async fn write<F: Fixture>(
    State(runs): State<Runs>,
    mut tx: Tx<TxOf<F>>,
) -> Result<StatusCode, Problem> {
    runs.fetch_add(1, Ordering::SeqCst);
    F::insert(&mut tx).await?;
    Ok(StatusCode::CREATED)
}

async fn mistake<F: Fixture>(
    State(runs): State<Runs>,
    mut tx: Tx<TxOf<F>>,
) -> Result<StatusCode, Problem> {
    runs.fetch_add(1, Ordering::SeqCst);
    F::fail(&mut tx).await?;
    Ok(StatusCode::CREATED)
}

async fn outside(State(runs): State<Runs>) -> Problem {
    runs.fetch_add(1, Ordering::SeqCst);
    let source = io::Error::from(io::ErrorKind::StorageFull).into();
    Problem::from(StoreError::Unavailable { source }).detail("the file could not be stored")
}

async fn plan<F: Fixture>(State(runs): State<Runs>) -> WritePlan<<F::Store as Keys>::Statement> {
    runs.fetch_add(1, Ordering::SeqCst);
    WritePlan::new(StatusCode::CREATED).statement(F::statement())
}

async fn mistaken_plan<F: Fixture>(
    State(runs): State<Runs>,
) -> WritePlan<<F::Store as Keys>::Statement> {
    runs.fetch_add(1, Ordering::SeqCst);
    WritePlan::new(StatusCode::CREATED)
        .statement(F::statement())
        .statement(F::refused())
}

async fn phases<F: Fixture>(
    State(runs): State<Runs>,
    mut phased: Phased<TxOf<F>>,
) -> Result<StatusCode, Problem> {
    runs.fetch_add(1, Ordering::SeqCst);
    let mut last = phased.last().await?;
    F::insert(&mut last).await?;
    Ok(StatusCode::CREATED)
}

fn outcomes(counted: &BTreeMap<String, String>) -> Outcomes {
    let sum = |outcome: &str| {
        let label = format!("outcome=\"{outcome}\"");
        let requests = counted.iter().filter(|(line, _)| {
            line.starts_with("hapax_idempotency_requests_total{") && line.contains(&label)
        });
        requests
            .map(|(_, value)| value.parse::<usize>().unwrap())
            .sum()
    };
    Outcomes {
        store_error: sum("store_error"),
        failed_open: sum("failed_open"),
        released: sum("released"),
    }
}
