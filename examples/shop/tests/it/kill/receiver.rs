//! Receiver of the shop's webhooks, which accepts each event once.
//!
//! The receiver verifies signatures, and has an inbox and a ledger. It runs in the process of the
//! test, so a kill of the shop does not affect it. While the faults last, it sometimes responds
//! slowly, and sometimes accepts an event and loses the response. The ledger records the lost
//! responses, because they explain duplicates.

use std::{
    collections::HashSet,
    net::SocketAddr,
    slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use hapax::{
    Timestamp,
    signature::{self, Received, TOLERANCE, Verifier},
};
use hapax_testkit::wait::pace;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};

use super::{journal::Stopwatch, shop::WEBHOOK_SECRET};

/// One delivery of an event.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) event_id: String,
    pub(super) body: Bytes,
    pub(super) arrived: Duration,
    /// The time of the response, or `None` if the shop died first.
    pub(super) answered: Option<Duration>,
    /// Whether the response was lost on purpose.
    pub(super) lost: bool,
}

impl Delivery {
    /// The body of the delivery: `{type, timestamp, data}`.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The records of the receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) deliveries: Vec<Delivery>,
    /// The ids of the events that had an effect, once per effect.
    pub(super) effects: Vec<String>,
    /// The reasons for which deliveries were rejected.
    pub(super) refusals: Vec<String>,
}

