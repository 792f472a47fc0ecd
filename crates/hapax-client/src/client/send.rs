//! The steps of an operation: record the key, send, evaluate, wait, send again, remove the key.
//!
//! If the client dies before the key is recorded, nothing was sent. If it dies later, before the
//! key is removed, the next run sends the request under the same key and receives the same
//! response.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hapax::{
    key::IdempotencyKey, retry, sink::BoxError, telemetry::error_chain, trace::TracePosition,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::{
    Client, Request,
    response::{self, Fate, Response, SendError, fate},
};
use crate::{
    attempt::Attempts,
    journal::{Begun, Intent},
    operation::{Operation, Step},
    policy::{IDEMPOTENCY_KEY, REQUEST_TIMEOUT, Seen, is_stored},
    stopped::Stopped,
    trace,
};

/// Sends a request with all its retries.
pub(super) async fn send(client: &Client, request: Request) -> Result<Response, SendError> {
    let place = trace::place(&client.traces, &request.headers);
    let span = tracing::info_span!(
        "client.send",
        traceparent = place.own(),
        parent_span_id = place.parent(),
        method = %request.method,
        destination = &*request.destination,
        idempotency.key_hash = tracing::field::Empty,
    );
    let operation = async {
        let (begun, intent) = begin(client, &request).await?;
        if let Some(Begun { key, .. }) = &begun {
            let hash = key.short_hash();
            tracing::Span::current().record("idempotency.key_hash", hash);
        }
        run(client, &request, begun, intent, &place).await
    };
    Box::pin(operation.instrument(span)).await
}

/// Generates the key, and records it if there is a journal.
async fn begin(
    client: &Client,
    request: &Request,
) -> Result<(Option<Begun>, Option<Intent>), SendError> {
    if !request.has_key() {
        return Ok((None, None));
    }
    let given = request.given_key().cloned();
    let fresh = given.clone();
    let fresh = fresh.unwrap_or_else(|| IdempotencyKey::mint(&client.shared.random));
    let Some(journal) = &client.journal else {
        return Ok((Some(Begun::now(fresh)), None));
    };
    let intent = request.intent();
    let write_down = async || journal.begin(&intent, fresh.clone()).await;
    let mut begun = write_down().await.map_err(SendError::Journal)?;
    if begun.is_resumed && request.is_anew() {
        let finished = journal.finish(&intent, &begun.key).await;
        finished.map_err(SendError::Journal)?;
        begun = write_down().await.map_err(SendError::Journal)?;
    }
    if given.is_some_and(|given| given != begun.key) {
        return Err(SendError::OtherKey);
    }
    if begun.age.is_none_or(|age| age >= client.resume_within) {
        let Begun { key, age, .. } = begun;
        return Err(SendError::Stale { key, age });
    }
    Ok((Some(begun), Some(intent)))
}

async fn run(
    client: &Client,
    request: &Request,
    begun: Option<Begun>,
    intent: Option<Intent>,
    place: &TracePosition,
) -> Result<Response, SendError> {
    let (started, destination) = (Instant::now(), request.destination.clone());
    let key = begun.as_ref().map(|begun| &begun.key);
    let mut operation = Operation::begin(&client.shared, destination, request.is_repeatable());
    if let Some(Begun { age: Some(age), .. }) = begun {
        // No attempt is sent at a time at which the service may have deleted the key.
        operation.end_within(client.resume_within.saturating_sub(age));
    }
    loop {
        let (left, at_most) = operation.time(started.elapsed());
        let mut headers = request.headers.clone();
        let span = trace::attempt(&client.traces, place, operation.number(), &mut headers);
        if let Some(key) = key
            && !span.is_disabled()
        {
            span.record("idempotency.key_hash", key.short_hash());
        }
        let sending = attempt(client, request, headers, key, left, at_most);
        let came = sending.instrument(span.clone()).await;
        if let Ok(Came { status, .. }) = &came {
            span.record("http.response.status_code", status.as_u16());
        }
        let (seen, code, note) = look(&came, client.shared.clock.now());
        let step = operation.seen(seen, code.clone(), &note, started.elapsed());
        let stopped = match step {
            Step::Wait(wait) => {
                client.tell(operation.last(), Some(wait));
                sleep(wait).await;
                match operation.resume(started.elapsed()) {
                    Ok(()) => continue,
                    Err(stopped) => stopped,
                }
            }
            Step::Stop(stopped) => {
                client.tell(operation.last(), None);
                stopped
            }
        };
        let in_doubt = operation.is_in_doubt() || begun.as_ref().is_some_and(|it| it.is_resumed);
        if let (Ok(came), Stopped::Final, Some(key), Some(intent)) = (&came, stopped, key, &intent)
        {
            let fate = fate(came.status, &came.headers, code.as_deref(), in_doubt);
            mark_finished(client, intent, key, fate).await;
        }
        let attempts = operation.end(stopped);
        let retry_after = seen.asked();
        return conclude(client, came, begun, code, retry_after, stopped, attempts);
    }
}

