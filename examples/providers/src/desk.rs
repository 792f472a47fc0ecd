//! A provider's front desk: keys, faults and counts, the same for every trade.

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
    book::{Book, Trade},
    faults::{Fault, Faults, Mode, is_operation},
    reply::Reply,
};

/// The longest body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The longest key.
const KEY_BYTES_MAX: usize = 255;
/// How long a slow answer takes.
const SLOW: Duration = Duration::from_secs(3);
/// The name of a look-up, for faults.
pub(crate) const LOOKUP: &str = "lookup";

/// A provider.
pub(crate) struct Desk<T: Trade> {
    book: Mutex<Book<T>>,
    manners: Mutex<Manners>,
}

/// What a provider does not remember beyond its own life.
#[derive(Debug, Default)]
struct Manners {
    faults: Faults,
    calls: BTreeMap<&'static str, u64>,
    /// Keys that came before with a card whose first call is lost.
    lost_once: HashSet<String>,
}

/// How a card behaves by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    Always(Mode),
    /// Lost before anything happened, the first time under a key.
    LostOnce,
}

impl<T: Trade> Desk<T> {
    /// Opens the ledger at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            book: Mutex::new(Book::open(path)?),
            manners: Mutex::default(),
        }))
    }

    /// The routes that every provider has.
    pub(crate) fn routes() -> Router<Arc<Self>> {
        Router::new()
            .route("/operations/{key}", get(look_up::<T>))
            .route("/ledger", get(ledger::<T>))
            .route("/faults", post(misbehave::<T>))
            .route("/healthz", get(async || "ok"))
            .fallback(async || {
                Reply::error(StatusCode::NOT_FOUND, "not_found", "there is nothing here")
            })
    }

    /// Does what is asked under the key of `headers`, or misbehaves.
    pub(crate) async fn ask(
        self: Arc<Self>,
        headers: &HeaderMap,
        asked: T::Asked,
        habit: Option<Habit>,
    ) -> Reply {
        let key = match key(headers) {
            Ok(key) => key,
            Err(reply) => return reply,
        };
        let mode = self.mode(T::operation(&asked), &key, habit);
        match mode {
            Mode::LostBefore => return Reply::Lost,
            Mode::ErrorBefore => return Reply::failed("told to fail before"),
            _ => {}
        }
        let reply = self.apply(key, asked, mode).await;
        match mode {
            Mode::AppliedThenLost => Reply::Lost,
            Mode::ErrorAfter => Reply::failed("told to fail after"),
            Mode::Slow => {
                sleep(SLOW).await;
                reply
            }
            _ => reply,
        }
    }

    /// Writes on a thread that may wait for the disk; whoever asked may go away meanwhile.
    async fn apply(self: Arc<Self>, key: String, asked: T::Asked, mode: Mode) -> Reply {
        let applied = task::spawn_blocking(move || {
            let mut book = lock(&self.book);
            let known = (mode == Mode::Duplicate).then(|| book.duplicate(&key, &asked));
            known.flatten().unwrap_or_else(|| book.ask(&key, &asked))
        });
        let applied = applied.await;
        applied.unwrap_or_else(|_| Reply::failed("the provider panicked"))
    }

    fn mode(&self, operation: &'static str, key: &str, habit: Option<Habit>) -> Mode {
        let is_known = lock(&self.book).knows(key);
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
    State(desk): State<Arc<Desk<T>>>,
    extract::Path(key): extract::Path<String>,
) -> Reply {
    let mode = desk.mode(LOOKUP, &key, None);
    match mode {
        Mode::LostBefore | Mode::AppliedThenLost => return Reply::Lost,
        Mode::ErrorBefore | Mode::ErrorAfter => return Reply::failed("told to fail"),
        Mode::Slow => sleep(SLOW).await,
        Mode::Ok | Mode::Duplicate => {}
    }
    match lock(&desk.book).find(&key) {
        Ok(Some(object)) => Reply::Said(StatusCode::OK, object),
        Ok(None) => Reply::error(StatusCode::NOT_FOUND, "not_found", "no such key was used"),
        Err(unsure) => unsure,
    }
}

async fn ledger<T: Trade>(State(desk): State<Arc<Desk<T>>>) -> Reply {
    let entries = lock(&desk.book).entries();
    let calls = lock(&desk.manners).calls.clone();
    Reply::Said(
        StatusCode::OK,
        json!({ "entries": entries, "calls": calls }),
    )
}

async fn misbehave<T: Trade>(State(desk): State<Arc<Desk<T>>>, request: Request) -> Reply {
    let fault: Fault = match read(request).await {
        Ok((_, fault)) => fault,
        Err(reply) => return reply,
    };
    if !is_operation(&fault.operation, T::OPERATIONS) && fault.operation != LOOKUP {
        let known = T::OPERATIONS.join(", ");
        return Reply::invalid(format!("operation is one of {known}, {LOOKUP}, any"));
    }
    match lock(&desk.manners).faults.add(fault) {
        Ok(()) => Reply::Said(StatusCode::OK, json!({})),
        Err(detail) => Reply::error(StatusCode::TOO_MANY_REQUESTS, "too_many", detail),
    }
}

/// Reads a bounded JSON body without unknown members.
pub(crate) async fn read<B: DeserializeOwned>(request: Request) -> Result<(HeaderMap, B), Reply> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let detail = format!("a body has at most {BODY_BYTES_MAX} bytes");
        Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    })?;
    let body = serde_json::from_slice(&bytes);
    let body = body.map_err(|error| Reply::invalid(error.to_string()))?;
    Ok((parts.headers, body))
}

fn key(headers: &HeaderMap) -> Result<String, Reply> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        let detail = "one Idempotency-Key is needed";
        return Err(Reply::error(StatusCode::BAD_REQUEST, "key_missing", detail));
    };
    let key = key.to_str().ok().filter(|key| {
        (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    key.map(str::to_owned)
        .ok_or_else(|| Reply::invalid("an Idempotency-Key is 1 to 255 bytes of visible ASCII"))
}

fn lock<L>(mutex: &Mutex<L>) -> MutexGuard<'_, L> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
