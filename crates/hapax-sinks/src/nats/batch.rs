//! Pipeline of one batch: publishes all messages, then collects the responses.
//!
//! The responses are sent to an inbox subject of the batch, with the number of the event. Late or
//! duplicate responses do not affect other batches, and a dropped batch leaves nothing to clean up.

use std::collections::{BTreeSet, HashMap};

use async_nats::{Subscriber, client::PublishErrorKind};
use futures_util::{FutureExt as _, StreamExt as _, future::join_all};
use hapax::sink::Outcome;
use tokio::time::{Instant, sleep_until};

use super::{
    link::{Link, forbids},
    message::Message,
    outcome::{self, Failure},
};
use crate::{connection::Connection as _, limits::NATS_SUBJECTS_ASKED};

/// A batch that is being published.
pub(super) struct Batch<'a> {
    link: &'a Link,
    deadline: Instant,
    inbox: String,
    answers: Option<Subscriber>,
    subjects: Vec<String>,
    outcomes: Vec<Option<Outcome>>,
    /// Events without listeners for their subject.
    strays: Vec<usize>,
    /// Whether all events have the same subject.
    is_fixed: bool,
    open: usize,
    failure: Option<Failure>,
    done: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn open(link: &'a Link, events: usize, is_fixed: bool, deadline: Instant) -> Self {
        Self {
            link,
            deadline,
            inbox: link.client.new_inbox(),
            answers: None,
            subjects: vec![String::new(); events],
            outcomes: (0..events).map(|_| None).collect(),
            strays: Vec::new(),
            is_fixed,
            open: events,
            failure: None,
            done: false,
        }
    }

    /// Subscribes to the responses, before the first one can arrive.
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

    /// Publishes one message. After a failure of the connection nothing is sent.
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

    /// Sets the outcome of one event.
    pub(super) fn answer(&mut self, index: usize, outcome: Outcome) {
        if let Some(slot @ None) = self.outcomes.get_mut(index) {
            *slot = Some(outcome);
            self.open -= 1;
        }
    }

    /// Collects the responses. Events without a response at the end of the connection or the
    /// timeout are delivered again.
    pub(super) async fn outcomes(mut self) -> Vec<Outcome> {
        if let Some(mut answers) = self.answers.take() {
            while self.open > 0 && self.failure.is_none() {
                match self.within(answers.next()).await {
                    Ok(Some(message)) => self.take(&message),
                    Ok(None) => self.failure = Some(Failure::Lost(self.link.said())),
                    Err(failure) => self.failure = Some(failure),
                }
            }
            // Responses that arrived before the end are valid nevertheless.
            while let Some(Some(message)) = answers.next().now_or_never() {
                self.take(&message);
            }
        }
        self.judge_strays().await;
        self.done = self.failure.is_none();
        let failure = self.failure.take().unwrap_or(Failure::Silent(None));
        let subjects = std::mem::take(&mut self.subjects);
        let unanswered = |subject: String| match &failure {
            Failure::Silent(Some(words)) if !self.is_fixed && forbids(words, &subject) => {
                Err(Failure::Forbidden(subject).into())
            }
            failure => Err(failure.clone().into()),
        };
        let outcomes = std::mem::take(&mut self.outcomes).into_iter().zip(subjects);
        outcomes
            .map(|(it, subject)| it.unwrap_or_else(|| unanswered(subject)))
            .collect()
    }

    /// Finds out whether no stream lists the subjects without listeners, or whether the receiver is
    /// unavailable: the stream has no leader, or JetStream is off. If all events have the same
    /// subject, this makes no difference.
    async fn judge_strays(&mut self) {
        let strays = std::mem::take(&mut self.strays);
        if self.is_fixed {
            for index in strays {
                let subject = self.subjects[index].clone();
                let away = Failure::Away(subject, "no stream lists it, or it has no leader");
                self.outcomes[index] = Some(Err(away.into()));
            }
            return;
        }
        let subjects: BTreeSet<&String> = strays.iter().map(|it| &self.subjects[*it]).collect();
        let asked_count = subjects.len().min(NATS_SUBJECTS_ASKED);
        let asked = subjects.into_iter().take(NATS_SUBJECTS_ASKED);
        let asked = asked.map(async |subject| {
            let away = self.link.why_away(subject, self.deadline).await?;
            Some((subject.clone(), away))
        });
        let away: HashMap<String, &'static str> =
            join_all(asked).await.into_iter().flatten().collect();
        // If all the subjects that were checked are unavailable, so are the rest.
        let of_all = (away.len() == asked_count).then(|| away.values().next().copied());
        let of_all = of_all.flatten();
        for index in strays {
            let subject = &self.subjects[index];
            if let Some(why) = away.get(subject).copied().or(of_all) {
                let failure = Failure::Away(subject.clone(), why);
                self.outcomes[index] = Some(Err(failure.into()));
            }
        }
    }

    fn take(&mut self, message: &async_nats::Message) {
        let number = message.subject.rsplit('.').next();
        let Some(index) = number.and_then(|number| number.parse().ok()) else {
            return;
        };
        if let Some(subject) = self.subjects.get(index).map(String::as_str) {
            let outcome = outcome::outcome_of(message, subject);
            if outcome::is_nobodys(message) {
                self.strays.push(index);
            }
            self.answer(index, outcome);
        }
    }

    /// Waits for an operation of the connection, until the connection or the time ends.
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
    /// After a failure of the connection, or if the batch is dropped, the connection is not used
    /// again.
    fn drop(&mut self) {
        if !self.done {
            self.link.discard();
        }
    }
}

/// The approximate size of a message, compared with `max_payload`.
fn size(message: &Message) -> usize {
    let headers = message.headers.iter().map(|(name, values)| {
        let name: &str = name.as_ref();
        let values = values.iter().map(|value| value.as_str().len() + 4);
        values.map(|bytes| bytes + name.len()).sum::<usize>()
    });
    headers.sum::<usize>() + message.payload.len()
}
