//! Handler sink: delivers events to a function in this process, with an inbox row in its
//! transaction.
//!
//! The function writes through the given transaction, in which the inbox row is committed as well.
//! So its effect happens once, even if the event is delivered several times. An error or a panic
//! rolls both back. Effects outside the transaction are neither undone nor deduplicated. The inbox
//! row keeps the result that the function records with [`Transaction::record_result`].
//!
//! Keep the transaction short: slow work in it blocks others, on SQLite all other writes. Do slow
//! work before the transaction ([`Handler::prepared`]).
//!
//! [`Transaction::record_result`]: hapax::store::Transaction::record_result
//!
//! ```
//! use hapax::{event::Event, key::KeyError, store::Keys};
//! use hapax_sinks::handler::{Handler, HandlerError};
//!
//! fn ledger<K: Keys>(store: K) -> Result<Handler<K>, KeyError> {
//!     Handler::new(store, "ledger", |tx: &mut K::Tx, event: &Event| {
//!         Box::pin(async move {
//!             if event.kind.is_empty() {
//!                 return Err(HandlerError::never("event has no type"));
//!             }
//!             let _rows = tx; // write them here
//!             Ok(())
//!         })
//!     })
//! }
//! ```

use std::{
    fmt,
    future::ready,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use hapax::{
    event::{Event, Headers},
    inbox::{Acceptance, Message},
    key::{KeyError, Tenant},
    request_log::{Line, RequestLog},
    sink::{BoxError, Offer, Outcome, Receipt, Sink, SinkError},
    store::{Keys, StoreError, Transaction as _},
    trace::{TRACEPARENT, TRACESTATE},
};

/// Headers that are copied to events emitted by the handler, in addition to the trace.
const CONTEXT: [&str; 2] = [TRACESTATE, "correlation_id"];

/// The boxed future of a function.
pub type Handled<'a> = BoxFuture<'a, Result<(), HandlerError>>;

/// The boxed future of a `prepare` function.
pub type Preparing<'a, P> = BoxFuture<'a, Result<P, HandlerError>>;

/// The work that is done in the transaction.
type Effect<Tx> = Box<dyn for<'a> FnOnce(&'a mut Tx, &'a Event) -> Handled<'a> + Send>;

type Prepare<Tx> = dyn for<'a> Fn(&'a Event) -> Preparing<'a, Effect<Tx>> + Send + Sync;

/// A function that handles each event once.
pub struct Handler<K: Keys> {
    store: K,
    consumer: String,
    prepare: Arc<Prepare<K::Tx>>,
    log: RequestLog,
}

impl<K: Keys> Handler<K> {
    /// Handles events with `function` under the name `consumer`. The name must never change,
    /// because it is part of the inbox rows.
    ///
    /// # Errors
    /// Fails if the name is empty or longer than 255 bytes.
    pub fn new(
        store: K,
        consumer: impl Into<String>,
        function: impl for<'a> Fn(&'a mut K::Tx, &'a Event) -> Handled<'a> + Send + Sync + 'static,
    ) -> Result<Self, KeyError> {
        let nothing = || ready(Ok(()));
        Self::prepared(
            store,
            consumer,
            move |_| Box::pin(nothing()),
            move |tx, event, ()| function(tx, event),
        )
    }

