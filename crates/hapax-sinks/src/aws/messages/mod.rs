//! Messages: the part that the sinks for SQS and SNS have in common.
//!
//! A request has up to ten messages and 256 KiB, and each message has its own outcome. If a service
//! refuses a request because of one of its messages, the request is divided until that message is
//! alone. Nothing is repeated: a message whose outcome is not known is retried by the relay.

use std::{fmt, time::Duration};

use hapax::{
    Clock,
    sink::{Offer, Outcome, Receipt},
};
use tokio::time::Instant;

pub(crate) use self::{
    message::{Message, STRING},
    outcome::{Entry, Refusal},
};
use super::{Access, Call, Service, failure};
use crate::{
    api::{Endpoint, Failure, Response, parts},
    format::TextFormat,
    limits::{MESSAGES_BYTES, MESSAGES_MAX},
    settings::{DestinationSettings, SettingError},
    webhook::Blocked,
};

mod message;
mod outcome;

/// The API of a service that receives messages.
pub(crate) trait MessageApi {
    /// The name of the service, for which requests are signed.
    const SERVICE: &'static str;

    /// The request that sends these messages: between one and [`MESSAGES_MAX`].
    fn call(&self, messages: &[Message]) -> Call;

    /// The outcomes in the success response to [`call`](Self::call), or `None` if it is not such a
    /// response. Messages may be missing.
    fn entries(&self, response: &Response, messages: &[Message]) -> Option<Vec<Entry>>;

    /// The failure that any other response reports. It concerns the whole request.
    fn failure(&self, response: &Response) -> Failure {
        failure(response)
    }
}

/// How events become messages.
pub(crate) struct Encoding {
    pub(crate) format: TextFormat,
    /// Whether messages have a group and a deduplication id.
    pub(crate) is_fifo: bool,
}

/// The sink of a service that receives messages.
pub(crate) struct MessageSink<A> {
    service: Service,
    api: A,
    encoding: Encoding,
    source: String,
    timeout: Duration,
}

impl<A: MessageApi> MessageSink<A> {
    /// Creates the sink of this endpoint. No connection is opened.
    pub(crate) fn new(
        api: A,
        endpoint: Endpoint,
        access: &Access<'_>,
        encoding: Encoding,
        destination: DestinationSettings,
        clock: Clock,
    ) -> Result<Self, SettingError> {
        Ok(Self {
            service: Service::new(A::SERVICE, endpoint, access, &destination, clock)?,
            api,
            encoding,
            source: destination.source,
            timeout: destination.timeout,
        })
    }

    /// Why the guard blocks the endpoint, if the URL alone determines that.
    pub(crate) fn refusal(&self) -> Option<Blocked> {
        self.service.refusal()
    }

    /// Sends the events, and returns the outcome of each.
    pub(crate) async fn deliver(&self, offers: &[Offer]) -> Vec<Outcome> {
        let deadline = Instant::now() + self.timeout;
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        outcomes.resize_with(offers.len(), || None);
        let mut messages = Vec::with_capacity(offers.len());
        for (index, offer) in offers.iter().enumerate() {
            match Message::of(index, offer, &self.encoding, &self.source) {
                Ok(message) => messages.push(message),
                Err(failure) => outcomes[index] = Some(Err(outcome::of_one(&failure))),
            }
        }
        let mut waiting = parts(&messages, |it| it.bytes, MESSAGES_MAX, MESSAGES_BYTES);
        waiting.reverse();
        while let Some(part) = waiting.pop() {
            match self.send(part, deadline).await {
                Ok(known) => {
                    for (index, outcome) in known {
                        if part.iter().any(|message| message.index == index) {
                            outcomes[index] = Some(outcome);
                        }
                    }
                }
                Err(failure) if outcome::concerns_one(&failure) => {
                    if let [one] = part {
                        outcomes[one.index] = Some(Err(outcome::of_one(&failure)));
                    } else {
                        let (left, right) = part.split_at(part.len() / 2);
                        waiting.extend([right, left]);
                    }
                }
                Err(failure) => {
                    // The service would not take the other messages either.
                    let rest = waiting.iter().copied().chain([part]).flatten();
                    for message in rest {
                        outcomes[message.index] = Some(Err(failure.unavailable()));
                    }
                    break;
                }
            }
        }
        let outcomes = outcomes.into_iter();
        outcomes
            .map(|outcome| outcome.unwrap_or_else(|| Err(outcome::unmentioned())))
            .collect()
    }

    /// Sends messages as one request. Returns the outcomes by the indexes of their offers.
    async fn send(
        &self,
        messages: &[Message],
        deadline: Instant,
    ) -> Result<Vec<(usize, Outcome)>, Failure> {
        let call = self.api.call(messages);
        let response = self.service.send(call, deadline).await?;
        if !response.status.is_success() {
            return Err(self.api.failure(&response));
        }
        let entries = self.api.entries(&response, messages);
        let entries = entries.ok_or_else(|| outcome::not_an_answer(&response))?;
        let receipt = Receipt {
            status: Some(response.status.as_u16()),
            ..Receipt::default()
        };
        let outcomes = entries.into_iter().map(|entry| {
            let outcome = match &entry.refusal {
                None => Ok(receipt.clone()),
                Some(refusal) => Err(outcome::refused(&response, refusal)),
            };
            (entry.index, outcome)
        });
        Ok(outcomes.collect())
    }
}

impl<A: fmt::Debug> fmt::Debug for MessageSink<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSink")
            .field("service", &self.service)
            .field("api", &self.api)
            .field("format", &self.encoding.format)
            .field("is_fifo", &self.encoding.is_fifo)
            .finish_non_exhaustive()
    }
}
