//! The dispatcher: sends what waits in the queue, and records how attempts ended.
//!
//! There is one for each process whose relay has a destination for endpoints. It claims deliveries
//! that are due, endpoint by endpoint, sends them, and settles them. A process that dies after a claim
//! and before the settlement leaves the delivery claimed; it is due again when its lease is over, and
//! the attempt counts.

use std::{sync::Arc, time::Duration};

use metrics::{counter, gauge};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    gate::InFlight,
    record::Endpoint,
    recovery::Recovery,
    round::GONE,
    search::Search,
    sent::{Sent, unsent},
    service::{Endpoints, Failpoint},
    store::{ClaimedDelivery, DeliveryClaim, EndpointRecord, NextStep, SettledDelivery},
};
use crate::{
    keyring::ENCRYPTED_UNDER,
    limits::{
        ENDPOINT_CLAIM, ENDPOINT_END, ENDPOINT_LOGGED, ENDPOINT_LOOK, ENDPOINT_PROBE_LOOK,
        ENDPOINT_PROBES, ENDPOINT_REPORT, STORE_BACKOFF,
    },
    outbox::OutboxEvent,
    retry::{Delays, Next},
    sink::Offer,
    store::StoreError,
    telemetry,
};

/// The error of a delivery whose last attempt left no outcome.
const INTERRUPTED: &str = "the relay ended before its last attempt did";
const UNDECRYPTABLE: &str = "no key of the keyring decrypts the payload";
/// Wait before a probe is made again with an event that it could not send. Until then, probes are made with
/// the events after it.
const UNDECRYPTABLE_WAIT: Duration = Duration::from_hours(1);

impl Endpoints {
    /// Sends what waits in the queue, until `stop` is ready. It begins when a destination has the
    /// sink. Only the first call for the same endpoints does anything.
    pub async fn run(&self, fan_out: &super::FanOut, stop: impl Future<Output = ()> + Send) {
        let Some(late) = self.take_late_end() else {
            return;
        };
        let mut stop = std::pin::pin!(stop);
        let mut in_use = fan_out.in_use();
        let begins = async { in_use.wait_for(|in_use| *in_use).await.is_ok() };
        let begins = tokio::select! {
            () = &mut stop => false,
            begins = begins => begins,
        };
        if !begins {
            return;
        }
        let mut dispatcher = Dispatcher::new(self.clone(), late);
        tokio::select! {
            () = &mut stop => {}
            () = dispatcher.dispatch() => {}
            () = self.keep_up() => {}
        }
        dispatcher.end().await;
    }
}

struct Dispatcher {
    endpoints: Endpoints,
    running: JoinSet<Sent>,
    late: mpsc::Receiver<Sent>,
    /// What is recorded next.
    pending: EndpointRecord,
    /// What is recorded now. It is kept until that has succeeded.
    recording: EndpointRecord,
    /// Endpoints that want no more events, with their versions.
    gone: Vec<(String, i64)>,
    /// Probes that have ended, and endpoints that may have caught up.
    recovery: Recovery,
    search: Search,
    look_at: Instant,
    probe_at: Instant,
    report_at: Instant,
    /// Pauses after the store has failed.
    backoff: Delays,
    record_at: Instant,
}

impl Dispatcher {
    fn new(endpoints: Endpoints, late: mpsc::Receiver<Sent>) -> Self {
        let now = Instant::now();
        Self {
            endpoints,
            running: JoinSet::new(),
            late,
            pending: EndpointRecord::default(),
            recording: EndpointRecord::default(),
            gone: Vec::new(),
            recovery: Recovery::default(),
            search: Search::default(),
            look_at: now,
            probe_at: now,
            report_at: now,
            backoff: Delays::new(STORE_BACKOFF),
            record_at: now,
        }
    }

    async fn dispatch(&mut self) {
        loop {
            self.wait().await;
            self.gather();
            if Instant::now() >= self.record_at {
                self.record().await;
            }
            if Instant::now() >= self.look_at {
                self.look().await;
            }
            if Instant::now() >= self.probe_at {
                self.probe().await;
            }
            self.report().await;
        }
    }

    /// Waits for the end of an attempt, a notification, or the time of the next search.
    async fn wait(&mut self) {
        let endpoints = self.endpoints.clone();
        let ended = tokio::select! {
            Some(ended) = self.running.join_next() => ended.ok(),
            Some(late) = self.late.recv() => Some(late),
            () = endpoints.woken() => None,
            () = sleep_until(self.look_at) => return,
        };
        // The place that is free now may be for a delivery that is due.
        self.look_at = Instant::now().max(self.record_at);
        if let Some(sent) = ended {
            self.note(&sent);
        }
    }

    /// Notes all other attempts that have ended.
    fn gather(&mut self) {
        while let Some(ended) = self.running.try_join_next() {
            if let Ok(sent) = ended {
                self.note(&sent);
            }
        }
        while let Ok(sent) = self.late.try_recv() {
            self.note(&sent);
        }
        let logged = self.endpoints.take_logged();
        self.pending.attempts.extend(logged);
    }

