//! One request of a protected route with the upstream, under its key.
//!
//! The phase `sent` is committed before the first byte can leave: a new key is entered with it, and an
//! owner that sends a request again commits it first. After that, only the proof that nothing was sent
//! frees the key, and only a complete response completes it. In every other case the key stays in
//! progress, with the reason in its recovery point.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};
use hapax::{
    key::{KeyForm, Tenant},
    store::{StoreError, Transaction},
    telemetry::error_chain,
};
use hapax_http::{
    Phased, Problem,
    header::IDEMPOTENCY_KEY,
    problem::{OUTCOME_UNKNOWN, TIMEOUT, UNAVAILABLE},
};
use http::{HeaderValue, StatusCode, request::Parts};
use tokio::time::Instant;

use super::{
    Target, key,
    look_up::LookUpResult,
    mcp::{self, Call, Outcome},
    response::{Complete, Incomplete, keep_in_progress, not_sent, released},
    sightings::Attempt,
};
use crate::{
    config::{ForwardedKey, OnUnknown},
    metrics,
    stream::refused,
    unknown::{Reason, Unknown},
    upstream::SendError,
};

/// The step whose provider key the service receives if the route derives it.
const STEP: &str = "upstream";
/// The value of `Retry-After`.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request with its key.
pub(super) struct Exchange<T: Transaction> {
    target: Arc<Target>,
    phased: Phased<T>,
    request: Request,
    /// Whether an earlier owner may have sent the request. Its outcome is then unknown unless a
    /// response comes now.
    was_sent: bool,
    /// The record with which the key was entered: it is committed that this request is sent.
    entered: Option<Unknown>,
}

impl<T: Transaction> Exchange<T> {
    /// A request whose key was resumed.
    pub(super) fn resumed(
        target: Arc<Target>,
        phased: Phased<T>,
        request: Request,
        was_sent: bool,
    ) -> Self {
        Self {
            target,
            phased,
            request,
            was_sent,
            entered: None,
        }
    }

    /// A request whose key was entered just now, with this record.
    pub(super) fn entered(
        target: Arc<Target>,
        phased: Phased<T>,
        request: Request,
        record: Option<Unknown>,
    ) -> Self {
        Self {
            entered: record,
            ..Self::resumed(target, phased, request, false)
        }
    }

    /// Sends the request, and returns what its client gets.
    pub(super) async fn send(mut self) -> Response {
        let target = Arc::clone(&self.target);
        let tenant = self.request.extensions().get::<Tenant>();
        let slot = match target.upstream.slot(tenant) {
            Ok(slot) => slot,
            Err(error) => return not_sent(refused(error), self.was_sent),
        };
        let record = if let Some(record) = self.entered.take() {
            record
        } else {
            let record = record_sent(&target, key::form(self.request.headers()));
            if let Err(error) = self.note(&record).await {
                return Problem::from(error).into_response();
            }
            record
        };
        if let Some(form) = record.key_form {
            key::rewrite(self.request.headers_mut(), form);
        }
        if target.settings.forwarded_key == ForwardedKey::Derived {
            let key = HeaderValue::from_str(&self.phased.provider_key(STEP));
            if let Ok(key) = key {
                self.request.headers_mut().insert(IDEMPOTENCY_KEY, key);
            }
        }
        let deadline = Instant::now() + target.settings.timeout.0;
        let request = std::mem::take(&mut self.request);
        let call = request.extensions().get::<Arc<Call>>().cloned();
        target.failpoints.hit("gateway.send.before");
        let phased = &self.phased;
        // A gateway that was stopped since the commit may have lost the key.
        let may_send = || phased.is_held();
        let sent = target
            .upstream
            .send(request, slot, deadline, &may_send)
            .await;
        match sent {
            Ok((response, in_flight)) => {
                target.failpoints.hit("gateway.send.after");
                let record = record.at_instance(&in_flight.instance);
                let read = mcp::read(response, call.as_ref(), &target.settings, deadline);
                let complete = read.await;
                drop(in_flight);
                target.failpoints.hit("gateway.response.read");
                match complete {
                    Ok(complete) => self.responded(complete, record).await,
                    Err(incomplete) => self.unknown(incomplete, record).await,
                }
            }
            Err(SendError::Unknown {
                instance,
                is_late,
                source,
            }) => {
                tracing::debug!(error = error_chain(&*source), "no response of the service");
                let reason = if is_late {
                    Reason::Timeout
                } else {
                    Reason::Cut
                };
                let record = record.at_instance(&instance);
                self.unknown(Incomplete::headless(reason), record).await
            }
            Err(error) => not_sent(refused(error), self.was_sent),
        }
    }