/// A running receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    desk: Arc<Desk>,
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl Receiver {
    pub(super) async fn start(stopwatch: Stopwatch, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let desk = Arc::new(Desk {
            stopwatch,
            key: WEBHOOK_SECRET.parse().expect("the secret is valid"),
            moods: Mutex::new(fastrand::Rng::with_seed(seed)),
            is_kind: AtomicBool::new(false),
            hold: Mutex::default(),
            inbox: Mutex::default(),
            ledger: Mutex::default(),
        });
        let listening = tokio::spawn(listen(listener, Arc::clone(&desk)));
        Self {
            desk,
            address,
            listening,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// From now on, responds to every delivery at once.
    pub(super) fn be_kind(&self) {
        self.desk.is_kind.store(true, Ordering::Relaxed);
    }

    /// Accepts the next delivery without a response, and sends a notification when this has
    /// happened.
    pub(super) fn hold_next(&self) -> oneshot::Receiver<()> {
        let (taken, is_taken) = oneshot::channel();
        *lock(&self.desk.hold) = Some(taken);
        is_taken
    }

    /// The number of events that have had an effect.
    pub(super) fn events(&self) -> usize {
        lock(&self.desk.inbox).len()
    }

    /// A copy of the records.
    pub(super) fn ledger(&self) -> Ledger {
        lock(&self.desk.ledger).clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

#[derive(Debug)]
struct Desk {
    stopwatch: Stopwatch,
    key: Verifier,
    moods: Mutex<fastrand::Rng>,
    is_kind: AtomicBool,
    hold: Mutex<Option<oneshot::Sender<()>>>,
    inbox: Mutex<HashSet<String>>,
    ledger: Mutex<Ledger>,
}

/// The behaviour of the receiver after it has accepted a delivery.
#[derive(Clone, Copy)]
enum Mood {
    Kind,
    /// Responds after this time.
    Slow(Duration),
    /// Closes the connection without a response.
    Loses,
}

impl Desk {
    async fn take(&self, request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Lost> {
        let arrived = self.stopwatch.read();
        let (parts, body) = request.into_parts();
        let Ok(body) = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
        else {
            // The shop died while it was sending the request, so nothing was accepted.
            return Err(Lost);
        };
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let received = Received {
            id: header(signature::ID_HEADER).unwrap_or_default(),
            timestamp: header(signature::TIMESTAMP_HEADER).unwrap_or_default(),
            signature: header(signature::SIGNATURE_HEADER).unwrap_or_default(),
            body: &body,
        };
        if let Err(error) =
            signature::verify(&received, slice::from_ref(&self.key), now(), TOLERANCE)
        {
            lock(&self.ledger)
                .refusals
                .push(format!("{}: {error}", received.id));
            return Ok(answer(StatusCode::UNAUTHORIZED));
        }
        let event_id = received.id.to_owned();
        let hold = lock(&self.hold).take();
        if let Some(taken) = hold {
            self.accept(event_id, body, arrived, Mood::Kind);
            // After the run, nothing waits for this notification any more.
            let _ = taken.send(());
            return std::future::pending().await;
        }
        let mood = self.mood();
        let place = self.accept(event_id, body, arrived, mood);
        match mood {
            Mood::Kind => {}
            Mood::Slow(wait) => pace(wait).await,
            Mood::Loses => return Err(Lost),
        }
        lock(&self.ledger).deliveries[place].answered = Some(self.stopwatch.read());
        Ok(answer(StatusCode::NO_CONTENT))
    }

    /// Records the delivery, and its effect if the inbox does not contain the event.
    fn accept(&self, event_id: String, body: Bytes, arrived: Duration, mood: Mood) -> usize {
        let is_first = lock(&self.inbox).insert(event_id.clone());
        let mut ledger = lock(&self.ledger);
        if is_first {
            ledger.effects.push(event_id.clone());
        }
        let lost = matches!(mood, Mood::Loses);
        ledger.deliveries.push(Delivery {
            event_id,
            body,
            arrived,
            answered: None,
            lost,
        });
        ledger.deliveries.len() - 1
    }

    fn mood(&self) -> Mood {
        if self.is_kind.load(Ordering::Relaxed) {
            return Mood::Kind;
        }
        let mut moods = lock(&self.moods);
        match moods.u8(0..100) {
            0..3 => Mood::Loses,
            3..10 => Mood::Slow(Duration::from_millis(moods.u64(2..80))),
            _ => Mood::Kind,
        }
    }
}

async fn listen(listener: TcpListener, desk: Arc<Desk>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let desk = Arc::clone(&desk);
        connections.spawn(async move {
            let service = service_fn(|request| desk.take(request));
            // An error is expected here, because the tests close connections early.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the response was lost on purpose")]
struct Lost;

fn answer(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}

#[expect(
    clippy::disallowed_methods,
    reason = "the receiver uses the system clock"
)]
pub(super) fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax::signature::{Signer, sign};
    use hapax_testkit::http::HttpClient;

    const BODY: &str = r#"{"type":"order.created","data":{"id":"ord_1"}}"#;

    #[tokio::test]
    async fn an_event_that_comes_twice_has_one_effect() {
        let receiver = Receiver::start(Stopwatch::start(), 0).await;
        receiver.be_kind();
        for _ in 0..2 {
            assert_eq!(post(&receiver, "ev_1", BODY).await, Some(204));
        }
        let ledger = receiver.ledger();
        assert_eq!(ledger.effects, ["ev_1"]);
        assert_eq!((ledger.deliveries.len(), receiver.events()), (2, 1));
        assert!(
            ledger
                .deliveries
                .iter()
                .all(|delivery| delivery.answered.is_some())
        );
    }

    #[tokio::test]
    async fn an_event_that_somebody_else_signed_has_none() {
        let receiver = Receiver::start(Stopwatch::start(), 0).await;
        let another = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
        assert_eq!(
            post_signed(&receiver, "ev_1", BODY, another).await,
            Some(401)
        );
        let ledger = receiver.ledger();
        assert_eq!((ledger.effects.len(), ledger.deliveries.len()), (0, 0));
        assert_eq!(ledger.refusals, ["ev_1: no signature matches"]);
    }

    #[tokio::test]
    async fn an_answer_that_is_lost_is_lost_after_the_effect_and_written_down() {
        let receiver = Receiver::start(Stopwatch::start(), 0).await;
        let mut lost = Vec::new();
        for number in 0..200 {
            let event_id = format!("ev_{number}");
            if post(&receiver, &event_id, BODY).await.is_none() {
                lost.push(event_id);
            }
        }
        let ledger = receiver.ledger();
        assert_eq!(ledger.effects.len(), 200);
        let noted = ledger
            .deliveries
            .into_iter()
            .filter(|delivery| delivery.lost);
        let noted: Vec<_> = noted.map(|delivery| delivery.event_id).collect();
        assert!(!lost.is_empty());
        assert_eq!(noted, lost);
    }

    async fn post(receiver: &Receiver, event_id: &str, body: &str) -> Option<u16> {
        post_signed(receiver, event_id, body, WEBHOOK_SECRET).await
    }

    async fn post_signed(
        receiver: &Receiver,
        event_id: &str,
        body: &str,
        secret: &str,
    ) -> Option<u16> {
        let signer: Signer = secret.parse().expect("the secret is valid");
        let seconds = now().as_secs();
        let signature = sign(event_id, seconds, body.as_bytes(), [&signer]);
        let headers = [
            (signature::ID_HEADER, event_id),
            (signature::TIMESTAMP_HEADER, &seconds.to_string()),
            (signature::SIGNATURE_HEADER, &signature),
        ];
        let answer = HttpClient::new()
            .post(&receiver.url(), &headers, body.to_owned())
            .await;
        answer.ok().map(|answer| answer.status)
    }
}