    fn note(&mut self, sent: &Sent) {
        let next = sent.next(self.endpoints.settings(), self.endpoints.unit());
        self.pending.settle.push(sent.settled(next));
        self.pending.attempts.extend(sent.attempt());
        self.recovery.note(sent, next);
        if sent.is_gone() && !sent.is_probe {
            self.gone.push(sent.version());
        }
    }

    /// Records what is pending. If the store fails, it is recorded later; the log of attempts is
    /// bounded.
    async fn record(&mut self) {
        if self.recording.is_empty() {
            self.recording = std::mem::take(&mut self.pending);
        }
        if self.recording.is_empty() {
            return;
        }
        self.endpoints.hit(Failpoint::SettleBefore);
        let recorded = self.endpoints.record(&mut self.recording).await;
        self.endpoints.hit(Failpoint::SettleAfter);
        match recorded {
            Ok(_) => {
                self.recording = EndpointRecord::default();
                self.backoff.reset();
                for (endpoint, version) in std::mem::take(&mut self.gone) {
                    let endpoints = &self.endpoints;
                    endpoints.disable(&endpoint, version, GONE, None).await;
                }
                // What is pending may contain the deliveries of probes that have ended.
                if self.pending.is_empty() {
                    self.recovery.apply(&self.endpoints).await;
                }
            }
            Err(error) => {
                self.failed("deliveries to endpoints cannot be recorded", &error);
                let dropped = self.pending.attempts.len().saturating_sub(ENDPOINT_LOGGED);
                self.pending.attempts.drain(..dropped);
                counter!(telemetry::ENDPOINTS_UNLOGGED).increment(dropped as u64);
            }
        }
    }

