//! The webhook sink in the conformance suite, with a receiver that responds on request.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use hapax::{
    event::{EventId, NewEvent},
    sink::Sink,
};
use hapax_sinks::webhook::Webhook;
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, Received},
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};

use crate::sinks;

const TIMEOUT: Duration = Duration::from_secs(4);

struct Endpoint {
    sink: Arc<Webhook>,
    address: SocketAddr,
    receiver: Mutex<Option<HttpReceiver>>,
    moods: Arc<Mutex<HashMap<String, Mood>>>,
}

sink_suite!(Endpoint);

impl SinkUnderTest for Endpoint {
    async fn fresh() -> Self {
        let receiver = HttpReceiver::start().await;
        let webhook = sinks::webhook(&receiver.url("/hooks"), sinks::within(TIMEOUT), |_| {});
        Self {
            sink: Arc::new(webhook),
            address: receiver.address(),
            receiver: Mutex::new(Some(receiver)),
            moods: Arc::default(),
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        let receiver = self.receiver.lock().unwrap().take();
        if mood == Mood::Down {
            return true;
        }
        let receiver = match receiver {
            Some(receiver) => receiver,
            None => HttpReceiver::start_at(self.address).await.unwrap(),
        };
        let known = reply(mood);
        if let Some(reply) = known.clone() {
            receiver.reply(reply);
        }
        *self.receiver.lock().unwrap() = Some(receiver);
        known.is_some()
    }

    async fn tell_about(&self, event: EventId, mood: Mood) -> bool {
        self.moods.lock().unwrap().insert(event.to_string(), mood);
        let moods = self.moods.clone();
        if let Some(receiver) = &*self.receiver.lock().unwrap() {
            receiver.reply_with(move |request| {
                let mood = moods.lock().unwrap().get(id(request)).copied();
                reply(mood.unwrap_or(Mood::Accept)).unwrap()
            });
        }
        reply(mood).is_some()
    }

    async fn stray(&self) -> Option<NewEvent> {
        if let Some(receiver) = &*self.receiver.lock().unwrap() {
            receiver.reply_with(|request| {
                let body = std::str::from_utf8(&request.body).unwrap();
                let is_stray = body.contains("\"seq.next\"");
                HttpReply::status(if is_stray { 422 } else { 204 })
            });
        }
        Some(NewEvent::json("seq.next", &1))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let receiver = self.receiver.lock().unwrap();
        let requests = receiver.iter().flat_map(HttpReceiver::received);
        requests
            .filter(|request| request.answered.is_some_and(|status| status < 300))
            .map(|request| Arrival {
                id: id(&request).to_owned(),
                payload: payload(&request),
            })
            .collect()
    }
}

/// A webhook has no response for a permanent refusal: a refused event is retried on schedule.
fn reply(mood: Mood) -> Option<HttpReply> {
    match mood {
        Mood::Accept => Some(HttpReply::status(204)),
        Mood::Talk => Some(HttpReply::status(200).large_body(1 << 30)),
        Mood::Fail => Some(HttpReply::status(500)),
        Mood::Gone => Some(HttpReply::status(410)),
        Mood::Hang => Some(HttpReply::status(500).after(Duration::from_hours(1))),
        Mood::Refuse | Mood::Down => None,
    }
}

fn id(request: &Received) -> &str {
    request.header("webhook-id").unwrap()
}

/// The payload of a request. A string may be the base64 of a binary payload, so strings are not
/// compared.
fn payload(request: &Received) -> Option<Bytes> {
    let text = std::str::from_utf8(&request.body).unwrap();
    let (_, data) = text.split_once("\"data\":").unwrap();
    let data = data.strip_suffix('}').unwrap();
    (!data.starts_with('"')).then(|| Bytes::copy_from_slice(data.as_bytes()))
}
