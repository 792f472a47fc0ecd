//! The endpoints of a process: index, gate, transport and store, shared by the sink and the
//! dispatcher.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{counter, histogram};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, timeout},
};

use super::{
    excerpt::RequestExcerpt,
    filtering::Filtering,
    gate::{Gate, InFlight},
    index::Index,
    record::{Endpoint, EndpointChange},
    sent::Sent,
    settings::EndpointSettings,
    store::{EndpointAttempt, EndpointRecord, EndpointStore, FailingEndpoint, Recorded},
    transport::{BUSY, Exchange, Transport},
};
use crate::{
    clock::{Clock, Random, Timestamp},
    failpoint::Failpoints,
    limits::{
        ENDPOINT_DISABLE_SPANS, ENDPOINT_LATE, ENDPOINT_LOGGED, ENDPOINT_PAGE, ENDPOINT_REREAD,
    },
    outbox::OutboxEvent,
    sink::{Offer, SinkError},
    store::StoreError,
    telemetry,
};

const UNMADE: &str = "request to an endpoint cannot be made";
/// Minimum time between two warnings that this relay is busy.
const BUSY_WARNING: Duration = Duration::from_mins(1);
const UNFILTERED: &str = "filters of endpoints took too long for other events";

/// The endpoints of a process. Clones share everything.
#[derive(Clone)]
pub struct Endpoints(Arc<Inner>);

struct Inner {
    store: Arc<dyn EndpointStore>,
    transport: Arc<dyn Transport>,
    settings: EndpointSettings,
    clock: Clock,
    random: Random,
    failpoints: Failpoints,
    gate: Gate,
    index: Mutex<Index>,
    filtering: Filtering,
    refresh: Refresh,
    /// Wakes the dispatcher.
    wake: Notify,
    /// First attempts that ended after their events were put into the queue.
    late: mpsc::Sender<Sent>,
    late_end: Mutex<Option<mpsc::Receiver<Sent>>>,
    /// Attempts that wait for the log.
    logged: Mutex<Vec<EndpointAttempt>>,
    /// The last warning that this relay is busy.
    busy: Warning,
}

/// When a warning was last logged.
#[derive(Debug, Default)]
struct Warning(Mutex<Option<Instant>>);

/// Reads of the index: of several callers that need a current index, one reads it for those that
/// came before the read began.
#[derive(Debug, Default)]
struct Refresh {
    arrivals: AtomicU64,
    state: tokio::sync::Mutex<Refreshed>,
}

#[derive(Debug, Default)]
struct Refreshed {
    /// Callers up to this one have a current index.
    covered: u64,
    read_at: Option<Timestamp>,
}

impl Endpoints {
    /// Creates the endpoints of a store. `clock` is that of the store.
    pub fn new(
        store: Arc<dyn EndpointStore>,
        transport: Arc<dyn Transport>,
        settings: EndpointSettings,
        clock: Clock,
        random: Random,
        failpoints: Failpoints,
    ) -> Self {
        let (late, late_end) = mpsc::channel(ENDPOINT_LATE);
        Self(Arc::new(Inner {
            store,
            transport,
            gate: Gate::new(&settings),
            settings,
            clock,
            random,
            failpoints,
            index: Mutex::default(),
            filtering: Filtering::default(),
            refresh: Refresh::default(),
            wake: Notify::new(),
            late,
            late_end: Mutex::new(Some(late_end)),
            logged: Mutex::default(),
            busy: Warning::default(),
        }))
    }