    /// Claims deliveries that are due, and begins their attempts.
    async fn look(&mut self) {
        self.look_at = Instant::now() + ENDPOINT_LOOK;
        let limit = self.endpoints.gate().room().min(ENDPOINT_CLAIM);
        if limit == 0 {
            return;
        }
        if let Err(error) = self.endpoints.refresh().await {
            return self.failed("endpoints cannot be read", &error);
        }
        let (busy, single) = self.endpoints.gate().held();
        let claim = DeliveryClaim {
            after: self.search.after().to_owned(),
            limit,
            each: self.endpoints.settings().concurrency.max(1),
            single,
            busy,
            lease: self.endpoints.settings().lease(),
        };
        self.endpoints.hit(Failpoint::ClaimBefore);
        let claimed = self.endpoints.store().claim_deliveries(&claim).await;
        self.endpoints.hit(Failpoint::ClaimAfter);
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(error) => return self.failed("deliveries to endpoints cannot be claimed", &error),
        };
        self.backoff.reset();
        if self.search.continues(&claimed, limit) {
            self.look_at = Instant::now();
        }
        // One that was enabled or created between the two reads is found by a third one.
        if claimed
            .deliveries
            .iter()
            .any(|it| self.target(it).is_none())
            && let Err(error) = self.endpoints.refresh().await
        {
            self.failed("endpoints cannot be read", &error);
        }
        for delivery in claimed.deliveries {
            self.begin(delivery);
        }
    }

    /// Claims the probes that are due, and begins them.
    async fn probe(&mut self) {
        self.probe_at = Instant::now() + ENDPOINT_PROBE_LOOK;
        let limit = self.endpoints.gate().room().min(ENDPOINT_PROBES);
        let (is_on, lease) = {
            let settings = self.endpoints.settings();
            (settings.probe.is_some(), settings.lease())
        };
        if !is_on || limit == 0 {
            return;
        }
        self.endpoints.hit(Failpoint::ProbeBefore);
        let claimed = self.endpoints.store().claim_probes(limit, lease).await;
        self.endpoints.hit(Failpoint::ProbeAfter);
        let claimed = match claimed {
            Ok(claimed) if claimed.is_empty() => return,
            Ok(claimed) => claimed,
            Err(error) => return self.failed("probes of endpoints cannot be claimed", &error),
        };
        if let Err(error) = self.endpoints.refresh().await {
            self.failed("endpoints cannot be read", &error);
        }
        for delivery in claimed {
            self.begin_probe(delivery);
        }
    }

    fn begin_probe(&mut self, delivery: ClaimedDelivery) {
        let event = match &delivery.event {
            Ok(event) if event.event.headers.contains_key(ENCRYPTED_UNDER) => {
                Err(UNDECRYPTABLE.to_owned())
            }
            Ok(event) => Ok(Arc::clone(event)),
            Err(problem) => Err(problem.clone()),
        };
        let event = match event {
            Ok(event) => event,
            // The next probe sends another event. Another relay may have the key of this one.
            Err(problem) => {
                return self.skip(delivery, NextStep::Postpone(UNDECRYPTABLE_WAIT), problem);
            }
        };
        // One that was enabled, changed or deleted since gets its delivery when the lease is over.
        let Some(endpoint) = self.found(&delivery).filter(|it| !it.is_enabled) else {
            return;
        };
        if let Some(place) = self.endpoints.gate().enter_retry(&endpoint.id) {
            self.spawn(endpoint, event, &delivery, place, true);
        }
    }

    /// The endpoint of a delivery.
    fn found(&self, delivery: &ClaimedDelivery) -> Option<Arc<Endpoint>> {
        let event = delivery.event.as_ref().ok()?;
        let tenant = event.event.tenant.as_ref()?;
        self.endpoints.find(tenant.as_str(), &delivery.endpoint)
    }

    /// The endpoint of a delivery, if it is enabled.
    fn target(&self, delivery: &ClaimedDelivery) -> Option<Arc<Endpoint>> {
        self.found(delivery).filter(|it| it.is_enabled)
    }

    fn begin(&mut self, delivery: ClaimedDelivery) {
        let attempts_max = self.endpoints.settings().schedule.attempts_max();
        let event = match &delivery.event {
            Ok(event) => Arc::clone(event),
            Err(problem) => {
                let (wait, problem) = (self.wait_after(delivery.counted), problem.clone());
                return self.skip(delivery, wait, problem);
            }
        };
        if delivery.counted > attempts_max {
            return self.skip(delivery, NextStep::Failed, INTERRUPTED.to_owned());
        }
        // Another relay may have the key, and so may this one when it is started again.
        if event.event.headers.contains_key(ENCRYPTED_UNDER) {
            let next = self.wait_after(delivery.counted);
            if next == NextStep::Failed {
                let line = unsent(&delivery, &event, UNDECRYPTABLE, self.endpoints.now());
                self.pending.attempts.push(line);
            }
            return self.skip(delivery, next, UNDECRYPTABLE.to_owned());
        }
        // It was disabled or deleted after the claim. The lease ends, and nothing claims it.
        let Some(endpoint) = self.target(&delivery) else {
            return;
        };
        let Some(place) = self.endpoints.gate().enter_retry(&endpoint.id) else {
            return;
        };
        self.spawn(endpoint, event, &delivery, place, false);
    }

    fn spawn(
        &mut self,
        endpoint: Arc<Endpoint>,
        event: Arc<OutboxEvent>,
        delivery: &ClaimedDelivery,
        place: InFlight,
        is_probe: bool,
    ) {
        let offer = Offer {
            event,
            attempt: delivery.attempt,
            trace: None,
        };
        let (endpoints, counted) = (self.endpoints.clone(), delivery.counted);
        self.running.spawn(async move {
            let sent = endpoints.send(endpoint, offer, counted, place).await;
            Sent { is_probe, ..sent }
        });
    }

    /// Settles a claimed delivery that is not sent.
    fn skip(&mut self, delivery: ClaimedDelivery, next: NextStep, error: String) {
        tracing::warn!(
            endpoint = delivery.endpoint,
            event_id = %delivery.event_id,
            error,
            "delivery to an endpoint is not sent"
        );
        self.pending.settle.push(SettledDelivery {
            endpoint: delivery.endpoint,
            event_id: delivery.event_id,
            attempt: delivery.attempt,
            next,
            error: Some(error),
        });
    }

    fn wait_after(&self, counted: u32) -> NextStep {
        let (settings, unit) = (self.endpoints.settings(), self.endpoints.unit());
        match settings.schedule.after(counted, unit, None) {
            Next::Retry(wait) => NextStep::Retry(wait),
            Next::DeadLetter => NextStep::Failed,
        }
    }

    /// Logs a failure of the store, and waits before it is used again.
    fn failed(&mut self, what: &'static str, error: &StoreError) {
        let error = error.error_chain();
        tracing::warn!(error, "{what}");
        let pause_until = Instant::now() + self.backoff.advance();
        self.record_at = pause_until;
        self.look_at = pause_until;
    }

    /// Sets the gauges.
    async fn report(&mut self) {
        let now = Instant::now();
        if now < self.report_at {
            return;
        }
        self.report_at = now + ENDPOINT_REPORT;
        match self.endpoints.store().endpoint_backlog().await {
            Ok(backlog) => {
                gauge!(telemetry::ENDPOINTS_WAITING).set(float(backlog.waiting));
                gauge!(telemetry::ENDPOINTS_OVERDUE).set(backlog.overdue.as_secs_f64());
                gauge!(telemetry::ENDPOINTS_KNOWN).set(float(backlog.endpoints));
                gauge!(telemetry::ENDPOINTS_DISABLED_NOW).set(float(backlog.disabled));
                gauge!(telemetry::ENDPOINTS_SLOWED_NOW).set(float(backlog.slowed));
            }
            Err(error) => self.failed("the queue of endpoints cannot be counted", &error),
        }
    }

    /// Waits for the attempts in flight for a short time, and records how they ended. The others are
    /// due again when their leases are over.
    async fn end(&mut self) {
        let deadline = Instant::now() + ENDPOINT_END;
        while let Ok(Some(ended)) = timeout_at(deadline, self.running.join_next()).await {
            if let Ok(sent) = ended {
                self.note(&sent);
            }
        }
        self.running.abort_all();
        self.gather();
        // A batch that was being recorded comes first.
        for _ in 0..2 {
            self.record().await;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
fn float(count: u64) -> f64 {
    count as f64
}
