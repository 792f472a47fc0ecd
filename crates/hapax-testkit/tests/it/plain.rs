//! A plain sink over HTTP in the conformance suite, as the example for every other sink.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use hapax::{
    event::{EventId, Payload},
    limits::RESPONSE_HEAD_BYTES,
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
};
use hapax_testkit::{
    http::{HttpClient, HttpReceiver, HttpReply, Received},
    sink::{Arrival, Mood, SinkUnderTest},
};
use tokio::time::timeout;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);

/// Posts each payload unchanged, with the event id in a header.
#[derive(Debug)]
pub(crate) struct Plain {
    client: HttpClient,
    url: String,
}

impl Plain {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            client: HttpClient::new(),
            url: format!("http://{address}/"),
        }
    }

    pub(crate) async fn offer(&self, offer: &Offer) -> Outcome {
        let event = offer.event();
        let Payload::Json(text) = &event.payload else {
            return Err(SinkError::rejected("payload", "payload is not JSON"));
        };
        let id = event.id.to_string();
        let headers = [("x-event-id", &*id)];
        let post = self.client.post(&self.url, &headers, text.clone());
        let answer = match timeout(TIMEOUT, post).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(SinkError::unavailable("connection", error)),
            Err(error) => return Err(SinkError::unavailable("timeout", error)),
        };
        let kept = answer.body.len().min(RESPONSE_HEAD_BYTES);
        let receipt = Receipt {
            status: Some(answer.status),
            head: answer.body.slice(..kept),
        };
        match answer.status {
            200 => Ok(receipt),
            410 => Err(SinkError::Gone {
                receipt,
                source: "gone".into(),
            }),
            400 => Err(SinkError::rejected("status", "refused")),
            _ => Err(SinkError::unavailable("status", "failed")),
        }
    }
}

impl Sink for Plain {
    fn kind(&self) -> &'static str {
        "plain"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(join_all(offers.iter().map(|offer| self.offer(offer))))
    }
}

/// A receiver that can be stopped and started again.
pub(crate) struct FarSide {
    pub(crate) address: SocketAddr,
    receiver: Mutex<Option<HttpReceiver>>,
    before: Mutex<Vec<Arrival>>,
}

impl FarSide {
    pub(crate) async fn start() -> Self {
        let receiver = HttpReceiver::start().await;
        Self {
            address: receiver.address(),
            receiver: Mutex::new(Some(receiver)),
            before: Mutex::default(),
        }
    }

    fn receiver(&self) -> MutexGuard<'_, Option<HttpReceiver>> {
        self.receiver.lock().expect("no holder panics")
    }

    pub(crate) async fn tell(&self, mood: Mood) {
        if mood == Mood::Down {
            let arrived = self.arrivals();
            *self.before.lock().expect("no holder panics") = arrived;
            *self.receiver() = None;
            return;
        }
        if self.receiver().is_none() {
            let receiver = HttpReceiver::start_at(self.address)
                .await
                .expect("the port is still free");
            *self.receiver() = Some(receiver);
        }
        let receiver = self.receiver();
        receiver.as_ref().expect("it is up").reply(reply(mood));
    }

    /// One receiver may react in several ways, each for one event.
    fn tell_about(&self, moods: Vec<(EventId, Mood)>) {
        let receiver = self.receiver();
        receiver
            .as_ref()
            .expect("it is up")
            .reply_with(move |request| {
                let id = request.header("x-event-id").unwrap_or_default();
                let found = moods.iter().find(|(event, _)| event.to_string() == id);
                reply(found.map_or(Mood::Accept, |(_, mood)| *mood))
            });
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        let mut arrivals = self.before.lock().expect("no holder panics").clone();
        let received = self.receiver().as_ref().map(HttpReceiver::received);
        let taken = received.unwrap_or_default().into_iter();
        let taken = taken.filter(|request| request.answered == Some(200));
        arrivals.extend(taken.map(|request: Received| {
            Arrival {
                id: request
                    .header("x-event-id")
                    .expect("every request names its event")
                    .to_owned(),
                payload: Some(request.body),
            }
        }));
        arrivals
    }
}

fn reply(mood: Mood) -> HttpReply {
    match mood {
        Mood::Accept => HttpReply::status(200),
        Mood::Talk => HttpReply::status(200).large_body(1 << 20),
        Mood::Fail | Mood::Down => HttpReply::status(503),
        Mood::Refuse => HttpReply::status(400),
        Mood::Gone => HttpReply::status(410),
        Mood::Hang => HttpReply::status(200).after(Duration::from_hours(1)),
    }
}

pub(crate) struct PlainUnderTest {
    far_side: FarSide,
    sink: Arc<Plain>,
    moods: Mutex<Vec<(EventId, Mood)>>,
}

impl SinkUnderTest for PlainUnderTest {
    async fn fresh() -> Self {
        let far_side = FarSide::start().await;
        Self {
            sink: Arc::new(Plain::new(far_side.address)),
            far_side,
            moods: Mutex::default(),
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink) as Arc<dyn Sink>
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        self.far_side.tell(mood).await;
        true
    }

    async fn tell_about(&self, event: EventId, mood: Mood) -> bool {
        let mut moods = self.moods.lock().expect("no holder panics");
        moods.push((event, mood));
        self.far_side.tell_about(moods.clone());
        true
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        self.far_side.arrivals()
    }
}

hapax_testkit::sink_suite!(PlainUnderTest);