    /// Asks the service what has happened to the request.
    pub(super) async fn look_up(self, record: Option<Unknown>, is_unattended: bool) -> Response {
        let target = Arc::clone(&self.target);
        let Some(look_up) = &target.look_up else {
            return undecided(record.as_ref());
        };
        let keys = match target.settings.forwarded_key {
            ForwardedKey::Derived => vec![self.phased.provider_key(STEP)],
            ForwardedKey::Same => {
                let form = record.as_ref().and_then(|record| record.key_form);
                key::texts(self.request.headers(), form)
            }
        };
        if keys.is_empty() {
            return undecided(record.as_ref());
        }
        let attempt = record.as_ref().map(|record| self.attempt(record));
        // The time must be over before the service is asked, not only when it responds.
        let known = attempt.clone().map(|attempt| look_up.see(attempt));
        let is_settled = known.is_some_and(|known| look_up.is_settled(known));
        let found = look_up.ask(&target.upstream, &keys, &target.settings).await;
        let is_known = match found {
            LookUpResult::Happened(_) => true,
            LookUpResult::NotHappened => is_settled,
            LookUpResult::Unknown => false,
        };
        if let Some(attempt) = attempt.filter(|_| is_known) {
            look_up.forget(&attempt);
        }
        match found {
            LookUpResult::Happened(complete) => {
                metrics::resumed(&target.route, "happened");
                complete.stored()
            }
            LookUpResult::NotHappened if is_settled => {
                metrics::resumed(&target.route, "not_happened");
                if is_unattended {
                    // Only the client has the credentials for the service.
                    return released("the service has not executed the request");
                }
                Self {
                    was_sent: false,
                    ..self
                }
                .send()
                .await
            }
            LookUpResult::NotHappened | LookUpResult::Unknown => {
                metrics::resumed(&target.route, "unknown");
                let detail = "it is not known yet whether the service has executed the first request \
                              with this key; a retry asks again";
                let problem = Problem::new(UNAVAILABLE).detail(detail);
                keep_in_progress(problem.retry_after(RETRY_AFTER).into_response())
            }
        }
    }

    /// Handles a complete response: it is stored, unless its status says otherwise.
    async fn responded(mut self, complete: Complete, record: Unknown) -> Response {
        let status = complete.status();
        match Outcome::of(&complete, &self.target.settings) {
            Outcome::NothingHappened if !self.was_sent => return complete.released(),
            Outcome::Answered => return complete.stored(),
            Outcome::NothingHappened | Outcome::Unknown => {}
        }
        let record = record.received(status.as_u16(), complete.length());
        self.record(Reason::Status, record).await;
        keep_in_progress(complete.verbatim())
    }

    /// Handles a request whose outcome is unknown.
    async fn unknown(mut self, incomplete: Incomplete, mut record: Unknown) -> Response {
        let Incomplete {
            reason,
            status,
            received,
        } = incomplete;
        if let Some(status) = status {
            record = record.received(status.as_u16(), received);
        }
        self.record(reason, record).await;
        let status = if reason == Reason::Timeout {
            StatusCode::GATEWAY_TIMEOUT
        } else {
            StatusCode::BAD_GATEWAY
        };
        let what = reason.sentence();
        let problem = match self.target.settings.unknown {
            OnUnknown::Conflict => Problem::new(OUTCOME_UNKNOWN)
                .detail(format!("{what}; it may have executed the request. {HOW}")),
            OnUnknown::Forward | OnUnknown::LookUp => {
                let code = if reason == Reason::Timeout {
                    TIMEOUT
                } else {
                    UNAVAILABLE
                };
                Problem::new(code)
                    .detail(format!(
                        "{what}; a retry with the same key finds out the outcome"
                    ))
                    .retry_after(RETRY_AFTER)
            }
        };
        keep_in_progress(problem.status(status).into_response())
    }

    /// Records why the outcome is unknown. If this fails, the key stays at the phase `sent`.
    async fn record(&mut self, reason: Reason, record: Unknown) {
        let record = record.because(reason, self.target.clock.now());
        if let Some(look_up) = &self.target.look_up {
            look_up.see(self.attempt(&record));
        }
        metrics::unknown(&self.target.route, reason.as_str());
        tracing::warn!(
            route = self.target.route,
            upstream = record.upstream,
            reason = reason.as_str(),
            status = record.response_status,
            received = record.response_bytes,
            "the outcome of a request is unknown"
        );
        if let Err(error) = self.note(&record).await {
            tracing::warn!(
                error = error.error_chain(),
                "cannot record why an outcome is unknown"
            );
        }
    }

    /// The attempt that a record is about.
    fn attempt(&self, record: &Unknown) -> Attempt {
        Attempt {
            provider_key: self.phased.provider_key(STEP),
            sent_at: record.sent_at,
        }
    }

    /// Commits a recovery point.
    async fn note(&mut self, record: &Unknown) -> Result<(), StoreError> {
        self.phased.reach(&record.to_string()).await
    }
}

/// The record with which the key of a new request is entered.
pub(super) fn first_record(target: &Target, parts: &Parts) -> Unknown {
    // The key of a call is in its message, and its server receives no header.
    let is_call = parts.extensions.get::<Arc<Call>>().is_some();
    let form = if is_call {
        None
    } else {
        key::form(&parts.headers)
    };
    record_sent(target, form)
}

/// The record of a request that is sent now with a key of this form.
fn record_sent(target: &Target, form: Option<KeyForm>) -> Unknown {
    let form = match target.settings.forwarded_key {
        ForwardedKey::Derived => None,
        ForwardedKey::Same => form,
    };
    let record = Unknown::sent(&target.upstream.name, target.clock.now());
    record.with_key_form(form)
}

/// The choices of an operator, in the details of problems.
const HOW: &str = "A retry with the same key is not sent to the service. An operator decides with \
    `hapax gateway unknown decide`: the request happened, with the response to replay, or it did not \
    happen, and a retry is sent";

/// The response to a retry of a request whose outcome is unknown.
pub(super) fn undecided(record: Option<&Unknown>) -> Response {
    let reason = record.map_or(Reason::Stopped, |record| record.reason);
    let detail = format!(
        "the first request with this key was sent, but {}. {HOW}",
        reason.sentence()
    );
    keep_in_progress(Problem::new(OUTCOME_UNKNOWN).detail(detail).into_response())
}