    /// Calls `prepare` before the transaction, and `function` in it with the prepared value.
    ///
    /// If an event is delivered again, `prepare` is called again and its result is dropped. So it
    /// must not have side effects.
    ///
    /// # Errors
    /// As [`Handler::new`].
    pub fn prepared<P: Send + 'static>(
        store: K,
        consumer: impl Into<String>,
        prepare: impl for<'a> Fn(&'a Event) -> Preparing<'a, P> + Send + Sync + 'static,
        function: impl for<'a> Fn(&'a mut K::Tx, &'a Event, P) -> Handled<'a> + Send + Sync + 'static,
    ) -> Result<Self, KeyError> {
        let consumer = consumer.into();
        message(&consumer, "probe", b"")?;
        let function = Arc::new(function);
        let prepare = preparing::<K::Tx, _>(move |event| {
            let (function, preparing) = (Arc::clone(&function), prepare(event));
            Box::pin(async move {
                let made = preparing.await?;
                let effect: Effect<K::Tx> = Box::new(move |tx, event| function(tx, event, made));
                Ok(effect)
            })
        });
        Ok(Self {
            store,
            consumer,
            prepare: Arc::new(prepare),
            log: RequestLog::default(),
        })
    }

    /// Sets which events are logged, one line for each offer.
    #[must_use]
    pub fn log(self, log: RequestLog) -> Self {
        Self { log, ..self }
    }

    async fn offer(&self, offer: &Offer) -> Outcome {
        let arrived = Instant::now();
        let event = offer.event();
        let id = event.id.to_string();
        let message = message(&self.consumer, &id, event.payload.bytes())
            .map_err(|error| SinkError::rejected("message", error))?;
        let ended = self.accept(offer, &message).await;
        let outcome = match &ended {
            Ok(outcome) => *outcome,
            Err(error) => match error.error_type() {
                "mismatch" => "mismatch",
                "store" => "store_error",
                _ => "released",
            },
        };
        self.log.write(&Line {
            error_code: ended.as_ref().err().map(SinkError::error_type),
            attempt: Some(offer.attempt),
            correlation_id: event.headers.get("correlation_id").map(String::as_str),
            tenant: event.tenant.as_ref().map(Tenant::as_str),
            took: arrived.elapsed(),
            ..Line::message(&message, outcome)
        });
        ended.map(|_| Receipt::default())
    }

    /// Accepts the event and runs the function. Returns whether it was accepted now or before.
    async fn accept(&self, offer: &Offer, message: &Message) -> Result<&'static str, SinkError> {
        let event = offer.event();
        // Called inside the future, so that a panic of the call itself is caught too.
        let effect = caught(async { (self.prepare)(event).await }).await?;
        let mut tx = self
            .store
            .begin(event.tenant.clone(), context(offer))
            .await
            .map_err(unavailable)?;
        match tx.accept(message).await.map_err(unavailable)? {
            Acceptance::First => {}
            // The event may have been accepted by another transaction of the same group, which may
            // still fail: the commit decides.
            Acceptance::Duplicate => {
                tx.commit().await.map_err(unavailable)?;
                return Ok("duplicate");
            }
            Acceptance::Mismatch => {
                tx.commit().await.map_err(unavailable)?;
                return Err(SinkError::rejected("mismatch", Mismatch));
            }
        }
        match caught(async { effect(&mut tx, event).await }).await {
            Ok(()) => tx.commit().await.map_err(unavailable)?,
            Err(failure) => {
                tx.rollback().await;
                return Err(failure);
            }
        }
        Ok("accepted")
    }
}

impl<K: Keys> Sink for Handler<K> {
    fn kind(&self) -> &'static str {
        "handler"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(join_all(offers.iter().map(|offer| self.offer(offer))))
    }
}

impl<K: Keys> fmt::Debug for Handler<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

/// Why a function did not handle an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The event may be delivered again.
    #[error("handler failed and asks for another attempt")]
    Again {
        /// The minimum wait.
        retry_after: Option<Duration>,
        /// The error.
        source: BoxError,
    },
    /// The event must not be delivered again.
    #[error("handler rejected the event permanently")]
    Never {
        /// The error.
        source: BoxError,
    },
}

impl HandlerError {
    /// A transient failure.
    pub fn again(source: impl Into<BoxError>) -> Self {
        Self::Again {
            retry_after: None,
            source: source.into(),
        }
    }

    /// A permanent failure.
    pub fn never(source: impl Into<BoxError>) -> Self {
        Self::Never {
            source: source.into(),
        }
    }
}

impl From<HandlerError> for SinkError {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Never { source } => Self::rejected("handler", source),
            HandlerError::Again {
                retry_after,
                source,
            } => Self::Unavailable {
                retry_after,
                error_type: "handler",
                receipt: Receipt::default(),
                source,
            },
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("function panicked and its transaction was rolled back")]
struct Panicked;

#[derive(Debug, thiserror::Error)]
#[error("event id was accepted before with another payload")]
struct Mismatch;

/// Tells the compiler that the closure's future may borrow the event.
fn preparing<Tx, F>(prepare: F) -> F
where
    F: for<'a> Fn(&'a Event) -> Preparing<'a, Effect<Tx>>,
{
    prepare
}

/// Runs a step. A panic is a failure of this event only.
async fn caught<R>(step: impl Future<Output = Result<R, HandlerError>>) -> Result<R, SinkError> {
    match AssertUnwindSafe(step).catch_unwind().await {
        Ok(verdict) => verdict.map_err(SinkError::from),
        Err(_) => Err(SinkError::declined("panic", Panicked)),
    }
}

fn message(consumer: &str, id: &str, payload: &[u8]) -> Result<Message, KeyError> {
    Message::new(consumer, "outbox", id, payload)
}

fn context(offer: &Offer) -> Headers {
    let headers = &offer.event().headers;
    let passed = |name: &&str| Some(((*name).to_owned(), headers.get(*name)?.clone()));
    let mut context: Headers = CONTEXT.iter().filter_map(passed).collect();
    if let Some(traceparent) = offer.traceparent() {
        context.insert(TRACEPARENT.to_owned(), traceparent.into_owned());
    }
    context
}

fn unavailable(error: StoreError) -> SinkError {
    SinkError::unavailable("store", error)
}
