//! The request handling that both providers share: idempotency keys, faults and call counts.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::to_bytes,
    extract::{self, Request, State},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::{task, time::sleep};

use crate::{
    decisions::{Decisions, Trade},
    faults::{Fault, Faults, Mode, is_operation},
    reply::Reply,
};

/// The largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The longest key.
const KEY_BYTES_MAX: usize = 255;
/// The delay of a slow response.
const SLOW: Duration = Duration::from_secs(3);
/// The name of a look-up of a key, as used in faults.
pub(crate) const LOOKUP: &str = "lookup";

/// A provider: its recorded decisions, and its faults.
pub(crate) struct Provider<T: Trade> {
    decisions: Mutex<Decisions<T>>,
    manners: Mutex<Manners>,
}

/// The state that a provider loses when it restarts.
#[derive(Debug, Default)]
struct Manners {
    faults: Faults,
    calls: BTreeMap<&'static str, u64>,
    /// Keys whose first call was lost because of their card.
    lost_once: HashSet<String>,
}

/// The fault that a card causes without `POST /faults`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    Always(Mode),
    /// The first call under each key is lost before it is applied.
    LostOnce,
}

impl<T: Trade> Provider<T> {
    /// Opens the ledger at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            decisions: Mutex::new(Decisions::open(path)?),
            manners: Mutex::default(),
        }))
    }

    /// Returns the routes that all providers have.
    pub(crate) fn routes() -> Router<Arc<Self>> {
        Router::new()
            .route("/operations/{key}", get(look_up::<T>))
            .route("/ledger", get(ledger::<T>))
            .route("/faults", post(misbehave::<T>))
            .route("/healthz", get(async || "ok"))
            .fallback(async || Reply::error(StatusCode::NOT_FOUND, "not_found", "no such path"))
    }

    /// Executes the operation under the key of `headers`, with the fault that applies to the call.
    pub(crate) async fn ask(
        self: Arc<Self>,
        headers: &HeaderMap,
        asked: T::Operation,
        habit: Option<Habit>,
    ) -> Reply {
        let key = match key(headers) {
            Ok(key) => key,
            Err(reply) => return reply,
        };
        let mode = self.mode(T::operation(&asked), &key, habit);
        match mode {
            Mode::LostBefore => return Reply::Lost,
            Mode::ErrorBefore => return Reply::failed("fault error_before: not applied"),
            _ => {}
        }
        let reply = self.apply(key, asked, mode).await;
        match mode {
            Mode::AppliedThenLost => Reply::Lost,
            Mode::ErrorAfter => Reply::failed("fault error_after: applied"),
            Mode::Slow => {
                sleep(SLOW).await;
                reply
            }
            _ => reply,
        }
    }

    /// Applies the operation on a thread that may block on the disk.
    ///
    /// The operation is applied even if the client closes its connection in the meantime.
    async fn apply(self: Arc<Self>, key: String, asked: T::Operation, mode: Mode) -> Reply {
        let applied = task::spawn_blocking(move || {
            let mut decisions = lock(&self.decisions);
            let known = (mode == Mode::Duplicate).then(|| decisions.duplicate(&key, &asked));
            known
                .flatten()
                .unwrap_or_else(|| decisions.ask(&key, &asked))
        });
        let applied = applied.await;
        applied.unwrap_or_else(|_| Reply::failed("the provider panicked"))
    }

    fn mode(&self, operation: &'static str, key: &str, habit: Option<Habit>) -> Mode {
        let is_known = lock(&self.decisions).knows(key);
        let mut manners = lock(&self.manners);
        *manners.calls.entry(operation).or_default() += 1;
        if let Some(mode) = manners.faults.take(operation, is_known) {
            return mode;
        }
        match habit {
            None => Mode::Ok,
            Some(Habit::Always(mode)) => mode,
            Some(Habit::LostOnce) if is_known => Mode::Ok,
            Some(Habit::LostOnce) if manners.lost_once.insert(key.to_owned()) => Mode::LostBefore,
            Some(Habit::LostOnce) => {
                manners.lost_once.remove(key);
                Mode::Ok
            }
        }
    }
}

async fn look_up<T: Trade>(
    State(provider): State<Arc<Provider<T>>>,
    extract::Path(key): extract::Path<String>,
) -> Reply {
    let mode = provider.mode(LOOKUP, &key, None);
    match mode {
        Mode::LostBefore | Mode::AppliedThenLost => return Reply::Lost,
        Mode::ErrorBefore | Mode::ErrorAfter => return Reply::failed("fault of a look-up"),
        Mode::Slow => sleep(SLOW).await,
        Mode::Ok | Mode::Duplicate => {}
    }
    match lock(&provider.decisions).find(&key) {
        Ok(Some(object)) => Reply::Said(StatusCode::OK, object),
        Ok(None) => Reply::error(StatusCode::NOT_FOUND, "not_found", "no such key was used"),
        Err(unsure) => unsure,
    }
}

async fn ledger<T: Trade>(State(provider): State<Arc<Provider<T>>>) -> Reply {
    let entries = lock(&provider.decisions).entries();
    let calls = lock(&provider.manners).calls.clone();
    Reply::Said(
        StatusCode::OK,
        json!({ "entries": entries, "calls": calls }),
    )
}

async fn misbehave<T: Trade>(State(provider): State<Arc<Provider<T>>>, request: Request) -> Reply {
    let fault: Fault = match read(request).await {
        Ok((_, fault)) => fault,
        Err(reply) => return reply,
    };
    if !is_operation(&fault.operation, T::OPERATIONS) && fault.operation != LOOKUP {
        let known = T::OPERATIONS.join(", ");
        return Reply::invalid(format!("operation must be one of {known}, {LOOKUP}, any"));
    }
    match lock(&provider.manners).faults.add(fault) {
        Ok(()) => Reply::Said(StatusCode::OK, json!({})),
        Err(detail) => Reply::error(StatusCode::TOO_MANY_REQUESTS, "too_many", detail),
    }
}

/// Reads the JSON body of a request, up to `BODY_BYTES_MAX`.
pub(crate) async fn read<B: DeserializeOwned>(request: Request) -> Result<(HeaderMap, B), Reply> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let detail = format!("the body may have at most {BODY_BYTES_MAX} bytes");
        Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    })?;
    let body = serde_json::from_slice(&bytes);
    let body = body.map_err(|error| Reply::invalid(error.to_string()))?;
    Ok((parts.headers, body))
}

fn key(headers: &HeaderMap) -> Result<String, Reply> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        let detail = "exactly one Idempotency-Key is required";
        return Err(Reply::error(StatusCode::BAD_REQUEST, "key_missing", detail));
    };
    let key = key.to_str().ok().filter(|key| {
        (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    key.map(str::to_owned)
        .ok_or_else(|| Reply::invalid("Idempotency-Key must be 1 to 255 bytes of visible ASCII"))
}

fn lock<L>(mutex: &Mutex<L>) -> MutexGuard<'_, L> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
