//! Pipeline of one batch on one channel: publishes the messages in order and awaits the confirms.
//!
//! If the driver receives a returned message, it attaches the message to the next confirm that it
//! completes, which may be that of another message. So that assignment is ignored. The `message_id`
//! of a returned message identifies its event. An event is delivered once its message is confirmed
//! and no outstanding confirm can hide a return of it.

use std::{collections::HashMap, pin::Pin, task::Poll};

use futures_util::FutureExt as _;
use hapax::sink::{Outcome, Receipt, SinkError};
use lapin::{
    Channel, Confirmation, Error, ErrorKind, PublisherConfirm, message::BasicReturnMessage,
    options::BasicPublishOptions, types::ShortString,
};
use tokio::time::{Instant, sleep_until};

use super::{Failure, Link, Message};
use crate::connection::Connection as _;

const MANDATORY: BasicPublishOptions = BasicPublishOptions {
    mandatory: true,
    immediate: false,
};
/// Overhead of a frame in bytes.
const FRAME_BYTES: usize = 8;

/// The pipeline of one batch. If it is dropped before it is complete, its connection is closed.
pub(super) struct Pipeline<'a> {
    link: &'a Link,
    channel: &'a Channel,
    deadline: Instant,
    published: Vec<PublishedMessage<'a>>,
    has_finished: bool,
}

struct PublishedMessage<'a> {
    index: usize,
    id: &'a str,
    state: State<'a>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "every message ends in the large state"
)]
enum State<'a> {
    Publishing(Pin<Box<dyn Future<Output = Result<PublisherConfirm, Error>> + Send + 'a>>),
    Confirming(PublisherConfirm),
    Done(Result<Confirmation, Error>),
}

/// The reason for which waiting ended.
enum End {
    Complete,
    Blocked(String),
    Late,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(link: &'a Link, channel: &'a Channel, deadline: Instant) -> Self {
        Self {
            link,
            channel,
            deadline,
            published: Vec::new(),
            has_finished: false,
        }
    }

    /// Passes a message to the connection, after the previous ones. It may be rejected.
    pub(super) async fn publish(
        &mut self,
        index: usize,
        message: &'a Message,
        exchange: &ShortString,
    ) -> Result<(), SinkError> {
        let max = self.link.frame_max().saturating_sub(FRAME_BYTES);
        let bytes = message.properties_bytes;
        if bytes > max {
            // The broker would close the connection because of it, on every attempt.
            return Err(SinkError::rejected(
                "headers",
                HeadersTooLarge { bytes, max },
            ));
        }
        let mut publishing = Box::pin(self.channel.basic_publish(
            exchange.clone(),
            message.routing_key.clone(),
            MANDATORY,
            &message.body,
            message.properties.clone(),
        ));
        // The first poll puts the message into the queue of the connection, which determines the
        // order.
        let polled = std::future::poll_fn(|cx| Poll::Ready(publishing.as_mut().poll(cx))).await;
        let state = match polled {
            Poll::Pending => State::Publishing(publishing),
            Poll::Ready(Ok(confirm)) => State::Confirming(confirm),
            Poll::Ready(Err(error)) => State::Done(Err(error)),
        };
        let id = message.id.as_str();
        self.published.push(PublishedMessage { index, id, state });
        Ok(())
    }

    /// Waits for the confirms and sets the outcomes. Returns the failure that all remaining events
    /// share.
    pub(super) async fn finish(mut self, outcomes: &mut [Option<Outcome>]) -> Option<Failure> {
        let end = self.wait().await;
        let returned = self.returned();
        let is_done = |entry: &PublishedMessage<'_>| matches!(entry.state, State::Done(Ok(_)));
        let is_confirmed = |id: &String| {
            self.published
                .iter()
                .any(|entry| is_done(entry) && entry.id == id)
        };
        // A message that was returned but is not confirmed may hide the return of another one.
        let is_certain = returned.keys().all(is_confirmed);
        let mut closed = None;
        for entry in &self.published {
            let outcome = match (&entry.state, returned.get(entry.id)) {
                (_, Some(failure)) => Err(failure.clone().into()),
                (State::Done(Ok(Confirmation::Ack(_))), None) if is_certain => {
                    Ok(Receipt::default())
                }
                (State::Done(Ok(Confirmation::Nack(_))), None) => Err(Failure::Nack.into()),
                (State::Done(Err(error)), None) => {
                    prefer(&mut closed, error);
                    continue;
                }
                _ => continue,
            };
            outcomes[entry.index] = Some(outcome);
        }
        self.has_finished = !matches!(end, End::Late);
        match (end, closed) {
            (_, Some(error)) => Some(Failure::Closed(error)),
            (End::Blocked(reason), None) => Some(Failure::Blocked(reason)),
            (End::Late, None) => Some(Failure::Timeout),
            (End::Complete, None) => None,
        }
    }

    async fn wait(&mut self) -> End {
        let mut blocked = self.link.blocked.clone();
        let deadline = self.deadline;
        let all = async {
            for entry in &mut self.published {
                entry.state.complete().await;
            }
        };
        let end = tokio::select! {
            biased;
            () = all => End::Complete,
            reason = blocked.wait_for(Option::is_some) => match reason {
                Ok(reason) => End::Blocked(reason.clone().unwrap_or_default()),
                Err(_) => End::Late,
            },
            () = sleep_until(deadline) => End::Late,
        };
        if !matches!(end, End::Complete) {
            for entry in &mut self.published {
                let _is_there = entry.state.complete().now_or_never();
            }
        }
        end
    }

    /// The returned messages by event id.
    fn returned(&mut self) -> HashMap<String, Failure> {
        let mut returned = HashMap::new();
        for entry in &mut self.published {
            let message = match &mut entry.state {
                State::Done(Ok(Confirmation::Ack(it) | Confirmation::Nack(it))) => it.take(),
                _ => None,
            };
            if let Some(message) = message
                && let Some(id) = message.delivery.properties.message_id()
            {
                returned.insert(id.as_str().to_owned(), unroutable(&message));
            }
        }
        returned
    }
}

impl State<'_> {
    /// Waits until the broker has confirmed or refused. Cancel-safe.
    async fn complete(&mut self) {
        loop {
            *self = match self {
                Self::Publishing(publishing) => match publishing.as_mut().await {
                    Ok(confirm) => Self::Confirming(confirm),
                    Err(error) => Self::Done(Err(error)),
                },
                Self::Confirming(confirm) => Self::Done(confirm.await),
                Self::Done(_) => return,
            };
        }
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        if !self.has_finished {
            self.link.discard();
        }
    }
}

/// The attributes do not fit into a frame.
#[derive(Debug, thiserror::Error)]
#[error(
    "attributes have up to {bytes} bytes, and the broker allows frames of {max}: use structured mode"
)]
struct HeadersTooLarge {
    bytes: usize,
    max: usize,
}

fn unroutable(message: &BasicReturnMessage) -> Failure {
    Failure::Unroutable {
        exchange: message.delivery.exchange.as_str().to_owned(),
        routing_key: message.delivery.routing_key.as_str().to_owned(),
        code: message.reply_code,
        text: message.reply_text.as_str().to_owned(),
    }
}

/// Prefers an error that was sent by the broker.
fn prefer(kept: &mut Option<Error>, error: &Error) {
    let speaks = |error: &Error| matches!(error.kind(), ErrorKind::ProtocolError(_));
    if kept
        .as_ref()
        .is_none_or(|kept| !speaks(kept) && speaks(error))
    {
        *kept = Some(error.clone());
    }
}
