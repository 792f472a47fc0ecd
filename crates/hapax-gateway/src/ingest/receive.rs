//! Receipt of a webhook: read, verify, accept and emit in one transaction, and only then respond.
//!
//! The cost of a crash: before the commit nothing happened, and the provider sends the request
//! again. After the commit the event is in the outbox, and the request that the provider sends
//! again is a duplicate. A request runs to its commit or its rollback even if the provider
//! disconnects.
//!
//! A provider may serialize an event again when it repeats it. So a known id with another body is a
//! duplicate too; the inbox counts it as a mismatch.

use std::{collections::BTreeMap, error::Error, fmt, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::{IntoResponse as _, Response},
};
use hapax::{
    Clock,
    event::Headers,
    inbox::{Acceptance, Message},
    request_log::{Line, RequestLog},
    store::{Keys, StoreError, Transaction as _},
    telemetry::{INGEST_MESSAGES, error_chain},
};
use hapax_http::{
    Problem, RequestId,
    header::IDEMPOTENCY_STATUS,
    problem::{
        AUTH_SIGNATURE, BODY_INCOMPLETE, BODY_TOO_LARGE, Code, INTERNAL, METHOD, NOT_FOUND,
        REQUEST_INVALID, UNAVAILABLE,
    },
};
use http::{
    HeaderMap, HeaderValue, Method,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use super::{
    event::event,
    signature::{Presented, ProviderEvent, Refusal, Scheme, TimeBound, Verified},
    source::Source,
};

/// How long a provider may take to send its body.
const BODY: Duration = Duration::from_secs(30);
/// How long the transaction may take. Most providers wait 5 to 20 seconds for a response.
const STORE: Duration = Duration::from_secs(10);
/// The wait in `Retry-After` if the store cannot be used.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The source of requests for an unknown one in metrics, so that senders cannot invent series.
const UNKNOWN: &str = "unknown";

/// The sources of webhooks, and the store that accepts their events.
#[derive(Clone)]
pub struct Ingest<K>(Arc<Inner<K>>);

struct Inner<K> {
    store: K,
    clock: Clock,
    log: RequestLog,
    sources: BTreeMap<String, Arc<Source>>,
}

/// A verified request, to be stored.
struct Accepted {
    source: Arc<Source>,
    headers: HeaderMap,
    body: Bytes,
    events: Vec<ProviderEvent>,
    context: Headers,
}

/// The events of a request, with the result of accepting them.
type Outcomes = Vec<(Message, Acceptance)>;

impl<K: Keys> Ingest<K> {
    /// Creates the receiver of these sources.
    ///
    /// `clock` is the clock of the store. Two sources must not have the same name.
    pub fn new(
        store: K,
        clock: Clock,
        log: RequestLog,
        sources: impl IntoIterator<Item = Source>,
    ) -> Self {
        let sources = sources.into_iter();
        let sources = sources.map(|it| (it.name().to_owned(), Arc::new(it)));
        Self(Arc::new(Inner {
            store,
            clock,
            log,
            sources: sources.collect(),
        }))
    }

    /// The names of the sources.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.0.sources.keys().map(String::as_str)
    }

    /// Receives a request for a source: `POST /in/{source}`.
    ///
    /// `context` becomes headers of the events, such as `traceparent` and `correlation_id`. A
    /// [`RequestId`] in the request's extensions is written into the log.
    pub async fn receive(&self, source: &str, request: Request, context: Headers) -> Response {
        let arrived = Instant::now();
        let (parts, body) = request.into_parts();
        let id = parts.extensions.get::<RequestId>().cloned();
        let log = |line: Line<'_>, response: &Response| {
            self.write_line(line, response, id.as_ref(), arrived);
        };
        let Some(source) = self.0.sources.get(source) else {
            let problem = Problem::new(NOT_FOUND).detail("this source is not known");
            count(UNKNOWN, "refused");
            let response = problem.into_response();
            log(line(None, "refused"), &response);
            return response;
        };
        let verified = Box::pin(self.verified(source, parts, body)).await;
        let (headers, body, verified) = match verified {
            Ok(verified) => verified,
            Err(problem) => {
                count(source.name(), "refused");
                let response = problem.into_response();
                log(line(Some(source), "refused"), &response);
                return response;
            }
        };
        let events = match verified {
            Verified::Events(events) => events,
            Verified::Challenge(challenge) => {
                count(source.name(), "challenge");
                let response = text(challenge);
                log(line(Some(source), "challenge"), &response);
                return response;
            }
        };
        let accepted = Accepted {
            source: Arc::clone(source),
            headers,
            body,
            events,
            context,
        };
        match self.stored(accepted).await {
            Ok(outcomes) => {
                let response = acknowledged(source.scheme(), &outcomes);
                for (message, acceptance) in &outcomes {
                    count(source.name(), acceptance.name());
                    log(Line::message(message, acceptance.name()), &response);
                }
                response
            }
            Err(problem) => {
                count(source.name(), "store_error");
                let response = problem.into_response();
                log(line(Some(source), "store_error"), &response);
                response
            }
        }
    }

    /// Reads and verifies a request.
    async fn verified(
        &self,
        source: &Source,
        parts: Parts,
        body: Body,
    ) -> Result<(HeaderMap, Bytes, Verified), Problem> {
        if parts.method != Method::POST {
            let post = HeaderValue::from_static("POST");
            return Err(Problem::new(METHOD).header(ALLOW, post));
        }
        let body = read(body, source.body_max()).await?;
        let presented = Presented {
            headers: &parts.headers,
            query: parts.uri.query(),
            body: &body,
        };
        let time = TimeBound {
            now: self.0.clock.now(),
            tolerance: source.tolerance(),
        };
        let verified = source.scheme().verify(&presented, time);
        let verified = verified.map_err(|refusal| refused(source, refusal))?;
        Ok((parts.headers, body, verified))
    }

    /// Stores the events in a separate task, which continues if the provider disconnects.
    async fn stored(&self, accepted: Accepted) -> Result<Outcomes, Problem> {
        let (store, source) = (self.0.store.clone(), Arc::clone(&accepted.source));
        let failed = |error: &(dyn Error + 'static)| {
            let (source, error) = (source.name(), error_chain(error));
            tracing::error!(source, error, "webhook could not be stored");
        };
        let storing = Box::pin(async move { timeout(STORE, store_all(&store, &accepted)).await });
        let storing = storing.instrument(tracing::Span::current());
        match tokio::spawn(storing).await {
            Ok(Ok(Ok(outcomes))) => Ok(outcomes),
            Ok(Ok(Err(error))) => {
                failed(&error);
                Err(unavailable())
            }
            // The commit may have happened, or may still happen. The next delivery finds out.
            Ok(Err(late)) => {
                failed(&late);
                Err(unavailable())
            }
            Err(panic) => {
                failed(&panic);
                Err(Problem::new(INTERNAL))
            }
        }
    }

    fn write_line(
        &self,
        line: Line<'_>,
        response: &Response,
        id: Option<&RequestId>,
        arrived: Instant,
    ) {
        let code = response.extensions().get::<Code>();
        let id = id.map(RequestId::as_str);
        self.0.log.write(&Line {
            status: Some(response.status().as_u16()),
            error_code: code.map(Code::name),
            request_id: id,
            correlation_id: id,
            took: arrived.elapsed(),
            ..line
        });
    }
}