/// Removes a key whose outcome is known. The response is valid even if the journal cannot be
/// written.
async fn mark_finished(client: &Client, intent: &Intent, key: &IdempotencyKey, fate: Fate) {
    let Some(journal) = &client.journal else {
        return;
    };
    let struck = match fate {
        Fate::Known => journal.finish(intent, key).await,
        Fate::Nothing => journal.withdraw(intent, key).await,
        Fate::Unknown => return,
    };
    if let Err(error) = struck {
        tracing::warn!(
            error = &*error,
            "finished key stays in the journal: the same request will get the same response again"
        );
    }
}

fn conclude(
    client: &Client,
    came: Result<Came, Missing>,
    begun: Option<Begun>,
    code: Option<String>,
    retry_after: Option<Duration>,
    stopped: Stopped,
    attempts: Attempts,
) -> Result<Response, SendError> {
    let is_resumed = begun.as_ref().is_some_and(|it| it.is_resumed);
    let key = begun.map(|it| it.key);
    match came {
        Ok(Came {
            status,
            headers,
            body: Some(body),
        }) => Ok(Response {
            status,
            headers,
            body,
            code,
            retry_after,
            key,
            is_resumed,
            stopped,
            attempts,
        }),
        Ok(Came { status, .. }) => Err(SendError::TooLarge {
            status,
            key,
            attempts,
            max: client.received_bytes_max,
        }),
        Err(Missing { source, .. }) => Err(SendError::NoResponse {
            key,
            stopped,
            attempts,
            source,
        }),
    }
}

/// A response; without its body if that is too long.
struct Came {
    status: StatusCode,
    headers: HeaderMap,
    body: Option<Bytes>,
}

/// An attempt without a response.
struct Missing {
    seen: Seen,
    source: BoxError,
}

/// Returns what was observed, the code of the problem, and the note of the attempt.
fn look(came: &Result<Came, Missing>, now: hapax::Timestamp) -> (Seen, Option<String>, String) {
    match came {
        Ok(came) => {
            let header = |name| came.headers.get(name)?.to_str().ok();
            let retry_after = retry::retry_after(header, now);
            let status = came.status;
            let seen = Seen::Response {
                status,
                retry_after,
                is_stored: is_stored(&came.headers),
            };
            let code = came.body.as_ref();
            let code = code.and_then(|body| response::code(&came.headers, body));
            let note = match (&came.body, retry_after) {
                (None, _) => "the response is too long".to_owned(),
                (_, Some(wait)) => format!("retry after {} s", wait.as_secs()),
                _ => String::new(),
            };
            (seen, code, note)
        }
        Err(missing) => (missing.seen, None, error_chain(&*missing.source)),
    }
}

/// Sends the request once and reads the response to its end.
async fn attempt(
    client: &Client,
    request: &Request,
    mut headers: HeaderMap,
    key: Option<&IdempotencyKey>,
    left: Duration,
    at_most: Duration,
) -> Result<Came, Missing> {
    if let Some(key) = key {
        let value = HeaderValue::from_str(&key.quoted()).expect("a key is visible ASCII");
        headers.insert(IDEMPOTENCY_KEY, value);
    }
    // Rounded down, because the receiver must not assume more time; never zero.
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
    headers.insert(REQUEST_TIMEOUT, HeaderValue::from(millis));
    let sending = client
        .http
        .request(request.method.clone(), request.url.clone())
        .headers(headers)
        .body(request.body.clone())
        .send();
    let exchange = async {
        let mut response = sending.await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > client.received_bytes_max {
                return Ok(Came {
                    status,
                    headers,
                    body: None,
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok::<_, reqwest::Error>(Came {
            status,
            headers,
            body: Some(body.freeze()),
        })
    };
    match timeout(at_most, exchange).await {
        Ok(Ok(came)) => Ok(came),
        Ok(Err(error)) => Err(Missing::from(error)),
        Err(_) => Err(Missing {
            seen: Seen::TimedOut,
            source: format!("no response within {} ms", at_most.as_millis()).into(),
        }),
    }
}

impl From<reqwest::Error> for Missing {
    fn from(error: reqwest::Error) -> Self {
        // Without a connection, including TLS, no byte of the request was sent.
        let is_unsent = error.is_connect() || error.is_builder();
        Self {
            seen: if is_unsent { Seen::NotSent } else { Seen::Lost },
            // A URL may contain a secret.
            source: error.without_url().into(),
        }
    }
}

#[cfg(test)]
mod vectors;
