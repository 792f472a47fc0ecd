//! The demo's webhook receiver, which misbehaves on demand.
//!
//! It works as a consumer should: it verifies the signature, accepts each event once in the
//! transaction of its effect, and responds after the commit. It has its own database, and counts
//! for each event the deliveries and the effects. On demand, it fails, responds slowly, loses its
//! response after the effect, or responds 410.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::post,
};
use hapax::{
    Clock, Timestamp,
    event::Headers,
    inbox::{Acceptance, Message},
    request_log::{Line, RequestLog},
    signature::{self, Received, TOLERANCE, Verifier},
    store::{Keys as _, StoreError, Transaction as _},
};
use hapax_sqlite::{Migration, Sqlite, Tx};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

use crate::{
    database::{Row, params, query::without_comment, sqlite},
    ids::written,
    server::Unanswered,
};

/// The receiver's name as a consumer.
const CONSUMER: &str = "demo_receiver";
/// The migrations of the receiver's own database.
pub(crate) const MIGRATIONS: &[Migration<'_>] = &[(
    1,
    "event",
    include_str!("../../migrations/receiver/0001_event.sql"),
)];
const COUNT: &str = without_comment(include_str!("../../queries/receiver/count.sql"));
const LIST: &str = without_comment(include_str!("../../queries/receiver/list.sql"));
/// The delay of a slow response.
const SLOW: Duration = Duration::from_secs(3);

/// The behavior of the receiver.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// The receiver accepts every event.
    Ok,
    /// The receiver responds 500 and does nothing.
    Fail,
    /// The receiver accepts the event after three seconds.
    Slow,
    /// The receiver accepts the event and closes the connection without a response.
    AckLost,
    /// The receiver responds 410, after which the relay disables the destination.
    Gone,
}

/// A mode for the next `count` deliveries; without a count, until the next one is set.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    pub(crate) mode: Mode,
    pub(crate) count: Option<u64>,
}

/// The receiver.
#[derive(Debug)]
pub(crate) struct Receiver {
    store: Sqlite,
    clock: Clock,
    verifier: [Verifier; 1],
    fault: Mutex<Fault>,
    said_gone: AtomicBool,
    log: RequestLog,
}

/// The deliveries and effects of one event.
#[derive(Debug, Serialize)]
pub(crate) struct Seen {
    pub(crate) event_id: String,
    r#type: String,
    deliveries: i64,
    effects: i64,
    first_at: String,
    last_at: String,
}

impl Receiver {
    /// Creates a receiver that stores events in `store`.
    pub(crate) fn new(store: Sqlite, clock: Clock, verifier: Verifier, log: RequestLog) -> Self {
        let fault = Mutex::new(Fault {
            mode: Mode::Ok,
            count: None,
        });
        Self {
            store,
            clock,
            verifier: [verifier],
            fault,
            said_gone: AtomicBool::new(false),
            log,
        }
    }

    /// Returns the receiver's routes: one route, at the root.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/", post(receive))
            .with_state(Arc::clone(self))
    }

    /// Sets the mode of the receiver; returns true if it responded 410 before and no longer does.
    pub(crate) fn misbehave(&self, fault: Fault) -> bool {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        fault.mode == Mode::Ok && self.said_gone.swap(false, Ordering::SeqCst)
    }

    /// Returns at most `limit` events after the id `after`, oldest first.
    pub(crate) async fn seen(&self, after: String, limit: i64) -> Result<Vec<Seen>, StoreError> {
        let page = params![after, limit];
        let rows = self.store.read(move |db| sqlite::rows(db, LIST, &page));
        rows.await?.into_iter().map(Seen::read).collect()
    }

    fn mode(&self) -> Mode {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault.count {
            None => fault.mode,
            Some(0) => Mode::Ok,
            Some(left) => {
                fault.count = Some(left - 1);
                fault.mode
            }
        }
    }

    async fn refuse(&self, received: &Received<'_>) -> Result<(), StoreError> {
        let mut tx = self.store.begin(None, Headers::new()).await?;
        self.count(&mut tx, received, 0).await?;
        tx.commit().await
    }

    async fn take(&self, received: &Received<'_>) -> Result<StatusCode, StoreError> {
        let Ok(message) = Message::new(CONSUMER, "shop", received.id, received.body) else {
            return Ok(StatusCode::BAD_REQUEST);
        };
        let arrived = Instant::now();
        let mut tx = self.store.begin(None, Headers::new()).await?;
        let acceptance = tx.accept(&message).await?;
        let (effects, status) = match acceptance {
            Acceptance::First => (1, StatusCode::OK),
            Acceptance::Duplicate => (0, StatusCode::OK),
            Acceptance::Mismatch => (0, StatusCode::CONFLICT),
        };
        self.count(&mut tx, received, effects).await?;
        tx.commit().await?;
        self.log.write(&Line {
            status: Some(status.as_u16()),
            took: arrived.elapsed(),
            ..Line::message(&message, acceptance.name())
        });
        Ok(status)
    }

    async fn count(
        &self,
        tx: &mut Tx,
        received: &Received<'_>,
        effects: i64,
    ) -> Result<(), StoreError> {
        let now = self.clock.now().as_millis();
        let row = params![received.id.to_owned(), kind_of(received.body), effects, now];
        tx.with(move |db| sqlite::change(db, COUNT, &row))
            .await
            .map(drop)
    }
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let message = Received {
        id: text(signature::ID_HEADER),
        timestamp: text(signature::TIMESTAMP_HEADER),
        signature: text(signature::SIGNATURE_HEADER),
        body: &body,
    };
    let now = receiver.clock.now();
    if let Err(error) = signature::verify(&message, &receiver.verifier, now, TOLERANCE) {
        tracing::warn!(%error, "the demo's receiver rejects a webhook");
        return StatusCode::UNAUTHORIZED.into_response();
    }
    answer(&receiver, &message).await.unwrap_or_else(|error| {
        tracing::error!(
            error = error.error_chain(),
            "the demo's receiver cannot use its store"
        );
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    })
}

async fn answer(receiver: &Receiver, message: &Received<'_>) -> Result<Response, StoreError> {
    match receiver.mode() {
        Mode::Ok => Ok(receiver.take(message).await?.into_response()),
        Mode::Slow => {
            tokio::time::sleep(SLOW).await;
            Ok(receiver.take(message).await?.into_response())
        }
        Mode::AckLost => {
            let mut response = receiver.take(message).await?.into_response();
            response.extensions_mut().insert(Unanswered);
            Ok(response)
        }
        Mode::Fail => {
            receiver.refuse(message).await?;
            Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
        Mode::Gone => {
            receiver.refuse(message).await?;
            receiver.said_gone.store(true, Ordering::SeqCst);
            Ok(StatusCode::GONE.into_response())
        }
    }
}

fn kind_of(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Envelope {
        r#type: String,
    }
    serde_json::from_slice(body)
        .map_or_else(|_| String::new(), |envelope: Envelope| envelope.r#type)
}

impl Seen {
    fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            event_id: row.text("event_id")?,
            r#type: row.text("type")?,
            deliveries: row.integer("deliveries")?,
            effects: row.integer("effects")?,
            first_at: written(Timestamp::from_millis(row.integer("first_at")?)),
            last_at: written(Timestamp::from_millis(row.integer("last_at")?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_queries_are_good_sql_for_a_fresh_database() {
        let connection = hapax_sqlite::rusqlite::Connection::open_in_memory().unwrap();
        for (_, _, sql) in MIGRATIONS {
            connection.execute_batch(sql).unwrap();
        }
        for sql in [COUNT, LIST] {
            connection
                .prepare(sql)
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
}