    pub(super) fn store(&self) -> &dyn EndpointStore {
        &*self.0.store
    }

    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.0.transport
    }

    pub(super) fn settings(&self) -> &EndpointSettings {
        &self.0.settings
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(super) fn unit(&self) -> f64 {
        self.0.random.unit()
    }

    pub(super) fn hit(&self, failpoint: Failpoint) {
        let failpoints = &self.0.failpoints;
        match failpoint {
            Failpoint::QueueBefore => failpoints.hit("endpoints.queue.before"),
            Failpoint::QueueAfter => failpoints.hit("endpoints.queue.after"),
            Failpoint::ClaimBefore => failpoints.hit("endpoints.claim.before"),
            Failpoint::ClaimAfter => failpoints.hit("endpoints.claim.after"),
            Failpoint::SendBefore => failpoints.hit("endpoints.send.before"),
            Failpoint::SendAfter => failpoints.hit("endpoints.send.after"),
            Failpoint::SettleBefore => failpoints.hit("endpoints.settle.before"),
            Failpoint::SettleAfter => failpoints.hit("endpoints.settle.after"),
            Failpoint::ProbeBefore => failpoints.hit("endpoints.probe.before"),
            Failpoint::ProbeAfter => failpoints.hit("endpoints.probe.after"),
            Failpoint::RecoverBefore => failpoints.hit("endpoints.recover.before"),
            Failpoint::RecoverAfter => failpoints.hit("endpoints.recover.after"),
        }
    }

    /// Wakes the dispatcher.
    pub(super) fn wake(&self) {
        self.0.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.0.wake.notified().await;
    }

    /// The end of the late attempts, which one dispatcher has.
    pub(super) fn take_late_end(&self) -> Option<mpsc::Receiver<Sent>> {
        locked(&self.0.late_end).take()
    }

    /// Gives an attempt to the dispatcher.
    pub(super) async fn late(&self, sent: Sent) {
        // Without a dispatcher the row is due again when its lease is over.
        let _ended = self.0.late.send(sent).await;
    }

    /// Reads what has changed since the index was read, unless another caller does it for this one.
    /// When this returns, the index has every change that was committed before the call.
    pub(super) async fn refresh(&self) -> Result<(), StoreError> {
        let refresh = &self.0.refresh;
        let own = refresh.arrivals.fetch_add(1, Ordering::SeqCst) + 1;
        let mut state = refresh.state.lock().await;
        if state.covered >= own {
            return Ok(());
        }
        let covered = refresh.arrivals.load(Ordering::SeqCst);
        let now = self.0.clock.now();
        // The rows of deleted endpoints are kept for longer than this.
        let is_old = |at: Timestamp| now.since(at) > ENDPOINT_REREAD;
        // The index that is read from the beginning replaces the old one when it is complete.
        let mut reread = state.read_at.is_some_and(is_old).then(Index::default);
        loop {
            let (after, last) = match &reread {
                Some(index) => (index.version(), None),
                None => self.index().last_change(),
            };
            let changes = self.store().endpoint_changes(after, ENDPOINT_PAGE).await?;
            // A store that was set back draws the same versions again, for other changes.
            if last.is_some_and(|last| changes.iter().all(|it| it.id != last)) {
                tracing::info!("endpoints are read again: the store does not have the last change");
                reread = Some(Index::default());
                continue;
            }
            let is_last = changes.len() < ENDPOINT_PAGE;
            match &mut reread {
                Some(index) => changes.into_iter().for_each(|change| index.apply(change)),
                None => self.apply(changes),
            }
            if is_last {
                break;
            }
        }
        if let Some(index) = reread {
            *self.index() = index;
        }
        state.read_at = Some(now);
        state.covered = covered;
        Ok(())
    }

    fn apply(&self, changes: Vec<EndpointChange>) {
        let mut index = self.index();
        let known = index.version();
        for change in changes.into_iter().filter(|it| it.version > known) {
            self.0.gate.forget(&change.id);
            index.apply(change);
        }
    }

    /// The endpoints that take an event, by the index as it is. Filters of a large payload begin before
    /// `begin_by`.
    pub(super) async fn select(
        &self,
        event: &Arc<OutboxEvent>,
        begin_by: Instant,
    ) -> Result<Vec<Arc<Endpoint>>, SinkError> {
        let of_type = self.index().of_type(&event.event);
        let of_type = of_type.map_err(|error| SinkError::declined("endpoint", error))?;
        let taking = self.0.filtering.taking(&of_type, event, begin_by).await;
        taking.ok_or_else(|| SinkError::declined(BUSY, UNFILTERED))
    }

    /// An endpoint of a tenant, by the index as it is.
    pub(super) fn find(&self, tenant: &str, id: &str) -> Option<Arc<Endpoint>> {
        self.index().find(tenant, id)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        locked(&self.0.index)
    }

    /// Sends an event once.
    pub(super) async fn send(
        &self,
        endpoint: Arc<Endpoint>,
        offer: Offer,
        counted: u32,
        place: InFlight,
    ) -> Sent {
        let (started_at, began) = (self.0.clock.now(), Instant::now());
        self.hit(Failpoint::SendBefore);
        let sending = self.transport().send(&endpoint, &offer);
        let sent = timeout(self.settings().outlasting(), sending).await;
        self.hit(Failpoint::SendAfter);
        let exchange = sent.unwrap_or_else(|elapsed| Exchange {
            outcome: Err(SinkError::unavailable("timeout", elapsed)),
            is_made: true,
            request: RequestExcerpt::default(),
            prepared_in: Duration::ZERO,
        });
        let took = began.elapsed().saturating_sub(exchange.prepared_in);
        let sent = Sent {
            endpoint,
            number: offer.attempt,
            event: offer.event,
            counted,
            started_at,
            duration: took,
            exchange,
            is_probe: false,
            _place: place,
        };
        self.count(&sent);
        sent
    }

    fn count(&self, sent: &Sent) {
        let (id, took) = (&sent.endpoint.id, sent.duration);
        if let (false, Err(error)) = (sent.is_made(), &sent.exchange.outcome) {
            let is_busy = error.error_type() == BUSY;
            let error = error.error_chain();
            // Each delivery of a busy relay is tried again after seconds.
            if is_busy && !self.0.busy.is_due(Instant::now()) {
                tracing::debug!(endpoint = id, error, "{UNMADE}");
            } else {
                tracing::warn!(endpoint = id, error, "{UNMADE}");
            }
            return;
        }
        let outcome = sent.outcome().as_str();
        counter!(telemetry::ENDPOINTS_ATTEMPTS, "outcome" => outcome).increment(1);
        if sent.is_rejected() {
            return;
        }
        self.0.gate.ended(id, sent.is_delivered(), took);
        histogram!(telemetry::ENDPOINTS_ATTEMPT).record(took.as_secs_f64());
    }

    /// Adds a successful first attempt to the log, in the background. It is dropped if the log is
    /// far behind.
    pub(super) fn log(&self, attempt: EndpointAttempt) {
        if !self.settings().logs_successes {
            return;
        }
        let mut logged = locked(&self.0.logged);
        if logged.len() >= ENDPOINT_LOGGED {
            counter!(telemetry::ENDPOINTS_UNLOGGED).increment(1);
            return;
        }
        logged.push(attempt);
        if logged.len() == ENDPOINT_LOGGED / 8 {
            self.wake();
        }
    }

    /// Takes the attempts that wait for the log.
    pub(super) fn take_logged(&self) -> Vec<EndpointAttempt> {
        std::mem::take(&mut *locked(&self.0.logged))
    }

    /// Records deliveries and attempts, and disables the endpoints that have failed for long.
    pub(super) async fn record(&self, record: &mut EndpointRecord) -> Result<Recorded, StoreError> {
        record.failing_span = self.settings().failing_span();
        let recorded = self.store().record_deliveries(record).await?;
        for failing in &recorded.failing {
            self.disable_if_failing(failing).await;
        }
        Ok(recorded)
    }

    async fn disable_if_failing(&self, failing: &FailingEndpoint) {
        let settings = self.settings();
        let is_long = failing.failing_for >= settings.disable_after;
        let is_spread = failing.spans >= ENDPOINT_DISABLE_SPANS;
        if is_long && is_spread && failing.failures >= settings.disable_failures {
            let hours = failing.failing_for.as_secs() / 3600;
            let failures = failing.failures;
            let reason = format!("all {failures} attempts in {hours} hours failed");
            let probe_after = settings.probe.map(|(first, _)| first);
            let (id, version) = (&failing.id, failing.version);
            self.disable(id, version, &reason, probe_after).await;
        }
    }

    /// Disables a version of an endpoint, which is probed after `probe_after`. If that fails, the next
    /// failure of the endpoint tries again.
    pub(super) async fn disable(
        &self,
        endpoint: &str,
        version: i64,
        reason: &str,
        probe_after: Option<Duration>,
    ) {
        let store = self.store();
        let disabled = store.disable_endpoint(endpoint, version, reason, probe_after);
        match disabled.await {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!(
                    endpoint,
                    reason,
                    from_state = "enabled",
                    to_state = "disabled",
                    "endpoint disabled"
                );
                counter!(telemetry::ENDPOINTS_DISABLED).increment(1);
            }
            Err(error) => {
                let error = error.error_chain();
                tracing::warn!(endpoint, error, "endpoint cannot be disabled");
            }
        }
    }
}

impl Warning {
    /// Whether it is logged now, and not only at the debug level.
    fn is_due(&self, now: Instant) -> bool {
        let mut logged_at = locked(&self.0);
        let is_due = logged_at.is_none_or(|it| now.duration_since(it) >= BUSY_WARNING);
        if is_due {
            *logged_at = Some(now);
        }
        is_due
    }
}

/// A failpoint of the deliveries to endpoints.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failpoint {
    QueueBefore,
    QueueAfter,
    ClaimBefore,
    ClaimAfter,
    SendBefore,
    SendAfter,
    SettleBefore,
    SettleAfter,
    ProbeBefore,
    ProbeAfter,
    RecoverBefore,
    RecoverAfter,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints")
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_stays_busy_warns_once_a_minute() {
        let warning = Warning::default();
        let now = Instant::now();
        let due = [0, 1, 59, 60, 61, 120].map(|it| warning.is_due(now + Duration::from_secs(it)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }
}
