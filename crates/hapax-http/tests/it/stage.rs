//! Fixture: a small service on a fresh database, with requests and checks for tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use hapax::{Clock, Random, event::NewEvent, failpoint::Failpoints, key::Tenant};
use hapax_http::{
    Disposition, Idempotency, Json, OperationLayer, Problem, RequestIds, Settings, Tx, problem,
};
use hapax_sqlite::Sqlite;
use hapax_testkit::clock::{ManualClock, seeded_random};
pub(crate) use hapax_testkit::events::scope;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// The state that the handlers share with their test.
#[derive(Clone)]
pub(crate) struct Props {
    /// The number of runs of handlers.
    pub(crate) runs: Arc<AtomicU64>,
    /// Has a permit for each handler that has started.
    pub(crate) entered: Arc<Semaphore>,
    /// A gated handler waits for a permit of this semaphore.
    pub(crate) gate: Arc<Semaphore>,
}

/// A service with its store and its clock.
pub(crate) struct Stage {
    pub(crate) store: Sqlite,
    pub(crate) idempotency: Idempotency<Sqlite>,
    pub(crate) router: Router,
    pub(crate) props: Props,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    time: ManualClock,
    _folder: TempDir,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// The body of `POST /effects`, which says how the handler ends.
#[derive(Deserialize)]
pub(crate) struct Order {
    #[serde(default)]
    answer: Option<u16>,
    #[serde(default)]
    act: Option<String>,
}

impl Stage {
    /// Creates the service with the default settings.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}, |layer| layer).await
    }

    /// Creates the service with other settings, and other settings of `POST /effects`.
    pub(crate) async fn with(
        settings: impl FnOnce(&mut Settings),
        policy: impl FnOnce(OperationLayer<Sqlite>) -> OperationLayer<Sqlite>,
    ) -> Self {
        Self::on(|_| {}, settings, policy).await
    }

    /// Creates the service on a store with these failpoints.
    pub(crate) async fn failing(failpoints: Failpoints) -> Self {
        Self::on(|it| it.failpoints = failpoints, |_| {}, |it| it).await
    }

    async fn on(
        opened: impl FnOnce(&mut hapax_sqlite::Settings),
        settings: impl FnOnce(&mut Settings),
        policy: impl FnOnce(OperationLayer<Sqlite>) -> OperationLayer<Sqlite>,
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let time = ManualClock::new();
        let (clock, random) = (time.clock(), seeded_random(1));
        let path = folder.path().join("test.db");
        let mut file = hapax_sqlite::Settings::new(path, clock.clone(), random.clone());
        opened(&mut file);
        let store = Sqlite::open(file).unwrap();
        let made = store.write(|db| db.execute("CREATE TABLE effect (id INTEGER PRIMARY KEY)", []));
        made.await.unwrap();
        let mut chosen = Settings::new(clock.clone(), random.clone());
        settings(&mut chosen);
        let idempotency = Idempotency::new(store.clone(), chosen);
        let props = Props {
            runs: Arc::default(),
            entered: Arc::new(Semaphore::new(0)),
            gate: Arc::new(Semaphore::new(0)),
        };
        let layer = policy(idempotency.operation("/effects"));
        let router = Router::new()
            .route(
                "/effects",
                post(effect)
                    .get(plain)
                    .put(plain)
                    .delete(plain)
                    .layer(layer),
            )
            .fallback(problem::not_found)
            .with_state(props.clone());
        let mut stage = Self {
            store,
            idempotency,
            router: Router::new(),
            props,
            clock,
            random,
            time,
            _folder: folder,
        };
        stage.router = stage.named(router);
        stage
    }

    /// Adds the layers of the service to a router.
    pub(crate) fn named(&self, router: Router) -> Router {
        router
            .layer(axum::middleware::from_fn(authenticate))
            .layer(RequestIds::new(self.random.clone()))
    }

    /// Adds a route.
    pub(crate) fn route(&mut self, path: &str, methods: axum::routing::MethodRouter) {
        let router = self.named(Router::new().route(path, methods));
        self.router = std::mem::take(&mut self.router).merge(router);
    }

    /// Sends a request.
    pub(crate) async fn send(&self, request: Request<Body>) -> Sent {
        send(self.router.clone(), request).await
    }

    /// Sends `POST /effects` with this key and body.
    pub(crate) async fn post(&self, key: &str, body: &str) -> Sent {
        self.send(post_json("/effects", key, body)).await
    }

    /// Advances the clock.
    pub(crate) fn pass(&self, time: Duration) {
        self.time.advance(time);
    }

    pub(crate) fn runs(&self) -> u64 {
        self.props.runs.load(Ordering::SeqCst)
    }

    pub(crate) async fn effects(&self) -> i64 {
        self.count("SELECT count(*) FROM effect").await
    }

    pub(crate) async fn events(&self) -> i64 {
        self.count("SELECT count(*) FROM hapax_outbox_event").await
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let counted = self
            .store
            .read(move |db| db.query_row(sql, [], |row| row.get(0)));
        counted.await.unwrap()
    }

