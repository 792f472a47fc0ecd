//! A round of first attempts: a batch of events, each to the endpoints that take it.
//!
//! The attempts of a batch run at the same time, as far as the process has places for them, and the
//! round waits for them as long as the settings allow. Attempts that have failed by then, are not over,
//! or could not begin become rows of the queue, in one transaction. An attempt that is not over
//! continues in its task; the dispatcher settles its row. The outcome of an event is a success once
//! each of its endpoints has it or has a row.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use metrics::counter;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    gate::{Entrance, InFlight, Permit},
    record::Endpoint,
    sent::Sent,
    service::{Endpoints, Failpoint},
    store::{EndpointRecord, NextStep, QueuedDelivery},
};
use crate::{
    sink::{Offer, Outcome, Receipt, SinkError},
    store::StoreError,
    telemetry,
};

/// How long filters begin to be applied to the large payloads of a batch. The filters of one event can take
/// seconds, and then the attempts follow: all of it has to end within the time limit of a batch.
const FILTERED: Duration = Duration::from_secs(10);

/// Delivers a batch of events.
pub(super) async fn deliver(endpoints: &Endpoints, offers: &[Offer]) -> Vec<Outcome> {
    if let Err(error) = endpoints.refresh().await {
        let error_chain = error.error_chain();
        let failed = offers.iter().map(|_| Err(store_failed(&error_chain)));
        return failed.collect();
    }
    let targets = targets(endpoints, offers).await;
    let mut round = Round::new(endpoints, offers, targets);
    round.begin();
    round.wait().await;
    round.hand_over();
    round.record().await
}

/// Endpoints, each with the index of an offer.
type Targets = VecDeque<(usize, Arc<Endpoint>)>;
/// Errors of events, by the index of the offer.
type Errors = BTreeMap<usize, SinkError>;

/// The state of a round.
struct Round<'a> {
    endpoints: &'a Endpoints,
    offers: &'a [Offer],
    /// Attempts that are not over: the index of the offer and the endpoint's id, with the endpoint.
    running: HashMap<(usize, String), (Arc<Endpoint>, Permit)>,
    /// Attempts that wait for a place in the process.
    waiting: Targets,
    /// When the last attempt began.
    begun_at: Instant,
    done: mpsc::Sender<(usize, Sent)>,
    ended: Option<mpsc::Receiver<(usize, Sent)>>,
    /// Set when the rows of this round are recorded, or cannot be.
    recorded: watch::Sender<bool>,
    record: EndpointRecord,
    /// The offers of which something is in `record`.
    queued: Vec<bool>,
    errors: Errors,
    /// Endpoints that want no more events, with their versions.
    gone: Vec<(String, i64)>,
}

impl<'a> Round<'a> {
    fn new(
        endpoints: &'a Endpoints,
        offers: &'a [Offer],
        (waiting, errors): (Targets, Errors),
    ) -> Self {
        let (done, ended) = mpsc::channel(waiting.len().max(1));
        Self {
            endpoints,
            offers,
            running: HashMap::new(),
            waiting,
            begun_at: Instant::now(),
            done,
            ended: Some(ended),
            recorded: watch::Sender::new(false),
            record: EndpointRecord::default(),
            queued: vec![false; offers.len()],
            errors,
            gone: Vec::new(),
        }
    }

    /// Begins an attempt at each endpoint that has a place. The others get rows, and so do those that
    /// catch up, whose events wait after the older ones. If only the process has no place, they wait for
    /// one.
    fn begin(&mut self) {
        for (place, endpoint) in std::mem::take(&mut self.waiting) {
            if endpoint.is_catching_up {
                self.queue(place, &endpoint, 0, Duration::ZERO);
                continue;
            }
            match self.endpoints.gate().enter_first(&endpoint.id) {
                Entrance::Open(entered) => self.attempt(place, endpoint, entered),
                Entrance::Closed => self.queue(place, &endpoint, 0, Duration::ZERO),
                Entrance::Full => self.waiting.push_back((place, endpoint)),
            }
        }
    }

    /// Begins the next attempt that waits, in a place of the process.
    fn begin_next(&mut self, permit: OwnedSemaphorePermit) {
        let Some((place, endpoint)) = self.waiting.pop_front() else {
            return;
        };
        match self.endpoints.gate().enter_with(&endpoint.id, permit) {
            Some(entered) => self.attempt(place, endpoint, entered),
            None => self.queue(place, &endpoint, 0, Duration::ZERO),
        }
    }

    fn attempt(&mut self, place: usize, endpoint: Arc<Endpoint>, entered: InFlight) {
        let running = (Arc::clone(&endpoint), entered.permit());
        self.running.insert((place, endpoint.id.clone()), running);
        self.begun_at = Instant::now();
        let (endpoints, done) = (self.endpoints.clone(), self.done.clone());
        let recorded = self.recorded.subscribe();
        // Each delivery counts its own attempts: the relay's may concern the store.
        let offer = Offer {
            attempt: 1,
            ..self.offers[place].clone()
        };
        tokio::spawn(async move {
            let sent = endpoints.send(endpoint, offer, 1, entered).await;
            report(&endpoints, place, sent, &done, recorded).await;
        });
    }