impl<K> fmt::Debug for Ingest<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ingest")
            .field(&self.0.sources.keys())
            .finish()
    }
}

/// Accepts the events and emits those that are new, in one transaction.
async fn store_all<K: Keys>(store: &K, accepted: &Accepted) -> Result<Outcomes, StoreError> {
    let Accepted {
        source,
        headers,
        body,
        events,
        context,
    } = accepted;
    let mut tx = store
        .begin(source.tenant().cloned(), context.clone())
        .await?;
    let mut outcomes = Vec::with_capacity(events.len());
    for provided in events {
        let payload = provided.part.as_ref().map_or(&**body, String::as_bytes);
        let message = Message::new(source.consumer(), source.name(), &*provided.id, payload);
        let message = message.map_err(StoreError::statement)?;
        let acceptance = tx.accept(&message).await?;
        if acceptance == Acceptance::First {
            tx.emit(event(source, provided, headers, body))?;
        }
        outcomes.push((message, acceptance));
    }
    // Also without a new event: the earlier acceptance may be in the same group of a commit, which
    // may still fail.
    tx.commit().await?;
    Ok(outcomes)
}

/// Reads a body of at most `max` bytes.
async fn read(body: Body, max: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("this source takes at most {max} bytes");
        Problem::new(BODY_TOO_LARGE).detail(detail)
    };
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    match timeout(BODY, Limited::new(body, max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Problem::new(BODY_INCOMPLETE).caused_by(error)),
        Err(late) => Err(Problem::new(BODY_INCOMPLETE).caused_by(late)),
    }
}

/// The response to a request that is not verified. It says neither which part is wrong nor which
/// secrets there are; the reason is in the log.
fn refused(source: &Source, refusal: Refusal) -> Problem {
    let (source, reason) = (source.name(), refusal.to_string());
    tracing::info!(source, reason, "webhook refused");
    if refusal.is_unauthorized() {
        Problem::new(AUTH_SIGNATURE).detail("the signature or its time is missing or not valid")
    } else {
        Problem::new(REQUEST_INVALID).detail("the request is not of the form of its source")
    }
}

fn unavailable() -> Problem {
    Problem::new(UNAVAILABLE)
        .detail("the event cannot be accepted now; send it again")
        .retry_after(RETRY_AFTER)
}

/// The response with which the provider counts the delivery as done.
fn acknowledged(scheme: &Scheme, outcomes: &[(Message, Acceptance)]) -> Response {
    let (media_type, body) = scheme.acknowledgement();
    let mut response = Response::new(Body::from(body));
    if !media_type.is_empty() {
        let media_type = HeaderValue::from_static(media_type);
        response.headers_mut().insert(CONTENT_TYPE, media_type);
    }
    let is_new = |(_, acceptance): &(Message, Acceptance)| *acceptance == Acceptance::First;
    if !outcomes.iter().any(is_new) {
        let replayed = HeaderValue::from_static("replayed");
        response.headers_mut().insert(IDEMPOTENCY_STATUS, replayed);
    }
    response
}

fn text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// The line of a request without a message.
fn line<'a>(source: Option<&'a Arc<Source>>, outcome: &'static str) -> Line<'a> {
    Line {
        consumer: source.map(|it| it.consumer()),
        source: source.map(|it| it.name()),
        outcome,
        ..Line::default()
    }
}

/// Counts an event (`accepted`, `duplicate`, `mismatch`) or a request (`challenge`, `refused`,
/// `store_error`).
fn count(source: &str, outcome: &'static str) {
    let source = source.to_owned();
    metrics::counter!(INGEST_MESSAGES, "source" => source, "outcome" => outcome).increment(1);
}