    /// Makes the key table unusable.
    pub(crate) async fn lose_the_keys(&self) {
        let dropped = self
            .store
            .write(|db| db.execute("DROP TABLE hapax_idempotency_key", []));
        dropped.await.unwrap();
    }

    /// Waits until this many handlers have started since the last call.
    pub(crate) async fn entered(&self, handlers: u32) {
        self.props
            .entered
            .acquire_many(handlers)
            .await
            .unwrap()
            .forget();
    }
}

impl Sent {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn idempotency(&self) -> Option<&str> {
        self.header("idempotency-status")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn check_problem(&self, status: u16, code: &str) {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let problem = self.json();
        assert_eq!(problem["code"], code, "{text}");
        assert_eq!(problem["status"], status);
        let page = format!("https://hapax.dev/problems/{}", code.to_lowercase());
        assert_eq!(problem["type"], page);
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        assert!(problem["retryable"].is_boolean());
        assert!(problem["request_id"].is_string(), "{text}");
    }

    /// Checks that this is a replay of `first`: the same status, body, and headers, except for
    /// those that mark a replay.
    #[track_caller]
    pub(crate) fn check_replays(&self, first: &Self) {
        assert_eq!(self.idempotency(), Some("replayed"));
        assert_eq!(self.status, first.status);
        assert_eq!(self.body, first.body);
        let lines = |sent: &Self| -> Vec<(String, Vec<u8>)> {
            let own = ["idempotency-status", "idempotent-replayed", "x-request-id"];
            let kept = sent
                .headers
                .iter()
                .filter(|(name, _)| !own.contains(&name.as_str()));
            kept.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                .collect()
        };
        assert_eq!(lines(self), lines(first));
    }
}

pub(crate) fn post_json(path: &str, key: &str, body: &str) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    let request = if key.is_empty() {
        request
    } else {
        request.header("idempotency-key", key)
    };
    request.body(Body::from(body.to_owned())).unwrap()
}

pub(crate) async fn send(router: Router, request: Request<Body>) -> Sent {
    let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
    Sent {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

/// Writes one row and one event, and ends as the body says.
async fn effect(
    State(props): State<Props>,
    mut tx: Tx<hapax_sqlite::Tx>,
    Json(order): Json<Order>,
) -> Result<Response, Problem> {
    props.runs.fetch_add(1, Ordering::SeqCst);
    tx.with(|db| db.execute("INSERT INTO effect DEFAULT VALUES", []))
        .await?;
    tx.emit(NewEvent::json("effect.done", &1))?;
    props.entered.add_permits(1);
    match order.act.as_deref() {
        Some("panic") => panic!("asked to"),
        Some("gate") => props.gate.acquire().await.unwrap().forget(),
        Some("hang") => std::future::pending().await,
        Some("collide") => {
            let collide = tx.with(|db| db.execute("INSERT INTO effect VALUES ('no id')", []));
            assert!(collide.await.is_err());
            return Err(Problem::new(problem::CONFLICT));
        }
        Some("keep") => std::mem::forget(tx),
        Some("large") => return Ok(vec![0; 5 * 1024 * 1024].into_response()),
        Some("refuse") => return Err(Problem::invalid("amount", "is too much")),
        Some("decline") => {
            return Err(Problem::new(problem::CONFLICT).status(StatusCode::PAYMENT_REQUIRED));
        }
        Some("fail") => {
            return Err(Problem::new(problem::UNAVAILABLE)
                .detail("asked to; try again")
                .retry_after(Duration::from_secs(7)));
        }
        Some("later") => {
            let later = Problem::new(problem::CONFLICT);
            return Err(later.retry_after(Duration::from_secs(7)));
        }
        Some("lose the store") => {
            let source = "asked to".into();
            let error = hapax::store::StoreError::Unavailable { source };
            return Err(Problem::new(problem::CONFLICT).caused_by(error));
        }
        Some("overrule") => return Ok((Extension(Disposition::Release), "once").into_response()),
        Some("insist") => {
            let answer = (StatusCode::BAD_REQUEST, "kept");
            return Ok((Extension(Disposition::EffectFree), answer).into_response());
        }
        _ => {}
    }
    let status = StatusCode::from_u16(order.answer.unwrap_or(201)).unwrap();
    let run = props.runs.load(Ordering::SeqCst);
    let headers = [
        ("location", "/effects/1"),
        ("set-cookie", "session=1"),
        ("server", "test"),
        ("x-trace", "per request"),
    ];
    Ok((status, headers, Json(serde_json::json!({ "run": run }))).into_response())
}

async fn plain(State(props): State<Props>) -> &'static str {
    props.runs.fetch_add(1, Ordering::SeqCst);
    "plain"
}

/// Authenticates `<tenant>[/anything]`: two tokens of one tenant are one principal.
async fn authenticate(
    mut request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let token = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let tenant = match token {
        Some("nobody") => None,
        Some(token) => token
            .split('/')
            .next()
            .and_then(|tenant| Tenant::new(tenant).ok()),
        None => Tenant::new("alice").ok(),
    };
    if let Some(tenant) = tenant {
        request.extensions_mut().insert(tenant);
    }
    next.run(request).await
}