    /// Waits for the attempts, until the first of: all are over, the patience is over.
    async fn wait(&mut self) {
        let (patience, gate) = (
            self.endpoints.settings().patience,
            self.endpoints.gate().clone(),
        );
        let deadline = Instant::now() + patience;
        let Some(mut ended) = self.ended.take() else {
            return;
        };
        while !(self.running.is_empty() && self.waiting.is_empty()) {
            let waits = !self.waiting.is_empty();
            // An attempt that has waited for its place has all of the patience too.
            let until = if waits {
                deadline
            } else {
                self.begun_at + patience
            };
            tokio::select! {
                Some((place, sent)) = ended.recv(), if !self.running.is_empty() => {
                    self.note(place, &sent);
                }
                permit = gate.vacancy(), if waits => self.begin_next(permit),
                () = sleep_until(until) => {
                    if !waits {
                        break;
                    }
                    for (place, endpoint) in std::mem::take(&mut self.waiting) {
                        self.queue(place, &endpoint, 0, Duration::ZERO);
                    }
                }
            }
        }
        // From here on an attempt that ends is late. One that is just being reported is not lost:
        // the channel ends after it.
        ended.close();
        while let Some((place, sent)) = ended.recv().await {
            self.note(place, &sent);
        }
    }

    /// Notes an attempt that is over.
    fn note(&mut self, place: usize, sent: &Sent) {
        self.running.remove(&(place, sent.endpoint.id.clone()));
        let attempt = sent.attempt();
        if sent.is_delivered() {
            if let Some(attempt) = attempt {
                self.endpoints.log(attempt);
            }
            return;
        }
        self.record.attempts.extend(attempt);
        let next = sent.next(self.endpoints.settings(), self.endpoints.unit());
        self.record.queue.push(sent.queued(next));
        self.queued[place] = true;
        if sent.is_gone() {
            self.gone.push(sent.version());
        }
    }

    /// Gives a row to each attempt that is not over. It belongs to the attempt until its lease is
    /// over.
    fn hand_over(&mut self) {
        let lease = self.endpoints.settings().lease();
        for ((place, id), (endpoint, permit)) in std::mem::take(&mut self.running) {
            self.endpoints.gate().mark_slow(&id, &permit);
            self.queue(place, &endpoint, 1, lease);
        }
    }

    fn queue(&mut self, place: usize, endpoint: &Endpoint, attempt: u32, wait: Duration) {
        let event = &self.offers[place].event;
        self.record.queue.push(QueuedDelivery {
            endpoint: endpoint.id.clone(),
            position: event.position,
            event_id: event.event.id,
            attempt,
            next: NextStep::Retry(wait),
            error: None,
        });
        self.queued[place] = true;
    }

    /// Records the rows, and returns the outcomes.
    async fn record(mut self) -> Vec<Outcome> {
        if !self.record.is_empty() {
            self.endpoints.hit(Failpoint::QueueBefore);
            let recorded = self.endpoints.record(&mut self.record).await;
            self.endpoints.hit(Failpoint::QueueAfter);
            match recorded {
                Ok(recorded) => self.is_recorded(&recorded.missing),
                Err(error) => self.is_not_recorded(&error),
            }
        }
        self.recorded.send_replace(true);
        for (endpoint, version) in &self.gone {
            self.endpoints.disable(endpoint, *version, GONE, None).await;
        }
        let places = 0..self.offers.len();
        let outcome = |place| match self.errors.remove(&place) {
            Some(error) => Err(error),
            None => Ok(Receipt::default()),
        };
        places.map(outcome).collect()
    }

    fn is_recorded(&mut self, missing: &[i64]) {
        let count = self.record.queue.len() - missing.len().min(self.record.queue.len());
        counter!(telemetry::ENDPOINTS_QUEUED).increment(count as u64);
        for (place, offer) in self.offers.iter().enumerate() {
            if self.queued[place] && missing.contains(&offer.event.position) {
                let error = SinkError::unavailable("no_event", "the event is not in the outbox");
                self.errors.insert(place, error);
            }
        }
        let is_due = |it: &QueuedDelivery| it.next == NextStep::Retry(Duration::ZERO);
        if self.record.queue.iter().any(is_due) {
            self.endpoints.wake();
        }
    }

    fn is_not_recorded(&mut self, error: &StoreError) {
        let error_chain = error.error_chain();
        for (place, is_queued) in self.queued.iter().enumerate() {
            if *is_queued {
                self.errors.insert(place, store_failed(&error_chain));
            }
        }
    }
}

/// The endpoints of each event, with the index of its offer. Events of an unreadable endpoint's tenant, and
/// those whose filters could not be applied in time, have errors: they are offered again as a whole.
async fn targets(endpoints: &Endpoints, offers: &[Offer]) -> (Targets, Errors) {
    let (mut targets, mut errors) = (VecDeque::new(), BTreeMap::new());
    let begin_by = Instant::now() + FILTERED;
    for (place, offer) in offers.iter().enumerate() {
        match endpoints.select(&offer.event, begin_by).await {
            Ok(selected) => targets.extend(selected.into_iter().map(|it| (place, it))),
            Err(error) => {
                errors.insert(place, error);
            }
        }
    }
    (targets, errors)
}

/// Why an endpoint that responds with 410 is disabled.
pub(super) const GONE: &str = "the endpoint responded with 410 Gone";

/// Gives an attempt to its round, or to the dispatcher if the round does not wait any more.
async fn report(
    endpoints: &Endpoints,
    place: usize,
    sent: Sent,
    done: &mpsc::Sender<(usize, Sent)>,
    mut recorded: watch::Receiver<bool>,
) {
    let Err(refused) = done.try_send((place, sent)) else {
        return;
    };
    // The row exists when the round has recorded it. A round that was dropped has no rows.
    let _is_recorded = recorded.wait_for(|it| *it).await.is_ok();
    let (_, sent) = refused.into_inner();
    endpoints.late(sent).await;
}

fn store_failed(error_chain: &str) -> SinkError {
    SinkError::unavailable("store", error_chain.to_owned())
}
