//! One batch on the wire: all is published, then the answers are gathered.
//!
//! The answers come to an inbox of the batch's own, under the number of the
//! event: one that comes late, or twice, concerns nobody else, and a batch
//! that is dropped leaves nothing behind.

use async_nats::{Subscriber, client::PublishErrorKind};
use futures_util::{FutureExt as _, StreamExt as _};
use hapax::sink::Outcome;
use tokio::time::{Instant, sleep_until};

use super::{
    answer::{self, Failure},
    link::Link,
    message::Message,
};

/// A batch that is being published.
pub(super) struct Batch<'a> {
    link: &'a Link,
    deadline: Instant,
    inbox: String,
    answers: Option<Subscriber>,
    subjects: Vec<String>,
    outcomes: Vec<Option<Outcome>>,
    open: usize,
    failure: Option<Failure>,
    done: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn open(link: &'a Link, events: usize, deadline: Instant) -> Self {
        Self {
            link,
            deadline,
            inbox: link.client.new_inbox(),
            answers: None,
            subjects: vec![String::new(); events],
            outcomes: (0..events).map(|_| None).collect(),
            open: events,
            failure: None,
            done: false,
        }
    }

    /// Asks for the answers, ahead of the first that can come.
    pub(super) async fn listen(&mut self) -> Result<(), Failure> {
        let subscribing = self.link.client.subscribe(format!("{}.*", self.inbox));
        match self.within(subscribing).await? {
            Ok(answers) => {
                self.answers = Some(answers);
                Ok(())
            }
            Err(error) => Err(Failure::Client(error.to_string())),
        }
    }

    /// Puts one message on the wire; nothing more goes out after a failure of the connection.
    pub(super) async fn publish(&mut self, index: usize, message: Message) {
        if self.failure.is_some() {
            return;
        }
        let bytes = size(&message);
        let reply = format!("{}.{index}", self.inbox);
        self.subjects[index].clone_from(&message.subject);
        let publishing = self.link.client.publish_with_reply_and_headers(
            message.subject,
            reply,
            message.headers,
            message.payload,
        );
        match self.within(publishing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let failure = match error.kind() {
                    PublishErrorKind::MaxPayloadExceeded => Failure::LargerThanServer {
                        bytes,
                        max: self.link.client.max_payload(),
                    },
                    PublishErrorKind::Send => Failure::Lost(self.link.said()),
                    PublishErrorKind::InvalidSubject => Failure::Client(error.to_string()),
                };
                self.answer(index, Err(failure.into()));
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Gives the outcome of one event.
    pub(super) fn answer(&mut self, index: usize, outcome: Outcome) {
        if let Some(slot @ None) = self.outcomes.get_mut(index) {
            *slot = Some(outcome);
            self.open -= 1;
        }
    }

    /// Gathers the answers; what has none when the connection or the time ends may come again.
    pub(super) async fn outcomes(mut self) -> Vec<Outcome> {
        if let Some(mut answers) = self.answers.take() {
            while self.open > 0 && self.failure.is_none() {
                match self.within(answers.next()).await {
                    Ok(Some(message)) => self.take(&message),
                    Ok(None) => self.failure = Some(Failure::Lost(self.link.said())),
                    Err(failure) => self.failure = Some(failure),
                }
            }
            // What had arrived before the end is true all the same.
            while let Some(Some(message)) = answers.next().now_or_never() {
                self.take(&message);
            }
        }
        self.done = self.failure.is_none();
        let failure = self.failure.take().unwrap_or(Failure::Silent(None));
        let unanswered = || Err(failure.clone().into());
        let outcomes = std::mem::take(&mut self.outcomes).into_iter();
        outcomes.map(|it| it.unwrap_or_else(unanswered)).collect()
    }

    fn take(&mut self, message: &async_nats::Message) {
        let number = message.subject.rsplit('.').next();
        let Some(index) = number.and_then(|number| number.parse().ok()) else {
            return;
        };
        if let Some(subject) = self.subjects.get(index).map(String::as_str) {
            let outcome = answer::judge(message, subject);
            self.answer(index, outcome);
        }
    }

    /// Waits for the connection to do something, as long as it lives and there is time.
    async fn within<T>(&self, doing: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            done = doing => Ok(done),
            () = self.link.lost() => Err(Failure::Lost(self.link.said())),
            () = sleep_until(self.deadline) => Err(Failure::Silent(self.link.said())),
        }
    }
}

impl Drop for Batch<'_> {
    /// A batch that failed on the connection, or was dropped half-way, is the last that uses it.
    fn drop(&mut self) {
        if !self.done {
            self.link.give_up();
        }
    }
}

/// About what a message counts against `max_payload`.
fn size(message: &Message) -> usize {
    let headers = message.headers.iter().map(|(name, values)| {
        let name: &str = name.as_ref();
        let values = values.iter().map(|value| value.as_str().len() + 4);
        values.map(|bytes| bytes + name.len()).sum::<usize>()
    });
    headers.sum::<usize>() + message.payload.len()
}
